"""App: an application of consumers. A decorator makes functions members of groups, and ``run`` serves them.

Owns the order in which registered clients start and stop, and the end by signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, Unpack, cast

from eruca.client import callbacks
from eruca.client.config import ClientSettings
from eruca.client.consuming.arguments import ConsumerKeywords
from eruca.client.consuming.push_consumer import PushConsumer
from eruca.client.errors import StateError, UsageError
from eruca.client.lifecycle import Startable
from eruca.client.log import log
from eruca.client.producing.options import ProducerKeywords
from eruca.client.producing.producer import Producer
from eruca.remoting.loop import new_loop

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[[], contextlib.AbstractAsyncContextManager[Any]]
"""Makes what the application needs around its consumers: a function decorated by ``contextlib.asynccontextmanager``."""


class _Part(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class App(Startable):
    """Consumers and producers that start and stop together.

    ``run`` serves until SIGTERM or Ctrl-C; or use ``async with``.

    Args:
        nameserver: for all of them; default from the environment (see ClientSettings).
        lifespan: entered before the first consumer starts and left after the last has stopped: the place for a
            connection to a database.
        settings: what all clients share.

    Raises BadConfig and NoNameserver.
    """

    def __init__(
        self,
        *,
        nameserver: str | Sequence[str] | None = None,
        lifespan: Lifespan | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        self._settings = ClientSettings.choose(settings, nameserver)
        if lifespan is not None:
            callbacks.check_callable(lifespan, "lifespan")
        self._lifespan = lifespan
        self._consumers: dict[str, PushConsumer] = {}
        self._producers: dict[str, Producer] = {}
        self._running: contextlib.AsyncExitStack | None = None

    def consumer(
        self,
        topic: str,
        group: str,
        *,
        expression: str = "*",
        expression_type: str = "TAG",
        **options: Unpack[ConsumerKeywords],
    ) -> Callable[[F], F]:
        """Decorate the listener of a group; the function itself stays as it is.

        Args:
            topic: what it takes.
            group: its consumer group; each group has one listener.
            expression: the tags, or the condition, as of ``PushConsumer.subscribe``.
            options: as of ``PushConsumer``.

        Raises UsageError for a second listener of a group, and what ``PushConsumer`` raises.
        """

        def register(listener: F) -> F:
            self._open()
            callbacks.check_callable(listener, "The listener")
            if group in self._consumers:
                raise UsageError(f"The group {group} has a listener already: give each listener a group of its own.")
            keywords = cast("dict[str, Any]", options)  # whether they fit the listener is known when it is called
            consumer = PushConsumer(group, listener, settings=self._settings, **keywords)
            self._consumers[group] = consumer.subscribe(topic, expression, expression_type=expression_type)
            return listener

        if callable(topic) or not isinstance(group, str):
            raise UsageError('The decorator takes a topic and a group: @app.consumer("Orders", "kitchen").')
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
        producer = self._producers[group] = Producer(group, settings=self._settings, **options)
        return producer

    def _open(self) -> None:
        if self._running is not None:
            raise StateError("The application runs: register consumers and producers before it starts.")

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Start the lifespan, the producers, then the consumers; when one cannot, what runs is stopped again.

        Raises UsageError for an application without consumers, StateError when it runs already, and what their
        ``start`` raises.
        """
        if not self._consumers:
            raise UsageError(
                'The application has no consumer: decorate a function with @app.consumer("topic", "group").'
            )
        self._open()
        async with contextlib.AsyncExitStack() as stack:
            if self._lifespan is not None:
                await stack.enter_async_context(_entered(self._lifespan))
            parts: list[_Part] = [*self._producers.values(), *self._consumers.values()]
            for part in parts:
                await part.start()
                stack.push_async_callback(part.stop)
            self._running = stack.pop_all()
        log.info("application started: %s", ", ".join(sorted(self._consumers)))

    async def stop(self) -> None:
        """Stop the consumers, whose listeners at work end first, then the producers and the lifespan."""
        stack, self._running = self._running, None
        if stack is not None:
            await stack.aclose()
            log.info("application stopped")

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT (Ctrl-C), then stop in order; a second signal ends at once.

        To be called in the main thread, where no event loop runs. Raises UsageError otherwise.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise UsageError("run() was called in an event loop: use `async with app` there.")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with _until_signal() as ended, self:
            await ended.wait()


def _entered(lifespan: Lifespan) -> contextlib.AbstractAsyncContextManager[Any]:
    around = lifespan()
    if not isinstance(around, contextlib.AbstractAsyncContextManager):
        raise UsageError(
            f"lifespan gave a {type(around).__name__}: it is to be a function decorated by "
            "contextlib.asynccontextmanager."
        )
    return around


@contextlib.asynccontextmanager
async def _until_signal() -> AsyncIterator[asyncio.Event]:
    """An event that the first SIGTERM or SIGINT sets; the next one has its usual effect."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def end() -> None:
        ended.set()
        _leave(loop, numbers)

    try:
        for number in numbers:
            loop.add_signal_handler(number, end)
    except NotImplementedError:  # Windows: Ctrl-C cancels the runner's task instead
        pass
    except (RuntimeError, ValueError):
        raise UsageError("run() was called outside the main thread: use `async with app` there.") from None
    try:
        yield ended
    finally:
        if not ended.is_set():
            _leave(loop, numbers)


def _leave(loop: asyncio.AbstractEventLoop, numbers: Iterable[signal.Signals]) -> None:
    """Let signals have their usual effect again."""
    for number in numbers:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(number)
