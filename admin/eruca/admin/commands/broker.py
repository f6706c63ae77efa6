"""Commands about brokers: runtime info, settings, cleaning, lag and producers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from eruca.admin.client import Admin
from eruca.admin.command import BROKER, CLUSTER, DELETION, Job, Shown, agree_to_deletion, command, first_of
from eruca.admin.errors import AdminError
from eruca.admin.posix import INT64, Option
from eruca.admin.results import brokers as found
from eruca.admin.results.acts import Act, Value
from eruca.admin.results.users import users_of_deleted_topics
from eruca.admin.text import seconds_text
from eruca.protocol import api, properties
from eruca.protocol.api import Endpoint
from eruca.protocol.bodies import BrokerData
from eruca.protocol.header import Empty


@command("brokerStatus", *first_of(BROKER, CLUSTER), results=(found.Servers,))
async def broker_status(job: Job) -> Shown:
    """28 at one broker, or at all masters and slaves of a cluster."""
    address = job.maybe("b")
    addresses = [address] if address is not None else await job.admin.addresses(job.text("c"))
    result = await found.runtime_info(job.admin, addresses)

    def apache() -> None:
        for each in result.items:
            for key, value in sorted(each.entries.items()):
                if address is None:
                    job.row("%-24s %-32s: %s", each.address, key, value)
                else:
                    job.row("%-32s: %s", key, value)

    return Shown(result, apache)


@command(
    "updateBrokerConfig",
    *first_of(BROKER, CLUSTER),
    Option("k", "key", "the setting", required=True),
    Option("v", "value", "its new value", required=True),
    results=(Act,),
)
async def update_broker_config(job: Job) -> AsyncIterator[Shown]:
    """25 at one broker, or at all masters of a cluster."""
    body = properties.write({job.text("k"): job.text("v")}).encode()
    address = job.maybe("b")
    for each in [address] if address is not None else await job.admin.masters(job.text("c")):
        settings: dict[str, Value | list[str]] = {job.text("k"): job.text("v")}
        act = Act(action="put", kind="setting", name=job.text("k"), place=each, settings=settings)
        try:
            answer = await job.admin.call(each, api.UPDATE_BROKER_CONFIG, None, body)
        except AdminError as error:
            job.report(f"mqadmin updateBrokerConfig: {error}", error.status)
            yield Shown(replace(act, done=False, settings={}), lambda: None)
        else:
            yield Shown(act, partial(job.line, f"update broker config success, {each}"))
            job.note(each, answer.remark)


@command("getBrokerConfig", *first_of(BROKER, CLUSTER), results=(found.Servers,))
async def get_broker_config(job: Job) -> Shown:
    """26 at one broker, or at all masters and slaves of a cluster."""
    address = job.maybe("b")
    if address is not None:
        titles = {address: f"============{address}============"}
    else:
        titles = _titles(await job.admin.brokers_in(job.text("c")))
    result = await found.broker_settings(job.admin, list(titles))

    def apache() -> None:
        for each in result.items:
            job.line(titles[each.address])
            print_settings(job, each)
            job.line()

    return Shown(result, apache)


def _titles(brokers: Sequence[BrokerData]) -> dict[str, str]:
    """What stands above the settings of each broker, by address."""
    titles = {}
    for broker in brokers:
        master = broker.master()
        if master is not None:
            titles[master] = f"============Master: {master}============"
        for broker_id, slave in sorted(broker.broker_addrs.items()):
            if broker_id != 0:
                titles[slave] = f"============My Master: {master or 'null'}=====Slave: {slave}============"
    return titles


def print_settings(job: Job, server: found.Entries) -> None:
    """Print the settings of a server, one on each line."""
    for key, value in server.entries.items():
        job.row("%-50s=  %s", key, value)


# ------------------------------------------------------------------ cleaning up

_ANY = (BROKER, Option("c", "cluster", "the brokers of this cluster; default: of all clusters", kind="cluster"))


async def _clean(job: Job, endpoint: Endpoint[Empty, Any], kind: str) -> AsyncIterator[Shown]:
    address = job.maybe("b")
    for each in [address] if address is not None else await _targets(job.admin, job.text("c")):
        await job.admin.call(each, endpoint)
        yield Shown(Act(action="clean", kind=kind, name="", place=each), lambda: None)
    yield Shown(None, partial(job.write, "success"))


async def _targets(admin: Admin, cluster: str) -> list[str]:
    if cluster:
        return await admin.addresses(cluster)
    return [
        address
        for broker in (await admin.clusters()).broker_addr_table.values()
        for _, address in sorted(broker.broker_addrs.items())
    ]


@command("cleanExpiredCQ", *_ANY, results=(Act,))
async def clean_expired_queues(job: Job) -> AsyncIterator[Shown]:
    """306."""
    async for each in _clean(job, api.CLEAN_EXPIRED_CONSUMEQUEUE, "consume queue"):
        yield each


@command("cleanUnusedTopic", *_ANY, *DELETION, results=(Act,))
async def clean_unused_topics(job: Job) -> AsyncIterator[Shown]:
    """316. Before, it looks which members subscribe topics that a broker has no more (206, 21, 43, 201, 203)."""
    address = job.maybe("b")
    places = [address] if address is not None else await _targets(job.admin, job.text("c"))
    users = [user for place in places for user in await users_of_deleted_topics(job.admin, place)]
    agree_to_deletion(job, users, "Deleted topics have members. Remove their queues with all messages?")
    async for each in _clean(job, api.CLEAN_UNUSED_TOPIC, "topic"):
        yield each


@command("deleteExpiredCommitLog", *_ANY, results=(Act,))
async def delete_expired_commit_log(job: Job) -> AsyncIterator[Shown]:
    """329."""
    async for each in _clean(job, api.DELETE_EXPIRED_COMMITLOG, "commit log"):
        yield each


# ------------------------------------------------------------------ lag and producers

_TITLES = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
_STATS = "%-64.64s  %-64s  %-32.32s  %-4s  %-20s  %-20s  %-20s  %s"


@command(
    "brokerConsumeStats",
    Option("b", "brokerAddr", "the broker, as host:port", required=True, kind="address"),
    Option("t", "timeoutMillis", "timeout in ms; default 50000", kind="number", least=1),
    Option("l", "level", "only queues with at least this lag; default 0", kind="number", most=INT64),
    Option("o", "order", "true: only ordered topics; default false", kind="boolean"),
    results=(found.LagOfBroker,),
)
async def broker_consume_stats(job: Job) -> Shown:
    """317."""
    result = await found.consume_stats(
        job.admin,
        job.text("b"),
        ordered=job.truth("o", False),
        least=job.number("l"),
        timeout=job.number("t", 50_000) / 1000,
    )

    def apache() -> None:
        titles = (
            "#Topic",
            "#Group",
            "#Broker Name",
            "#QID",
            "#Broker Offset",
            "#Consumer Offset",
            "#Diff",
            "#LastTime",
        )
        job.row(_STATS, *titles)
        for each in result.items:
            numbers = (each.queue_id, each.broker_offset, each.consumer_offset, each.lag)
            last = seconds_text(each.last_consumed.ms if each.last_consumed else 0)
            job.row(_STATS, each.topic, each.group, each.broker, *numbers, last)
        job.line()
        job.line(f"Diff Total: {result.total}")

    return Shown(result, apache)


@command(
    "producer",
    Option("b", "broker", "the broker, as host:port", required=True, kind="address"),
    results=(found.Producers,),
)
async def producers(job: Job) -> Shown:
    """328."""
    result = await found.producers(job.admin, job.text("b"))

    def apache() -> None:
        for each in result.items:
            if each.last_heartbeat is None:
                job.line(f"producer group ({each.group}) instances are empty")
                continue
            job.line(
                f"producer group ({each.group}) instance : clientId={each.client_id},remoteIP={each.address}, "
                f"language={each.language}, version={each.version}, lastUpdateTimestamp={each.last_heartbeat.ms}"
            )

    return Shown(result, apache)
