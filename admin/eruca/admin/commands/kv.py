"""Commands about nameservers: key-value configuration, settings, write permission."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Literal

from eruca.admin.command import DELETION, Job, Shown, agree_to_deletion, command
from eruca.admin.commands.broker import print_settings
from eruca.admin.errors import AdminError, Status
from eruca.admin.lookups import has_value
from eruca.admin.posix import Option
from eruca.admin.results.acts import Act, WritePermission
from eruca.admin.results.brokers import Servers, nameserver_settings
from eruca.admin.results.users import producers_at
from eruca.protocol import api, properties
from eruca.protocol.headers import routes

NAMESPACE = Option("s", "namespace", "the namespace", required=True)
KEY = Option("k", "key", "the key", required=True)
VALUE = Option("v", "value", "the value", required=True)


@command("updateKvConfig", NAMESPACE, KEY, VALUE, results=(Act,), reads=False)
async def update_kv_config(job: Job) -> Shown:
    """100 at every nameserver."""
    request = routes.PutKVConfig(namespace=job.text("s"), key=job.text("k"), value=job.text("v"))
    await job.admin.call_nameservers(api.PUT_KV_CONFIG, request)
    act = Act(action="put", kind="value", name=f"{job.text('s')}/{job.text('k')}", place="nameservers")
    return Shown(act, partial(job.line, "create or update kv config to namespace success."))


@command("deleteKvConfig", NAMESPACE, KEY, results=(Act,), reads=False)
async def delete_kv_config(job: Job) -> Shown:
    """102 at every nameserver."""
    request = routes.KVConfigKey(namespace=job.text("s"), key=job.text("k"))
    was_there = await has_value(job.admin, request)
    await job.admin.call_nameservers(api.DELETE_KV_CONFIG, request)
    if not was_there:
        job.report(f"no nameserver had key {job.text('k')} in namespace {job.text('s')}", Status.NOT_FOUND)
    name = f"{job.text('s')}/{job.text('k')}"
    act = Act(action="delete", kind="value", name=name, place="nameservers", done=was_there)
    return Shown(act, partial(job.line, "delete kv config from namespace success."))


@command("getNamesrvConfig", results=(Servers,))
async def get_namesrv_config(job: Job) -> Shown:
    """319 at every nameserver."""
    result = await nameserver_settings(job.admin)

    def apache() -> None:
        for each in result.items:
            job.line(f"============{each.address}============")
            print_settings(job, each)

    return Shown(result, apache)


@command("updateNamesrvConfig", KEY, VALUE, results=(Act,))
async def update_namesrv_config(job: Job) -> AsyncIterator[Shown]:
    """318 at every nameserver."""
    key, value = job.text("k"), job.text("v")
    body = properties.write({key: value}).encode()
    answers = await job.admin.call_nameservers(api.UPDATE_NAMESRV_CONFIG, None, body)
    servers = f"[{', '.join(job.admin.nameservers)}]" if job.has("n") else ""
    yield Shown(None, partial(job.line, f"update name server config success!{servers}\n{key} : {value}"))
    for address, answer in zip(job.admin.nameservers, answers, strict=True):
        act = Act(action="put", kind="setting", name=key, place=address, settings={key: value})
        yield Shown(act, partial(job.note, address, answer.remark))


BROKER_NAME = Option("b", "brokerName", "the broker's name", required=True, kind="broker")


@command(
    "wipeWritePerm",
    BROKER_NAME,
    *DELETION,
    results=(WritePermission,),
)
async def wipe_write_permission(job: Job) -> AsyncIterator[Shown]:
    """205 at every nameserver. Before, it looks which producers the broker has."""
    broker = (await job.admin.clusters()).broker_addr_table.get(job.text("b"))
    master = broker.master() if broker is not None else None
    producers = await producers_at(job.admin, master) if master is not None else {}
    users = [f"producer group {group}: {count} online" for group, count in producers.items()]
    agree_to_deletion(job, users, f"Send them all to other brokers than {job.text('b')}?")

    async def wipe(nameserver: str) -> int:
        request = routes.OfBroker(broker_name=job.text("b"))
        return (await job.admin.call(nameserver, api.WIPE_WRITE_PERM_OF_BROKER, request)).header.wipe_topic_count

    async for each in _permit(job, "wipe", wipe):
        yield each


@command("addWritePerm", BROKER_NAME, results=(WritePermission,))
async def add_write_permission(job: Job) -> AsyncIterator[Shown]:
    """327 at every nameserver."""

    async def add(nameserver: str) -> int:
        request = routes.OfBroker(broker_name=job.text("b"))
        return (await job.admin.call(nameserver, api.ADD_WRITE_PERM_OF_BROKER, request)).header.add_topic_count

    async for each in _permit(job, "add", add):
        yield each


async def _permit(
    job: Job, verb: Literal["add", "wipe"], change: Callable[[str], Awaitable[int]]
) -> AsyncIterator[Shown]:
    changed = 0
    for nameserver in job.admin.nameservers:
        what = f"{verb} write perm of broker[{job.text('b')}] in name server[{nameserver}]"
        count = None
        try:
            count = await change(nameserver)
        except AdminError as error:
            job.report(f"mqadmin {verb}WritePerm: {error}", error.status)
        changed += count or 0
        act = WritePermission(nameserver=nameserver, broker=job.text("b"), write=verb == "add", topics=count)
        yield Shown(act, partial(job.line, f"{what} Failed" if count is None else f"{what} OK, {count}"))
    if not changed and not job.status and job.text("b") not in (await job.admin.clusters()).broker_addr_table:
        job.report(f"the nameservers know no broker {job.text('b')}", Status.NOT_FOUND)
