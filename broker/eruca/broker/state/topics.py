"""The topics of this broker: their settings, the rules of their creation, and ``topics.json`` (TopicConfigManager).

Owns the table and its DataVersion. Must not know requests, connections or nameservers. Invariant: every change
increments the version, is passed to the watchers, and is on disk once ``saved`` returns. Facts: 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import structlog

from eruca.broker.state.parts import Part, chosen, gone, unheard
from eruca.broker.state.prefix_limits import PrefixLimits
from eruca.broker.state.state_file import SavedState, Saver
from eruca.protocol import names
from eruca.protocol.bodies import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.fastjson import Style
from eruca.protocol.queues import faults_of_queues

READ_WRITE = PERM_READ | PERM_WRITE

UNIT = 1
"""topicSysFlag of a topic made in unit mode."""
UNIT_SUB = 2
"""topicSysFlag of a retry topic made in unit mode."""

LONGEST_REGISTRATION = 15 << 20
"""The most bytes of a registration; a frame has at most 16 MiB."""

Clock = Callable[[], int]

log = structlog.get_logger("eruca.broker")


class Topics(SavedState):
    """Topic settings by name.

    ``path`` is ``…/config/topics.json``; ``clock`` returns ms; ``most`` returns how many topics there may be
    (maxTopicNum, 0 for any number), ``prefixes`` how many topics and queues there may be with some beginnings of their
    names. ``watchers`` are called with the name after each change.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        most: Callable[[], int] = lambda: 0,
        prefixes: Callable[[], PrefixLimits] = PrefixLimits,
    ) -> None:
        self.version = DataVersion(timestamp=clock())
        self.watchers: list[Callable[[str], None]] = []
        self.on_change: Callable[[str], object] = unheard
        self._clock = clock
        self._most = most
        self._prefixes = prefixes
        self._table: dict[str, TopicConfig] = {}
        self._system: set[str] = set(names.SYSTEM_TOPICS)
        self._saver = Saver(path, self._encode)

    # ------------------------------------------------------------------ reading

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        """All topics by name. Change it only through the methods here."""
        return self._table

    def get(self, name: str) -> TopicConfig | None:
        """The settings of a topic, None if it does not exist."""
        return self._table.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def is_system(self, name: str) -> bool:
        """Whether this is a system topic, which operators can neither change nor delete."""
        return name in self._system or names.is_system_topic(name)

    @property
    def system_names(self) -> frozenset[str]:
        """The system topics of this broker, which include its own name and its cluster's."""
        return frozenset(self._system)

    def is_order(self, name: str) -> bool:
        """Whether a topic is configured as an ordered one."""
        config = self._table.get(name)
        return config is not None and config.order

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """All topics with their version: the answer to 21 and the body of a registration."""
        return TopicConfigSerializeWrapper(data_version=self.version, topic_config_table=dict(self._table))

    def need_room(self, name: str, queues: int = 0) -> None:
        """Raise Refused if a topic with this number of ``queues`` may not be made, or an existing one not get them.

        Topics that come with a group that exists, and those of the broker itself, need no room.
        """
        self._prefixes().check(self._table, name, queues)
        count, most = len(self._table), self._most()
        if name in self._table:
            return
        if most and count >= most:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {name} is not made: this broker has {count} topics, and maxTopicNum allows {most}; "
                "delete unused topics, or raise maxTopicNum",
            )
        if RegisterBrokerBody.longest_compressed(self._table) > LONGEST_REGISTRATION:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {name} is not made: the {count} topics of this broker fill what a nameserver takes in a "
                "registration; delete unused topics, and set maxTopicNum",
            )

    # ------------------------------------------------------------------ changing

    def load(self) -> None:
        """Read ``topics.json`` over the system topics. Raises StateUnreadable."""
        stored = self._stored(TopicConfigSerializeWrapper.decode, "topicConfigTable", _check)
        if stored is not None:
            self._take(stored)

    def add_system(self, name: str, queues: int = 1, perm: int = READ_WRITE) -> None:
        """Add a system topic, in memory until another change is saved. An existing topic stays as it is."""
        self._system.add(name)
        if name not in self._table:
            self._table[name] = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    def put(self, config: TopicConfig) -> None:
        """Create a topic or replace its settings."""
        self._table[config.topic_name] = config
        self._change(config.topic_name)

    def remove(self, name: str) -> TopicConfig | None:
        """Delete a topic; its queues in the store stay. Returns None if it did not exist."""
        config = self._table.pop(name, None)
        if config is not None:
            self._change(name)
        return config

    def create_for_send(self, name: str, template: str, queues: int, *, sys_flag: int = 0) -> TopicConfig | None:
        """Create the topic of a first message from the topic ``template``, which must have PERM_INHERIT.

        ``queues`` is the sender's wish, limited by the template. Returns None if the template does not allow it. Raises
        Refused as ``need_room``, but for a retry topic, whose group exists.
        """
        model = self._table.get(template)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        count = max(0, min(queues, model.write_queue_nums))
        if not names.is_retry_topic(name):
            self.need_room(name, count)
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=model.perm & ~PERM_INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=model.topic_filter_type,
        )
        self.put(config)
        log.info("topic_created", topic=name, queues=count, template=template)
        return config

    def create_if_absent(self, name: str, queues: int, perm: int = READ_WRITE, *, sys_flag: int = 0) -> TopicConfig:
        """The topic, which is created with these settings if it does not exist (retry and dead letter topics)."""
        config = self._table.get(name)
        if config is None:
            config = TopicConfig(
                topic_name=name,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                topic_sys_flag=sys_flag,
            )
            self.put(config)
            log.info("topic_created", topic=name, queues=queues)
        return config

    def set_order(self, ordered: Mapping[str, str]) -> None:
        """Apply a nameserver's ORDER_TOPIC_CONFIG: its topics are ordered, all others are not."""
        for name, config in self._table.items():
            wanted = name in ordered
            if config.order != wanted:
                config.order = wanted
                self._change(name)

    def take_over(self, other: TopicConfigSerializeWrapper) -> None:
        """Replace table and version by a master's, unless the versions are equal.

        A topic with more queues than a topic may have stays as it was here.
        """
        if other.data_version != self.version:
            self._replace(other)

    def _replace(self, other: TopicConfigSerializeWrapper) -> None:
        former = self._table
        self._table = {}
        self._take(other)
        for name, fault in faults_of_queues(other.topic_config_table).items():
            log.warning("topic_not_taken_over", topic=name, reason=fault)
            self._table.pop(name, None)
            if name in former:
                self._table[name] = former[name]
        self._saver.changed()
        self._tell(former.keys() | self._table.keys())

    def part(self, keys: Iterable[str] | None) -> Part:
        """As in ``parts.Table``; the keys are names."""
        table = chosen(keys, self._table)
        entries = TopicConfigSerializeWrapper(data_version=self.version, topic_config_table=table).encode()
        return Part(keys is None, entries, gone(keys, self._table))

    def take_part(self, part: Part) -> None:
        """As in ``parts.Table``."""
        other = TopicConfigSerializeWrapper.decode(part.entries)
        if part.whole:
            self._replace(other)
            return
        self._take(other)
        for name in part.gone:
            self._table.pop(name, None)
        self._saver.changed()
        self._tell([*other.topic_config_table, *part.gone])

    def _take(self, other: TopicConfigSerializeWrapper) -> None:
        """Take the version and the topics with legal names."""
        for name, config in other.topic_config_table.items():
            if names.topic_fault(name) is None:
                config.topic_name = name
                self._table[name] = config
        self.version = other.data_version

    def renew(self) -> None:
        """Increment the version without a change of a topic, so that nameservers accept the next registration."""
        self.version = self.version.following(self._clock())
        self._saver.changed()

    def _change(self, name: str) -> None:
        self.renew()
        self.on_change(name)
        self._tell([name])

    def _tell(self, changed: Iterable[str]) -> None:
        for name in changed:
            for watch in self.watchers:
                watch(name)

    def _encode(self) -> bytes:
        return self.wrapper().encode(Style.PRETTY)


def _check(stored: TopicConfigSerializeWrapper) -> None:
    for name, fault in faults_of_queues(stored.topic_config_table).items():
        raise ProtocolError(f"the topic {name}: {fault}")
