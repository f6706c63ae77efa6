"""One TCP connection; both peers send requests and answers (NettyRemotingAbstract in 4.9.7).

Owns both directions. All complete frames of one read are handled in one go, and everything that a turn of the loop
sends leaves in one write. Calls are matched by opaque. A peer that does not read its replies is not read from: its
further requests wait, in order, until it reads again. ``ProtocolError``, raised for malformed bytes, closes this
connection and affects no other; ``Refused`` is an answer.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.header import Header
from eruca.remoting.addresses import peer_of
from eruca.remoting.byte_budget import Budgets
from eruca.remoting.calls import Answer, Calls, PendingCall, Receiver
from eruca.remoting.keepalive import keep_alive, probe
from eruca.remoting.log import log
from eruca.remoting.pieces import Pieces
from eruca.remoting.request import OURS, Call, Reply
from eruca.remoting.rpc_hooks import Renamer, Signer, sign
from eruca.remoting.tls import HELLO, WORDS, TlsWords, why_ended

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)

HAND_OVER = 1024 * 1024
"""Unsent bytes above which a turn of the loop writes at once."""
WRITE_HIGH_WATER = 4 * 1024 * 1024
"""Buffered bytes above which a peer is congested: it is not served until it reads."""
_JOIN_UP_TO = 16 * 1024
_LINGER = 0.02
"""Seconds between two checks whether a closing TLS connection has sent everything."""
_NO_TLS = "it speaks TLS: name a certificate in tls.server.certPath here, or let it connect with tls.enable=false"
_prefix = struct.Struct(">II").unpack_from
_LONGEST_HEADER = 8 + frame.MAX_HEADER
"""The bytes of a frame before its body, at most."""
_MSGPACK_OFFER = {frame.OFFER_FIELD: "msgpack"}


FastPath = Callable[["Connection", bytes, int], int]
"""Handles frequent frames, many at once, before they are read one by one.

Called with a connection, what was read from it, and the offset where a frame begins; frames that come later in the
buffer may be incomplete. It handles as many frames as it can, requests or replies, and returns the offset of the first
one that it leaves to the router: the same offset when it handled none. It sends replies by ``Connection.send``. A fast
path that counts heartbeats (34) without reading them:

    def count_heartbeats(connection: Connection, data: bytes, at: int) -> int:
        while (found := frame.split(data, at)) is not None and data[found[1]:].startswith(b'{"code":34,'):
            beats[connection] += 1
            at = found[3]
        return at
