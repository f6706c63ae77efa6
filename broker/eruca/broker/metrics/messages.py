"""Messages that come and go, by topic and group.

Owns how the counters of queues become series of topics. Must not know how they are counted. Facts: messages of retry
and dead letter topics do not count as coming or going; the type of a message is that of its topic, since its properties
are not looked at: those that wait in RocketMQ's own topics are ``delay`` and ``transaction``, all others ``normal``.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.services.halves import HALF
from eruca.broker.state.statistics import MESSAGE_SIZES
from eruca.protocol import names
from eruca.remoting.histogram import Histogram
from eruca.remoting.metrics import Family, Kind, Labels, Rows
from eruca.remoting.slices import sliced

_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_system", "is_retry")
_TYPES = {names.SCHEDULE_TOPIC: "delay", HALF: "transaction"}


def add(broker: Broker) -> None:
    """Add these metrics."""
    metrics = broker.metrics
    coming = (
        Family("rocketmq_messages_in_total", Kind.COUNTER, "Messages that were stored.", _IN),
        Family("rocketmq_throughput_in_total", Kind.COUNTER, "Bytes of messages that were stored.", _IN),
        Family("rocketmq_message_size", Kind.HISTOGRAM, "Bytes of a stored message.", _IN),
    )
    going = (
        Family("rocketmq_messages_out_total", Kind.COUNTER, "Messages that were pulled.", _OUT),
        Family("rocketmq_throughput_out_total", Kind.COUNTER, "Bytes of messages that were pulled.", _OUT),
    )
    metrics.several(coming, lambda: _coming(broker))
    metrics.several(going, lambda: _going(broker))
    statistics = broker.statistics
    metrics.counter(
        "rocketmq_commit_messages_total", "Transactions that were committed.", lambda: statistics.commits, "topic"
    )
    metrics.counter(
        "rocketmq_rollback_messages_total", "Transactions that were rolled back.", lambda: statistics.rollbacks, "topic"
    )
    metrics.counter(
        "rocketmq_send_to_dlq_messages_total",
        "Messages that became dead letters.",
        lambda: {
            (group, topic, is_system(topic, group)): count for (group, topic), count in statistics.dead_letters.items()
        },
        "consumer_group",
        "topic",
        "is_system",
    )


def is_system(topic: str, group: str = "") -> str:
    """Whether a topic or group is RocketMQ's own, as a label."""
    return "true" if names.is_system_topic(topic) or names.is_system_group(group) else "false"


async def _coming(broker: Broker) -> tuple[Rows, Rows, Rows]:
    messages: dict[Labels, float] = {}
    sizes: dict[Labels, float] = {}
    histograms: dict[Labels, Histogram] = {}
    async for (topic, _), counter in sliced(list(broker.statistics.put_counters.items())):
        if names.is_retry_topic(topic) or names.is_dead_letter_topic(topic):
            continue
        labels = (topic, _TYPES.get(topic, "normal"), is_system(topic))
        messages[labels] = messages.get(labels, 0) + counter.messages
        sizes[labels] = sizes.get(labels, 0) + counter.size
        histogram = histograms.setdefault(labels, Histogram(MESSAGE_SIZES))
        large = counter.large
        histogram.counts[0] += counter.messages - sum(large)
        histogram.sum += counter.size
        for bucket, count in enumerate(large, 1):
            histogram.counts[bucket] += count
    return messages, sizes, histograms


async def _going(broker: Broker) -> tuple[Rows, Rows]:
    messages: dict[Labels, float] = {}
    sizes: dict[Labels, float] = {}
    async for (group, topic, _), counter in sliced(list(broker.statistics.got_counters.items())):
        if names.is_retry_topic(topic) or names.is_dead_letter_topic(topic):
            continue
        labels = (topic, group, is_system(topic, group), "false")
        messages[labels] = messages.get(labels, 0) + counter.messages
        sizes[labels] = sizes.get(labels, 0) + counter.size
    return messages, sizes
