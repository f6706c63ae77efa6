"""Brokers and nameservers: load, runtime info, settings, lag and producers at each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError
from eruca.admin.lookups import ask_each
from eruca.admin.results.answer import NONE, WIDE, Moment, PeerError, Result, Table, errors_of
from eruca.protocol import api, properties
from eruca.protocol.bodies import ConsumeStatsList, ProducerTableInfo
from eruca.protocol.headers import topics


class Pool(Result, frozen=True, kw_only=True, rename="camel"):
    """Requests of one kind at a broker."""

    per_second: float
    """Messages, over the last seconds."""
    waiting: int | None
    """Requests that wait."""
    longest_wait_ms: int | None


class BrokerLoad(Result, frozen=True, kw_only=True, rename="camel"):
    """A broker in short; a broker that did not answer has only its place."""

    cluster: str
    broker: str
    broker_id: int
    """0 is the master."""
    address: str
    version: str | None
    sends: Pool | None
    pulls: Pool | None
    page_cache_lock_ms: Annotated[int | None, WIDE]
    oldest_message: Moment | None
    """None where there is no message."""
    disk_used: float | None
    """The part of the disk of the commit log that is in use, 0 to 1."""
    log_end: Annotated[int | None, WIDE]
    """Bytes of the commit log since its first one."""
    dispatch_behind: Annotated[int | None, WIDE]
    """Bytes of the commit log that are not in the consume queues yet."""
    received_yesterday: Annotated[int | None, WIDE]
    delivered_yesterday: Annotated[int | None, WIDE]
    received_today: Annotated[int | None, WIDE]
    delivered_today: Annotated[int | None, WIDE]


class Brokers(Table[BrokerLoad], frozen=True, kw_only=True, rename="camel"):
    """All brokers of all clusters."""

    at: Moment
    """When they were asked."""


STORE_REFUSAL = "storeRefusal"
"""The figure of a broker (28) that is there only while its store accepts nothing: why."""


async def brokers(admin: Admin) -> Brokers:
    """All brokers, by 106, and 28 at each."""
    info = await admin.clusters()
    places = [
        (cluster, name, broker_id, address)
        for cluster, names in info.cluster_addr_table.items()
        for name in sorted(names)
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    ]
    asked = await ask_each({address: admin.runtime(address) for address in {place[-1] for place in places}})
    items = [_load(*place, asked.answers.get(place[-1])) for place in places]
    now = time.time_ns() // 1_000_000
    return Brokers(items=items, at=Moment.at(now), errors=errors_of(asked.errors, "its figures are missing"))


def _load(cluster: str, broker: str, broker_id: int, address: str, table: Mapping[str, str] | None) -> BrokerLoad:
    if table is None:
        return BrokerLoad(
            cluster=cluster,
            broker=broker,
            broker_id=broker_id,
            address=address,
            version=None,
            sends=None,
            pulls=None,
            page_cache_lock_ms=None,
            oldest_message=None,
            disk_used=None,
            log_end=None,
            dispatch_behind=None,
            received_yesterday=None,
            delivered_yesterday=None,
            received_today=None,
            delivered_today=None,
        )

    def since(way: str, later: str, earlier: str) -> int:
        return int(table.get(f"msg{way}Total{later}") or 0) - int(table.get(f"msg{way}Total{earlier}") or 0)

    return BrokerLoad(
        cluster=cluster,
        broker=broker,
        broker_id=broker_id,
        address=address,
        version=table.get("brokerVersionDesc", ""),
        sends=_pool(table, "putTps", "send"),
        pulls=_pool(table, "getTransferedTps", "pull"),
        page_cache_lock_ms=_figure(table, "pageCacheLockTimeMills"),
        oldest_message=Moment.known(_figure(table, "earliestMessageTimeStamp")),
        disk_used=float(table.get("commitLogDiskRatio") or 0),
        log_end=_figure(table, "commitLogMaxOffset"),
        dispatch_behind=_figure(table, "dispatchBehindBytes"),
        received_yesterday=since("Put", "TodayMorning", "YesterdayMorning"),
        delivered_yesterday=since("Get", "TodayMorning", "YesterdayMorning"),
        received_today=since("Put", "TodayNow", "TodayMorning"),
        delivered_today=since("Get", "TodayNow", "TodayMorning"),
    )


def _pool(table: Mapping[str, str], rates: str, pool: str) -> Pool:
    first = table.get(rates, "").split(" ")[0]
    return Pool(
        per_second=float(first or 0),
        waiting=_figure(table, f"{pool}ThreadPoolQueueSize"),
        longest_wait_ms=_figure(table, f"{pool}ThreadPoolQueueHeadWaitTimeMills"),
    )


def _figure(table: Mapping[str, str], key: str) -> int | None:
    text = table.get(key, "")
    return int(text) if text.lstrip("-").isdecimal() else None


# ------------------------------------------------------------------ what a server says of itself


class Entries(Result, frozen=True, kw_only=True, rename="camel"):
    """Keys and values of one broker or nameserver."""

    address: str
    entries: dict[str, str]
    """In the server's words."""


