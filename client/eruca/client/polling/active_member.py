"""What members of a group have in common that pull by themselves (CONSUME_ACTIVELY): what others learn of them.

Owns the answers to the session and to brokers, and the membership: the rounds in which queues are shared out. Facts:
DefaultLitePullConsumerImpl and DefaultMQPullConsumerImpl in 4.9.7, whose members a reset (220) does not reach; here
it does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine
from typing import Any

from eruca.client.bounds import unbounded
from eruca.client.config import ClientSettings
from eruca.client.consuming import report
from eruca.client.consuming.membership import GroupMember
from eruca.client.consuming.queue_puller import Reads
from eruca.client.consuming.rebalance import Reading, Rebalance
from eruca.client.errors import StateError
from eruca.client.log import log
from eruca.client.network.session import Session
from eruca.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeType,
    SubscriptionData,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.record import Record
from eruca.remoting.clock import now_ms

AGAIN_SOON = 1.0
"""Seconds until queues that could not be had are tried again."""
LOOK_FOR_TOPICS = 2.0
"""Seconds between two looks for a subscribed topic that nobody has created yet."""


class ActiveMember(GroupMember):
    """A seat in a group, with an ``Rebalance``; ``reading`` says how its queues are shared out."""

    _consume_type = ConsumeType.CONSUME_ACTIVELY

    def __init__(self, group: str, reading: Reading, rebalance_interval: float, settings: ClientSettings) -> None:
        self.group = group
        self.broadcast = reading.broadcast
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.started_at = 0
        self._reading = reading
        self._rebalance_interval = rebalance_interval
        self._settings = settings
        self._session: Session | None = None
        self._ownership: Rebalance | None = None
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
        if self._ownership is not None:
            self._ownership.stop_reading()

    async def _leave(self, *, wait: bool = True) -> None:
        """Give up the queues and the seat; it is done also where nobody waits for it, as who is cancelled here.

        A member that only half left would keep its queues from all others.
        """
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._end(), context=unbounded())
        if wait:
            await asyncio.shield(self._leaving)

    async def _end(self) -> None:
        session, owned = self._session, self._ownership
        assert session is not None
        if owned is not None:
            await owned.release()
        await session.remove_consumer(self.group)
        self._session = self._ownership = None
        await session.leave()

    def _announce_soon(self) -> None:
        """Tell brokers and the own parts of another subscription."""
        if self._session is not None and self._ownership is not None:
            self._ownership.filter_anew()
            self._session.spawn(self._announce(self._session, self._ownership))

    async def _announce(self, session: Session, owned: Rebalance) -> None:
        await session.add_consumer(self.group, self)
        await owned.give_up_unsubscribed()
        self._changed.set()

    async def _keep_balanced(self) -> None:
        while (owned := self._ownership) is not None:
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
