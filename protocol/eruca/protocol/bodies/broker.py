"""What a broker reports of itself: statistics (315), raw queue content (321), and replication (907).

Owns the text formats.  Must not know how figures are sampled.  Replication is HARuntimeInfo
in 5.3.3; its offsets are of the commit log, its times in ms since 1970.
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


class HAConnectionRuntimeInfo(Body):
    """A slave as its master sees it: ``diff`` is the number of unconfirmed bytes."""

    addr: str | None = None
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HAClientRuntimeInfo(Body):
    """A slave as it sees itself."""

    activated: bool = False
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(Body):
    """The whole answer, of a master or of a slave."""

    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = msgspec.field(default_factory=list)
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0
