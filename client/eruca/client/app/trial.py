"""Trial: an application at work in a test, with a real nameserver and broker.

Owns the cluster of the test, unless one is given, and what the test asks: send a message, wait until a handler has
ended, read what was published. Servers come from whoever is installed under the entry point ``eruca.test_clusters``;
the client itself has none and knows none.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from eruca.client.app.bodies import message_of
from eruca.client.app.dependencies import Overrides
from eruca.client.client_thread import client_thread
from eruca.client.config import ClientSettings, Waits
from eruca.client.errors import CallTimeout, StateError, TopicNotFound, UsageError
from eruca.client.hooks import ConsumeContext, Hook
from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import SendResult
from eruca.client.polling.lite_pull_consumer import LitePullConsumer
from eruca.client.producing.producer import Producer
from eruca.remoting.clock import now_ms

if TYPE_CHECKING:
    from eruca.client.app.application import App

CLUSTERS = "eruca.test_clusters"
"""The group of entry points of functions that return ``async with cluster() as address``."""
HASTY = ClientSettings(waits=Waits(rebalance=0.05, topic=0.05, send_back=0.05, lock=0.05, release=0.05))
"""Tests do not wait for what a program waits for in production."""


@dataclass(frozen=True, slots=True)
class Handled:
    """A call of a handler that has ended.

    ``status`` is that of hooks, such as CONSUME_SUCCESS or RECONSUME_LATER; ``value`` is the body of a single message
    as its content type says. ``reason`` is why the messages were rejected: that of a Reject, or why the body could not
    be read.
    """

    messages: list[ReceivedMessage]
    status: str
    success: bool
    reason: str | None = None

    @property
    def message(self) -> ReceivedMessage:
        """The message, or the first one of a list."""
        return self.messages[0]

    @property
    def value(self) -> Any:
        """The body of the message, decoded by its content type. Raises BadBody."""
        return self.message.value


class _Ended(Hook):
    """Puts ended calls into their queues, in the event loop of the test."""

    def __init__(self, put: Callable[[ConsumeContext], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._put = put

    def after_consume(self, context: ConsumeContext) -> None:
        """A handler has ended; perhaps in a thread."""
        self._loop.call_soon_threadsafe(self._put, context)


class Trial:
    """An application in a test; made by ``App.test``. ``with`` gives the same calls without ``await``."""

    def __init__(
        self,
        app: App,
        nameserver: str | Sequence[str] | None,
        settings: ClientSettings | None,
        dependencies: Overrides | None,
    ) -> None:
        self._app = app
        self._given = nameserver
        self._chosen = settings
        self._dependencies = dependencies
        self._stack: contextlib.AsyncExitStack | None = None
        self._ended: dict[Any, deque[tuple[Handled, BaseException | None]]] = {}
        self._news = asyncio.Event()
        self._readers: dict[str, LitePullConsumer] = {}
        self._blocking: BlockingTrial | None = None

    # ------------------------------------------------------------------ what a test asks

    @property
    def nameserver(self) -> str:
        """The address of the nameserver, for clients of the test's own."""
        return ";".join(self._running().nameserver_list())

    async def publish(self, topic: str, value: Any) -> SendResult:
        """Send a value: a Message as it is, bytes and text as such, everything else as JSON."""
        self._running()
        return await self._producer.send(message_of(topic, value))

    async def handled(self, handler: Callable[..., Any], *, timeout: float = 10.0) -> Handled:
        """Wait for the next call of a handler that has ended, counted from the start of the test.

        Raises what the handler raised, CallTimeout after ``timeout`` seconds, UsageError for another function.
        """
        self._running()
        if handler not in self._ended:
            raise UsageError(f"{getattr(handler, '__qualname__', handler)} is no handler of the application.")
        ended = self._ended[handler]
        try:
            async with asyncio.timeout(timeout):
                while not ended:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            name = getattr(handler, "__qualname__", handler)
            raise CallTimeout(f"{name} was not called, or did not end, within {timeout} s.") from None
        call, error = ended.popleft()
        if error is not None:
            raise error
        return call

    async def published(self, topic: str, *, timeout: float = 10.0) -> ReceivedMessage:
        """Wait for the next message of a topic, whoever sent it, counted from the start of the test.

        Raises CallTimeout after ``timeout`` seconds.
        """
        settings = self._running()
        reader = self._readers.get(topic)
        if reader is None:
            assert self._stack is not None
            group = f"test-{uuid.uuid4().hex}"
            consumer = LitePullConsumer(group, settings=settings, start_from=self._began).subscribe(topic)
            reader = self._readers[topic] = await self._stack.enter_async_context(consumer)
        try:
            async with asyncio.timeout(timeout):
                return await anext(reader.messages())
        except TimeoutError:
            raise CallTimeout(f"Nothing came to {topic} within {timeout} s.") from None

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Start the cluster, unless one is given, create the topics, and start the application."""
        if self._stack is not None:
            raise StateError("This test runs already: call app.test() for another one.")
        self._began = now_ms()
        async with contextlib.AsyncExitStack() as stack:
            nameserver = self._given or await stack.enter_async_context(_cluster())
            settings = ClientSettings.choose(self._chosen or HASTY, nameserver)
            self._producer = await stack.enter_async_context(Producer("eruca-test", settings=settings))
            for topic in self._app.topics:
                await self._create(topic)
            ended = _Ended(self._put)
            self._ended = {function: deque() for function in self._app.handlers.values()}
            folder = stack.enter_context(TemporaryDirectory(prefix="eruca-offsets-"))
            stack.enter_context(
                self._app.using(
                    settings=settings, dependencies=self._dependencies, hooks=[ended], offset_folder=folder
                ),
            )
            await stack.enter_async_context(self._app)
            self._settings = settings
            self._stack = stack.pop_all()

    async def _create(self, topic: str) -> None:
        try:
            await self._producer.fetch_queues(topic)
        except TopicNotFound:
            await self._producer.create_topic(topic)

    def _put(self, context: ConsumeContext) -> None:
        topic = context.messages[0].topic
        function = self._app.handlers[context.consumer_group, topic]
        call = Handled(list(context.messages), context.status, context.success, context.reason)
        self._ended[function].append((call, context.error))
        self._news.set()

    async def stop(self) -> None:
        """Stop the application and the cluster."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    def _running(self) -> ClientSettings:
        if self._stack is None:
            raise StateError("The test does not run: use `async with app.test() as test`.")
        return self._settings

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> BlockingTrial:
        self._blocking = BlockingTrial(self)
        self._blocking.start()
        return self._blocking

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocking is not None:
            self._blocking.stop()


