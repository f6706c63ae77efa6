"""Statistics and raw queue content of a broker: the answers to 315 and 321.

Owns the text formats.  Must not know how figures are sampled.
"""

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.bodies.clients import SubscriptionData
from eruca.protocol.queues import Int32, Int64


class BrokerStatsItem(Body):
    """One period: the sum, the sum per second, and the average of a single event."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    """One statistic over the last minute, hour and day, the answer to 315."""

    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


class ConsumeQueueData(Body):
    """One unit of a consume queue; ``eval`` is whether the subscription of the
    requesting group matches the message."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0


class QueryConsumeQueueResponseBody(Body):
    """Units of a consume queue, the answer to 321."""

    filter_data: str | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[ConsumeQueueData] = msgspec.field(default_factory=list)
    subscription_data: SubscriptionData | None = None
