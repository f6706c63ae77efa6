"""From a request's code to the function that answers it (processor table of NettyRemotingAbstract in 4.9.7).

``Routes`` collects handlers by entries of the endpoint table, which type them; a ``Router`` is the whole table of a
server for one service object. A handler returns its ``Reply``, None for no answer at all, or an awaitable of either. It
is a plain function if it need not wait: then no task or future is created for its request.

A handler declares three more things of its requests. ``reads``: the answer is all there is to it; a one-way copy, which
nobody reads, is dropped. ``costly``: see ``eruca.remoting.costly``; its work is done in slices (``remoting.slices``).
``changes``: what the request is about, for its line in the audit log (``remoting.audit``): a text, or a function from
the header to one.

``Refused`` from a handler is the answer to its request. Any other exception is logged and answered with code 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Header
from eruca.remoting import audit
from eruca.remoting.access.refusals import AccessRefused
from eruca.remoting.connection import Connection, FastPath
from eruca.remoting.costly import CostlyRequests, Work
from eruca.remoting.log import log
from eruca.remoting.request import Call, Change, Reply
from eruca.remoting.rpc_latency import RpcLatency

S = TypeVar("S")
A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)

Result = Reply | Awaitable[Reply | None] | None
Handler = Callable[[S, Call[A]], Result]
Target = str | Callable[[A], str]
"""What a request that changes something is about."""
Guard = Callable[[Call[Any]], Work | None]
"""Called with each request before all else; refuses it by raising Refused. If that takes long it returns what does it:
then it is one of the connection's costly works, of which one is done at a time.

The ``header`` of its call is a Refused if the fields do not fit or the code is unknown: who is not let in is not to
learn of that.
"""


class Route(NamedTuple):
    """The handler of one request, and what it declares."""

    endpoint: Endpoint[Any, Any]
    handler: Handler[Any, Any]
    reads: bool
    costly: bool
    changes: Target[Any] | None


class Routes(Generic[S]):
    """Handlers for a service of type S, declared one by one: ``@routes.on(api.PULL_MESSAGE)``."""

    def __init__(self) -> None:
        self.handlers: dict[int, Route] = {}

    def on(
        self,
        *endpoints: Endpoint[A, Any],
        reads: bool = False,
        costly: bool = False,
        changes: Target[A] | None = None,
    ) -> Callable[[Callable[[S, Call[A]], Result]], Callable[[S, Call[A]], Result]]:
        """Register a handler for one or more requests. Raises ValueError if one already has a handler."""

        def register(handler: Callable[[S, Call[A]], Result]) -> Callable[[S, Call[A]], Result]:
            for endpoint in endpoints:
                if endpoint.code in self.handlers:
                    raise ValueError(f"{endpoint.code.name} has a handler already")
                self.handlers[endpoint.code] = Route(endpoint, handler, reads, costly, changes)
            return handler

        return register


def changes_of(tables: Iterable[Routes[Any]]) -> frozenset[int]:
    """The codes of the requests that change something."""
    return frozenset(code for table in tables for code, route in table.handlers.items() if route.changes is not None)


class Router(Generic[S]):
    """The whole table of a server.

    ``without`` are request codes that this server does not answer (the VIP port serves no pulls), ``guards`` look at
    every request first. A code without a handler is answered with 3, as Apache's broker does. ``fast_path`` passes
    guards by: it may take only what they would not refuse. ``latency`` counts what the requests took; routers may share
    one.
    """

    def __init__(
        self,
        service: S,
        routes: Iterable[Routes[S]],
        *,
        without: Collection[int] = (),
        guards: Sequence[Guard] = (),
        fast_path: FastPath | None = None,
        latency: RpcLatency | None = None,
    ) -> None:
        self.latency = latency if latency is not None else RpcLatency()
        self.fast_path = fast_path
        self._service = service
        self._guards = tuple(guards)
        self._handlers: dict[int, Handler[S, Any]] = {}
        self._changes: dict[int, Target[Any]] = {}
        self._closed = audit.ClosedChanges()
        self._costly = CostlyRequests(self._start)
        self._guarded = CostlyRequests(self._start)
        self._declared: set[int] = set()
        """The codes of requests that are handled later, or not at all."""
        asks: dict[int, type[Header]] = {}
        readers: dict[int, frame.FieldsReader] = {}
        for table in routes:
            for code, route in table.handlers.items():
                endpoint = route.endpoint
                if code in self._handlers:
                    raise ValueError(f"{endpoint.code.name} has a handler already")
                if code not in without:
                    self._handlers[code] = self._as_declared(route)
                    if route.changes is not None:
                        self._changes[code] = route.changes
                    if route.reads or route.costly:
                        self._declared.add(code)
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
        """Answer one request, now or when its handler has waited."""
        ext: Any = head.ext
        handler = self._handlers.get(head.code, _unknown)
        if handler is _unknown:
            ext = Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {head.code} not supported")
        call = Call(ext, body, connection, head, serialization, data)
        try:
            for guard in self._guards:
                looking = guard(call)
                if looking is not None:
                    self._let_in_later(call, handler, guard, looking)
                    return
            if isinstance(ext, Refused):
                raise ext
            result = handler(self._service, call)
        except Exception as error:
            result = self._refusal(error, call)
        self._answer(call, result, connection.last_active)

    def _refusal(self, error: Exception, call: Call[Any]) -> Reply:
        reply = _answer_to(error, call)
        if call.code in self._changes:
            call.change = call.change or Change(_target(self._changes[call.code], call))
            if isinstance(error, AccessRefused):
                self._closed.refused(call, error)
            else:
                audit.answered(call, reply)
        return reply

    def _let_in_later(self, call: Call[Any], handler: Handler[S, Any], guard: Guard, looking: Work) -> None:
        """Answer a request when the guard that looks at it is done. Raises Refused if too many wait for that."""
        others = self._guards[self._guards.index(guard) + 1 :]
        since = call.connection.last_active

        async def look() -> None:
            try:
                await looking()
                for other in others:
                    more = other(call)
                    if more is not None:
                        await more()
                if isinstance(call.header, Refused):
                    raise call.header
                result = handler(self._service, call)
            except Exception as error:
                result = self._refusal(error, call)
            self._answer(call, result, since)

        self._guarded.add(call.connection, len(call.data) + len(call.body), look)

    def _answer(self, call: Call[Any], result: Result, since: float) -> None:
        connection, head = call.connection, call.head
        if type(result) is Reply:
            connection.reply(call, result)
            self.latency.answered(head, result.code, since)
        elif result is None:
            if head.code not in self._declared:  # the handler has sent the answer
                self.latency.answered(head, ResponseCode.SUCCESS, since)
        else:
            self._start(connection, self._finish(call, cast(Awaitable[Reply | None], result), since))

    def _start(self, connection: Connection, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something for a connection, until it ends."""
        task = asyncio.ensure_future(work)
        connection.tasks.add(task)
        self.tasks.add(task)
        task.add_done_callback(connection.tasks.discard)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _finish(self, call: Call[Any], waiting: Awaitable[Reply | None], since: float) -> None:
        try:
            reply = await waiting
        except Exception as error:
            reply = _answer_to(error, call)
        if reply is not None:
            call.connection.reply(call, reply)
            self.latency.answered(call.head, reply.code, since, held=call.held)

    def _as_declared(self, route: Route) -> Handler[S, Any]:
        """The handler of a route with what it declares: the requests of all others pay nothing for it."""
        handler = route.handler if route.changes is None else _audited(route.handler, route.changes)
        if not route.reads and not route.costly:
            return handler

        def declared(service: S, call: Call[Any]) -> Result:
            if route.reads and call.oneway:
                return None
            if not route.costly:
                return handler(service, call)
            size = len(call.data) + len(call.body)
            since = call.connection.last_active
            work = lambda: self._finish(call, _result(handler, service, call), since)  # noqa: E731
            self._costly.add(call.connection, size, work)
            return None

        return declared


