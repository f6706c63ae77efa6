"""Topics as brokers store, register and list them.

Owns the text formats of topic settings, their permissions (PermName in 4.9.7) and version, lists of topics, key-value
tables and the state of a topic's queues. Must not know where topics are stored.
"""

from typing import Self

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.queues import Int32, Int64, MessageQueue, queue_count

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4


def permission_text(perm: int) -> str:
    """``RW-`` for 6, ``R--`` for 4, ``-WX`` for 3, as tools print permissions."""
    return (
        ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & PERM_INHERIT else "-")
    )


class DataVersion(Body):
    """The version of a table; ``timestamp`` in ms since the epoch.

    Two versions are equal if all members are (``DataVersion`` in 4.9.7 and 5.3.3).
    """

    counter: Int64 = 0
    state_version: Int64 | None = None
    """The epoch of a master that was elected (5.x); 4.9 has no such member."""
    timestamp: Int64 = 0

    @property
    def epoch(self) -> int:
        """The epoch of the master, 0 for brokers that elect none."""
        return self.state_version or 0

    def following(self, now: int) -> Self:
        """The version after a change made at ``now`` (ms)."""
        return type(self)(counter=self.counter + 1, state_version=self.state_version, timestamp=now)


class TopicConfig(Body):
    """The settings of one topic on one broker (``TopicConfig`` in 4.9.7).

    ``perm`` is the sum of 1 (inherit), 2 (write) and 4 (read).
    """

    order: bool = False
    perm: Int32 = PERM_READ | PERM_WRITE
    read_queue_nums: Int32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16

    def check_queues(self) -> None:
        """Raise ProtocolError for a number of queues that no topic may have."""
        queue_count("readQueueNums", self.read_queue_nums)
        queue_count("writeQueueNums", self.write_queue_nums)

    def __str__(self) -> str:
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={permission_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}]"
        )


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker: the answer to 21, part of 103, and ``topics.json``"""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)


class TopicList(Body):
    """Names of topics: the answers to 206, 224, 304, 305, 311, 312 and 313.

    ``broker_addr`` is filled by 304 only.
    """

    broker_addr: str | None = None
    topic_list: list[str] = msgspec.field(default_factory=list)


class KVTable(Body):
    """Texts by key: the answers to 28 and 219, and to 103 for the
    ordered topics."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class KVConfig(Body):
    """The nameserver's key-value settings by namespace, in ``kvConfig.json``."""

    config_table: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class TopicOffset(Body):
    """Lowest and next offset of one queue; ``last_update_timestamp`` is the store time
    of its last message in ms, 0 if it is empty."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStatsTable(Body):
    """The state of all queues of a topic on a broker, the answer to 202."""

    offset_table: dict[MessageQueue, TopicOffset] = msgspec.field(default_factory=dict)
