"""Connected producers and consumers, and what a broker has for them: topics, groups, permission.

Owns the labels of a member of a group. Must not know heartbeats.
"""

from __future__ import annotations

from collections import Counter

from eruca.broker.broker import Broker
from eruca.broker.metrics.messages import is_system
from eruca.broker.state.clients import Member
from eruca.protocol.codes import version_name
from eruca.remoting.metrics import Rows
from eruca.remoting.slices import sliced

_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
_POOLS = (
    "async_put",
    "pull",
    "ack",
    "query_message",
    "client_manager",
    "heartbeat",
    "lite_pull",
    "transaction",
    "consumer_manager",
    "admin",
    "reply",
)
"""Java's other thread pools, which are not here: nothing waits in them."""


def add(broker: Broker) -> None:
    """Add these metrics."""
    gauge = broker.metrics.gauge
    gauge(
        "rocketmq_producer_connections",
        "Connected producers.",
        lambda: _producers(broker),
        "language",
        "version",
        "protocol_type",
    )
    gauge(
        "rocketmq_consumer_connections",
        "Connected consumers.",
        lambda: _consumers(broker),
        "consumer_group",
        "language",
        "version",
        "consume_mode",
        "protocol_type",
        "is_system",
    )
    gauge(
        "rocketmq_processor_watermark",
        "Sends that wait for the disk or a slave; other requests never wait in a queue.",
        lambda: {"send": broker.waiting_sends, **dict.fromkeys(_POOLS, 0)},
        "processor",
    )
    gauge("rocketmq_broker_permission", "2: may be written, 4: may be read.", lambda: broker.config.broker_permission)
    gauge("rocketmq_topic_number", "Topics.", lambda: len(broker.topics))
    gauge("rocketmq_consumer_group_number", "Consumer groups.", lambda: len(broker.groups.table))


def _member(member: Member) -> tuple[str, str]:
    return member.language.lower(), version_name(member.version).lower()


async def _producers(broker: Broker) -> Rows:
    found: Counter[tuple[str, ...]] = Counter()
    groups = [list(members.values()) for members in broker.clients.producers.values()]
    async for members in sliced(groups):
        for member in members:
            found[*_member(member), "remoting"] += 1
    return found


async def _consumers(broker: Broker) -> Rows:
    found: Counter[tuple[str, ...]] = Counter()
    async for group in sliced(list(broker.clients.consumers.values())):
        mode = _MODES.get(group.consume_type or "", "unknown")
        for member in group.members.values():
            found[group.name, *_member(member), mode, "remoting", is_system("", group.name)] += 1
    return found
