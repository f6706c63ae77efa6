"""Filters of consumer groups that subscribe by SQL92, in ``consumerFilter.json``.

Owns the text format.  Must not know how expressions are compiled or Bloom bits computed.
"""

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.queues import Int32, Int64


class BloomFilterData(Body):
    """The bits a group sets in a Bloom filter of ``bit_num`` bits."""

    bit_num: Int32 = 0
    bit_pos: tuple[Int32, ...] = ()


class ConsumerFilterData(Body):
    """The filter of one group for one topic; times in ms.

    ``client_version`` is the version of the subscription.  A filter whose group has left
    is dead: its ``dead_time`` is not before its ``born_time``.
    """

    bloom_filter_data: BloomFilterData | None = None
    born_time: Int64 = 0
    client_version: Int64 = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: Int64 = 0
    expression: str | None = None
    expression_type: str | None = None
    topic: str = ""


class TopicFilters(Body):
    """The filters of one topic by group (``FilterDataMapByTopic`` in 4.9.7)."""

    group_filter_data: dict[str, ConsumerFilterData] = msgspec.field(default_factory=dict)
    topic: str = ""


class ConsumerFilters(Body):
    """All filters of a broker by topic, ``consumerFilter.json``."""

    filter_data_by_topic: dict[str, TopicFilters] = msgspec.field(default_factory=dict)
