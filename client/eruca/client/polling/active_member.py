"""What members of a group have in common that pull by themselves (CONSUME_ACTIVELY): what others learn of them.

Owns the answers to the session and to brokers, and the membership: the rounds in which queues are shared out. Facts:
DefaultLitePullConsumerImpl and DefaultMQPullConsumerImpl in 4.9.7, whose members a reset (220) does not reach; here
it does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from eruca.client.asking import Asking
from eruca.client.bounds import unbounded
from eruca.client.config import ClientSettings
from eruca.client.consuming import report
from eruca.client.consuming.ownership import Ownership, Reading
from eruca.client.consuming.reading import Reads
from eruca.client.errors import StateError
from eruca.client.log import log
from eruca.client.network.session import Session, now_ms
from eruca.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record

AGAIN_SOON = 1.0
"""Seconds until queues that could not be had are tried again."""
LOOK_FOR_TOPICS = 2.0
"""Seconds between two looks for a subscribed topic that nobody has created yet."""


class ActiveMember(Asking):
    """A seat in a group, with an ``Ownership``; ``reading`` says how its queues are shared out."""

    def __init__(self, group: str, reading: Reading, rebalance_interval: float, settings: ClientSettings) -> None:
        self.group = group
        self.broadcast = reading.broadcast
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.started_at = 0
        self._reading = reading
        self._rebalance_interval = rebalance_interval
        self._settings = settings
        self._session: Session | None = None
        self._owned: Ownership | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._ended = False
        self._leaving: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ joining and leaving

    def _join(self) -> Session:
        if self._session is not None or self._ended:
            name = type(self).__name__
            raise StateError(
                f"The PullConsumer service state not OK, maybe started once. Make a new {name} to start again."
            )
        self._session, self._leaving = Session.join(self._settings, self.group, self), None
        self.started_at = now_ms()
        return self._session

    async def _repeat(self, session: Session, *works: Coroutine[Any, Any, None]) -> None:
        """Begin what is done again and again; a stop that came during the start wins."""
        if self._ended:
            for work in works:
                work.close()
            await session.remove_consumer(self.group)
            return
        self._tasks = [session.spawn(work) for work in (self._keep_balanced(), self._keep_looking(), *works)]

    def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._owned is not None:
            self._owned.stop_reading()

    async def _leave(self, *, wait: bool = True) -> None:
        """Give up the queues and the seat; it is done also where nobody waits for it, as who is cancelled here.

        A member that only half left would keep its queues from all others.
        """
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._end(), context=unbounded())
        if wait:
            await asyncio.shield(self._leaving)

    async def _end(self) -> None:
        session, owned = self._session, self._owned
        assert session is not None
        if owned is not None:
            await owned.release()
        await session.remove_consumer(self.group)
        self._session = self._owned = None
        await session.leave()

    def _check_here(self) -> None:
        """Raise StateError where a started consumer is changed elsewhere than in its event loop."""
        if self._session is not None:
            self._session.check_here()

    def _announce_soon(self) -> None:
        """Tell brokers and the own parts of another subscription."""
        if self._session is not None and self._owned is not None:
            self._owned.filter_anew()
            self._session.spawn(self._announce(self._session, self._owned))

    async def _announce(self, session: Session, owned: Ownership) -> None:
        await session.add_consumer(self.group, self)
        await owned.give_up_unsubscribed()
        self._changed.set()

    async def _keep_balanced(self) -> None:
        while (owned := self._owned) is not None:
            wait = self._rebalance_interval if owned.complete else AGAIN_SOON
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await owned.rebalance()
            except Exception:  # such as one of the user's strategy
                log.exception("sharing out the queues of %s failed", self.group)

    async def _keep_looking(self) -> None:
        """Look for subscribed topics that are not there yet; a route that is found starts a rebalance."""
        while (session := self._session) is not None:
            await asyncio.sleep(LOOK_FOR_TOPICS)
            for topic in self.topics() - session.directory.routes.keys():
                session.directory.look_again(topic)

    # ------------------------------------------------------------------ what the session and brokers ask

    def describe(self) -> ConsumerData:
        """What the heartbeat says of this member."""
        return ConsumerData(
            consume_from_where=report.consume_from_where(self._reading.start_from),
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            group_name=self.group,
            message_model=MessageModel.BROADCASTING if self.broadcast else MessageModel.CLUSTERING,
            subscription_data_set=list(self.subscriptions.values()),
        )

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""
        return set(self.subscriptions)

    def routes_changed(self, topic: str) -> None:
        """A route is another one now."""
        self._changed.set()

    def members_changed(self) -> None:
        """Another member joined or left (40)."""
        self._changed.set()

    def reset(self, topic: str, table: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets (220)."""
        if self._owned is not None:
            self._owned.reset({queue: offset for queue, offset in table.items() if queue.topic == topic})

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The offset to store of each queue of a topic that this member has (221)."""
        return self._owned.positions(topic) if self._owned is not None else {}

    def _read(self) -> Collection[Reads]:
        """The queues that are read here, and not by the user: those of which 307 tells."""
        return ()

    def _figures(self) -> dict[str, str]:
        """What 307 tells beside what holds for every consumer, under the names of Java's class."""
        return {}

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        """What this member is doing (307)."""
        figures = {
            "consumerGroup": self.group,
            "messageModel": "BROADCASTING" if self.broadcast else "CLUSTERING",
            "consumeFromWhere": report.consume_from_where(self._reading.start_from).value,
            **self._figures(),
        }
        nameservers = self._settings.nameserver_list()
        subscriptions = self.subscriptions.values()
        return report.active_info(figures, self.started_at, subscriptions, self._read(), nameservers, with_stacks)

    async def consume_directly(self, record: Record, broker: str) -> ConsumeMessageDirectlyResult:
        """There is no listener that could have the message (309). Raises Refused, as Java answers."""
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{self.group}> not exist in this consumer")
