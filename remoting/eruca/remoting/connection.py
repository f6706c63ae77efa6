"""One TCP connection, the same at both ends: requests and answers go both ways.

Owns what comes: every complete frame of a read is handled in one go, and what is to be sent (``sending``) leaves in one
write at the end of it. Calls are matched by opaque. A peer that does not read is not read from: its further
requests wait, and are handled in their order when the peer reads again. Malformed bytes end this connection only.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.header import Header
from eruca.remoting.calls import Answer, Calls, PendingCall, Receiver
from eruca.remoting.log import log
from eruca.remoting.router import Call, Reply, Router
from eruca.remoting.sending import HAND_OVER, WRITE_HIGH_WATER, Sending
from eruca.remoting.signing import Renamer, Signer, sign
from eruca.remoting.tls import why_ended

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)

_prefix = struct.Struct(">II").unpack_from
_MSGPACK_OFFER = {frame.OFFER_FIELD: "msgpack"}


class Connection(Sending):
    """A connection to a peer.

    ``remote`` and ``local`` are ``ip:port``.
    With ``offer`` the first request offers Eruca's own header serialization, and only a peer that accepts is spoken to
    in it; ``serialization`` is what is used otherwise.
    Requests are renamed by ``rename`` first and signed by ``signer`` then, where those are given.
    """

    def __init__(
        self,
        router: Router[Any] | None = None,
        *,
        on_made: Callable[[Connection], None] | None = None,
        on_lost: Callable[[Connection], None] | None = None,
        serialization: int = frame.JSON,
        offer: bool = False,
        signer: Signer | None = None,
        rename: Renamer | None = None,
    ) -> None:
        super().__init__(asyncio.get_running_loop())
        self.remote = self.local = ""
        self.tasks: set[asyncio.Future[Any]] = set()
        self.last_active = 0.0
        self.partial_since: float | None = None
        self._router: Router[Any] = router if router is not None else Router(None, ())
        self.reader = self._router.reader
        self._on_made = on_made
        self._on_lost: list[Callable[[Connection], None]] = [on_lost] if on_lost is not None else []
        self.serialization = serialization
        self.offers = self._offering = offer
        self._offered: set[int] = set()
        self._accepting: int | None = None  # the opaque of the request that offered msgpack
        self._seen_first = False
        self.signer = signer
        self.rename = rename
        self._rest = bytearray()
        self._need = 0
        self._held_up = False  # frames in _rest wait until the peer reads
        self._opaque = 0
        self.calls = Calls(self._loop)

    # ------------------------------------------------------------------ calling

    def start_call(
        self, endpoint: Endpoint[A, R], ask: A | None = None, body: bytes = b"", *, timeout: float = 3.0
    ) -> asyncio.Future[Answer[R]]:
        """Send a request; the future ends with the answer.

        ``timeout`` in seconds. The future raises Refused when the peer answers with a code that the endpoint does not
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
        """Send a request that wants no answer; it is dropped when the connection is closed."""
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
            for receiver, *_ in calls.values():
                self.calls.too_late(receiver)
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
        """Send the answer to a request, unless it was a one-way one."""
        asked = call.head
        if self.closed or asked.flag & frame.ONEWAY_FLAG:
            return
        body = reply.body
        header = reply.header
        size = len(body) if isinstance(body, bytes) else sum([len(piece) for piece in body])
        try:
            if reply.code or header is None or reply.remark is not None or self._accepting is not None:
                head = self._encode_reply(call, reply, size)
            else:
                head = frame.encode_reply(call.serialization, asked.opaque, header, size)
        except ProtocolError as error:
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
        what = (reply.code, call.opaque, frame.RESPONSE_FLAG, reply.header, size, reply.remark, extra, *reply.by)
        return frame.encode(call.serialization, *what)

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
        if rest:
            rest += data
            if self._held_up or len(rest) < self._need:
                return
            data = bytes(rest)
            rest.clear()
        self._handle(data)

    def _handle(self, data: bytes) -> None:
        """Handle what is complete and keep the rest."""
        self._flushing = True  # replies of this read wait for its end
        try:
            used = self.process(data)
        except ProtocolError as error:
            log.warning("bad_frame", remote=self.remote, error=str(error))
            self._flush()
            self.calls.end(f": what it sent is no frame of RocketMQ's ({error})")
            self.abort()
            return
        if used < len(data):
            rest = self._rest
            rest += data[used:] if used else data
            self._need = int.from_bytes(rest[:4], "big") + 4 if len(rest) >= 4 else 8
            if self._held_up:
                self.partial_since = None
            elif self.partial_since is None or used:
                self.partial_since = self.last_active
        else:
            self.partial_since = None
        self._flush()

    def _go_on(self) -> None:
        """Handle what waited for the peer to read, then read on; unless the peer stopped again."""
        if not self._held_up or self.congested or self.ending:
            return
        self._held_up = False
        data = bytes(self._rest)
        self._rest.clear()
        self._handle(data)
        if not self._held_up:
            self._read_on()

    def process(self, data: bytes) -> int:
        """Handle every complete frame in ``data``, or fewer when the peer does not read its replies.

        Returns how many bytes were handled. Raises ProtocolError. At each frame the router's fast path comes first and
        may handle many frames; then a reply of the kind that came last is read in one go; any other frame is read and
        dispatched.
        """
        at: int = 0
        size = len(data)
        reader, dispatch = self.reader, self._router.dispatch
        if not self._seen_first and frame.split(data, 0) is not None:
            self._seen_first, self._accepting = True, frame.opaque_of_offer(data)
        fast_path = None if self._accepting is not None else self._router.fast_path
        calls = self.calls if not self._offered else None
        while True:
            if fast_path is not None and at < size:
                at = fast_path(self, data, at)
            if size - at >= 8:
                length, word = _prefix(data, at)
                body_at = at + 8 + (word & 0xFFFFFF)
                end = at + 4 + length
            if size - at < 8 or end > size or body_at > end:
                found = frame.split(data, at)  # raises for a wrong length; None for an incomplete frame
                if found is None:
                    break
            serialization = word >> 24
            header = data[at + 8 : body_at]
            at = end
            if calls and not serialization and calls.answered_as_expected(header, data, body_at, end):
                continue
            head = reader.read(serialization, header)
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
        """Let further requests wait, since the peer does not read; returns whether they do."""
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

    # ------------------------------------------------------------------ state

    def pause_writing(self) -> None:
        """Called by the event loop: the peer does not read.

        Whoever awaits answers goes on reading: two peers that both wait for the other to read would wait forever.
        """
        super().pause_writing()
        if self._transport is not None and not self.calls:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the event loop: the peer reads again."""
        super().resume_writing()
        self.last_active = self._loop.time()
        if self._held_up:
            self._loop.call_soon(self._go_on)
        else:
            self._read_on()

    def _read_on(self) -> None:
        if self._transport is not None and not self.closed and (not self.congested or self.calls):
            self._transport.resume_reading()

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call back once when the connection has ended."""
        if self.closed:
            self._loop.call_soon(callback, self)
        else:
            self._on_lost.append(callback)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(exc)
        self._rest.clear()
        heard = self._seen_first or self._transport is None
        self.calls.end(why_ended(exc, heard=heard, encrypted=self.encrypted))
        for task in tuple(self.tasks):
            task.cancel()
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback(self)


def _address(name: object) -> str:
    if isinstance(name, tuple) and len(name) >= 2:
        return f"{name[0]}:{name[1]}"
    return str(name or "")
