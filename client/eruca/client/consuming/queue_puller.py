"""Pulling one run of a queue: ask, hand over, ask again.

Owns the wait between two pulls, how much each asks for, and what each answer means. There is one pull under way at a
time, which the broker may hold while there is nothing; each carries the position to store. Facts:
DefaultMQPushConsumerImpl.pullMessage in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from eruca.client.bounds import unbounded
from eruca.client.consuming.consumer_stats import TopicStats
from eruca.client.consuming.process_queue import Limits, ProcessQueue
from eruca.client.consuming.suspension import Gate
from eruca.client.errors import BrokerRefused, BrokerUnreachable, ClientError
from eruca.client.log import Trouble, log
from eruca.client.message import ReceivedMessage, received, sizes
from eruca.client.network import brokers
from eruca.client.network.routes import MASTER
from eruca.client.network.session import Session
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.codes import ResponseCode
from eruca.protocol.headers import pull
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import is_tag_type
from eruca.remoting import Answer
from eruca.remoting.clock import now_ms

HOLD = 15.0
"""Seconds for which a broker may hold a pull (brokerSuspendMaxTimeMillis)."""
PULL_TIMEOUT = 30.0
AFTER_ERROR = 1.0
UNTIL_LOCKED = 0.1
"""Seconds between two looks whether a lock that was lost is there again."""
AFTER_FLOW_CONTROL = 0.02
PULL_BATCH = 256
"""Messages that a pull of a PushConsumer asks for by default: of 1 KiB each these are the 256 KiB that brokers give at
once. Java's clients ask for 32, with which each message costs a good deal more."""
PULL_AT_LEAST = 32
"""Messages that a pull asks for although fewer may still wait here: pulls of one message would cost too much. It is all
that ``Limits.count`` may be passed by, and as much as with Java's clients, whose pulls are of so many."""
_UNKNOWN_HERE = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """How pulls are made; times in seconds.

    Args:
        hold: for which a broker may hold a pull (brokerSuspendMaxTimeMillis).
        timeout: until a pull counts as failed.
        after_error: until the next pull after a failed one (pullTimeDelayMillsWhenException).
        lite: each pull says that it is a lite pull and carries its own filter, which need not be in a heartbeat.
        interval: between a pull that brought messages and the next one (pullInterval).
    """

    hold: float = HOLD
    timeout: float = PULL_TIMEOUT
    after_error: float = AFTER_ERROR
    lite: bool = False
    interval: float = 0.0


class Reads(Protocol):
    """A run of a queue and who reads it. ``last_pull`` is in ms since 1970, ``told`` the position told last."""

    run: ProcessQueue
    last_pull: int
    told: int

    def stop(self) -> None:
        """Read no more; what was read is not touched."""


