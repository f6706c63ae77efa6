"""Routes: the answers of the nameserver to 105 and 106.

Owns the text formats of a topic's route and of the cluster table.  Must not know how a
nameserver builds them or how a client chooses among them.
"""

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.queues import Int32, Int64


class QueueData(Body):
    """The queues of one topic on one broker (``QueueData`` in 4.9.7).

    ``perm`` is the sum of 2 (write) and 4 (read); ``topic_sys_flag`` of 1 (unit) and
    2 (unit subscription).
    """

    broker_name: str = ""
    perm: Int32 = 0
    read_queue_nums: Int32 = 0
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 0


class BrokerData(Body):
    """The addresses ``ip:port`` of one broker name by broker id; 0 is the master."""

    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""

    def master(self) -> str | None:
        """The address of the master, None while there is none."""
        return self.broker_addrs.get(0)


class TopicRouteData(Body):
    """The route of one topic, the answer to 105 (``TopicRouteData`` in 4.9.7).

    Style.STANDARD is for requests of version 401 (V4_9_4) and later or with
    ``acceptStandardJsonOnly``; older clients get Style.COMPACT, ``{0:"addr"}``.
    ``order_topic_conf`` is ``broker:queues;broker:queues``, absent unless ordered.
    """

    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)


class ClusterInfo(Body):
    """All brokers by name and the broker names of each cluster, the answer to 106."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