class Servers(Table[Entries], frozen=True, kw_only=True, rename="camel"):
    """What servers say of themselves."""


async def runtime_info(admin: Admin, addresses: list[str]) -> Servers:
    """The runtime info of brokers (28 at each)."""
    asked = await ask_each({each: admin.runtime(each) for each in addresses})
    items = [Entries(address=each, entries=asked.answers[each]) for each in addresses if each in asked.answers]
    return Servers(items=items, errors=_missing(asked.errors, addresses))


async def broker_settings(admin: Admin, addresses: list[str]) -> Servers:
    """The settings of brokers (26 at each)."""
    asked = await ask_each({each: admin.call(each, api.GET_BROKER_CONFIG) for each in addresses})
    bodies = {each: answer.body for each, answer in asked.answers.items()}
    return Servers(items=_settings(addresses, bodies), errors=_missing(asked.errors, addresses))


async def nameserver_settings(admin: Admin) -> Servers:
    """The settings of all nameservers (319 at each)."""
    addresses = admin.nameservers
    asked = await ask_each({each: admin.call(each, api.GET_NAMESRV_CONFIG) for each in addresses})
    bodies = {each: answer.body for each, answer in asked.answers.items()}
    return Servers(items=_settings(addresses, bodies), errors=_missing(asked.errors, addresses))


def _settings(addresses: list[str], bodies: Mapping[str, bytes]) -> list[Entries]:
    return [
        Entries(address=each, entries=dict(properties.parse(properties.decode(bodies[each]))))
        for each in addresses
        if each in bodies
    ]


def _missing(errors: Mapping[str, AdminError], addresses: list[str]) -> list[PeerError]:
    """The errors of servers; raises the only one where nobody else was asked."""
    if len(addresses) == 1:
        for error in errors.values():
            raise error
    return errors_of(errors, "what it says of itself is missing")


# ------------------------------------------------------------------ groups and producers at one broker


class LagOfQueue(Result, frozen=True, kw_only=True, rename="camel"):
    """How far a group is in one queue of a broker."""

    topic: str
    group: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed: Annotated[Moment | None, NONE]
    """When the last message that it consumed was stored."""


class LagOfBroker(Table[LagOfQueue], frozen=True, kw_only=True, rename="camel"):
    """The lag of all groups at one broker."""

    total: int
    """Of all its queues, those that are not in ``items`` included."""


async def consume_stats(admin: Admin, address: str, *, ordered: bool, least: int, timeout: float) -> LagOfBroker:
    """The queues in which a group has consumed and lags by ``least`` messages (317)."""
    request = topics.BrokerConsumeStatsOf(is_order=ordered)
    answer = await admin.call(address, api.GET_BROKER_CONSUME_STATS, request, timeout=timeout)
    stats = ConsumeStatsList.decode(answer.body)
    rows = [
        LagOfQueue(
            topic=queue.topic,
            group=group,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            broker_offset=offset.broker_offset,
            consumer_offset=offset.consumer_offset,
            lag=offset.lag(),
            last_consumed=Moment.known(offset.last_timestamp),
        )
        for groups in stats.consume_stats_list
        for group, tables in groups.items()
        for table in tables
        for queue, offset in sorted(table.offset_table.items())
        if offset.lag() >= least and offset.last_timestamp > 0
    ]
    return LagOfBroker(items=rows, total=stats.total_diff)


class Producer(Result, frozen=True, kw_only=True, rename="camel"):
    """A producer of a broker; only ``group`` is known of a group without one."""

    group: str
    client_id: Annotated[str | None, NONE]
    address: Annotated[str | None, NONE]
    language: Annotated[str | None, NONE]
    version: Annotated[int | None, NONE]
    last_heartbeat: Annotated[Moment | None, NONE]


class Producers(Table[Producer], frozen=True, kw_only=True, rename="camel"):
    """The producers of one broker."""


async def producers(admin: Admin, address: str) -> Producers:
    """All producers of a broker (328)."""
    answer = await admin.call(address, api.GET_ALL_PRODUCER_INFO)
    found = []
    for group, members in ProducerTableInfo.decode(answer.body).data.items():
        if not members:
            found.append(
                Producer(group=group, client_id=None, address=None, language=None, version=None, last_heartbeat=None)
            )
        for each in members:
            found.append(
                Producer(
                    group=group,
                    client_id=each.client_id,
                    address=each.remote_ip,
                    language=each.language,
                    version=each.version,
                    last_heartbeat=Moment.at(each.last_update_timestamp),
                )
            )
    return Producers(items=found)
