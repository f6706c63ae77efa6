"""From a request's code to the function that answers it.

``Routes`` collects handlers by entries of the endpoint table, typed by them; a ``Router`` is the whole table of a
server for one service object. A handler is a plain function wherever it need not wait: it returns its ``Reply``, None
for no answer at all, or an awaitable of either. No task or future is made for a request that does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.codes import LANGUAGE, VERSION, ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty, Header
from eruca.remoting.log import log

if TYPE_CHECKING:
    from eruca.remoting.connection import Connection

S = TypeVar("S")
A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)

Body = bytes | Sequence[bytes | memoryview]
"""A body in one piece, or in pieces that are sent one after the other without being copied together."""


class Reply(msgspec.Struct):
    """The answer to a request: response code, fields, body, and a sentence for the person at the other end.

    ``by`` are language and version of the peer that the answer is from, where it is passed on (never with code 0, no
    remark and a header: such a reply is written without them).
    """

    code: int = 0
    header: Header | None = None
    body: Body = b""
    remark: str | None = None
    by: tuple[str, int] = (LANGUAGE, VERSION)


class Call(msgspec.Struct, Generic[A]):
    """One request: its typed header, its body, who sent it.

    ``head`` and ``data`` are the frame's header as it was read and as it came.
    """

    header: A
    body: bytes
    connection: Any
    head: frame.Head[Any]
    serialization: int
    data: bytes

    @property
    def code(self) -> int:
        """The request code."""
        return self.head.code

    @property
    def opaque(self) -> int:
        """The requester's number of this request."""
        return self.head.opaque

    @property
    def version(self) -> int:
        """The requester's MQVersion ordinal."""
        return self.head.version

    @property
    def language(self) -> str:
        """The requester's language; OTHER where it is not known."""
        language = self.head.language
        return language if isinstance(language, str) else "OTHER"

    @property
    def remark(self) -> str | None:
        """The requester's remark."""
        return self.head.remark

    @property
    def oneway(self) -> bool:
        """Whether no answer is wanted."""
        return bool(self.head.flag & frame.ONEWAY_FLAG)

    def texts(self) -> dict[str, str]:
        """All fields of the header as they came, unknown ones included."""
        return frame.texts(self.serialization, self.data)


Result = Reply | Awaitable[Reply | None] | None
Handler = Callable[[S, Call[A]], Result]
Guard = Callable[[Call[Any]], None]
"""Looks at each request before its handler; refuses it by raising Refused."""


FastPath = Callable[["Connection", bytes, int], int]
"""Handles frequent frames many at once, before they are read one by one.

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


class Routes(Generic[S]):
    """Handlers for a service of type S, declared one by one: ``@routes.on(api.PULL_MESSAGE)``."""

    def __init__(self) -> None:
        self.handlers: dict[int, tuple[Endpoint[Any, Any], Handler[S, Any]]] = {}

    def on(
        self, *endpoints: Endpoint[A, Any]
    ) -> Callable[[Callable[[S, Call[A]], Result]], Callable[[S, Call[A]], Result]]:
        """Register a handler for one or more requests. Raises ValueError when one has a handler already."""

        def register(handler: Callable[[S, Call[A]], Result]) -> Callable[[S, Call[A]], Result]:
            for endpoint in endpoints:
                if endpoint.code in self.handlers:
                    raise ValueError(f"{endpoint.code.name} has a handler already")
                self.handlers[endpoint.code] = (endpoint, handler)
            return handler

        return register


class Router(Generic[S]):
    """The whole table of a server.

    ``without`` are request codes that this server does not answer (the VIP port serves no pulls), ``guards`` look at
    every request first. A code without a handler is answered with 3, as Apache's broker does. ``fast_path`` is not used
    together with guards, which it would pass by.
    """

    def __init__(
        self,
        service: S,
        routes: Iterable[Routes[S]],
        *,
        without: Collection[int] = (),
        guards: Sequence[Guard] = (),
        fast_path: FastPath | None = None,
    ) -> None:
        self.fast_path = None if guards else fast_path
        self._service = service
        self._guards = tuple(guards)
        self._handlers: dict[int, Handler[S, Any]] = {}
        asks: dict[int, type[Header]] = {}
        readers: dict[int, frame.FieldsReader] = {}
        for table in routes:
            for code, (endpoint, handler) in table.handlers.items():
                if code in self._handlers:
                    raise ValueError(f"{endpoint.code.name} has a handler already")
                if code not in without:
                    self._handlers[code] = handler
                    asks[code] = endpoint.ask
                    if endpoint.read_binary is not None:
                        readers[code] = endpoint.read_binary
        self.reader = frame.RequestReader(asks, readers)
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that have a handler."""
        return frozenset(self._handlers)

    def dispatch(
        self, connection: Connection, head: frame.Head[Any], serialization: int, data: bytes, body: bytes
    ) -> None:
        """Answer one request, now or when its handler is done waiting."""
        ext: Any = head.ext
        handler = self._handlers.get(head.code)
        call = Call(ext, body, connection, head, serialization, data)
        try:
            if handler is None:
                call.header = Empty()
                raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {head.code} not supported")
            if isinstance(ext, Refused):
                raise ext
            for guard in self._guards:
                guard(call)
            result = handler(self._service, call)
        except Exception as error:
            connection.reply(call, _answer_to(error, call))
            return
        if type(result) is Reply:
            connection.reply(call, result)
        elif result is not None:
            task = asyncio.ensure_future(_finish(call, cast(Awaitable[Reply | None], result)))
            connection.tasks.add(task)
            self.tasks.add(task)
            task.add_done_callback(connection.tasks.discard)
            task.add_done_callback(self.tasks.discard)


async def _finish(call: Call[Any], waiting: Awaitable[Reply | None]) -> None:
    try:
        reply = await waiting
    except Exception as error:
        reply = _answer_to(error, call)
    if reply is not None:
        call.connection.reply(call, reply)


def _answer_to(error: Exception, call: Call[Any]) -> Reply:
    if isinstance(error, Refused):
        return Reply(error.code, error.header, b"", error.remark)
    log.exception("request_failed", request_code=call.code, opaque=call.opaque, remote=call.connection.remote)
    return Reply(ResponseCode.SYSTEM_ERROR, None, b"", f"{type(error).__name__}: {error}")
