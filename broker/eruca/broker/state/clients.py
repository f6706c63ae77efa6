"""Connected clients: consumers and producers by group, and the subscriptions of each consumer group.

Owns the tables that heartbeats fill (ConsumerManager, ProducerManager and ClientHousekeepingService in 4.9.7). Sends
nothing: methods return whether members must be notified. A client is identified by its connection; two connections may
have the same client id. Invariant: a group without members is not in the table. Times are in ms of the
monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eruca.protocol.bodies import ConsumerData, MessageModel, SubscriptionData
from eruca.remoting import Connection

EXPIRE_AFTER = 120_000
"""Silence in ms after which a client is dropped (CHANNEL_EXPIRED_TIMEOUT in 4.9.7, channelExpiredTimeout in 5.x)."""


@dataclass(slots=True, eq=False)
class Member:
    """One client in one group; ``may_send`` is whether its account may send to a topic."""

    connection: Connection
    client_id: str
    language: str
    version: int
    last_seen: int
    may_send: Callable[[str], bool]


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """The online members of a consumer group, and the group's settings by the last heartbeat."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    @property
    def client_ids(self) -> list[str]:
        """The client ids of all members, one per connection, in order of arrival."""
        return [member.client_id for member in self.members.values()]

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets each message."""
        return self.message_model == MessageModel.BROADCASTING

    def member(self, client_id: str) -> Member | None:
        """The member with this client id, None where there is none."""
        return next((member for member in self.members.values() if member.client_id == client_id), None)


class Clients:
    """All online clients."""

    def __init__(self) -> None:
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._producer_ids: dict[str, dict[Member, None]] = {}  # by client id; the latest heartbeat is last
        self._groups: dict[Connection, tuple[set[str], set[str]]] = {}  # its consumer groups and its producer groups

    # ------------------------------------------------------------------ reading

    @property
    def consumers(self) -> Mapping[str, ConsumerGroup]:
        """The online consumer groups by name."""
        return self._consumers

    @property
    def producers(self) -> Mapping[str, Mapping[Connection, Member]]:
        """The members of the online producer groups by group name."""
        return self._producers

    def consumer(self, group: str) -> ConsumerGroup | None:
        """An online consumer group, None if it has no member."""
        return self._consumers.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The subscription of an online group to a topic."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def subscribers(self, topic: str) -> set[str]:
        """The online groups that subscribe to a topic."""
        return {name for name, group in self._consumers.items() if topic in group.subscriptions}

    def groups_of(self, connection: Connection, consumers: set[str], producers: set[str]) -> int:
        """The number of groups of a connection if it joins these, too."""
        consumed, produced = self._groups.get(connection, (set(), set()))
        return len(consumed | consumers) + len(produced | producers)

    def producer(self, client_id: str) -> Member | None:
        """A producer of any group by its client id; of several the one with the latest heartbeat."""
        known = self._producer_ids.get(client_id)
        return next(reversed(known)) if known else None

    # ------------------------------------------------------------------ changing

    def register_consumer(self, data: ConsumerData, member: Member) -> bool:
        """Apply a heartbeat to one consumer group; returns whether its members must be notified.

        They must if a connection is new or the topics changed, but not if only an expression changed.
        """
        group = self._consumers.get(data.group_name)
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        changed = _touch(group.members, member)
        self._groups_of(member.connection)[0].add(data.group_name)
        return _subscribe(group.subscriptions, data.subscription_data_set) or changed

    def register_producer(self, group: str, member: Member) -> None:
        """Apply a heartbeat to one producer group."""
        members = self._producers.setdefault(group, {})
        known = members.get(member.connection)
        if known is not None and known.client_id != member.client_id:
            self.unregister_producer(group, member.connection)
            members = self._producers.setdefault(group, {})
        _touch(members, member)
        self._groups_of(member.connection)[1].add(group)
        same_id = self._producer_ids.setdefault(member.client_id, {})
        same_id.pop(members[member.connection], None)
        same_id[members[member.connection]] = None

    def _groups_of(self, connection: Connection) -> tuple[set[str], set[str]]:
        return self._groups.setdefault(connection, (set(), set()))

    def _left(self, connection: Connection) -> None:
        if connection in self._groups and not any(self._groups[connection]):
            del self._groups[connection]

    def unregister_consumer(self, group: str, connection: Connection) -> bool:
        """Remove a client from a consumer group; returns whether it was a member."""
        found = self._consumers.get(group)
        if found is None or found.members.pop(connection, None) is None:
            return False
        if not found.members:
            del self._consumers[group]
        self._groups_of(connection)[0].discard(group)
        self._left(connection)
        return True

    def unregister_producer(self, group: str, connection: Connection) -> bool:
        """Remove a client from a producer group; returns whether it was a member."""
        members = self._producers.get(group)
        member = None if members is None else members.pop(connection, None)
        if members is None or member is None:
            return False
        if not members:
            del self._producers[group]
        same_id = self._producer_ids[member.client_id]
        same_id.pop(member, None)
        if not same_id:
            del self._producer_ids[member.client_id]
        self._groups_of(connection)[1].discard(group)
        self._left(connection)
        return True

    def lost(self, connection: Connection) -> list[str]:
        """A connection ended; the consumer groups that it was in."""
        consumed, produced = (sorted(names) for names in self._groups.get(connection, ((), ())))
        for name in produced:
            self.unregister_producer(name, connection)
        for name in consumed:
            self.unregister_consumer(name, connection)
        return consumed

    def silent(self, now: int, expire_after: int = EXPIRE_AFTER) -> set[Connection]:
        """The connections of members without a heartbeat for ``expire_after`` ms."""
        return {member.connection for member in self._all() if now - member.last_seen > expire_after}

    def _all(self) -> Iterator[Member]:
        for members in self._producers.values():
            yield from members.values()
        for group in self._consumers.values():
            yield from group.members.values()


def _touch(members: dict[Connection, Member], seen: Member) -> bool:
    """Add a member or renew it; whether its connection is new."""
    known = members.get(seen.connection)
    if known is None:
        members[seen.connection] = seen
        return True
    known.client_id = seen.client_id
    known.last_seen = seen.last_seen
    known.may_send = seen.may_send
    return False


def _subscribe(known: dict[str, SubscriptionData], wanted: Iterable[SubscriptionData]) -> bool:
    """Take over the subscriptions of a heartbeat, each only when it is newer; whether topics came or went."""
    changed = False
    topics = set()
    for subscription in wanted:
        topics.add(subscription.topic)
        former = known.get(subscription.topic)
        if former is None:
            changed = True
            known[subscription.topic] = subscription
        elif subscription.sub_version > former.sub_version:
            known[subscription.topic] = subscription
    for topic in [topic for topic in known if topic not in topics]:
        del known[topic]
        changed = True
    return changed
