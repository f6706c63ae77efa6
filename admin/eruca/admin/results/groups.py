"""Groups of consumers and of producers: settings and members."""

from __future__ import annotations

from typing import Annotated

from eruca.admin.client import Admin, some_address
from eruca.admin.errors import NotFound, PeerRefused, Status, UnknownGroup
from eruca.admin.lookups import ask_each, online
from eruca.admin.results.answer import NONE, Result, Table, errors_of
from eruca.admin.text import nearest
from eruca.protocol import api
from eruca.protocol.bodies import Connection, ProducerConnection, SubscriptionGroupConfig, SubscriptionGroupWrapper
from eruca.protocol.codes import version_name
from eruca.protocol.headers import clients

_MISSING_MEMBERS = "members that only it knows are missing"


class Member(Result, frozen=True, kw_only=True, rename="camel"):
    """A member of a group that is online."""

    client_id: str
    address: str
    language: str | None
    version: str


def _member(found: Connection) -> Member:
    return Member(
        client_id=found.client_id,
        address=found.client_addr,
        language=found.language,
        version=version_name(found.version),
    )


class Subscription(Result, frozen=True, kw_only=True, rename="camel"):
    """What a group subscribes."""

    topic: str
    expression: Annotated[str | None, NONE]
    """Tags, or a condition in SQL92."""
    expression_type: str | None


class Members(Table[Member], frozen=True, kw_only=True, rename="camel"):
    """The members of a consumer group, and what they said of it."""

    group: str
    subscriptions: list[Subscription]
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None


async def members(admin: Admin, group: str, address: str | None = None) -> Members:
    """The members of a consumer group, by 203 at one broker or all. Raises PeerRefused(206) where none is online."""
    asked = await online(admin, group, address)
    found = asked.connection
    return Members(
        group=group,
        items=[_member(each) for each in found.connection_set],
        subscriptions=[
            Subscription(topic=each.topic, expression=each.sub_string, expression_type=each.expression_type)
            for each in found.subscription_table.values()
        ],
        consume_type=found.consume_type,
        message_model=found.message_model,
        consume_from_where=found.consume_from_where,
        errors=errors_of(asked.errors, _MISSING_MEMBERS),
    )


class ProducerMembers(Table[Member], frozen=True, kw_only=True, rename="camel"):
    """The members of a producer group."""

    group: str


async def producer_members(admin: Admin, group: str, topic: str) -> ProducerMembers:
    """The members of a producer group, by 204 at each broker of a topic. Raises UnknownGroup where none knows it."""
    brokers = await admin.brokers_of(topic)
    asked = await ask_each({name: _producers_at(admin, address, group) for name, address in brokers})
    found = {each.client_id: each for name, _ in reversed(brokers) for each in asked.answers.get(name, [])}
    if not found:
        for error in sorted(asked.errors.values(), key=lambda error: isinstance(error, UnknownGroup)):
            raise error
    silent = {name: error for name, error in asked.errors.items() if not isinstance(error, UnknownGroup)}
    return ProducerMembers(
        group=group,
        items=[_member(each) for each in found.values()],
        errors=errors_of(silent, _MISSING_MEMBERS),
    )


async def _producers_at(admin: Admin, address: str, group: str) -> list[Connection]:
    request = clients.OfProducerGroup(producer_group=group)
    try:
        answer = await admin.call(address, api.GET_PRODUCER_CONNECTION_LIST, request)
    except PeerRefused as refused:
        if refused.status != Status.NOT_FOUND:
            raise
        raise UnknownGroup(refused.code, refused.remark, address) from None
    return ProducerConnection.decode(answer.body).connection_set


class GroupSettings(Result, frozen=True, kw_only=True, rename="camel"):
    """The settings of a consumer group at one broker."""

    cluster: str
    broker: str
    group_name: str
    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queue_nums: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool


class SettingsOfGroup(Table[GroupSettings], frozen=True, kw_only=True, rename="camel"):
    """The settings of a consumer group at each broker that has them."""


async def group_settings(admin: Admin, group: str) -> SettingsOfGroup:
    """The settings of a consumer group, by 201 at every broker. Raises AdminError where none has them."""
    info = await admin.clusters()
    places = {
        (cluster, name): address
        for cluster, names in info.cluster_addr_table.items()
        for name in sorted(names)
        if name in info.broker_addr_table and (address := some_address(info.broker_addr_table[name])) is not None
    }
    asked = await ask_each({name: group_at(admin, address, group) for (_, name), address in places.items()})
    items = [
        GroupSettings(
            cluster=cluster,
            broker=name,
            group_name=config.group_name,
            consume_enable=config.consume_enable,
            consume_from_min_enable=config.consume_from_min_enable,
            consume_broadcast_enable=config.consume_broadcast_enable,
            retry_queue_nums=config.retry_queue_nums,
            retry_max_times=config.retry_max_times,
            broker_id=config.broker_id,
            which_broker_when_consume_slowly=config.which_broker_when_consume_slowly,
            notify_consumer_ids_changed_enable=config.notify_consumer_ids_changed_enable,
        )
        for cluster, name in places
        if (config := asked.answers.get(name)) is not None
    ]
    if not items:
        asked.strict()
        groups = await ask_each({name: groups_at(admin, address) for (_, name), address in places.items()})
        like = nearest(group, sorted(set().union(*groups.answers.values())))
        raise NotFound(f"no broker has settings of the consumer group {group}{like}")
    return SettingsOfGroup(items=items, errors=errors_of(asked.errors, "its settings of the group are missing"))


async def group_at(admin: Admin, address: str, group: str) -> SubscriptionGroupConfig | None:
    """The settings of a consumer group at one broker (201); None where it has none."""
    return (await groups_at(admin, address)).get(group)


async def groups_at(admin: Admin, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The settings of all consumer groups of one broker, by name (201)."""
    answer = await admin.call(address, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
