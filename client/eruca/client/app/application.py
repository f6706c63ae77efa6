"""App: an application of consumers and producers. Decorators make functions handlers, and ``run`` serves.

Owns what was declared, and the order in which clients start and stop. Declarations last; consumers are made at each
start, and the environment is read then, so that a module with an application can be imported anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack, cast

from eruca.client import callbacks
from eruca.client.app.dependencies import Overrides
from eruca.client.app.groups import Consumers, Group, Subscription
from eruca.client.app.handlers import OnBadBody
from eruca.client.checks import check_wait
from eruca.client.config import ClientSettings
from eruca.client.consuming.arguments import ConsumerKeywords
from eruca.client.environment import check_names, known_keywords, known_options, nearest
from eruca.client.errors import StateError, UsageError
from eruca.client.hooks import Hook
from eruca.client.lifecycle import Startable
from eruca.client.log import log
from eruca.client.middleware import Middleware, check_middleware
from eruca.client.network.events import DisconnectedListener, ErrorListener, EventListeners, ReconnectedListener
from eruca.client.producing.options import ProducerKeywords
from eruca.client.producing.producer import Producer
from eruca.client.signals import ended_by_signal
from eruca.remoting.loop import new_loop
from eruca.remoting.loop_thread import LoopThread
from eruca.remoting.tasks import unless

if TYPE_CHECKING:
    from eruca.client.app.trial import Trial

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[[], contextlib.AbstractAsyncContextManager[Any]]
"""Makes what the application needs around its consumers: a function decorated by ``contextlib.asynccontextmanager``."""
_OF_HANDLERS = ("expression", "expression_type", "on_bad_body", "publish_to")
"""What a handler's decorator takes beside the options of its consumer."""
Settings = ClientSettings | Callable[[], ClientSettings]
"""Settings, or what gives them at the start, such as ``ClientSettings.from_env``."""


class _Part(Protocol):
    async def start(self, *, wait: float | None = None) -> None: ...
    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Around:
    """What holds for the starts within ``using``."""

    nameserver: str | Sequence[str] | None = None
    settings: Settings | None = None
    dependencies: Overrides | None = None
    hooks: tuple[Hook, ...] = ()
    offset_folder: str | Path | None = None


