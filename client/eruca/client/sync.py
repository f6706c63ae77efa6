"""The same clients for programs without an event loop: same names, same arguments, calls that wait.

Each method below is the asynchronous one, run in the one thread of ``client_thread``; nothing is written twice.
Thread-safe: any thread may call.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from eruca.client import admin_calls, backlog, callbacks, dead_letter, outbox, rpc
from eruca.client.client_thread import client_thread
from eruca.client.consuming import push_consumer
from eruca.client.consuming.message_stream import Delivery, settle_by
from eruca.client.dead_letter import DeadLetter
from eruca.client.environment import known_keywords
from eruca.client.errors import UsageError
from eruca.client.lifecycle import named
from eruca.client.message import ReceivedMessage, as_it_is
from eruca.client.polling import lite_pull_consumer, pull_consumer, pull_schedule
from eruca.client.polling.pull_schedule import PullTaskContext
from eruca.client.polling.queue_share import MessageQueueListener
from eruca.client.producing import producer, transactions
from eruca.client.rpc import Proxy, make_proxy
from eruca.client.signals import ended_by_signal
from eruca.client.watched_future import WatchedFuture
from eruca.protocol.queues import MessageQueue
from eruca.remoting.loop_thread import LoopThread, PerProcess

__all__ = [
    "RPC",
    "LitePullConsumer",
    "OutboxRelay",
    "Producer",
    "PullConsumer",
    "PullScheduleService",
    "PushConsumer",
    "TransactionProducer",
    "dead_letters",
    "lag",
    "lazy",
    "redrive",
]


class _Client(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


C = TypeVar("C", bound=_Client, covariant=True)
AnyProducer = TypeVar("AnyProducer", bound=producer.Producer, covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound="_Blocking[Any]")
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class _Blocking(Generic[C]):
    """A client whose calls wait; use it with ``with``, or call ``start`` and ``stop``."""

    _client: C
    _thread: LoopThread
    _lazily: _Lazily[C] | None = None
    """Of a client that ``lazy`` made; it has no client and no thread of its own, but those of the process."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if self._lazily is not None and name in ("_client", "_thread"):
                return getattr(self._lazily.of_process(), name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def start(self) -> None:
        """As the asynchronous ``start``. A lazy client starts by itself; here it does so early."""
        if self._lazily is not None:
            self._lazily.of_process()
        else:
            self._thread.run(self._client.start())

    def stop(self) -> None:
        """As the asynchronous ``stop``. Where nothing runs any more, as in a forked child, it does nothing."""
        if self._lazily is not None:
            self._lazily.stop()
        elif not self._thread.over:
            self._thread.run(self._client.stop())

    def _each(self, begin: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """What an iteration of the client gives, for ``for``. Raises what ``begin`` raises, at once."""
        return self._items(self._thread.run(_call(begin)))

    def _items(self, iteration: AsyncIterator[T]) -> Iterator[T]:
        while True:
            try:
                item = self._thread.run(_ask(iteration))
            except StopAsyncIteration:
                return
            yield item

    def __repr__(self) -> str:
        lazily = self._lazily
        if lazily is not None:
            return repr(lazily.unstarted).replace("<", "<lazy sync.", 1)
        return repr(self._client).replace("<", "<sync.", 1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


F = TypeVar("F", bound=Callable[..., None])


def _made_with(kind: Callable[..., C], model: F) -> Callable[[Callable[[Any, C], None]], F]:
    """As ``_made_as``, for a constructor ``model`` with overloads."""
    return cast("Callable[[Callable[[Any, C], None]], F]", _made_as(kind))


class _Lazily(Generic[C]):
    """The client of each process that ``lazy`` promised: made and started at its first use there."""

    def __init__(self, make: Callable[[], _Blocking[C]], unstarted: C) -> None:
        self.unstarted = unstarted
        self._make = make
        self._clients: PerProcess[_Blocking[C]] = PerProcess(self._started)

    def of_process(self) -> _Blocking[C]:
        """The client of this process. Raises what its start raises; then the next use tries again."""
        return self._clients.get()

    def _started(self) -> _Blocking[C]:
        client = self._make()
        client.start()
        atexit.register(client.stop)
        for library in ("multiprocessing.util", "billiard.util"):  # their processes end without atexit
            if library in sys.modules:
                sys.modules[library].Finalize(None, client.stop, exitpriority=100)
        return client

    def stop(self) -> None:
        """Stop the client of this process, if there is one; another use starts another one."""
        client = self._clients.replace(None)
        if client is not None:
            client.stop()


def lazy(kind: Callable[P, S], *args: P.args, **kwargs: P.kwargs) -> S:
    """A client that starts at its first use, in each process, also after a fork, and stops at the end of the process.

    It may be made when a module is imported: ``producer = sync.lazy(sync.Producer, "orders-service")``.

    Args:
        kind: Producer, TransactionProducer or PullConsumer.
        args: its arguments.
        kwargs: its arguments by name.

    Raises UsageError for another class, and what the class raises.
    """
    unstarted = _UNSTARTED.get(kind)
    if unstarted is None:
        names = ", ".join(each.__name__ for each in _UNSTARTED)
        raise UsageError(f"lazy() is for {names} of eruca.client.sync: other clients subscribe before they start.")
    client: S = object.__new__(cast("type[S]", kind))
    client._lazily = _Lazily(lambda: kind(*args, **kwargs), unstarted(*args, **kwargs))
    return client


def _made_as(kind: Callable[P, C]) -> Callable[[Callable[[S, C], None]], Callable[Concatenate[S, P], None]]:
    """A constructor with the arguments of the asynchronous client, which keeps the client it is given."""

    def decorate(keep: Callable[[S, C], None]) -> Callable[Concatenate[S, P], None]:
        def make(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            self._thread = client_thread()
            keep(self, self._thread.submit(_call(kind, *args, **kwargs)).result())

        make.__doc__ = (kind.__doc__ or "").replace("``async ", "``")
        make.__signature__ = inspect.signature(kind.__init__)  # type: ignore[attr-defined]
        return make

    return decorate


async def _call(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return function(*args, **kwargs)


def _waiting(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Blocking[C], P], R]:
    """A method that waits for the asynchronous one."""

    @functools.wraps(method)
    def wait(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._thread.run(method(self._client, *args, **kwargs))

    return wait


def _calling(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[_Blocking[C], P], R]:
    """A method that calls a plain one in the event loop."""

    @functools.wraps(method)
    def call(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._thread.run(_call(method, self._client, *args, **kwargs))

    return call


def _submitting(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Blocking[C], P], concurrent.futures.Future[R]]:
    """A method that starts the asynchronous one and returns its future."""

    @functools.wraps(method)
    def submit(self: _Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        begin: Callable[..., Coroutine[Any, Any, R]] = method
        options = {name: as_it_is(value) for name, value in kwargs.items()}
        started = self._thread.submit(begin(self._client, *map(as_it_is, args), **options))
        return WatchedFuture(started, f"A {method.__name__} of {named(self._client)}")

    signature = inspect.signature(method)
    future = f"Future[{signature.return_annotation}]"
    submit.__signature__ = signature.replace(return_annotation=future)  # type: ignore[attr-defined]
    submit.__name__ = f"start_{method.__name__}"
    submit.__doc__ = f"Begin ``{method.__name__}``, with its arguments; the future has its result, or its error."
    return submit


class _AdminCalls(_Blocking[C]):
    """The start and the administrative calls that every client has."""

    def start(self, *, wait: float | None = None) -> None:
        """As the asynchronous ``start``. A lazy client starts by itself; here it does so early, by its settings."""
        if self._lazily is None:
            self._thread.run(cast("admin_calls.Client", self._client).start(wait=wait))
        elif wait is not None:
            raise UsageError("A lazy client starts by itself: give ClientSettings(start_wait=...) in place of wait=.")
        else:
            super().start()

    @property
    def healthy(self) -> admin_calls.Health:
        """As the asynchronous ``healthy``."""
        return cast("admin_calls.Client", self._client).healthy

    ping = _waiting(admin_calls.Client.ping)
    create_topic = _waiting(admin_calls.Client.create_topic)
    fetch_queues = _waiting(admin_calls.Client.fetch_queues)
    fetch_send_queues = _waiting(admin_calls.Client.fetch_send_queues)
    min_offset = _waiting(admin_calls.Client.min_offset)
    max_offset = _waiting(admin_calls.Client.max_offset)
    offset_for_timestamp = _waiting(admin_calls.Client.offset_for_timestamp)
    earliest_store_time = _waiting(admin_calls.Client.earliest_store_time)
    view_message = _waiting(admin_calls.Client.view_message)
    query_messages = _waiting(admin_calls.Client.query_messages)


class _Sending(_AdminCalls[AnyProducer]):
    """The calls that every producer has."""

    send = _waiting(producer.Producer.send)
    start_send = _submitting(producer.Producer.send)
    use = _calling(producer.Producer.use)
    add_hook = _calling(producer.Producer.add_hook)
    send_batch = _waiting(producer.Producer.send_batch)
    send_oneway = _waiting(producer.Producer.send_oneway)
    flush = _waiting(producer.Producer.flush)
    request = _waiting(producer.Producer.request)
    reply = _waiting(producer.Producer.reply)
    reply_error = _waiting(producer.Producer.reply_error)

    @property
    def in_flight(self) -> int:
        """As the asynchronous ``in_flight``."""
        return self._client.in_flight


class Producer(_Sending[producer.Producer]):
    """Sends messages; see ``eruca.client.Producer``. ``start_send`` returns a ``concurrent.futures.Future``."""

    @_made_as(producer.Producer)
    def __init__(self, client: producer.Producer) -> None:
        self._client = client


class TransactionProducer(_Sending[transactions.TransactionProducer]):
    """Sends in transactions, too; see ``eruca.client.TransactionProducer``."""

    @_made_as(transactions.TransactionProducer)
    def __init__(self, client: transactions.TransactionProducer) -> None:
        self._client = client

    send_in_transaction = _waiting(transactions.TransactionProducer.send_in_transaction)


class RPC(_Blocking[rpc.RPC]):
    """Functions that other programs call by name, and calls of theirs; see ``eruca.client.RPC``."""

    @_made_as(rpc.RPC)
    def __init__(self, client: rpc.RPC) -> None:
        self._client = client

    def start(self, *, wait: float | None = None) -> None:
        """As the asynchronous ``start``."""
        self._thread.run(self._client.start(wait=wait))

    @overload
    def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        returns: type[T],
    ) -> T: ...
    @overload
    def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        returns: Any = Any,
    ) -> Any: ...
    def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        returns: Any = Any,
    ) -> Any:
        """As the asynchronous ``call``."""
        return self._thread.run(self._client.call(name, args, named, timeout=timeout, returns=returns))

    @overload
    def method(self, function: AnyFunction) -> AnyFunction: ...
    @overload
    def method(self, function: None = None, *, name: str | None = None) -> Callable[[AnyFunction], AnyFunction]: ...
    def method(self, function: Any = None, *, name: str | None = None) -> Any:
        """As the asynchronous ``method``."""
        return self._client.method(function, name=name)

    @overload
    def proxy(self, service: None = None, *, timeout: float | None = None) -> Proxy[Any]: ...
    @overload
    def proxy(self, service: rpc.Service[T], *, timeout: float | None = None) -> T: ...
    def proxy(self, service: rpc.Service[Any] | None = None, *, timeout: float | None = None) -> Any:
        """As the asynchronous ``proxy``, of methods that wait; the functions of a ``service`` are plain ones."""

        def call(name: str, args: Sequence[Any], named: Mapping[str, Any], returns: Any) -> Any:
            return self.call(name, args, named, timeout=timeout, returns=returns)

        return make_proxy(call, self._client.topic, service)


class PullConsumer(_AdminCalls[pull_consumer.PullConsumer]):
    """Pulls messages and asks for offsets; see ``eruca.client.PullConsumer``."""

    @_made_as(pull_consumer.PullConsumer)
    def __init__(self, client: pull_consumer.PullConsumer) -> None:
        self._client = client

    add_hook = _calling(pull_consumer.PullConsumer.add_hook)
    query_offset = _waiting(pull_consumer.PullConsumer.query_offset)
    update_offset = _waiting(pull_consumer.PullConsumer.update_offset)
    pull = _waiting(pull_consumer.PullConsumer.pull)
    pull_block_if_not_found = _waiting(pull_consumer.PullConsumer.pull_block_if_not_found)
    send_message_back = _waiting(pull_consumer.PullConsumer.send_message_back)
    register_message_queue_listener = _waiting(pull_consumer.PullConsumer.register_message_queue_listener)

    @property
    def queues(self) -> list[MessageQueue]:
        """As the asynchronous ``queues``."""
        return self._client.queues


class LitePullConsumer(_AdminCalls[lite_pull_consumer.LitePullConsumer]):
    """Polls; see ``eruca.client.LitePullConsumer``. ``for message in consumer`` and ``for batch in batches()``."""

    @_made_as(lite_pull_consumer.LitePullConsumer)
    def __init__(self, client: lite_pull_consumer.LitePullConsumer) -> None:
        self._client = client

    add_hook = _calling(lite_pull_consumer.LitePullConsumer.add_hook)
    unsubscribe = _calling(lite_pull_consumer.LitePullConsumer.unsubscribe)
    assign = _calling(lite_pull_consumer.LitePullConsumer.assign)
    set_sub_expression_for_assign = _calling(lite_pull_consumer.LitePullConsumer.set_sub_expression_for_assign)
    assignment = _calling(lite_pull_consumer.LitePullConsumer.assignment)
    register_topic_message_queue_change_listener = _waiting(
        lite_pull_consumer.LitePullConsumer.register_topic_message_queue_change_listener
    )
    poll = _waiting(lite_pull_consumer.LitePullConsumer.poll)
    pause = _calling(lite_pull_consumer.LitePullConsumer.pause)
    resume = _calling(lite_pull_consumer.LitePullConsumer.resume)
    seek = _waiting(lite_pull_consumer.LitePullConsumer.seek)
    seek_to_begin = _waiting(lite_pull_consumer.LitePullConsumer.seek_to_begin)
    seek_to_end = _waiting(lite_pull_consumer.LitePullConsumer.seek_to_end)
    commit_sync = _waiting(lite_pull_consumer.LitePullConsumer.commit_sync)
    commit = _waiting(lite_pull_consumer.LitePullConsumer.commit)
    committed = _waiting(lite_pull_consumer.LitePullConsumer.committed)
    update_nameserver_address = _waiting(lite_pull_consumer.LitePullConsumer.update_nameserver_address)
    positions = _calling(lite_pull_consumer.LitePullConsumer.positions)
    _subscribe = _calling(lite_pull_consumer.LitePullConsumer.subscribe)

    @known_keywords
    def subscribe(
        self,
        topic: str,
        expression: str = "*",
        *,
        expression_type: str = "TAG",
        listener: MessageQueueListener | None = None,
    ) -> Self:
        """As the asynchronous ``subscribe``."""
        self._subscribe(topic, expression, expression_type=expression_type, listener=listener)
        return self

    @property
    def auto_commit(self) -> bool:
        """As the asynchronous ``auto_commit``."""
        return self._client.auto_commit

    @property
    def is_running(self) -> bool:
        """As the asynchronous ``is_running``."""
        return self._client.is_running

    def batches(self) -> Iterator[list[ReceivedMessage]]:
        """As the asynchronous ``batches``, for ``for``."""
        return self._each(self._client.batches)

    def messages(self) -> Iterator[ReceivedMessage]:
        """As the asynchronous ``messages``, for ``for``."""
        return self._each(self._client.messages)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()


class PullScheduleService(_AdminCalls[pull_schedule.PullScheduleService]):
    """Calls callbacks on schedule; see ``eruca.client.PullScheduleService``. What they pull with is ``pull_consumer``.

    Callbacks are plain functions; each runs in a thread and gets a context whose ``pull_consumer`` is the blocking one.
    """

    @_made_as(pull_schedule.PullScheduleService)
    def __init__(self, client: pull_schedule.PullScheduleService) -> None:
        self._client = client

    add_hook = _calling(pull_schedule.PullScheduleService.add_hook)
    _register = _calling(pull_schedule.PullScheduleService.register_pull_task_callback)

    def register_pull_task_callback(
        self, topic: str, callback: Callable[[MessageQueue, PullTaskContext[PullConsumer]], None]
    ) -> Self:
        """As the asynchronous ``register_pull_task_callback``."""
        callbacks.check_callable(callback, "The callback", "queue", "context")
        callbacks.check_no_generator(callback, "The callback")

        def call(queue: MessageQueue, context: PullTaskContext[pull_consumer.PullConsumer]) -> None:
            own = PullTaskContext(self.pull_consumer, context.pull_next_delay_time)
            callback(queue, own)
            context.pull_next_delay_time = own.pull_next_delay_time

        self._register(topic, call)
        return self

    @property
    def pull_consumer(self) -> PullConsumer:
        """What callbacks pull with."""
        face = PullConsumer.__new__(PullConsumer)
        face._thread, face._client = self._thread, self._client.pull_consumer
        return face

    @property
    def queues(self) -> list[MessageQueue]:
        """As the asynchronous ``queues``."""
        return self._client.queues


class PushConsumer(_AdminCalls[push_consumer.PushConsumer]):
    """A member of a group; see ``eruca.client.PushConsumer``. Without a listener: ``for message in consumer``."""

    @_made_with(push_consumer.PushConsumer, push_consumer.PushConsumer.__init__)
    def __init__(self, client: push_consumer.PushConsumer) -> None:
        self._client = client

    add_hook = _calling(push_consumer.PushConsumer.add_hook)
    suspend = _calling(push_consumer.PushConsumer.suspend)
    resume = _calling(push_consumer.PushConsumer.resume)
    unsubscribe = _calling(push_consumer.PushConsumer.unsubscribe)
    positions = _calling(push_consumer.PushConsumer.positions)
    _subscribe = _calling(push_consumer.PushConsumer.subscribe)

    @known_keywords
    def subscribe(self, topic: str, expression: str = "*", *, expression_type: str = "TAG") -> Self:
        """As the asynchronous ``subscribe``."""
        self._subscribe(topic, expression, expression_type=expression_type)
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """As the asynchronous ``wait``."""
        with ended_by_signal(lambda: self._thread.submit(self._client.stop())):
            return self._thread.run(self._client.wait(timeout))

    @property
    def queues(self) -> list[MessageQueue]:
        """As the asynchronous ``queues``."""
        return self._thread.run(_call(lambda: self._client.queues))

    @property
    def suspended(self) -> bool:
        """As the asynchronous ``suspended``."""
        return self._client.suspended

    def messages(self, *, auto_ack: bool = True) -> Iterator[Delivery]:
        """As the asynchronous ``messages``, for ``for``; settling is thread-safe."""
        return map(self._settled_here, self._each(functools.partial(self._client.messages, auto_ack=auto_ack)))

    def _settled_here(self, message: Delivery) -> Delivery:
        settle_by(message, self._thread.loop.call_soon_threadsafe)
        return message

    def __iter__(self) -> Iterator[Delivery]:
        return self.messages()


class OutboxRelay(_Blocking[outbox.OutboxRelay]):
    """Sends what is in an outbox; see ``eruca.client.outbox.OutboxRelay``."""

    @_made_as(outbox.OutboxRelay)
    def __init__(self, client: outbox.OutboxRelay) -> None:
        self._client = client


_UNSTARTED: dict[Any, Callable[..., Any]] = {
    Producer: producer.Producer,
    TransactionProducer: transactions.TransactionProducer,
    PullConsumer: pull_consumer.PullConsumer,
}
"""The blocking clients that need nothing before they start, and whose arguments they have."""


def _answering(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    return functools.wraps(function)(lambda *args, **kwargs: client_thread().run(function(*args, **kwargs)))


lag = _answering(backlog.lag)
redrive = _answering(dead_letter.redrive)


@functools.wraps(dead_letter.dead_letters)
def dead_letters(*args: Any, **kwargs: Any) -> Iterator[DeadLetter]:
    """As the asynchronous ``dead_letters``, for ``for``."""
    thread, letters = client_thread(), dead_letter.dead_letters(*args, **kwargs)
    try:
        while True:
            try:
                letter = thread.run(_ask(letters))
            except StopAsyncIteration:
                return
            yield letter
    finally:
        thread.run(letters.aclose())


async def _ask(iteration: AsyncIterator[T]) -> T:
    return await iteration.__anext__()