class QueuePuller:
    """Reads ``run`` until it is dropped, by pulls of up to ``pull_batch`` messages.

    ``deliver`` gets the messages, which are of that ``kind``, as soon as the next pull is on its way; ``moved`` the
    offset to go on from when the broker says that the run is outside the queue. ``commit``: whether pulls carry the
    position; ``may_read`` says whether the queue may be read now; ``sift`` may leave out messages; ``pace`` counts;
    nothing is pulled while ``gate`` is closed.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        run: ProcessQueue,
        subscription: SubscriptionData,
        limits: Limits,
        pull_batch: int,
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        moved: Callable[[ProcessQueue, int], None],
        *,
        commit: bool = True,
        may_read: Callable[[MessageQueue], bool] | None = None,
        manner: PullOptions = PullOptions(),
        sift: Callable[[MessageQueue, list[ReceivedMessage]], list[ReceivedMessage]] | None = None,
        pace: TopicStats | None = None,
        kind: type[ReceivedMessage] = ReceivedMessage,
        gate: Gate | None = None,
    ) -> None:
        self.run = run
        self.subscription = subscription
        self.last_pull = 0
        """When it pulled last, in ms since 1970."""
        self.told = -1
        """The position that the broker was told last."""
        self._session = session
        self._pull_batch = pull_batch
        self.limits = limits
        self._deliver = deliver
        self._moved = moved
        self._commit = commit
        self._may_read = may_read
        self._manner = manner
        self._sift = sift
        self._pace = pace
        self._kind = kind
        self._gate = gate
        self._flags = pull.SUSPEND | (pull.SUBSCRIPTION | pull.LITE_PULL if manner.lite else 0)
        self._broker_id = MASTER
        self._ask = pull.PullMessage(
            consumer_group=group,
            topic=run.queue.topic,
            queue_id=run.queue.queue_id,
            queue_offset=run.next_offset,
            max_msg_nums=pull_batch,
            sys_flag=self._flags,
            commit_offset=0,
            suspend_timeout_millis=int(manner.hold * 1000),
            subscription=subscription.sub_string if manner.lite else None,
            sub_version=0 if manner.lite and is_tag_type(subscription.expression_type) else subscription.sub_version,
            expression_type=subscription.expression_type,
        )
        self._stopped = False
        self._trouble = Trouble()
        self._task = asyncio.get_running_loop().create_task(self._read(), context=unbounded())

    def stop(self) -> None:
        """Pull and deliver no more; what was delivered is not touched."""
        self._stopped = True
        self._task.cancel()

    def pull_anew(self) -> None:
        """Ask again, where a broker holds a pull by another filter than the one of now."""
        if not (self._stopped or self._manner.lite) and self._ask.sub_version != self.subscription.sub_version:
            self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._read(), context=unbounded())

    async def _read(self) -> None:
        run = self.run
        while not run.dropped:
            if not run.has_room(self.limits):
                await self._wait_for_room()
                continue
            if self._gate is not None and self._gate.closed:
                await self._gate.wait()
                continue
            if self._may_read is not None and not self._may_read(run.queue):
                await asyncio.sleep(UNTIL_LOCKED)
                continue
            try:
                answer = await self._pull()
                self._trouble.over()
                if not run.dropped:
                    await self._take(answer)
            except ClientError as error:
                await asyncio.sleep(self._pause_after(error))
            except Exception:
                log.exception("reading %s failed, trying again in %s s", run.queue, self._manner.after_error)
                await asyncio.sleep(self._manner.after_error)

    async def _wait_for_room(self) -> None:
        room = asyncio.get_running_loop().create_future()
        self.run.made_room = lambda: None if room.done() else room.set_result(None)
        try:
            await room
        finally:
            self.run.made_room = None

    async def _pull(self) -> Answer[pull.PullReply]:
        run, ask = self.run, self._ask
        position = run.position
        ask.queue_offset = run.next_offset
        ask.max_msg_nums = min(self._pull_batch, max(run.room(self.limits), PULL_AT_LEAST))
        ask.commit_offset = position if self._commit else 0
        if not self._manner.lite:
            ask.sub_version = self.subscription.sub_version
        ask.sys_flag = self._flags
        if self._commit and position > 0 and self._broker_id == MASTER:
            ask.sys_flag |= pull.COMMIT_OFFSET
            self.told = position
        self.last_pull = now_ms()
        return await brokers.pull_messages(
            self._session, run.queue, ask, broker_id=self._broker_id, timeout=self._manner.timeout
        )

    async def _take(self, answer: Answer[pull.PullReply]) -> None:
        run, header = self.run, answer.header
        same_broker = header.suggest_which_broker_id == self._broker_id
        self._broker_id = header.suggest_which_broker_id
        if answer.code == ResponseCode.SUCCESS:
            messages = received(answer.body, run.queue, kind=self._kind, tags=self._wanted_tags())
            if self._sift is not None:
                messages = self._sift(run.queue, messages)
            if self._pace is not None:
                self._pace.pulls += 1
                self._pace.pulled += len(messages)
                self._pace.pull_seconds += (now_ms() - self.last_pull) / 1000
            run.put(sizes(messages), header.next_begin_offset)
            self._session.loop.call_soon(self._hand_over, messages)  # the next pull leaves before a listener begins
            if self._manner.interval:
                await asyncio.sleep(self._manner.interval)
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            log.warning(
                "offset %s is outside of %s, going on at %s", run.next_offset, run.queue, header.next_begin_offset
            )
            if run.next_offset < header.min_offset <= header.next_begin_offset:
                run.next_offset = header.next_begin_offset  # what comes next is deleted; what was pulled is still good
                return
            if header.next_begin_offset == run.next_offset:
                await asyncio.sleep(AFTER_ERROR)  # the broker contradicts itself; do not ask it without end
            self._moved(run, header.next_begin_offset)
        else:
            if header.next_begin_offset == self._ask.queue_offset and same_broker:
                await asyncio.sleep(AFTER_FLOW_CONTROL)
            run.next_offset = header.next_begin_offset

    def _hand_over(self, messages: list[ReceivedMessage]) -> None:
        if not self._stopped and not self.run.dropped:
            self._deliver(self.run, messages)

    def _wanted_tags(self) -> set[bytes] | None:
        """What tells a wanted tag from one that only has its hash; None where all messages are wanted."""
        wanted = self.subscription.tags_set
        return {tag.encode() for tag in wanted} if wanted else None

    def _pause_after(self, error: ClientError) -> float:
        if isinstance(error, BrokerRefused):
            if error.code == ResponseCode.FLOW_CONTROL:
                return AFTER_FLOW_CONTROL
            if error.code in _UNKNOWN_HERE:
                self._session.spawn(self._session.beat())
            elif error.code == ResponseCode.NO_PERMISSION:
                self._session.directory.look_again(self.run.queue.topic)  # perhaps nobody may read the queue any more
        elif isinstance(error, BrokerUnreachable):
            self._session.directory.look_again(self.run.queue.topic)
        pause = self._manner.after_error
        self._trouble.tell(f"pulling {self.run.queue} failed, trying again every {pause} s: {error}")
        return pause
