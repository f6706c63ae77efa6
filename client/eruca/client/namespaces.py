"""Namespaces: tenants of one cluster, each with topics and groups of its own names.

Owns how a name is wrapped for brokers (``Orders`` of ``MQ_INST_1`` is ``MQ_INST_1%Orders`` there) and unwrapped for
users. Within the client every name is the user's; what leaves is renamed at the connection, header by header, and in
the few bodies that hold names. System topics and groups belong to everyone. Facts: NamespaceUtil, ClientConfig and
NameServerAddressUtils in 4.9.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from eruca.client.errors import BadConfig
from eruca.protocol import names
from eruca.protocol.bodies import ConsumerData, SubscriptionData
from eruca.protocol.header import Header
from eruca.protocol.headers.routes import RouteOf
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record

SEPARATOR = "%"
_FIELDS = ("producer_group", "consumer_group", "group", "topic", "origin_topic")
_ENDPOINT = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\..*")
INNER_GROUPS = frozenset({"CLIENT_INNER_PRODUCER"})


def namespace_of(address: str) -> str | None:
    """The namespace that a nameserver's address names: ``MQ_INST_1_2`` of ``http://MQ_INST_1_2.example:9876``."""
    found = _ENDPOINT.fullmatch(address)
    return found[1] if found is not None else None


def check_namespace(namespace: str) -> None:
    """Raise BadConfig unless ``namespace`` can be part of a topic's name."""
    if not names.is_legal(namespace) or SEPARATOR in namespace:
        raise BadConfig(f'namespace="{namespace}" is not allowed: letters, digits, _ and - are expected')


def _split(name: str) -> tuple[str, str]:
    for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


@lru_cache(4096)
def wrap(namespace: str, name: str) -> str:
    """A topic or group as brokers know it; a name that has the namespace already stays as it is."""
    prefix, bare = _split(name)
    if not bare or bare.startswith(namespace + SEPARATOR) or _is_everyones(bare):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def _is_everyones(name: str) -> bool:
    return (
        names.is_system_topic(name)
        or names.is_system_group(name)
        or name in INNER_GROUPS
        or name.endswith(f"_{names.REPLY_TOPIC_SUFFIX}")
    )


def unwrap(namespace: str, name: str) -> str:
    """A topic or group as its users know it; one of another namespace stays as it is."""
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def as_asked(record: Record, queue: MessageQueue) -> Record:
    """A pulled record under the name by which its queue was asked for."""
    if record.topic == queue.topic or not record.topic.endswith(SEPARATOR + _split(queue.topic)[1]):
        return record
    return record._replace(topic=queue.topic)


def first_topic(record: Record, queue: MessageQueue) -> str:
    """The topic that a record was sent to first, by the user's name; a retry topic's records name another one."""
    topic = record.topic
    prefix, stored = _split(topic)
    asked = _split(queue.topic)[1]
    if prefix == names.RETRY_PREFIX:
        topic = record.properties.get(names.RETRY_TOPIC, topic)
    if stored == asked or not stored.endswith(SEPARATOR + asked):
        return topic
    return unwrap(stored[: -len(asked) - 1], topic)


class RouteOfStored(RouteOf, kw_only=True):
    """105: where a topic is that is given by the name that brokers know; it is sent as it is."""


class Names:
    """The names of one client; without a namespace both directions leave them alone."""

    def __init__(self, namespace: str | None, *, unit_mode: bool = False) -> None:
        self.namespace = namespace
        self._unit_mode = unit_mode

    @property
    def rename(self) -> bool:
        """Whether headers are not sent as they are made."""
        return bool(self.namespace) or self._unit_mode

    def to_broker(self, name: str) -> str:
        """A topic or group as brokers know it."""
        return wrap(self.namespace, name) if self.namespace else name

    def from_broker(self, name: str) -> str:
        """A topic or group as the user knows it."""
        return unwrap(self.namespace, name) if self.namespace else name

    def queues_to_broker(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Queues as brokers know them."""
        return [MessageQueue(self.to_broker(each.topic), each.broker_name, each.queue_id) for each in queues]

    def queues_from_broker(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Queues as the user knows them."""
        return [MessageQueue(self.from_broker(each.topic), each.broker_name, each.queue_id) for each in queues]

    def header(self, made: Header) -> Header:
        """The header of a request as brokers know it (a Renamer); ``made`` is left alone."""
        if isinstance(made, RouteOfStored):
            return made
        changed: dict[str, object] = {}
        if self.namespace:
            for name in _FIELDS:
                value = getattr(made, name, None)
                if value:
                    changed[name] = wrap(self.namespace, value)
            if isinstance(made, SendMessageV2):
                changed["properties"] = self.send_properties(made.properties or "")
        if self._unit_mode and hasattr(made, "unit_mode"):
            changed["unit_mode"] = True
        return msgspec.structs.replace(made, **changed) if changed else made

    def send_properties(self, text: str) -> str:
        """The properties of a sent message: brokers ask the producer group in them what became of a transaction."""
        group, instance = f"{names.PRODUCER_GROUP}\x01", f"{names.INSTANCE_ID}\x01"
        if text and group not in text and instance not in text:
            return f"{text}\x02{instance}{self.namespace}"
        pairs = text.split("\x02")
        pairs = [group + self.to_broker(pair.removeprefix(group)) if pair.startswith(group) else pair for pair in pairs]
        if not any(pair.startswith(instance) for pair in pairs):
            pairs.append(f"{instance}{self.namespace}")
        return "\x02".join(pairs)

    def subscription(self, made: SubscriptionData) -> SubscriptionData:
        """A subscription as brokers know it."""
        return msgspec.structs.replace(made, topic=self.to_broker(made.topic)) if self.namespace else made

    def subscription_from_broker(self, received: SubscriptionData) -> SubscriptionData:
        """A subscription of another member, by the names of the user."""
        return msgspec.structs.replace(received, topic=self.from_broker(received.topic)) if self.namespace else received

    def consumer(self, made: ConsumerData) -> ConsumerData:
        """A consumer as brokers know it, for a heartbeat."""
        if not self.rename:
            return made
        return msgspec.structs.replace(
            made,
            group_name=self.to_broker(made.group_name),
            subscription_data_set=[self.subscription(each) for each in made.subscription_data_set],
            unit_mode=self._unit_mode,
        )
