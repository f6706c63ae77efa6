"""Commands about access control: accounts and white lists of brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from eruca.admin.command import BROKER, CLUSTER, Job, Shown, command, either
from eruca.admin.errors import AdminError, BadValue, NotFound, PeerRefused
from eruca.admin.lookups import ask_each
from eruca.admin.posix import Option
from eruca.admin.results.access import AccessFile, Account, access_config, access_files, account_of
from eruca.admin.results.acts import Act
from eruca.admin.text import seconds_text, shown
from eruca.protocol import api
from eruca.protocol.api import Endpoint
from eruca.protocol.bodies import PlainAccessConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.header import Header
from eruca.protocol.headers import access
from eruca.remoting.calls import Answer

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)
T = TypeVar("T")
ACCESS_KEY = Option("a", "accessKey", "the account", required=True)


async def _targets(job: Job) -> list[str]:
    address = job.maybe("b")
    return [address] if address is not None else await job.admin.addresses(job.text("c"))


async def _call(job: Job, address: str, endpoint: Endpoint[A, R], header: A | None = None) -> Answer[R]:
    """A request about access. Raises AdminError that says so, where a broker has no access control."""
    return await _asked(address, job.admin.call(address, endpoint, header))


async def _asked(address: str, question: Awaitable[T]) -> T:
    try:
        return await question
    except PeerRefused as refused:
        if refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise AdminError(
            f"{address}: this broker has no access control (aclEnable), or does not take this request"
        ) from None


async def _of_each(job: Job, ask: Callable[[str], Awaitable[T]]) -> list[tuple[str, T]]:
    """Broker and answer, of the broker that was given or of the masters of the cluster, asked side by side.

    Raises AdminError if none of them answers.
    """
    address = job.maybe("b")
    places = [address] if address is not None else await job.admin.masters(job.text("c"))
    asked = await ask_each({each: _asked(each, ask(each)) for each in places})
    if not asked.answers:
        asked.strict()
    job.missing(asked.errors, "its accounts are missing")
    return [(each, asked.answers[each]) for each in places if each in asked.answers]


@command(
    "updateAclConfig",
    *either(BROKER, CLUSTER),
    ACCESS_KEY,
    Option("s", "secretKey", "its secret", required=True),
    Option("t", "topicPerms", "permissions by topic: T1=PUB,T2=PUB|SUB,T3=DENY"),
    Option("g", "groupPerms", "permissions by group: G1=SUB,G2=DENY"),
    Option("i", "defaultTopicPerm", "permission for other topics"),
    Option("u", "defaultGroupPerm", "permission for other groups"),
    Option("w", "whiteRemoteAddress", "addresses from which it needs no signature"),
    Option("m", "admin", "true: it may use all requests; default false", kind="boolean"),
    alias="updateAccessConfig",
    results=(Act,),
)
async def update_account(job: Job) -> AsyncIterator[Shown]:
    """50 at the brokers."""
    request = access.UpdateAccessConfig(
        access_key=job.text("a"),
        secret_key=job.text("s"),
        topic_perms=job.maybe("t"),
        group_perms=job.maybe("g"),
        default_topic_perm=job.maybe("i"),
        default_group_perm=job.maybe("u"),
        white_remote_address=job.maybe("w"),
        admin=job.truth("m", False),
    )
    if not request.access_key or not request.secret_key:
        raise BadValue("an account needs a name (-a) and a secret (-s)")
    for address in await _targets(job):
        await _call(job, address, api.UPDATE_AND_CREATE_ACL_CONFIG, request)
        act = Act(action="put", kind="account", name=request.access_key, place=address)
        yield Shown(act, partial(job.line, f"create or update plain access config to {address} success."))


_NOT_DELETED = "has been deleted failed"
"""What brokers say of an account that they do not have (4.9.7)."""


@command(
    "deleteAclConfig",
    *either(BROKER, CLUSTER),
    ACCESS_KEY,
    alias="deleteAccessConfig",
    results=(Act,),
)
async def delete_account(job: Job) -> AsyncIterator[Shown]:
    """51 at the brokers."""
    for address in await _targets(job):
        request = access.DeleteAccessConfig(access_key=job.text("a"))
        act = Act(action="delete", kind="account", name=job.text("a"), place=address)
        try:
            await _call(job, address, api.DELETE_ACL_CONFIG, request)
        except PeerRefused as refused:
            if _NOT_DELETED not in refused.remark:
                raise
            yield Shown(replace(act, done=False), lambda: None)
            raise NotFound(f"it has no account {job.text('a')} (code {refused.code} from {address})") from None
        yield Shown(act, partial(job.line, f"delete plain access config account from {address} success."))
    yield Shown(None, partial(job.write, f"account's accesskey is:{job.text('a')}"))


@command(
    "updateGlobalWhiteAddr",
    *either(BROKER, CLUSTER),
    Option("g", "globalWhiteRemoteAddresses", "the addresses, separated by commas", required=True),
    Option("p", "aclFileFullPath", "the file at the broker to change"),
    results=(Act,),
)
async def update_white_list(job: Job) -> AsyncIterator[Shown]:
    """53 at the brokers."""
    request = access.UpdateGlobalWhiteAddrs(global_white_addrs=job.text("g"), acl_file_full_path=job.maybe("p"))
    for address in await _targets(job):
        await _call(job, address, api.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, request)
        act = Act(action="put", kind="white addresses", name=job.text("g"), place=address)
        yield Shown(act, partial(job.line, f"update global white remote addresses to {address} success."))


_VERSIONS = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"


@command(
    "clusterAclConfigVersion",
    *either(BROKER, CLUSTER),
    results=(AccessFile,),
    reads=True,
)
async def show_versions(job: Job) -> AsyncIterator[Shown]:
    """52 at one broker, or at the masters of a cluster."""
    address = job.maybe("b")
    if address is None:
        titles: tuple[str, ...] = ("#Cluster Name", "#Broker Name", "#Broker Addr")
        titles = (*titles, "#AclFilePath", "#AclConfigVersionNum", "#AclLastUpdateTime")
        yield Shown(None, partial(job.row, _VERSIONS, *titles))
    for _, files in await _of_each(job, lambda each: access_files(job.admin, each)):
        for file in files:
            changed = seconds_text(file.changed.ms if file.changed else 0)
            row = (file.cluster, file.broker, file.address, file.path or "", file.version, changed)
            yield Shown(file, partial(job.row, _VERSIONS, *row))
    whose = "broker's" if address is not None else "cluster's"
    yield Shown(None, partial(job.line, f"get {whose} plain access config version success."))


_ACCOUNT = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "whiteRemoteAddress": "white_remote_address",
    "admin": "admin",
    "defaultTopicPerm": "default_topic_perm",
    "defaultGroupPerm": "default_group_perm",
    "topicPerms": "topic_perms",
    "groupPerms": "group_perms",
}


@command(
    "getAclConfig",
    *either(BROKER, CLUSTER),
    alias="getAccessConfigSubCommand",
    results=(Account,),
    reads=True,
)
async def show_accounts(job: Job) -> AsyncIterator[Shown]:
    """54 at one broker, or at the masters of a cluster."""
    for each, config in await _of_each(job, lambda each: access_config(job.admin, each)):
        yield Shown(None, partial(_print_white_list, job, config.global_white_addrs))
        for account in config.plain_access_configs:
            shown_account = account_of(each, config.global_white_addrs, account)
            yield Shown(shown_account, partial(_print_account, job, account))


def _print_white_list(job: Job, addresses: list[str]) -> None:
    job.line()
    job.row("%-20s: %s", "globalWhiteRemoteAddresses", f"[{', '.join(addresses)}]")
    job.line()
    job.line("accounts:")


def _print_account(job: Job, account: PlainAccessConfig) -> None:
    for title, field in _ACCOUNT.items():
        job.row("%-1s %-18s: %s", "", title, _account_text(getattr(account, field)))
    job.line()


def _account_text(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return "" if value is None else shown(value)
