"""Commands about brokers: runtime info, settings, cleaning, lag and producers."""

from __future__ import annotations

from typing import Any

from eruca.admin.client import Admin
from eruca.admin.command import BROKER, CLUSTER, Job, command, either
from eruca.admin.errors import AdminError
from eruca.admin.posix import Option
from eruca.admin.text import seconds_text
from eruca.protocol import api, properties
from eruca.protocol.api import Endpoint
from eruca.protocol.bodies import ConsumeStatsList, ProducerTableInfo
from eruca.protocol.header import Empty
from eruca.protocol.headers import topics


@command("brokerStatus", "show the runtime info of brokers", *either(BROKER, CLUSTER))
async def broker_status(job: Job) -> None:
    """28 at one broker, or at all masters and slaves of a cluster."""
    address = job.maybe("b")
    if address is not None:
        for key, value in sorted((await job.admin.runtime(address)).items()):
            job.row("%-32s: %s", key, value)
        return
    for each in await job.admin.addresses(job.text("c")):
        try:
            table = await job.admin.runtime(each)
        except AdminError as error:
            job.report(f"mqadmin brokerStatus: {error}")
            continue
        for key, value in sorted(table.items()):
            job.row("%-24s %-32s: %s", each, key, value)


@command(
    "updateBrokerConfig",
    "change a setting of brokers at run time",
    *either(BROKER, CLUSTER),
    Option("k", "key", "the setting", required=True),
    Option("v", "value", "its new value", required=True),
)
async def update_broker_config(job: Job) -> None:
    """25 at one broker, or at all masters of a cluster."""
    body = properties.write({job.text("k"): job.text("v")}).encode()
    address = job.maybe("b")
    for each in [address] if address is not None else await job.admin.masters(job.text("c")):
        try:
            answer = await job.admin.call(each, api.UPDATE_BROKER_CONFIG, None, body)
        except AdminError as error:
            job.report(f"mqadmin updateBrokerConfig: {error}")
        else:
            job.line(f"update broker config success, {each}")
            job.note(each, answer.remark)


@command("getBrokerConfig", "show the settings of brokers", *either(BROKER, CLUSTER))
async def get_broker_config(job: Job) -> None:
    """26 at one broker, or at all masters and slaves of a cluster."""
    address = job.maybe("b")
    if address is not None:
        await _print_config(job, f"============{address}============", address)
        return
    for broker in await job.admin.brokers_in(job.text("c")):
        master = broker.master()
        if master is not None:
            await _print_config(job, f"============Master: {master}============", master)
        for broker_id, slave in sorted(broker.broker_addrs.items()):
            if broker_id != 0:
                title = f"============My Master: {master or 'null'}=====Slave: {slave}============"
                await _print_config(job, title, slave)


async def _print_config(job: Job, title: str, address: str) -> None:
    answer = await job.admin.call(address, api.GET_BROKER_CONFIG)
    job.line(title)
    print_properties(job, answer.body)
    job.line()


def print_properties(job: Job, body: bytes) -> None:
    """Print the settings in a body, one on each line."""
    for key, value in properties.parse(properties.decode(body)).items():
        job.row("%-50s=  %s", key, value)


# ------------------------------------------------------------------ cleaning up

_ANY = (BROKER, Option("c", "cluster", "the brokers of this cluster; default: of all clusters"))


async def _clean(job: Job, endpoint: Endpoint[Empty, Any]) -> None:
    address = job.maybe("b")
    for each in [address] if address is not None else await _targets(job.admin, job.text("c")):
        await job.admin.call(each, endpoint)
    job.write("success")


async def _targets(admin: Admin, cluster: str) -> list[str]:
    if cluster:
        return await admin.addresses(cluster)
    return [
        address
        for broker in (await admin.clusters()).broker_addr_table.values()
        for _, address in sorted(broker.broker_addrs.items())
    ]


@command("cleanExpiredCQ", "remove consume queue files whose messages are gone", *_ANY)
async def clean_expired_queues(job: Job) -> None:
    """306."""
    await _clean(job, api.CLEAN_EXPIRED_CONSUMEQUEUE)


@command("cleanUnusedTopic", "remove the queues of deleted topics", *_ANY)
async def clean_unused_topics(job: Job) -> None:
    """316."""
    await _clean(job, api.CLEAN_UNUSED_TOPIC)


@command("deleteExpiredCommitLog", "remove commit log files that are older than the retention", *_ANY)
async def delete_expired_commit_log(job: Job) -> None:
    """329."""
    await _clean(job, api.DELETE_EXPIRED_COMMITLOG)


# ------------------------------------------------------------------ lag and producers

_STATS = "%-64.64s  %-64s  %-32.32s  %-4s  %-20s  %-20s  %-20s  %s"


@command(
    "brokerConsumeStats",
    "show the lag of all groups at a broker",
    Option("b", "brokerAddr", "the broker, as host:port", required=True),
    Option("t", "timeoutMillis", "timeout in ms; default 50000"),
    Option("l", "level", "only queues with at least this lag; default 0"),
    Option("o", "order", "true: only ordered topics; default false"),
)
async def broker_consume_stats(job: Job) -> None:
    """317."""
    answer = await job.admin.call(
        job.text("b"),
        api.GET_BROKER_CONSUME_STATS,
        topics.BrokerConsumeStatsOf(is_order=job.truth("o", False)),
        timeout=job.number("t", 50_000) / 1000,
    )
    stats = ConsumeStatsList.decode(answer.body)
    titles = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    job.row(_STATS, *titles)
    level = job.number("l")
    rows = [
        (group, queue, offset)
        for groups in stats.consume_stats_list
        for group, tables in groups.items()
        for table in tables
        for queue, offset in sorted(table.offset_table.items())
        if offset.lag() >= level and offset.last_timestamp > 0
    ]
    for group, queue, offset in rows:
        numbers = (queue.queue_id, offset.broker_offset, offset.consumer_offset, offset.lag())
        job.row(_STATS, queue.topic, group, queue.broker_name, *numbers, seconds_text(offset.last_timestamp))
    job.line()
    job.line(f"Diff Total: {stats.total_diff}")


@command("producer", "list the producers of a broker", Option("b", "broker", "the broker, as host:port", required=True))
async def producers(job: Job) -> None:
    """328."""
    answer = await job.admin.call(job.text("b"), api.GET_ALL_PRODUCER_INFO)
    for group, members in ProducerTableInfo.decode(answer.body).data.items():
        if not members:
            job.line(f"producer group ({group}) instances are empty")
        for each in members:
            job.line(
                f"producer group ({group}) instance : clientId={each.client_id},remoteIP={each.remote_ip}, "
                f"language={each.language}, version={each.version}, lastUpdateTimestamp={each.last_update_timestamp}"
            )
