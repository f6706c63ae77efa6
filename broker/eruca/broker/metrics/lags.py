"""How far consumer groups are behind, in messages and in time.

Owns what counts as behind: of each group with committed offsets, or online, in each topic, what it has not confirmed
(lag), not pulled (ready), and pulled but not confirmed (inflight). Unlike in RocketMQ a group counts that is not
online, and retry topics do. A message's store time is read once, as long as a group stays at it. Must not know who
pulls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eruca.broker.broker import Broker
from eruca.broker.metrics.messages import is_system
from eruca.protocol import names
from eruca.remoting.metrics import Family, Kind, Labels
from eruca.remoting.slices import sliced

_LABELS = ("consumer_group", "topic", "is_retry", "is_system")
_Place = tuple[str, int, int]
"""Topic, queue and offset."""


class _Behind(NamedTuple):
    """Of one group in one topic: messages, and the oldest message not confirmed and not pulled in each queue."""

    lag: int
    ready: int
    inflight: int
    unconfirmed: list[_Place]
    unpulled: list[_Place]


class Lags:
    """The lags of the groups of one broker; remembers the store times that it read."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._times: dict[_Place, int] = {}

    async def rows(self) -> tuple[dict[Labels, float], ...]:
        """The rows of the five families."""
        lag: dict[Labels, float] = {}
        latency: dict[Labels, float] = {}
        ready: dict[Labels, float] = {}
        inflight: dict[Labels, float] = {}
        queueing: dict[Labels, float] = {}
        former, self._times = self._times, {}
        async for group, topic in sliced(list(self._pairs())):
            behind = self._behind(group, topic)
            retry = "true" if names.is_retry_topic(topic) else "false"
            labels = (group, topic, retry, is_system(topic, group))
            lag[labels], ready[labels], inflight[labels] = behind.lag, behind.ready, behind.inflight
            latency[labels] = await self._age(behind.unconfirmed, former)
            queueing[labels] = await self._age(behind.unpulled, former)
        return lag, latency, ready, inflight, queueing

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Groups and topics; the progress of the broker's own queues is no lag."""
        seen = dict.fromkeys(self._broker.offsets.table)
        for group in self._broker.clients.consumers.values():
            seen.update(dict.fromkeys(f"{topic}@{group.name}" for topic in group.subscriptions))
        for key in seen:
            topic, _, group_name = key.partition("@")
            if group_name != names.TRANSACTION_GROUP and topic in self._broker.topics:
                yield group_name, topic

    def _behind(self, group: str, topic: str) -> _Behind:
        broker = self._broker
        store, reached = broker.store, broker.statistics.reached
        lag = ready = inflight = 0
        unconfirmed: list[_Place] = []
        unpulled: list[_Place] = []
        config = broker.topics.get(topic)
        queues = max(config.read_queue_nums, config.write_queue_nums) if config is not None else 0
        for queue_id in range(queues):
            committed = broker.offsets.query(group, topic, queue_id)
            if committed < 0:
                continue
            end, first = store.max_offset(topic, queue_id), store.min_offset(topic, queue_id)
            confirmed = max(committed, first)
            pulled = min(max(reached(group, topic, queue_id), confirmed), max(end, confirmed))
            lag += max(end - confirmed, 0)
            ready += max(end - pulled, 0)
            inflight += pulled - confirmed
            if confirmed < end:
                unconfirmed.append((topic, queue_id, confirmed))
            if pulled < end:
                unpulled.append((topic, queue_id, pulled))
        return _Behind(lag, ready, inflight, unconfirmed, unpulled)

    async def _age(self, places: list[_Place], former: dict[_Place, int]) -> float:
        """The age in ms of the oldest of these messages; 0 without any."""
        oldest = 0
        for place in places:
            stored = former.get(place) or self._times.get(place) or await self._store_time(place)
            if stored > 0:
                self._times[place] = stored
                oldest = min(oldest or stored, stored)
        return max(self._broker.clock() - oldest, 0) if oldest else 0

    async def _store_time(self, place: _Place) -> int:
        topic, queue_id, offset = place
        return await self._broker.store.lookup(lambda there: there.store_time(topic, queue_id, offset))


def add(broker: Broker) -> None:
    """Add these metrics."""
    broker.metrics.several(
        (
            Family("rocketmq_consumer_lag_messages", Kind.GAUGE, "Messages that a group has not confirmed.", _LABELS),
            Family(
                "rocketmq_consumer_lag_latency",
                Kind.GAUGE,
                "Milliseconds since the oldest message that a group has not confirmed was stored.",
                _LABELS,
                max,
            ),
            Family("rocketmq_consumer_ready_messages", Kind.GAUGE, "Messages that a group has not pulled.", _LABELS),
            Family(
                "rocketmq_consumer_inflight_messages",
                Kind.GAUGE,
                "Messages that a group has pulled and not confirmed.",
                _LABELS,
            ),
            Family(
                "rocketmq_consumer_queueing_latency",
                Kind.GAUGE,
                "Milliseconds since the oldest message that a group has not pulled was stored.",
                _LABELS,
                max,
            ),
        ),
        Lags(broker).rows,
    )
