"""The filter expression of each consumer group in each topic, and ``consumerFilter.json`` (ConsumerFilterManager).

Owns the table that heartbeats fill, with the compiled expressions. Must not know messages or who is online. A filter
whose group has left is dead; it stays for the group's return and is removed after filterDataCleanTimeSpan. Invariant:
every expression in the table can be evaluated. Times are in ms. Facts: 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from eruca.broker.state.parts import Part, unheard
from eruca.broker.state.state_file import SavedState, Saver
from eruca.protocol.bloom import BloomFilter
from eruca.protocol.bodies import ConsumerFilterData, ConsumerFilters, SubscriptionData, TopicFilters
from eruca.protocol.fastjson import Style
from eruca.protocol.sql92 import Expression, Sql92Error, compile_sql
from eruca.protocol.subscription import SQL92, is_tag_type

DEAD_SINCE = 30_000
"""The groups of a file count as having left this many ms before it was read."""

log = structlog.get_logger("eruca.broker")


@dataclass(slots=True, eq=False)
class Filter:
    """The filter of one group in one topic: its data in the file and its compiled expression."""

    data: ConsumerFilterData
    expression: Expression

    @property
    def dead(self) -> bool:
        """Whether the group has left."""
        return self.data.dead_time >= self.data.born_time

    def encode(self, style: Style = Style.COMPACT) -> bytes:
        """Its data in the file."""
        return self.filed().encode(style)

    def filed(self) -> ConsumerFilterData:
        """Its present data in the file."""
        self.data.dead = self.dead
        return self.data


class Filters(SavedState):
    """All filters; ``path`` is ``…/config/consumerFilter.json``, ``clock`` returns ms, ``clean_after`` the ms for which
    dead filters are retained, ``bloom`` is the Bloom filter in which each has its bits."""

    def __init__(
        self, path: Path, clock: Callable[[], int], clean_after: Callable[[], int], bloom: BloomFilter
    ) -> None:
        self._clock = clock
        self._clean_after = clean_after
        self._bloom = bloom
        self._topics: dict[str, dict[str, Filter]] = {}
        self.on_change: Callable[[str], object] = unheard
        self._saver = Saver(path, self.encode)

    # ------------------------------------------------------------------ reading

    def get(self, topic: str, group: str) -> Filter | None:
        """The filter of a group in a topic, dead or alive."""
        groups = self._topics.get(topic)
        return None if groups is None else groups.get(group)

    def encode(self) -> bytes:
        """The whole table as ``consumerFilter.json`` holds it."""
        topics = {
            topic: TopicFilters(topic=topic, group_filter_data={name: found.filed() for name, found in groups.items()})
            for topic, groups in self._topics.items()
        }
        return ConsumerFilters(filter_data_by_topic=topics).encode(Style.PRETTY)

    def _of(self, group: str) -> Iterator[Filter]:
        for groups in self._topics.values():
            if group in groups:
                yield groups[group]

    # ------------------------------------------------------------------ changing

    def load(self) -> None:
        """Read ``consumerFilter.json``; filters are dead until their groups send heartbeats. Raises StateUnreadable.

        If its bits belong to another Bloom filter, nothing is loaded, as in RocketMQ: groups register again.
        """
        stored = self._stored(ConsumerFilters.decode, "filterDataByTopic")
        if stored is None:
            return
        every = [data for topic in stored.filter_data_by_topic.values() for data in topic.group_filter_data.values()]
        if not all(self._bloom.fits(data.bloom_filter_data) for data in every):
            log.warning(
                "filters_forgotten", reason="the Bloom filter was set up differently", file=self._saver.path.name
            )
            return
        for data in every:
            if not data.dead_time:
                data.dead_time = max(self._clock() - DEAD_SINCE, data.born_time)
            self._put(data)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register the subscriptions of a group's heartbeat; the group's filters in other topics die.

        If an expression cannot be compiled, the group has no filter in that topic.
        """
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
        self._bury(found for found in self._of(group) if found.data.topic not in topics)

    def _register(self, group: str, wanted: SubscriptionData) -> None:
        known = self.get(wanted.topic, group)
        if known is None:
            self._add(group, wanted)
            return
        same = (known.data.expression, known.data.expression_type) == (wanted.sub_string, wanted.expression_type)
        if wanted.sub_version < known.data.client_version:
            return
        if wanted.sub_version == known.data.client_version or same:
            if known.dead or wanted.sub_version != known.data.client_version:
                known.data.dead_time = 0
                known.data.client_version = wanted.sub_version
                self._change(known.data)
            return
        del self._topics[wanted.topic][group]
        self._change(known.data)
        self._add(group, wanted)

    def _add(self, group: str, wanted: SubscriptionData) -> None:
        data = ConsumerFilterData(
            topic=wanted.topic,
            consumer_group=group,
            expression=wanted.sub_string,
            expression_type=wanted.expression_type,
            client_version=wanted.sub_version,
            born_time=self._clock(),
            bloom_filter_data=self._bloom.data(f"{group}#{wanted.topic}"),
        )
        if self._put(data):
            self._change(data)

    def _put(self, data: ConsumerFilterData) -> bool:
        if data.expression_type != SQL92:
            log.warning("filter_refused", group=data.consumer_group, topic=data.topic, type=data.expression_type)
            return False
        try:
            expression = compile_sql(data.expression or "")
        except Sql92Error as error:
            log.warning("filter_refused", group=data.consumer_group, topic=data.topic, reason=str(error))
            return False
        self._topics.setdefault(data.topic, {})[data.consumer_group] = Filter(data, expression)
        return True

    def unregister(self, group: str) -> None:
        """Mark the filters of a group that has left as dead."""
        self._bury(self._of(group))

    def _bury(self, filters: Iterable[Filter]) -> None:
        for found in filters:
            if not found.dead:
                found.data.dead_time = self._clock()
                self._change(found.data)

    def clean(self) -> None:
        """Remove the filters that have been dead for too long."""
        before = self._clock() - self._clean_after()
        for topic, groups in list(self._topics.items()):
            for group in [name for name, found in groups.items() if found.dead and found.data.dead_time <= before]:
                self._change(groups.pop(group).data)
            if not groups:
                del self._topics[topic]

    def _change(self, data: ConsumerFilterData) -> None:
        self._saver.changed()
        self.on_change(f"{data.topic}@{data.consumer_group}")

    # ------------------------------------------------------------------ parts

    def part(self, keys: Iterable[str] | None) -> Part:
        """As in ``parts.Table``; the keys are ``topic@group``."""
        if keys is None:
            return Part(True, self.encode(), [])
        topics: dict[str, TopicFilters] = {}
        missing = []
        for key in keys:
            topic, _, group = key.partition("@")
            found = self.get(topic, group)
            if found is None:
                missing.append(key)
            else:
                there = topics.setdefault(topic, TopicFilters(topic=topic, group_filter_data={}))
                there.group_filter_data[group] = found.filed()
        return Part(False, ConsumerFilters(filter_data_by_topic=topics).encode(), missing)

    def take_part(self, part: Part) -> None:
        """As in ``parts.Table``."""
        other = ConsumerFilters.decode(part.entries).filter_data_by_topic
        if part.whole:
            self._topics.clear()
        for key in part.gone:
            topic, _, group = key.partition("@")
            self._topics.get(topic, {}).pop(group, None)
        for filters in other.values():
            for data in filters.group_filter_data.values():
                self._put(data)
        self._saver.changed()

    # ------------------------------------------------------------------ keeping

    async def saved(self) -> None:
        """Remove old filters, then wait until every change so far is on disk. Raises OSError."""
        self.clean()
        await super().saved()

    def save(self) -> None:
        """Remove old filters, then write ``consumerFilter.json`` if anything changed. Raises OSError."""
        self.clean()
        super().save()
