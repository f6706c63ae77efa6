"""Commands about groups that elect their master, and about the copies of logs; those of RocketMQ 5's mqadmin.

Options and text are its (5.3.3); only ``-a`` need not be given: then the nameservers tell where a group is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from eruca.admin.command import BROKER, MASTERS, Job, Shown, command, first_of
from eruca.admin.errors import AdminError, NotFound
from eruca.admin.posix import INT64, Option
from eruca.admin.results import failover as found
from eruca.admin.results import recreation
from eruca.admin.text import millis_text, nearest
from eruca.protocol.bodies import BrokerData, EpochEntryCache, HARuntimeInfo, ReplicaIdentity, ReplicasInfo

CONTROLLER = Option(
    "a",
    "controllerAddress",
    "any broker of the group, or a controller of RocketMQ 5; default: as the nameservers say",
    kind="address",
)
NAMED = Option("b", "brokerName", "the group of brokers with this name", kind="broker")
GROUPS = Option("c", "clusterName", "all groups of brokers of this cluster", kind="cluster")
AGAIN = Option("i", "interval", "repeat every N seconds, until interrupted", kind="number", least=1)


async def _repeated(job: Job, look: Callable[[], Awaitable[Shown]]) -> AsyncIterator[Shown]:
    interval = job.number("i", 1)
    while True:
        yield await look()
        if not job.has("i"):
            return
        job.finish()
        await asyncio.sleep(interval)


@command("getSyncStateSet", CONTROLLER, *first_of(NAMED, GROUPS), AGAIN, results=(found.SyncStateSets,), reads=True)
async def get_sync_state_set(job: Job) -> AsyncIterator[Shown]:
    """1006 at the one that 1005 names."""

    async def look() -> Shown:
        brokers = await found.brokers_named(job.admin, job.maybe("b"), job.text("c"))
        sets = await found.sync_state_sets(job.admin, job.maybe("a"), brokers)
        return Shown(sets.result, partial(_print_sets, job, sets.groups))

    async for shown in _repeated(job, look):
        yield shown


def _print_sets(job: Job, groups: dict[str, ReplicasInfo]) -> None:
    for name, group in groups.items():
        job.line(f"\n#brokerName\t{name}\n#MasterBrokerId\t{group.master_broker_id}")
        job.line(f"#MasterAddr\t{group.master_address}\n#MasterEpoch\t{group.master_epoch}")
        job.line(f"#SyncStateSetEpoch\t{group.sync_state_set_epoch}")
        job.line(f"#SyncStateSetNums\t{len(group.in_sync_replicas)}")
        for each in group.in_sync_replicas:
            job.line(f"\nInSyncReplica:\t{_identity(each)}")
        for each in group.not_in_sync_replicas:
            job.line(f"\nNotInSyncReplica:\t{_identity(each)}")


def _identity(each: ReplicaIdentity) -> str:
    alive = "null" if each.alive is None else str(each.alive).lower()
    return (
        f"ReplicaIdentity{{brokerName='{each.broker_name}', brokerId={each.broker_id}, "
        f"brokerAddress='{each.broker_address}', alive={alive}}}"
    )


@command("getBrokerEpoch", *first_of(NAMED, GROUPS), AGAIN, results=(found.BrokerEpochs,), reads=True)
async def get_broker_epoch(job: Job) -> AsyncIterator[Shown]:
    """1007 at each broker."""

    async def look() -> Shown:
        brokers = await found.brokers_named(job.admin, job.maybe("b"), job.text("c"))
        logs, result = await found.broker_epochs(job.admin, brokers)
        return Shown(result, partial(_print_epochs, job, logs))

    async for shown in _repeated(job, look):
        yield shown


def _print_epochs(job: Job, logs: dict[str, EpochEntryCache]) -> None:
    for address, log in logs.items():
        job.line(f"\n#clusterName\t{log.cluster_name}\n#brokerName\t{log.broker_name}")
        job.write(f"#brokerAddr\t{address}\n#brokerId\t{log.broker_id}")
        for part in log.epoch_list:
            place = f"epoch={part.epoch}, startOffset={part.start_offset}, endOffset={part.end_offset}"
            job.write(f"\n#Epoch: EpochEntry{{{place}}}")
        job.line()


@command("haStatus", *first_of(BROKER, MASTERS), AGAIN, results=(found.Copies,), reads=True)
async def ha_status(job: Job) -> AsyncIterator[Shown]:
    """907 at a broker, or at all masters of a cluster."""

    async def look() -> Shown:
        address = job.maybe("b")
        addresses = [address] if address is not None else await found.masters(job.admin, job.text("c"))
        states, result = await found.copies(job.admin, addresses)
        return Shown(result, partial(_print_copies, job, states))

    async for shown in _repeated(job, look):
        yield shown


def _print_copies(job: Job, states: dict[str, HARuntimeInfo]) -> None:
    for address, state in states.items():
        if state.master:
            _print_master(job, address, state)
            continue
        own = state.ha_client_runtime_info
        job.line(f"\n#MasterAddr\t{own.master_addr}\n#CommitLogMaxOffset\t{own.max_offset}")
        job.line(f"#TransferSpeed(KB/s)\t{own.transferred_byte_in_second / 1024:.2f}")
        job.line(f"#LastReadTime\t{millis_text(own.last_read_timestamp)}")
        job.line(f"#LastWriteTime\t{millis_text(own.last_write_timestamp)}")
        job.line(f"#MasterFlushOffset\t{own.master_flush_offset}")


def _print_master(job: Job, address: str, state: HARuntimeInfo) -> None:
    job.line(f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{state.master_commit_log_max_offset}")
    job.line(f"#SlaveNum\t{len(state.ha_connection_info)}\n#InSyncSlaveNum\t{state.in_sync_slave_nums}")
    layout = "%-32s  %-16s %16s %16s %16s %16s"
    titles = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere")
    job.row(layout, *titles)
    for each in state.ha_connection_info:
        speed, status = f"{each.transferred_byte_in_second / 1024:.2f}", "OK" if each.in_sync else "Fall Behind"
        job.row(layout, each.addr, each.slave_ack_offset, each.diff, speed, status, each.transfer_from_where)


@command(
    "electMaster",
    CONTROLLER,
    Option(
        "b", "brokerId", "the number of the broker that is to be the master", required=True, kind="number", most=INT64
    ),
    Option("bn", "brokerName", "the group of brokers with this name", required=True, kind="broker"),
    Option("c", "clusterName", "the cluster of the group", required=True, kind="cluster"),
    results=(found.Elected,),
    reads=False,
)
async def elect_master(job: Job) -> Shown:
    """1002 at the one that 1005 names."""
    address, name = job.maybe("a"), job.text("bn")
    if address is None:
        address = found.somebody(await _group(job, name))
    result = await found.elect(job.admin, address, job.text("c"), name, job.number("b"))
    return Shown(result, partial(_print_elected, job, result))


async def _group(job: Job, name: str) -> BrokerData:
    cluster = job.text("c")
    groups = {broker.broker_name: broker for broker in await job.admin.brokers_in(cluster)}
    if name not in groups:
        raise NotFound(f"the cluster {cluster} has no broker {name}{nearest(name, sorted(groups))}")
    return groups[name]


def _print_elected(job: Job, result: found.Elected) -> None:
    job.line(f"\n#ClusterName\t{result.cluster}\n#BrokerName\t{result.broker}\n#BrokerMasterAddr\t{result.master}")
    job.line(f"#MasterEpoch\t{result.master_epoch}\n#SyncStateSetEpoch\t{result.set_epoch}")
    for number, address in result.brokers.items():
        job.line(f"\t#Broker\t{number}\t{address}")


@command(
    "recreateGroup",
    Option(
        "b",
        "brokerId",
        "the number of the broker that is to be the master; needed where that may lose something",
        kind="number",
    ),
    Option("bn", "brokerName", "the group of brokers with this name", required=True, kind="broker"),
    Option("c", "clusterName", "the cluster of the group", required=True, kind="cluster"),
    Option("", "yes", "ask nothing", takes_value=False),
    results=(found.Elected,),
    reads=False,
)
async def recreate_group(job: Job) -> Shown:
    """28 at each broker of the group, 1002 at the chosen one."""
    name = job.text("bn")
    known, errors = await recreation.knowledge(job.admin, await _group(job, name))
    for address, error in errors.items():
        job.say(f"{address}: {error}: what it knows is missing")
    plan = recreation.plan(known, job.number("b") if job.has("b") else None)
    _agree_to_recreation(job, name, plan)
    result = await recreation.recreate(job.admin, job.text("c"), name, plan)
    return Shown(result, partial(_print_elected, job, result))


def _agree_to_recreation(job: Job, name: str, plan: recreation.Plan) -> None:
    """Say who is to write the group and what may be lost, and ask. Raises AdminError for no."""
    chosen, newest = plan.chosen, plan.newest
    members = ", ".join(map(str, sorted(newest.members)))
    job.say(f"the last group that is known: epoch {newest.age[0]}, syncStateSet {members} (broker {newest.broker_id})")
    job.say(
        f"broker {chosen.broker_id} is to be the master: its log is sound up to {chosen.end}, epoch {chosen.log_epoch}"
    )
    for loss in plan.losses or ("nothing that was acknowledged is lost: all of the syncStateSet answer",):
        job.say(loss)
    if plan.losses and not job.has("b"):
        raise AdminError(
            f"nothing was changed: start the brokers that are missing, or name the master (-b {chosen.broker_id}) to "
            "take that loss"
        )
    agreed = job.agreed(f"Write the group {name} again, with broker {chosen.broker_id} as its master?")
    if agreed is None:
        raise AdminError("nothing was changed: nobody is here to be asked; --yes does it")
    if not agreed:
        raise AdminError("nothing was changed")