"""


class Dispatcher(Protocol):
    """What serves the requests of a connection: a ``Router``."""

    reader: frame.RequestReader
    fast_path: FastPath | None

    def dispatch(
        self, connection: Connection, head: frame.Head[Any], serialization: int, data: bytes, body: bytes
    ) -> None:
        """Answer one request by ``connection.reply``, now or later."""


class Connection(asyncio.Protocol):
    """A connection to a peer.

    ``dispatcher`` answers the peer's requests. ``remote`` and ``local`` are ``ip:port``. ``congested`` is whether the
    peer does not read what is sent to it. With ``offer`` the first request offers Eruca's own header serialization,
    which is used if the peer accepts; else ``serialization`` is used. Requests are first renamed by ``rename`` and then
    signed by ``signer``, if those are given. What it holds of the peer's bytes counts in the ``budgets`` of a daemon.
    ``tls_words`` are those of the sentence about its end.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        on_made: Callable[[Connection], None] | None = None,
        on_lost: Callable[[Connection], None] | None = None,
        serialization: int = frame.JSON,
        offer: bool = False,
        signer: Signer | None = None,
        rename: Renamer | None = None,
        budgets: Budgets | None = None,
        tls_words: TlsWords = WORDS,
    ) -> None:
        self.closed = False
        self.congested = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._flushing = False
        self._relief: asyncio.Future[None] | None = None
        self.remote = self.local = ""
        self.tasks: set[asyncio.Future[Any]] = set()
        self.last_active = self._loop.time()
        self.partial_since: float | None = None
        self._dispatcher = dispatcher
        self.reader = dispatcher.reader
        self._on_made = on_made
        self._on_lost: list[Callable[[Connection], None]] = [on_lost] if on_lost is not None else []
        self.serialization = serialization
        self.offers = self._offering = offer
        self._offered: set[int] = set()
        self._accepting: int | None = None  # the opaque of the request that offered msgpack
        self._seen_first = False
        self.signer = signer
        self.rename = rename
        self._rest = Pieces()
        self._need = 0
        self._held_up = False  # the frames in _rest wait until the peer reads
        self._budgets = budgets
        self._tls_words = tls_words
        self._opaque = 0
        self.calls = Calls(self._loop)

    @property
    def unsent(self) -> int:
        """Bytes that are written at the end of this turn of the loop."""
        return self._out_size

    @property
    def buffered(self) -> int:
        """Bytes that have not left yet because the peer does not read."""
        return self._out_size + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    @property
    def unfinished(self) -> int:
        """Memory of what was received and is no whole frame yet, or waits until the peer reads."""
        return self._rest.taken

    @property
    def state(self) -> str:
        """What it is doing: congested (the peer does not read), half_frame, handling (a request waits), or idle."""
        if self.congested:
            return "congested"
        if self.partial_since is not None:
            return "half_frame"
        return "handling" if self.tasks else "idle"

    @property
    def encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    def keep_alive(self) -> None:
        """Let the kernel end the connection if the peer vanishes; accepted connections do that anyway."""
        if self._transport is not None and not self.closed:
            with suppress(OSError):  # it has ended meanwhile
                keep_alive(self._transport.get_extra_info("socket"))

    def probe(self) -> None:
        """Let the connection end within seconds if its peer has vanished without a word."""
        if self._transport is not None and not self.closed:
            with suppress(OSError):
                probe(self._transport.get_extra_info("socket"))

    @property
    def ending(self) -> bool:
        """Whether new data is no longer sent."""
        return self.closed or self._transport is None or self._transport.is_closing()

    # ------------------------------------------------------------------ calling

    def start_call(
        self, endpoint: Endpoint[A, R], ask: A | None = None, body: bytes = b"", *, timeout: float = 3.0
    ) -> asyncio.Future[Answer[R]]:
        """Send a request; the future ends with the answer.

        ``timeout`` in seconds. The future raises Refused if the peer answers with a code that the endpoint does not
        accept, CallTimedOut, or ConnectionLost.
        """
        future: asyncio.Future[Answer[R]] = self._loop.create_future()
        self.call_for(future, endpoint, ask, body, timeout=timeout)
        return future

    def call_for(
        self,
        receiver: Receiver[Answer[R]],
        endpoint: Endpoint[A, R],
        ask: A | None = None,
        body: bytes = b"",
        *,
        timeout: float = 3.0,
    ) -> None:
        """Send a request whose answer, or error as in ``start_call``, goes to ``receiver`` as soon as it is read."""
        if self.closed:
            self.calls.too_late(receiver)
            return
        opaque = self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        self._send_request(endpoint, ask, body, opaque, 0)
        self.calls.add(opaque, receiver, endpoint, timeout)

    async def call(
        self, endpoint: Endpoint[A, R], ask: A | None = None, body: bytes = b"", *, timeout: float = 3.0
    ) -> Answer[R]:
        """Send a request and wait for its answer; errors as in ``start_call``."""
        return await self.start_call(endpoint, ask, body, timeout=timeout)

    def oneway(self, endpoint: Endpoint[A, Any], ask: A | None = None, body: bytes = b"") -> None:
        """Send a request that wants no answer; dropped if the connection is closed."""
        if not self.closed:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            self._send_request(endpoint, ask, body, self._opaque, frame.ONEWAY_FLAG)

    def reserve(self, count: int) -> range:
        """``count`` opaques for requests that the caller encodes and then sends by ``call_many``."""
        first = self._opaque + 1
        if first + count > 0x7FFFFFFF:
            first = 0
        self._opaque = first + count - 1
        return range(first, first + count)

    def call_many(
        self, frames: list[bytes], calls: Mapping[int, PendingCall], deadline: float, *, flush: bool = True
    ) -> None:
        """Send requests that are encoded already, in one write.

        ``frames`` are the pieces of their frames, ``calls`` who receives the answers, by opaque; a one-way request has
        none. ``deadline`` is the earliest one of the calls, by the loop's time. Without ``flush`` they leave at the end
        of this turn of the loop.
        """
        if self.closed:
            for call in calls.values():
                self.calls.too_late(call.receiver)
            return
        self._out += frames
        self._out_size += sum(map(len, frames))
        if calls:
            self.calls.add_many(calls, deadline)
        if flush:
            self._flush()
        else:
            self._flush_soon()

    def encode(self, endpoint: Endpoint[A, Any], ask: A | None, body: bytes, opaque: int, flag: int = 0) -> bytes:
        """Everything of a request's frame before its body, with the names and the signature that the peer expects.

        Raises ProtocolError when the frame would be too long.
        """
        extra: Mapping[str, str] | None = None
        serialization = self.serialization
        header: Header | None = ask if ask is None or self.rename is None else self.rename(ask)
        if self._offering and not flag:
            self._offering = False
            self._offered.add(opaque)
            extra, serialization = _MSGPACK_OFFER, frame.JSON
        if self.signer is not None:
            header, extra = None, sign(self.signer, header, extra, serialization, body)
        if endpoint.encode is not None and header is not None and extra is None:
            return endpoint.encode(serialization, endpoint.code, opaque, flag, header, len(body))
        return frame.encode(serialization, endpoint.code, opaque, flag, header, len(body), None, extra)

    def _send_request(self, endpoint: Endpoint[A, Any], ask: A | None, body: bytes, opaque: int, flag: int) -> None:
        head = self.encode(endpoint, ask, body, opaque, flag)
        self._out.append(head)
        if body:
            self._out.append(body)
        self._out_size += len(head) + len(body)
        self._flush_soon()

    # ------------------------------------------------------------------ answering

    @property
    def negotiating(self) -> bool:
        """Whether the reply is still to be sent that accepts the peer's offer of a serialization."""
        return self._accepting is not None

    def reply(self, call: Call[Any], reply: Reply) -> None:
        """Send the reply to a request; a one-way request gets none."""
        asked = call.head
        if self.closed or asked.flag & frame.ONEWAY_FLAG:
            return
        body = reply.body
        header = reply.header
        size = len(body) if isinstance(body, bytes) else sum([len(piece) for piece in body])
        try:
            if reply.code or reply.remark is not None or reply.by is not OURS or self._accepting is not None:
                head = self._encode_reply(call, reply, size)
            else:
                head = frame.encode_reply(call.serialization, asked.opaque, header, size)
        except (ProtocolError, UnicodeEncodeError) as error:  # too long, or half a surrogate pair in it
            size = 0
            head = self._encode_reply(call, Reply(ResponseCode.SYSTEM_ERROR, remark=str(error)), 0)
        self._out.append(head)
        if size:
            if isinstance(body, bytes):
                self._out.append(body)
            else:
                self._out.extend(body)
        self._out_size += len(head) + size
        self._flush_soon()

    def _encode_reply(self, call: Call[Any], reply: Reply, size: int) -> bytes:
        extra = None
        if self._accepting is not None and self._accepting == call.opaque:
            self._accepting, extra = None, _MSGPACK_OFFER
        return frame.encode(
            call.serialization,
            reply.code,
            call.opaque,
            frame.RESPONSE_FLAG,
            reply.header,
            size,
            reply.remark,
            extra,
            *reply.by,
        )

    # ------------------------------------------------------------------ writing

    def send(self, whole: bytes) -> None:
        """Send an encoded frame, such as a reply of a fast path; dropped if the connection is closed."""
        if not self.closed:
            self._out.append(whole)
            self._out_size += len(whole)
            self._flush_soon()

    async def drain(self) -> None:
        """Write the unsent bytes, and wait while the peer does not read."""
        self._flush()
        await asyncio.sleep(0)
        if self._relief is not None:
            await asyncio.shield(self._relief)

    @property
    def crowded(self) -> bool:
        """Whether a large answer should be built later, after the unsent bytes have left."""
        return not self.closed and (self.congested or self._out_size > HAND_OVER)

    async def room(self) -> None:
        """Wait until the peer has read enough for another large answer."""
        while self.crowded:
            await self.drain()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        out = self._out
        if not out or self._transport is None:
            return
        self._out = []
        size, self._out_size = self._out_size, 0
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOIN_UP_TO or size <= len(out) * 512:
            self._transport.write(b"".join(out))
        elif not self._transport.is_closing():  # closing: asyncio's transport raises from Python 3.12 on,
            last = out.pop()  # and only ``write`` checks the high-water mark
            self._transport.writelines(out)
            self._transport.write(last)
        if self._budgets is not None and (unsent := self._transport.get_write_buffer_size()):
            self._budgets.unsent.hold(self, unsent)

    # ------------------------------------------------------------------ reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]
        self.remote = self.calls.remote = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        self.last_active = self._loop.time()
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)  # type: ignore[union-attr]
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.last_active = self._loop.time()
        rest = self._rest
        if rest.size:
            rest.add(data)
            if self._held_up or rest.size < self._need:
                if self._budgets is not None:
                    self._budgets.unfinished.hold(self, rest.taken)
                return
            data = rest.take()
        self._handle(data)

    def _handle(self, data: bytes) -> None:
        """Handle the complete frames and buffer the rest."""
        self._flushing = True  # replies are written after this read is handled
        try:
            used = self.process(data)
        except ProtocolError as error:
            if self._seen_first or not data.startswith(HELLO):
                log.warning("bad_frame", remote=self.remote, error=str(error))
            else:
                log.warning("tls_not_served", remote=self.remote, advice=_NO_TLS)
            self._flush()
            self.calls.end(f": what it sent is no frame of RocketMQ's ({error})")
            self.abort()
            return
        if used < len(data):
            rest = self._rest
            rest.add(data[used:] if used else data)
            self._need = int.from_bytes(data[used : used + 4], "big") + 4 if rest.size >= 4 else 8
            if self._held_up:
                self.partial_since = None
            elif self.partial_since is None or used:
                self.partial_since = self.last_active
            if self._budgets is not None:
                self._budgets.unfinished.hold(self, rest.taken)
        else:
            self.partial_since = None
        self._flush()

    def _go_on(self) -> None:
        """Handle the requests that waited, then continue to read, unless the peer is congested again."""
        if not self._held_up or self.congested or self.ending:
            return
        self._held_up = False
        self._handle(self._rest.take())
        if not self._held_up:
            self._read_on()

    def process(self, data: bytes) -> int:
        """Handle every complete frame in ``data``, or fewer when the peer does not read its replies.

        Returns how many bytes were handled. Raises ProtocolError. There are three ways for a frame:

        1. The router's fast path takes it, and perhaps many frames behind it.
        2. It is a reply of the kind that came last, which is read in one go.
        3. Its header is read: a reply goes to its call, a request to its handler.
        """
        at: int = 0
        size = len(data)
        reader, dispatch = self.reader, self._dispatcher.dispatch
        if not self._seen_first and frame.split(data, 0) is not None:
            self._seen_first, self._accepting = True, frame.opaque_of_offer(data)
        fast_path = None if self._accepting is not None else self._dispatcher.fast_path
        calls = self.calls if not self._offered else None
        while True:
            if fast_path is not None and at < size:  # 1.
                at = fast_path(self, data, at)
            if size - at >= 8:
                length, word = _prefix(data, at)
                body_at = at + 8 + (word & 0xFFFFFF)
                end = at + 4 + length
            if size - at < 8 or end > size or body_at > end or body_at - at > _LONGEST_HEADER:
                found = frame.split(data, at)  # raises for a wrong length; None for an incomplete frame
                if found is None:
                    break
            serialization = word >> 24
            header = data[at + 8 : body_at]
            at = end
            if calls and not serialization and calls.answered_as_expected(header, data, body_at, end):  # 2.
                continue
            head = reader.read(serialization, header)  # 3.
            if head.flag & frame.RESPONSE_FLAG:
                self._answered(head, data[body_at:end])
            else:
                dispatch(self, head, serialization, header, data[body_at:end])
                if self._out_size > HAND_OVER:
                    self._flush()
                    if self.congested and at < size and self._hold_up():
                        break
        return at

    def _hold_up(self) -> bool:
        """Stop to read if the peer does not read its replies; returns whether its further requests wait."""
        if self._transport is not None and not self.calls and not self.ending:
            self._held_up = True
            self._transport.pause_reading()
        return self._held_up

    def _answered(self, head: frame.Head[Any], body: bytes) -> None:
        if head.opaque in self._offered:
            self._offered.discard(head.opaque)
            if frame.fields_of(head).get(frame.OFFER_FIELD) == "msgpack":
                self.serialization = frame.MSGPACK
        self.calls.answered(head, body)

    # ------------------------------------------------------------------ congestion

    def pause_writing(self) -> None:
        """Called by the event loop: the peer does not read.

        A connection with pending calls continues to read: else two peers could wait for each other forever.
        """
        self.congested = True
        self._relief = self._relief or self._loop.create_future()
        if self._transport is not None and not self.calls:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the event loop: the peer reads again."""
        self.congested = False
        self._relieve()
        self.last_active = self._loop.time()
        if self._held_up:
            self._loop.call_soon(self._go_on)
        else:
            self._read_on()

    def _relieve(self) -> None:
        relief, self._relief = self._relief, None
        if relief is not None:
            relief.set_result(None)

    def _read_on(self) -> None:
        if self._transport is not None and not self.closed and (not self.congested or self.calls):
            self._transport.resume_reading()

    # ------------------------------------------------------------------ the end

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call ``callback`` once when the connection has ended."""
        if self.closed:
            self._loop.call_soon(callback, self)
        else:
            self._on_lost.append(callback)

    def close(self) -> None:
        """Close the connection after the unsent bytes have left."""
        self._flush()
        if self._transport is not None and not self._transport.is_closing():  # asyncio's TLS forgets all in a second
            self._transport.close()
            if self.encrypted:
                self._loop.call_later(_LINGER, self._end_encrypted)

    def _end_encrypted(self) -> None:
        """Abort as soon as everything was sent: Java does not answer the close of TLS."""
        if self.closed or self._transport is None:
            return
        if self.congested or self._transport.get_write_buffer_size():
            self._loop.call_later(_LINGER, self._end_encrypted)
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are dropped, and so are those of an unfinished frame."""
        self._rest.clear()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.closed = True
        self._relieve()
        self._out.clear()
        self._rest.clear()
        if self._budgets is not None:
            self._budgets.unfinished.release(self)
            self._budgets.unsent.release(self)
        heard = self._seen_first or self._transport is None
        self.calls.end(why_ended(exc, self._tls_words, heard=heard, encrypted=self.encrypted))
        for task in tuple(self.tasks):
            task.cancel()
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback(self)


def _address(name: object) -> str:
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = peer_of(name)
        return f"{host}:{port}"
    return str(name or "")