@known_options
class App(Startable):
    """Consumers and producers that start and stop together, any number of times.

    ``run`` serves until SIGTERM or Ctrl-C; or use ``async with``; or ``with`` in a program without an event loop.

    Args:
        nameserver: for all of them; default from the environment at the start (see ClientSettings).
        lifespan: entered before the first consumer starts and left after the last has stopped: the place for a
            connection to a database.
        settings: what all clients share; or a function that gives them at the start: ``ClientSettings.from_env``.
        middleware: around the handlers of all groups, outside of what a group has itself (see PushConsumer).
        on_disconnected: of all consumers and producers that have none themselves (see PushConsumer); called once for an
            event, not once for each of them.
        on_reconnected: the same.
        on_error: the same.

    Raises BadConfig and UsageError.
    """

    def __init__(
        self,
        *,
        nameserver: str | Sequence[str] | None = None,
        lifespan: Lifespan | None = None,
        settings: Settings | None = None,
        middleware: Sequence[Middleware] = (),
        on_disconnected: DisconnectedListener | None = None,
        on_reconnected: ReconnectedListener | None = None,
        on_error: ErrorListener | None = None,
    ) -> None:
        if lifespan is not None:
            callbacks.check_callable(lifespan, "lifespan")
        self._around = [_Around(nameserver, settings)]
        _check(nameserver, settings)
        self._lifespan = lifespan
        EventListeners(on_disconnected=on_disconnected, on_reconnected=on_reconnected, on_error=on_error)
        self._events: ProducerKeywords = {
            "on_disconnected": on_disconnected,
            "on_reconnected": on_reconnected,
            "on_error": on_error,
        }
        self.middleware = list(check_middleware(middleware))
        """Around the handlers of all groups; what is added counts from the next start on."""
        self._groups: dict[str, Group] = {}
        self._producers: dict[str, Producer] = {}
        self._running: contextlib.AsyncExitStack | None = None
        self.consumers = Consumers()
        """The running consumers by their groups, already in the lifespan: to suspend, watch and ask them."""

    # ------------------------------------------------------------------ declaring

    @known_keywords
    def consumer(
        self,
        topic: str,
        group: str,
        *,
        expression: str = "*",
        expression_type: str = "TAG",
        on_bad_body: OnBadBody = "dead",
        publish_to: str | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> Callable[[F], F]:
        """Decorate a handler; the function itself stays as it is.

        A parameter without an annotation, or with ``ReceivedMessage``, takes the message, one with another type the
        body as a value of that type, one with ``Annotated[..., Depends(provider)]`` what the provider makes. With
        ``consume_message_batch_max_size`` messages and values come in lists.

        Args:
            topic: what it takes.
            group: its consumer group. A group may take several topics, each by a decorator.
            expression: the tags, or the condition, as of ``PushConsumer.subscribe``.
            on_bad_body: what becomes of a message whose body cannot be read: "dead", a dead letter at once; "retry";
                "skip", which counts as consumed. All are logged.
            publish_to: a topic to which the values go that the handler returns, as JSON unless they are bytes, text or
                a Message.
            options: as of ``PushConsumer``, at one of the decorators of a group.

        Raises UsageError for a second handler of a topic in a group, and what ``PushConsumer`` raises.
        """
        if callable(topic) or not isinstance(group, str):
            raise UsageError('The decorator takes a topic and a group: @app.consumer("Orders", "kitchen").')
        check_names(options, [*ConsumerKeywords.__annotations__, *_OF_HANDLERS])

        def register(function: F) -> F:
            self._open()
            found = self._groups.get(group) or Group(group)
            subscription = Subscription(
                topic=topic,
                expression=expression,
                expression_type=expression_type,
                function=function,
                on_bad_body=on_bad_body,
                publish_to=publish_to,
            )
            found.add(subscription, cast("dict[str, Any]", options))
            self._groups[group] = found
            if found.publishes:
                self.producer(group)
            return function

        return register

    def producer(self, group: str, **options: Unpack[ProducerKeywords]) -> Producer:
        """The producer of a group, made at the first call; it starts before all consumers and stops after them.

        ``options`` are those of ``Producer``. Raises UsageError when they come with a second call.
        """
        if group in self._producers:
            if options:
                raise UsageError(f"The producer {group} is made already: give its options with the first call.")
            return self._producers[group]
        self._open()
        check_names(options, ProducerKeywords.__annotations__)
        both: ProducerKeywords = {**self._events, **options}
        producer = self._producers[group] = Producer(group, **both)
        return producer

    def _open(self) -> None:
        if self._running is not None:
            raise StateError("The application runs: register consumers and producers before it starts.")

    @property
    def topics(self) -> list[str]:
        """The topics of all consumers."""
        return sorted({topic for group in self._groups.values() for topic in group.subscriptions})

    @property
    def handlers(self) -> dict[tuple[str, str], Callable[..., Any]]:
        """The functions that handle messages, by group and topic."""
        return {
            (name, topic): each.function
            for name, group in self._groups.items()
            for topic, each in group.subscriptions.items()
        }

    # ------------------------------------------------------------------ life

    @contextlib.contextmanager
    def using(
        self,
        *,
        nameserver: str | Sequence[str] | None = None,
        settings: Settings | None = None,
        dependencies: Overrides | None = None,
        hooks: Sequence[Hook] = (),
        offset_folder: str | Path | None = None,
    ) -> Iterator[Self]:
        """Within ``with``, starts use these in place of the application's own; for tests and scripts.

        Args:
            nameserver: the address.
            settings: what all clients share.
            dependencies: which provider stands in for which: ``{get_session: get_test_session}``.
            hooks: for the consumers, beside their own.
            offset_folder: where consumers that broadcast have their offsets.
        """
        _check(nameserver, settings)
        around = _Around(nameserver, settings, dependencies, tuple(hooks), offset_folder)
        self._around.append(around)
        try:
            yield self
        finally:
            self._around.remove(around)

    async def start(self, *, wait: float | None = None) -> None:
        """Start the lifespan, the producers, then the consumers; when one cannot, what runs is stopped again.

        ``wait`` is how many seconds they wait, all together, until nameserver, broker and the topics of the consumers
        are there; default: start_wait of the settings, which is not to wait.

        Raises UsageError for an application without consumers and producers, StateError when it runs already, and what
        their ``start`` raises.
        """
        await self._start(wait, asyncio.Event())

    async def _start(self, wait: float | None, ended: asyncio.Event) -> bool:
        """As ``start``; False when ``ended`` was set before its end: then what runs was stopped again."""
        if not self._groups and not self._producers:
            raise UsageError(
                "The application has no consumer and no producer: decorate a function with "
                '@app.consumer("topic", "group").'
            )
        self._open()
        settings = self._settings().found()
        overrides: dict[Any, Any] = {}
        hooks: tuple[Hook, ...] = ()
        offset_folder: str | Path | None = None
        for around in self._around:
            overrides |= around.dependencies or {}
            hooks += around.hooks
            offset_folder = around.offset_folder or offset_folder
        self._check_overrides(overrides)
        for producer in self._producers.values():
            producer.use(settings)
        consumers = {
            name: group.consumer(
                settings, overrides, self._producers.get(name), hooks, self.middleware, self._events, offset_folder
            )
            for name, group in self._groups.items()
        }
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.consumers.clear)
            self.consumers.update(consumers)
            if self._lifespan is not None:
                await stack.enter_async_context(_entered(self._lifespan))
            parts: list[_Part] = [*self._producers.values(), *consumers.values()]
            clock = asyncio.get_running_loop().time
            end = clock() + (check_wait("wait", wait) if wait is not None else settings.start_wait or 0)

            async def start_parts() -> None:
                for part in parts:
                    await part.start(wait=max(end - clock(), 0))
                    stack.push_async_callback(part.stop)

            if not await unless(ended, start_parts()):
                log.info("application ended by a signal before it had started")
                return False
            self._running = stack.pop_all()
        log.info("application started: %s", ", ".join(sorted(self._groups) or sorted(self._producers)))
        return True

    def _settings(self) -> ClientSettings:
        """Those that the innermost ``using`` gives; a nameserver alone changes nothing else."""
        settings = next((each.settings for each in reversed(self._around) if each.settings is not None), None)
        nameserver = None
        for around in self._around:
            if around.nameserver:
                nameserver = around.nameserver
            elif around.settings is not None:
                nameserver = None
        return _chosen(nameserver, settings() if callable(settings) else settings)

    def _check_overrides(self, overrides: Mapping[Any, Any]) -> None:
        used = {provider for group in self._groups.values() for provider in group.providers()}
        for provider in overrides:
            if provider not in used:
                name = getattr(provider, "__qualname__", repr(provider))
                close = nearest(name, [getattr(each, "__qualname__", repr(each)) for each in used])
                advice = f": did you mean {close}?" if close else "."
                raise UsageError(f"dependencies names {name}, on which no handler depends{advice}")

    async def stop(self) -> None:
        """Stop the consumers, whose listeners at work end first, then the producers and the lifespan."""
        stack, self._running = self._running, None
        if stack is not None:
            await stack.aclose()
            log.info("application stopped")

    @contextlib.asynccontextmanager
    async def lifespan(self, web: object = None) -> AsyncIterator[None]:
        """The life of the application as a web framework takes it: ``FastAPI(lifespan=app.lifespan)``.

        ``web`` is the web application, which is not used.
        """
        async with self:
            yield

    def __enter__(self) -> Self:
        """Start in the thread of the blocking clients: for programs without an event loop."""
        _client_thread().run(self.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _client_thread().run(self.stop())

    def run(self, *, nameserver: str | Sequence[str] | None = None, wait: float | None = None) -> None:
        """Serve until SIGTERM or SIGINT (Ctrl-C), then stop in order; a second signal ends at once.

        A signal ends the wait for the cluster, too. ``nameserver`` counts for this run, ``wait`` as of ``start``. To be
        called in the main thread, where no event loop runs. Raises UsageError otherwise.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise UsageError("run() was called in an event loop: use `async with app` there.")
        with self.using(nameserver=nameserver), asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve(wait))

    async def _serve(self, wait: float | None) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        with ended_by_signal(lambda: loop.call_soon_threadsafe(ended.set), always=True) as possible:
            if not possible:
                raise UsageError("run() was called outside the main thread: use `async with app` there.")
            if not await self._start(wait, ended):
                return
            try:
                await ended.wait()
            finally:
                await self.stop()

    def test(
        self,
        *,
        nameserver: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
        dependencies: Overrides | None = None,
    ) -> Trial:
        """The application at work in a test: ``async with app.test() as test``, or ``with`` in a blocking test.

        It runs with a nameserver and a broker of its own inside this process, which need ``pip install
        eruca``; and with what ``using`` takes. The topics of its consumers exist when it starts.

        Args:
            nameserver: a cluster that runs already, such as that of the fixture ``rocketmq``.
            settings: what all clients share.
            dependencies: which provider stands in for which.
        """
        from eruca.client.app.trial import Trial  # for tests only

        return Trial(self, nameserver, settings, dependencies)


def _client_thread() -> LoopThread:
    from eruca.client.client_thread import client_thread  # it registers what ends it, so only where it is needed

    return client_thread()


def _check(nameserver: str | Sequence[str] | None, settings: Settings | None) -> None:
    """Raise BadConfig for what no start would take; a function is asked by the start."""
    if not callable(settings):
        _chosen(nameserver, settings)
    elif nameserver:
        _chosen(nameserver, None)


def _chosen(nameserver: str | Sequence[str] | None, settings: ClientSettings | None) -> ClientSettings:
    return ClientSettings.choose(settings, nameserver)


def _entered(lifespan: Lifespan) -> contextlib.AbstractAsyncContextManager[Any]:
    around = lifespan()
    if not isinstance(around, contextlib.AbstractAsyncContextManager):
        raise UsageError(
            f"lifespan gave a {type(around).__name__}: it is to be a function decorated by "
            "contextlib.asynccontextmanager."
        )
    return around
