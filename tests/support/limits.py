"""The table of all limits in docs/operations.md: keys, defaults and bounds as the code has them.

Run: ``python -m tests.support.limits`` writes it into the page; a house test compares. Owns what a limit is called, and
what happens beyond it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from eruca.broker.broker import COLD_PULLS
from eruca.broker.config import BrokerConfig
from eruca.broker.handlers.checks import CLIENT_ID_MAX_LENGTH
from eruca.broker.handlers.clients import (
    MOST_GROUPS_OF_ONE,
    MOST_LOCKS_AT_ONCE,
    MOST_SUBSCRIPTIONS,
    MOST_TAGS,
    MOST_TAGS_AT_ONCE,
)
from eruca.broker.handlers.pull import LONGEST_SUBSCRIPTION
from eruca.broker.services.holds import LONGEST, MOST, MOST_OF_ONE, MOST_TEXT, MOST_TEXT_OF_ONE
from eruca.broker.services.replication.pump import UNSENT
from eruca.broker.services.replication.slaves import MOST_SLAVES
from eruca.broker.state.locks import MOST_LOCKS
from eruca.broker.state.offsets import MOST_OFFSETS
from eruca.broker.state.topics import LONGEST_REGISTRATION
from eruca.nameserver.config import NamesrvConfig
from eruca.nameserver.handlers import LONGEST_TOPIC
from eruca.nameserver.kv import LONGEST_CONTENT, LONGEST_VALUE
from eruca.protocol.bodies.clients import LONGEST_HEARTBEAT, MOST_GROUPS
from eruca.protocol.frame import MAX_FRAME, MAX_HEADER
from eruca.protocol.header_fields import MAX_FIELDS
from eruca.protocol.queues import MOST_QUEUES
from eruca.remoting.connection import WRITE_HIGH_WATER
from eruca.remoting.connection_limits import DEFAULTS
from eruca.remoting.costly import MOST_BYTES, MOST_WAITING
from eruca.remoting.descriptors import RESERVED
from eruca.remoting.settings import LONGEST_CHANGE, Setting, settings_of

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
BEGIN, END = "<!-- python -m tests.support.limits -->", "<!-- the end of that table -->"
BROKER, NAMESERVER = settings_of(BrokerConfig), settings_of(NamesrvConfig)
REJECTED, CUT = "closed at once, `connection_rejected`", "the connection that holds most is cut off"


class Limit(NamedTuple):
    """A limit. ``value`` is that of one without a key; ``metric`` its name in ``eruca_limit``, or another metric."""

    what: str
    beyond: str
    key: str = ""
    value: str = ""
    metric: str = ""
    whose: str = "both"


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit:,} {name}"
    return f"{count:,} bytes"


def setting(key: str, what: str, beyond: str, metric: str = "") -> Limit:
    """A limit that a setting moves."""
    return Limit(what, beyond, key, metric=metric)


def fixed(value: object, what: str, beyond: str, metric: str = "", whose: str = "broker") -> Limit:
    """A limit of the code."""
    return Limit(what, beyond, value=f"{value:,}" if isinstance(value, int) else str(value), metric=metric, whose=whose)


LIMITS = [
    setting("serverMaxConnections", "connections, over all ports for clients", REJECTED, "connections"),
    setting(
        "serverMaxConnectionsPerAddress",
        "connections of one address (IPv6: of a /64 block)",
        REJECTED,
        "connections_per_address",
    ),
    setting(
        "serverMaxConnectionsPerAddressOverrides",
        "the same for some addresses, by the first pattern that matches, such as `10.0.0.*=5000;10.0.1.{3,4}=200`",
        REJECTED,
        "connections_per_address",
    ),
    setting(
        "serverMaxConnectsPerSecondPerAddress",
        "new connections a second of one address (IPv6: of a /64 block), 0 for any number",
        REJECTED,
        "eruca_connections_rejected_total",
    ),
    fixed(
        f"that of the process, less {RESERVED:,} for files",
        "descriptors of connections",
        "fewer connections, `connections_limited`",
        "descriptors",
        "both",
    ),
    setting(
        "serverMaxUnfinishedBytes",
        "received bytes that are no whole frames yet, of all connections",
        f"{CUT}, `unfinished_frame_dropped`",
        "unfinished_bytes",
    ),
    fixed(
        f"{DEFAULTS.half_frame:g} s",
        "time until a frame is complete",
        "cut off, `half_frame_closed`",
        "eruca_connections",
        "both",
    ),
    fixed(size(MAX_FRAME), "a frame", "cut off, `bad_frame`", whose="both"),
    fixed(size(MAX_HEADER), "the header of a frame", "cut off, `bad_frame`", whose="both"),
    fixed(MAX_FIELDS, "its fields", "cut off, `bad_frame`", whose="both"),
    fixed(
        size(WRITE_HIGH_WATER),
        "sent bytes that a peer has not read yet",
        "its next requests wait until it reads",
        "unsent_bytes_per_connection",
        "both",
    ),
    setting(
        "serverMaxUnsentBytes",
        "sent bytes that peers have not read yet, of all connections",
        f"{CUT}, `unread_connection_closed`",
        "unsent_bytes",
    ),
    setting(
        "serverChannelMaxIdleTimeSeconds",
        "silence of a peer, in seconds",
        "closed, `idle_connection_closed`; a peer that read nothing of what it was sent: cut off, "
        "`stalled_connection_closed`",
        "eruca_connections",
    ),
    fixed(
        f"{MOST_WAITING}, {size(MOST_BYTES)}",
        "costly requests of a connection that wait, and their size",
        "2 (SYSTEM_BUSY)",
        whose="both",
    ),
    setting("quotaRequestsPerSecond", "requests a second of an account or address", "2", "eruca_quota_refusals_total"),
    setting("quotaBytesPerSecond", "bytes of its requests a second", "2", "eruca_quota_refusals_total"),
    setting("quotaNewTopicsPerSecond", "topics that it makes a second", "2", "eruca_quota_refusals_total"),
    setting(
        "memoryHighWater",
        "memory of the process: a share of what it may have, or bytes; 0 for any",
        "sends: 2; `memory_high`, `memory_normal`",
        "memory_bytes",
    ),
    setting(
        "sendThreadPoolQueueCapacity",
        "sends that wait for the disk or a slave; they keep no bodies",
        "2",
        "waiting_sends",
    ),
    fixed(MOST, "pulls that wait for messages", "2: clients repeat the pull after 3 s", "held_pulls"),
    fixed(MOST_OF_ONE, "pulls of a connection that wait", "2", "held_pulls_per_connection"),
    fixed(f"{LONGEST:g} s", "time that a pull waits; less if the client asks for less", "19 (PULL_NOT_FOUND)"),
    fixed(COLD_PULLS, "pulls that read from the disk at the same time", "the next ones wait"),
    fixed(
        MOST_SLAVES,
        "connections of slaves",
        "closed at once, `slave_rejected`; `eruca_slaves_rejected_total`",
        "slaves",
    ),
    fixed(size(UNSENT), "sent bytes that a slave has not read yet", "the log waits until it reads"),
    setting("maxTopicNum", "topics, the broker's own among them; 0 for any number", "1", "topics"),
    setting("maxSubscriptionGroupNum", "groups, the built-in ones among them; 0 for any number", "1", "groups"),
    setting("maxTopicNumByPrefix", "topics by the beginning of their names", "1"),
    setting("maxQueueNumByPrefix", "their queues in all", "1"),
    fixed(MOST_QUEUES, "queues of a topic for reading, and for writing; retry queues of a group", "1"),
    fixed(size(LONGEST_REGISTRATION), "the registration of a broker", "1, no topic more is made"),
    setting("maxMessageSize", "the body of a message, in bytes", "13 (MESSAGE_ILLEGAL)"),
    fixed(
        MOST_GROUPS, "groups of one heartbeat, of consumers and producers; Eruca's clients with more send several", "1"
    ),
    fixed(MOST_GROUPS_OF_ONE, "groups of one connection, by all of its heartbeats", "1"),
    fixed(size(LONGEST_HEARTBEAT), "a heartbeat", "1"),
    fixed(MOST_SUBSCRIPTIONS, "subscriptions of one heartbeat", "1"),
    fixed(CLIENT_ID_MAX_LENGTH, "characters of a client id", "1"),
    fixed(MOST_TAGS, "tags of a subscription", "1; of one in a pull 23"),
    fixed(MOST_TAGS_AT_ONCE, "tags of all subscriptions of a heartbeat", "1"),
    fixed(f"{LONGEST_SUBSCRIPTION:,}", "characters of the subscription in a pull", "23 (SUBSCRIPTION_PARSE_FAILED)"),
    fixed(
        f"{MOST_TEXT_OF_ONE:,}",
        "characters of subscriptions above 256 in the pulls of a connection that wait",
        "2: clients repeat the pull after 3 s",
    ),
    fixed(f"{MOST_TEXT:,}", "the same of all pulls that wait", "2"),
    fixed(size(LONGEST_CHANGE), "a change of settings while a daemon runs (25, 318)", "1", whose="both"),
    fixed(MOST_LOCKS_AT_ONCE, "queues of one lock request that are done at once", "more are done in slices"),
    fixed(MOST_LOCKS, "queues that are locked", "more are not locked, or 2", "locks"),
    fixed(MOST_OFFSETS, "committed offsets, of all groups and queues", "1; a pull commits none", "offsets"),
    setting(
        "maxRegisteredBrokers",
        "registered brokers, masters and slaves; 0 for any number",
        "1, `registration_refused`",
        "registered_brokers",
    ),
    setting(
        "maxRegisteredTopics",
        "topics of brokers with a route, each once for each broker name that has it; 0 for any number",
        "more are left out, `topics_not_registered`; the broker sends them again",
        "registered_topics",
    ),
    fixed(
        LONGEST_TOPIC,
        "characters of a topic's name in a registration",
        "left out, `topics_not_registered`",
        whose="nameserver",
    ),
    fixed(size(LONGEST_VALUE), "a value of the key-value configuration (100)", "1", whose="nameserver"),
    fixed(
        size(LONGEST_CONTENT),
        "the file of that configuration, `kvConfig.json`",
        "1; larger order configuration is left out of answers, `order_config_left_out`",
        "kv_bytes",
        "nameserver",
    ),
]


def table() -> str:
    """The table, as the page has it."""
    lines = ["| limit | of | setting | default | allowed | beyond it | metric |", "|---|---|---|---|---|---|---|"]
    return "\n".join(lines + [_line(limit) for limit in LIMITS])


def _line(limit: Limit) -> str:
    whose, key, value, allowed = limit.whose, "", limit.value, ""
    if limit.key:
        of_both = limit.key in BROKER and limit.key in NAMESERVER
        whose = "both" if of_both else "broker" if limit.key in BROKER else "nameserver"
        config = NamesrvConfig() if whose == "nameserver" else BrokerConfig()
        known = (NAMESERVER if whose == "nameserver" else BROKER)[limit.key]
        key, value, allowed = f"`{limit.key}`", _default(known, config), known.allowed()
    metric = limit.metric
    if metric and not metric.startswith("eruca_"):
        metric = f'eruca_limit{{limit="{metric}"}}'
    return f"| {limit.what} | {whose} | {key} | {value} | {allowed} | {limit.beyond} | {metric and f'`{metric}`'} |"


def _default(known: Setting, config: BrokerConfig | NamesrvConfig) -> str:
    value = known.get(config)
    if known.key.endswith("Bytes") or known.key == "maxMessageSize":
        return size(value)
    return f"{value:,}" if isinstance(value, int) else known.text(config) or "none"


def page() -> str:
    """The page with the table as it ought to be."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
