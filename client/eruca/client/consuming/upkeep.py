"""What a consumer does again and again while it runs: share out queues, look for topics, store positions, renew locks,
send back what takes too long, and compare its subscriptions with those of the other members.

Owns when each of these is due; what is done is the matter of others. An error in one is told to the log and stops none.
Facts: the scheduled tasks of MQClientInstance, RebalanceService and ConsumeMessageConcurrentlyService in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from eruca.client.consuming.concurrent import Concurrent
from eruca.client.consuming.consistency import Comparison
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.listeners import clock
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.rebalance import Rebalance
from eruca.client.log import log
from eruca.client.network.session import Session
from eruca.protocol import names
from eruca.protocol.bodies import SubscriptionData

STORE_AT_REST = 0.2
"""Seconds after which the position of a queue is stored whose messages are all consumed."""
LOOK_FOR_TOPICS = 2.0
"""Seconds between two looks for a subscribed topic that nobody has created yet."""
AGAIN_SOON = 1.0
"""Seconds until a rebalance that could not do everything is tried again."""
STANDSTILL = 5.0
"""Seconds for which something may keep the event loop without a word: a broker gives up a silent client after 120."""
LOOK_FOR_EXPIRED = 60.0
"""Seconds between two looks for listeners that take too long, at most; a short time-out is looked at more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Seconds between two looks at who is in the group, between two storings of positions, and a listener's time."""

    rebalance: float
    store: float
    consume_timeout: float


class Upkeep:
    """The parts of a consumer that want care; ``changed`` asks for a rebalance now."""

    def __init__(
        self,
        session: Session,
        group: str,
        ownership: Rebalance,
        processing: Concurrent | Orderly,
        paces: ConsumerStats,
        changed: asyncio.Event,
        intervals: Intervals,
    ) -> None:
        self._session = session
        self._group = group
        self._ownership = ownership
        self._processing = processing
        self._paces = paces
        self._changed = changed
        self._intervals = intervals

    def tasks(self, subscriptions: Mapping[str, SubscriptionData], *, compare: bool) -> list[Coroutine[Any, Any, None]]:
        """All that is to run; ``compare``: whether other members must subscribe alike."""
        comparison = None
        if compare:
            comparison = Comparison(self._session, self._group, subscriptions, lambda: self._ownership.members)
        work = [self._keep_balanced(comparison), self._keep_stored(), self._keep_looking(subscriptions)]
        if isinstance(self._processing, Orderly):
            work.append(self._keep_locked(self._processing))
        else:
            work.append(self._keep_in_time(self._processing))
        return work

    async def _keep_balanced(self, comparison: Comparison | None) -> None:
        while True:
            wait = self._intervals.rebalance if self._ownership.complete else AGAIN_SOON
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._ownership.rebalance()
                if comparison is not None:
                    await comparison.look(clock())
            except Exception:  # such as one of the user's strategy
                log.exception("sharing out the queues of %s failed", self._group)

    async def _keep_looking(self, subscriptions: Mapping[str, SubscriptionData]) -> None:
        """Look for subscribed topics that are not there yet; a route that is found starts a rebalance."""
        routes, told = self._session.directory.routes, set[str]()
        while True:
            for topic in sorted(subscriptions.keys() - routes.keys() - told):
                if not names.is_retry_topic(topic):
                    log.warning("no broker has the topic %s yet: %s waits for it", topic, self._group)
                told.add(topic)
            await asyncio.sleep(LOOK_FOR_TOPICS)
            for topic in subscriptions.keys() - routes.keys():
                self._session.directory.look_again(topic)

    async def _keep_stored(self) -> None:
        """Store all positions every offset_interval, and those of queues that came to rest soon."""
        due = clock() + self._intervals.store
        while True:
            asleep, wait = clock(), min(STORE_AT_REST, self._intervals.store)
            await asyncio.sleep(wait)
            late = clock() - asleep - wait
            if late > STANDSTILL:
                log.warning(
                    "the event loop stood still for %.1f s, and with it pulls, heartbeats and listeners: a coroutine "
                    "must not block or compute for long; a listener that is a plain function runs in threads",
                    late,
                )
            everything = clock() >= due
            if everything:
                due = clock() + self._intervals.store
            self._ownership.store_positions(only_news=not everything)
            self._paces.sample(clock())

    async def _keep_locked(self, processing: Orderly) -> None:
        """Renew the locks of an orderly member in time."""
        while True:
            await asyncio.sleep(self._session.settings.lock_interval)
            await processing.keep()

    async def _keep_in_time(self, processing: Concurrent) -> None:
        """Send back what listeners keep for too long."""
        while True:
            await asyncio.sleep(min(LOOK_FOR_EXPIRED, self._intervals.consume_timeout / 10))
            processing.expire()
