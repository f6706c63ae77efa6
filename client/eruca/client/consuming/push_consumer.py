"""PushConsumer: a member of a consumer group whose messages go to a listener, or to ``async for``.

Owns the options of the consumer and what users may call. What runs is ``push_engine``. Facts: DefaultMQPushConsumer in
4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from os import PathLike
from typing import TYPE_CHECKING, Self, Unpack, overload

from eruca.client.admin_calls import Client
from eruca.client.assign import Strategy, averagely
from eruca.client.checks import check_least, check_seconds
from eruca.client.config import ClientSettings, StartFrom, check_group, check_positive
from eruca.client.consuming.listener_options import SUSPEND_TIME, ListenerOptions
from eruca.client.consuming.member_options import MemberOptions
from eruca.client.consuming.message_stream import Messages
from eruca.client.consuming.ordered_queue import KeyOf
from eruca.client.consuming.process_queue import PullThresholds
from eruca.client.consuming.push_engine import PushEngine
from eruca.client.consuming.queue_puller import PULL_BATCH_SIZE, PullOptions
from eruca.client.consuming.rebalance_listener import QueuesListener
from eruca.client.environment import known_keywords, known_options
from eruca.client.errors import BadConfig
from eruca.client.hooks import Hook
from eruca.client.middleware import Middleware
from eruca.client.network.events import DisconnectedListener, ErrorListener, EventListeners, ReconnectedListener
from eruca.client.network.session import Session
from eruca.client.outcomes import Backoff, Listener
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import ALL, TAG

if TYPE_CHECKING:
    from eruca.client.consuming.arguments import (
        BatchListener,
        ConcurrentKeywords,
        EitherKeywords,
        KeyedBatchListener,
        KeyedKeywords,
        KeyedMessageListener,
        MessageListener,
        OrderlyBatchListener,
        OrderlyKeywords,
        OrderlyMessageListener,
        PlainListener,
    )


@known_options
class PushConsumer(Client):
    """A member of a consumer group: each message goes to one member.

    With a ``listener`` its messages go there; without one they are taken by ``async for message in consumer``. Use it
    with ``async with``, or call ``start`` and ``stop``.

    Args:
        group: the consumer group.
        listener: takes a ReceivedMessage. A coroutine function runs in the event loop, another function in threads.
            Returning None consumes the message; raising or returning ``Later()`` lets it be retried, returning
            ``Reject()`` makes it a dead letter.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        start_from: where a group without stored offsets begins: "first" (or "earliest"), "last", "end" (or "latest"),
            or a time (datetime, or ms since 1970). For "last" a broker begins at the first message of a queue as long
            as that is in memory, so a young topic is read from its start; "end" skips all messages that exist.
        strategy: how queues are allocated; all members must use the same (see ``assign``).
        concurrency: calls of the listener at once.
        consume_message_batch_max_size: None passes one message to the listener; a number N passes a list of up to N.
        pull_batch_size: messages to ask for in one pull, fewer if the thresholds leave less room. The cost of a pull is
            shared by its messages; a broker with RocketMQ's defaults returns 32 at most.
        pull_threshold_for_queue: messages of one queue that may wait in memory.
        pull_threshold_size_for_queue: MiB of one queue that may wait in memory.
        consume_max_span: offsets from the first to the last waiting message of one queue.
        pull_threshold_for_topic: messages of all queues of a topic that may wait, shared evenly by the queues of this
            consumer, in place of pull_threshold_for_queue. None: no such limit.
        pull_threshold_size_for_topic: the same in MiB, in place of pull_threshold_size_for_queue.
        pull_interval: seconds between a pull that returned messages and the next one.
        pull_time_delay_when_exception: until the next pull after a failed one.
        max_reconsume_times: retries after which a message goes to the dead letters; default 16, unlimited with
            ``orderly`` and ``ordered_by``.
        retry: the times of the retries (see Backoff). None: the broker's levels, which grow with each retry, or
            suspend_time with ``orderly`` and ``ordered_by``. A broker that knows only levels takes the nearest one.
        orderly: the messages of a queue are consumed in order, one call at a time by one member. Raising or returning
            ``Suspend()`` retries a message before all others of its queue.
        ordered_by: a plain function that returns the key of a message, such as ``lambda message: message.keys[0]``. The
            messages of one key in a queue are consumed in order, one call at a time, those of different keys at once;
            a message that fails holds up its key only. Keys are compared by ``==``; messages for which the function
            fails share one. Send each key to one queue. With lists, a list has messages of one key.
        suspend_time: seconds until that retry, from 0.01 to 30.
        auto_commit: False lets an orderly listener decide when its messages count as consumed, by ``Decision``.
        broadcast: every member gets all messages. Its offsets are stored in a local file, as RocketMQ's clients do;
            messages that the listener fails to consume are logged and not retried.
        offset_folder: the folder of that file; default ``~/.rocketmq_offsets``.
        offset_interval: seconds between two stores of all offsets.
        rebalance_interval: seconds between two lookups of the members of the group (brokers also notify at once).
        on_assigned: called with the queues that this member got, before it reads them; a coroutine function, or another
            that runs in a thread. A rebalance waits for it, 10 s at most (Waits.rebalance_listener); errors are logged.
        on_revoked: the same, with the queues that it gives up, also when it stops: they are read no further, and other
            members get them when it has returned. What is consumed or acknowledged meanwhile counts.
        on_disconnected: called with a Disconnected when a broker cannot be reached; a coroutine function, or another
            that runs in a thread. Nothing waits for it, it ends after 10 s (Waits.event_listener), errors are logged.
        on_reconnected: the same, with a Reconnected when it is reached again.
        on_error: the same, with a BackgroundError when background work failed, such as to store offsets.
        stop_timeout: seconds for which ``stop`` waits for running calls.
        consume_timeout: seconds after which the messages of a running call are sent back, to be retried (not if
            orderly).
        executor: runs a listener that is a plain function, such as a ProcessPoolExecutor for heavy computation; or a
            function that makes one, which is shut down at the stop, and replaced when a process of it died.
        hooks: see what is consumed (see Hook).
        middleware: coroutine functions ``async def middleware(message, call_next)`` around the listener, the first
            outermost; each returns the outcome, mostly that of ``await call_next(message)``, and may change it.
        trace: True writes the trace of each message to RMQ_SYS_TRACE_TOPIC, a name to that topic (enableMsgTrace).
        settings: what all clients share.

    Raises BadName, BadConfig and UsageError; ``start`` also NoNameserver.
    """

    # The consumer is an object here, so that the blocking consumer has the same overloads.
    @overload
    def __init__(
        self: object,
        group: str,
        listener: MessageListener | None = None,
        *,
        consume_message_batch_max_size: None = None,
        **options: Unpack[ConcurrentKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: BatchListener,
        *,
        consume_message_batch_max_size: int,
        **options: Unpack[ConcurrentKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: OrderlyMessageListener | None = None,
        *,
        consume_message_batch_max_size: None = None,
        **options: Unpack[OrderlyKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: OrderlyBatchListener,
        *,
        consume_message_batch_max_size: int,
        **options: Unpack[OrderlyKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: KeyedMessageListener | None = None,
        *,
        consume_message_batch_max_size: None = None,
        **options: Unpack[KeyedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object,
        group: str,
        listener: KeyedBatchListener,
        *,
        consume_message_batch_max_size: int,
        **options: Unpack[KeyedKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self: object, group: str, listener: PlainListener | None = None, **options: Unpack[EitherKeywords]
    ) -> None: ...
    def __init__(
        self,
        group: str,
        listener: Listener | None = None,
        *,
        nameserver: str | Sequence[str] | None = None,
        start_from: StartFrom = "last",
        strategy: Strategy = averagely,
        concurrency: int = 20,
        consume_message_batch_max_size: int | None = None,
        pull_batch_size: int = PULL_BATCH_SIZE,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue: int = 100,
        consume_max_span: int = 2000,
        pull_threshold_for_topic: int | None = None,
        pull_threshold_size_for_topic: int | None = None,
        pull_interval: float = 0.0,
        pull_time_delay_when_exception: float = 1.0,
        max_reconsume_times: int | None = None,
        retry: Backoff | None = None,
        orderly: bool = False,
        ordered_by: KeyOf | None = None,
        suspend_time: float = SUSPEND_TIME,
        auto_commit: bool = True,
        broadcast: bool = False,
        offset_folder: str | PathLike[str] | None = None,
        offset_interval: float = 5.0,
        rebalance_interval: float = 20.0,
        on_assigned: QueuesListener | None = None,
        on_revoked: QueuesListener | None = None,
        on_disconnected: DisconnectedListener | None = None,
        on_reconnected: ReconnectedListener | None = None,
        on_error: ErrorListener | None = None,
        stop_timeout: float = 30.0,
        consume_timeout: float = 900.0,
        executor: Executor | Callable[[], Executor] | None = None,
        hooks: Sequence[Hook] = (),
        middleware: Sequence[Middleware] = (),
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "consumer")
        check_positive(offset_interval=offset_interval, pull_time_delay_when_exception=pull_time_delay_when_exception)
        check_seconds(0, pull_interval=pull_interval)
        check_least(1, pull_batch_size=pull_batch_size)
        calls = ListenerOptions(
            concurrency=concurrency,
            consume_message_batch_max_size=consume_message_batch_max_size,
            max_reconsume_times=max_reconsume_times,
            retry=retry,
            orderly=orderly,
            ordered_by=ordered_by,
            suspend_time=suspend_time,
            auto_commit=auto_commit,
            stop_timeout=stop_timeout,
            consume_timeout=consume_timeout,
        )
        member = MemberOptions(
            start_from=start_from,
            strategy=strategy,
            broadcast=broadcast,
            offset_folder=offset_folder,
            rebalance_interval=rebalance_interval,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            events=EventListeners(
                group=group, on_disconnected=on_disconnected, on_reconnected=on_reconnected, on_error=on_error
            ),
            store_start=True,
        )
        thresholds = PullThresholds(
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue=pull_threshold_size_for_queue,
            consume_max_span=consume_max_span,
            pull_threshold_for_topic=pull_threshold_for_topic,
            pull_threshold_size_for_topic=pull_threshold_size_for_topic,
        )
        pull = PullOptions(
            batch_size=pull_batch_size,
            interval=pull_interval,
            after_error=pull_time_delay_when_exception,
            commit=not broadcast,
        )
        given = {"retry": retry, "max_reconsume_times": max_reconsume_times}
        idle = [name for name, value in given.items() if value is not None]
        if broadcast and not calls.in_order and idle:
            raise BadConfig(f"A broadcasting consumer has no retries: leave {idle[0]}= out, or broadcast=True")
        self.group = group
        self._engine = PushEngine(
            group,
            listener,
            calls=calls,
            member=member,
            thresholds=thresholds,
            pull=pull,
            offset_interval=offset_interval,
            executor=executor,
            hooks=hooks,
            middleware=middleware,
            trace=trace,
            settings=ClientSettings.choose(settings, nameserver),
        )

    # ------------------------------------------------------------------ subscribing

    @known_keywords
    def subscribe(self, topic: str, expression: str = ALL, *, expression_type: str = TAG) -> Self:
        """Subscribe a topic: messages with one of the tags of ``TagA || TagB``, or all with ``*``.

        With ``expression_type="SQL92"`` the expression is a condition on properties. All members of a group must
        subscribe alike. May be called before and after start; returns the consumer. Raises BadName and UsageError.
        """
        self._engine.subscribe(topic, expression, expression_type)
        return self

    def unsubscribe(self, topic: str) -> None:
        """End the subscription of a topic; calls that run are finished."""
        self._engine.unsubscribe(topic)

    def add_hook(self, hook: Hook) -> None:
        """Add a hook after those that exist; before start. Raises StateError."""
        self._engine.add_hook(hook)

    # ------------------------------------------------------------------ starting and stopping

    @property
    def _details(self) -> str:
        return self._engine.membership.details

    @property
    def _seat(self) -> Session:
        return self._engine.membership.seat

    def _needs(self) -> tuple[ClientSettings, Collection[str]]:
        return self._engine.membership.needs

    async def _join(self) -> None:
        await self._engine.start()

    async def stop(self) -> None:
        """Stop pulling, wait for running calls, store the offsets, leave the group.

        Returns when the brokers have confirmed; called in a listener it returns at once, as that call is waited for. A
        cancellation ends the wait for running calls only. Further calls wait for the same end.
        """
        await self._engine.stop()

    async def wait(self, timeout: float | None = None) -> bool:
        """Return True when the consumer has stopped, False after ``timeout`` seconds: for programs that do no more.

        In the main thread the first SIGTERM or Ctrl-C stops the consumer meanwhile, as ``stop`` does, and a second one
        has its usual effect. A signal that the program handles itself stays the program's.

        Raises StateError before start, and UsageError.
        """
        return await self._engine.wait(timeout)

    # ------------------------------------------------------------------ while it runs

    def suspend(self) -> None:
        """Stop pulling until ``resume``. Thread-safe; allowed before start.

        Messages that were pulled are consumed, as are those of pulls in flight, one for each queue.
        """
        self._engine.suspend()

    def resume(self) -> None:
        """Pull again after ``suspend``. Thread-safe."""
        self._engine.gate.open()

    @property
    def suspended(self) -> bool:
        """Whether it is suspended."""
        return self._engine.gate.closed

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return self._engine.membership.queues

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The offset to store of each queue of a topic that this member has."""
        return self._engine.membership.positions(topic)

    def messages(self, *, auto_ack: bool = True) -> Messages:
        """The messages for ``async for``, of a consumer without a listener.

        A message counts as consumed when the next one is taken; with ``auto_ack=False`` only by its ``ack()``. A loop
        that ends by ``break`` or an error leaves its last message unsettled: it is retried, unless ``ack()`` was
        called. Several tasks may iterate at once, each over its own ``messages()``.
        """
        return Messages(self._engine.stream(), auto_ack)

    def __aiter__(self) -> Messages:
        return self.messages()


def engine_of(consumer: PushConsumer) -> PushEngine:
    """What runs behind a consumer: for other modules of the client, not for users."""
    return consumer._engine
