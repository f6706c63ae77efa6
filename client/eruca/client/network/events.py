"""Events of a session: brokers that go and come back, and what its background work could not do.

Owns the structs, the queue in which events wait, and the calls of users' functions: in the order of the events, each
bounded in time, and their errors end in the log. A function that several clients of the session were given is called
once for an event. ``presence`` and ``Session.warn`` tell events here, and write the lines of the log about the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import datetime

import msgspec

from eruca.client import callbacks
from eruca.client.bounds import unbounded
from eruca.client.log import log
from eruca.protocol.queues import MessageQueue

MOST_WAITING = 1000
"""Events that wait for functions; beyond it the oldest is left out."""

_telling: ContextVar[bool] = ContextVar("telling", default=False)
"""Whether a function is being called: a client that it stops does not wait for it."""


class Disconnected(msgspec.Struct, frozen=True, kw_only=True):
    """A broker cannot be reached.

    ``broker_id`` is 0 for a master. ``queues`` are those that wait for it, by the group of the consumer in this
    process. ``since`` is the time of the first failure.
    """

    broker: str
    broker_id: int
    address: str
    queues: Mapping[str, tuple[MessageQueue, ...]]
    reason: str
    since: datetime


class Reconnected(msgspec.Struct, frozen=True, kw_only=True):
    """A broker is reached again, perhaps at another address; it was away for ``seconds``, since ``since``."""

    broker: str
    broker_id: int
    address: str
    queues: Mapping[str, tuple[MessageQueue, ...]]
    reason: str
    since: datetime
    seconds: float


class BackgroundError(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a client does by itself failed; it tries again, or goes on without.

    ``reason`` is the sentence of the log, ``error`` what was raised, ``since`` when this trouble began. ``group``,
    ``topic`` and ``broker`` are None where it is not about one.
    """

    reason: str
    error: BaseException | None
    group: str | None
    topic: str | None
    broker: str | None
    since: datetime


DisconnectedListener = Callable[[Disconnected], Awaitable[None] | None]
ReconnectedListener = Callable[[Reconnected], Awaitable[None] | None]
ErrorListener = Callable[[BackgroundError], Awaitable[None] | None]
Event = Disconnected | Reconnected | BackgroundError


class EventListeners(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of one client, which is of this group; a plain function runs in a thread. Raises UsageError."""

    group: str | None = None
    on_disconnected: DisconnectedListener | None = None
    on_reconnected: ReconnectedListener | None = None
    on_error: ErrorListener | None = None

    def __post_init__(self) -> None:
        for name in ("on_disconnected", "on_reconnected", "on_error"):
            function = getattr(self, name)
            if function is not None:
                callbacks.check_callable(function, name, "event")

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.on_disconnected, self.on_reconnected, self.on_error))

    def of(self, event: Event) -> Callable[..., object] | None:
        """What is to be called with an event; not for errors of another group."""
        if isinstance(event, Disconnected):
            return self.on_disconnected
        if isinstance(event, Reconnected):
            return self.on_reconnected
        return self.on_error if event.group in (None, self.group) else None


class Events:
    """Calls the functions of the clients of a session; ``timeout`` in seconds holds for each call."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._clients: list[EventListeners] = []
        self._waiting: deque[tuple[Event, list[Callable[..., object]]]] = deque(maxlen=MOST_WAITING)
        self._calling: asyncio.Task[None] | None = None

    @property
    def wanted(self) -> bool:
        """Whether a client listens."""
        return bool(self._clients)

    def add(self, listeners: EventListeners | None) -> None:
        """Call the functions of a client from now on."""
        if listeners:
            self._clients.append(listeners)

    def remove(self, listeners: EventListeners | None) -> None:
        """Call them no more."""
        if listeners:
            self._clients.remove(listeners)

    def tell(self, event: Event) -> None:
        """Something happened: call who wants to know, in the background."""
        functions: list[Callable[..., object]] = []
        for client in self._clients:
            function = client.of(event)
            if function is not None and function not in functions:
                functions.append(function)
        if not functions:
            return
        self._waiting.append((event, functions))
        if self._calling is None:
            self._calling = asyncio.get_running_loop().create_task(self._call_all(), context=unbounded())

    async def close(self) -> None:
        """Leave out what waits, and wait for the calls at work, unless this is called by one of them."""
        self._waiting.clear()
        if self._calling is not None and not _telling.get():
            await asyncio.wait({self._calling})

    async def _call_all(self) -> None:
        _telling.set(True)
        try:
            while self._waiting:
                event, functions = self._waiting.popleft()
                await asyncio.gather(*(self._call(function, event) for function in functions))
        finally:
            self._calling = None

    async def _call(self, function: Callable[..., object], event: Event) -> None:
        name = getattr(function, "__qualname__", repr(function))
        try:
            async with asyncio.timeout(self._timeout):
                await callbacks.call(function, event)
        except TimeoutError:
            log.warning("%s did not end within %s s for %s", name, self._timeout, event)
        except Exception:
            log.exception("%s failed for %s", name, event)