class BlockingTrial:
    """The same for tests without an event loop: each call waits. The application runs in the clients' own thread."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._thread = client_thread()

    @property
    def nameserver(self) -> str:
        """As of ``Trial``."""
        return self._trial.nameserver

    def start(self) -> None:
        """As of ``Trial``."""
        self._thread.run(self._trial.start())

    def stop(self) -> None:
        """As of ``Trial``."""
        self._thread.run(self._trial.stop())

    def publish(self, topic: str, value: Any) -> SendResult:
        """As of ``Trial``."""
        return self._thread.run(self._trial.publish(topic, value))

    def handled(self, handler: Callable[..., Any], *, timeout: float = 10.0) -> Handled:
        """As of ``Trial``."""
        return self._thread.run(self._trial.handled(handler, timeout=timeout))

    def published(self, topic: str, *, timeout: float = 10.0) -> ReceivedMessage:
        """As of ``Trial``."""
        return self._thread.run(self._trial.published(topic, timeout=timeout))


def _cluster() -> AbstractAsyncContextManager[str]:
    """A cluster of whoever is installed. Raises UsageError where nobody is."""
    from importlib.metadata import entry_points  # dear to import, and for tests only

    missing = "app.test() runs real servers: run `pip install eruca`, or give it nameserver="
    for each in entry_points(group=CLUSTERS):
        try:
            cluster: AbstractAsyncContextManager[str] = each.load()()
        except ImportError as error:
            raise UsageError(f"{missing} ({error}).") from None
        return cluster
    raise UsageError(f"{missing}.")
