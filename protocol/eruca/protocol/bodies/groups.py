"""Consumer groups as brokers store and list them.

Owns the text formats of a subscription group's settings and of group lists.  Must not
know where groups are stored or who is online.
"""

import msgspec

from eruca.protocol.bodies.body import Body
from eruca.protocol.bodies.topics import DataVersion
from eruca.protocol.queues import Int32, Int64, queue_count


class SubscriptionGroupConfig(Body):
    """The settings of one consumer group (``SubscriptionGroupConfig`` in 4.9.7).

    ``broker_id`` is the broker suggested for pulls that keep up,
    ``which_broker_when_consume_slowly`` the one for pulls that lag behind the memory.
    """

    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    group_name: str = ""
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    which_broker_when_consume_slowly: Int64 = 1

    def check_queues(self) -> None:
        """Raise ProtocolError for a number of queues that no retry topic may have."""
        queue_count("retryQueueNums", self.retry_queue_nums)

    def __str__(self) -> str:
        def word(value: bool) -> str:
            return "true" if value else "false"

        return (
            f"SubscriptionGroupConfig [groupName={self.group_name}, "
            f"consumeEnable={word(self.consume_enable)}, "
            f"consumeFromMinEnable={word(self.consume_from_min_enable)}, "
            f"consumeBroadcastEnable={word(self.consume_broadcast_enable)}, "
            f"retryQueueNums={self.retry_queue_nums}, retryMaxTimes={self.retry_max_times}, "
            f"brokerId={self.broker_id}, "
            f"whichBrokerWhenConsumeSlowly={self.which_broker_when_consume_slowly}, "
            f"notifyConsumerIdsChangedEnable={word(self.notify_consumer_ids_changed_enable)}]"
        )


class SubscriptionGroupWrapper(Body):
    """All consumer groups of a broker: the answer to 201 and ``subscriptionGroup.json``."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)


class GroupList(Body):
    """Names of groups, the answer to 300."""

    group_list: list[str] = msgspec.field(default_factory=list)
