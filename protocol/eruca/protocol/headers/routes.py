"""Headers of the nameserver: registration, routes, key-value configuration.

Fields are those of the headers of codes 100 to 106, 205, 219, 224, 322 and 327 in 4.9.7.
"""

from __future__ import annotations

from eruca.protocol.header import Header, Int, Long

NAME_TAKEN = "the name is taken: "
"""The remark of the answer 1 to a 103 begins with this if a connected broker at another address holds the name."""


class RegisterBroker(Header, kw_only=True):
    """103: register a broker; body_crc32 is checked if it is not 0."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str | None = None
    broker_id: Long
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerReply(Header, kw_only=True):
    """The master of a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(Header, kw_only=True):
    """104, and 322: which broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class DataVersionReply(Header, kw_only=True):
    """322's answer: whether the nameserver knows another version."""

    changed: bool


class RouteOf(Header, kw_only=True):
    """105: the route of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


class OfBroker(Header, kw_only=True):
    """205 and 327: about one broker."""

    broker_name: str


class WipeReply(Header, kw_only=True):
    """The number of topics that lost their write permission."""

    wipe_topic_count: Int


class AddReply(Header, kw_only=True):
    """The number of topics that got their write permission back."""

    add_topic_count: Int


class OfCluster(Header, kw_only=True):
    """224: about one cluster."""

    cluster: str


class PutKVConfig(Header, kw_only=True):
    """100: store a value."""

    namespace: str
    key: str
    value: str


class KVConfigKey(Header, kw_only=True):
    """101 and 102: which value."""

    namespace: str
    key: str


class KVConfigReply(Header, kw_only=True):
    """A value."""

    value: str | None = None


class OfNamespace(Header, kw_only=True):
    """219: all values of a namespace."""

    namespace: str
