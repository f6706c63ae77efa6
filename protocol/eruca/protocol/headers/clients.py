"""Headers between clients and brokers: unregistration, lists of members, running information.

Fields are those of the headers of codes 35, 38, 40, 203, 204, 307 and 309 in 4.9.7.
"""

from __future__ import annotations

from msgspec import field

from eruca.protocol.header import Header


class UnregisterClient(Header, kw_only=True):
    """35: a client leaves a producer group, a consumer group, or both."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class OfConsumerGroup(Header, kw_only=True):
    """38, 40 and 203: about one consumer group."""

    consumer_group: str


class OfProducerGroup(Header, kw_only=True):
    """204: about one producer group."""

    producer_group: str


class ConsumerRunningInfoOf(Header, kw_only=True):
    """307: the running information of a consumer, with its threads if jstack_enable."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectly(Header, kw_only=True):
    """309: let one consumer consume one message now."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