def _unknown(service: object, call: Call[Any]) -> Result:
    """Stands for the handler of a code that has none."""
    return None


def _audited(handler: Handler[S, Any], target: Target[Any]) -> Handler[S, Any]:
    """A handler that leaves a line in the audit log; it raises nothing."""

    def audited(service: S, call: Call[Any]) -> Result:
        call.change = Change(_target(target, call))
        try:
            result = handler(service, call)
        except Exception as error:
            result = _answer_to(error, call)
        if result is not None and not isinstance(result, Reply):
            return _audited_later(call, result)
        audit.answered(call, result)
        return result

    return audited


async def _audited_later(call: Call[Any], waiting: Awaitable[Reply | None]) -> Reply | None:
    try:
        reply = await waiting
    except Exception as error:
        reply = _answer_to(error, call)
    except asyncio.CancelledError:
        audit.unanswered(call)
        raise
    audit.answered(call, reply)
    return reply


def _target(target: Target[Any], call: Call[Any]) -> str:
    if isinstance(target, str):
        return target
    return target(call.header) if isinstance(call.header, Header) else "not readable"


async def _result(handler: Handler[S, Any], service: S, call: Call[Any]) -> Reply | None:
    result = handler(service, call)
    return result if result is None or isinstance(result, Reply) else await result


def _answer_to(error: Exception, call: Call[Any]) -> Reply:
    if isinstance(error, Refused):
        log.debug("request_refused", **call.about, response_code=int(error.code), reason=error.remark)
        return Reply(error.code, error.header, b"", error.remark)
    log.exception("request_failed", **call.about)
    return Reply(ResponseCode.SYSTEM_ERROR, None, b"", f"{type(error).__name__}: {error}")
