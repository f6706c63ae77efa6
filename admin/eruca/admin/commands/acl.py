"""Commands about access control: accounts and white lists of brokers."""

from __future__ import annotations

from eruca.admin.command import BROKER, CLUSTER, Job, command, either
from eruca.admin.errors import AdminError
from eruca.admin.posix import Option
from eruca.admin.text import seconds_text, shown
from eruca.protocol import api
from eruca.protocol.bodies import AclConfig, DataVersion, decode_file_versions
from eruca.protocol.headers import access

ACCESS_KEY = Option("a", "accessKey", "the account", required=True)


async def _targets(job: Job) -> list[str]:
    address = job.maybe("b")
    return [address] if address is not None else await job.admin.addresses(job.text("c"))


@command(
    "updateAclConfig",
    "create an account or change it",
    *either(BROKER, CLUSTER),
    ACCESS_KEY,
    Option("s", "secretKey", "its secret", required=True),
    Option("t", "topicPerms", "permissions by topic: T1=PUB,T2=PUB|SUB,T3=DENY"),
    Option("g", "groupPerms", "permissions by group: G1=SUB,G2=DENY"),
    Option("i", "defaultTopicPerm", "permission for other topics"),
    Option("u", "defaultGroupPerm", "permission for other groups"),
    Option("w", "whiteRemoteAddress", "addresses from which it needs no signature"),
    Option("m", "admin", "true: it may use all requests; default false"),
    alias="updateAccessConfig",
)
async def update_account(job: Job) -> None:
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
        raise AdminError("an account needs a name (-a) and a secret (-s)")
    for address in await _targets(job):
        await job.admin.call(address, api.UPDATE_AND_CREATE_ACL_CONFIG, request)
        job.line(f"create or update plain access config to {address} success.")


@command("deleteAclConfig", "delete an account", *either(BROKER, CLUSTER), ACCESS_KEY, alias="deleteAccessConfig")
async def delete_account(job: Job) -> None:
    """51 at the brokers."""
    for address in await _targets(job):
        request = access.DeleteAccessConfig(access_key=job.text("a"))
        await job.admin.call(address, api.DELETE_ACL_CONFIG, request)
        job.line(f"delete plain access config account from {address} success.")
    job.write(f"account's accesskey is:{job.text('a')}")


@command(
    "updateGlobalWhiteAddr",
    "set the addresses that need no account",
    *either(BROKER, CLUSTER),
    Option("g", "globalWhiteRemoteAddresses", "the addresses, separated by commas", required=True),
    Option("p", "aclFileFullPath", "the file at the broker to change"),
)
async def update_white_list(job: Job) -> None:
    """53 at the brokers."""
    request = access.UpdateGlobalWhiteAddrs(global_white_addrs=job.text("g"), acl_file_full_path=job.maybe("p"))
    for address in await _targets(job):
        await job.admin.call(address, api.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, request)
        job.line(f"update global white remote addresses to {address} success.")


_VERSIONS = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"


@command("clusterAclConfigVersion", "show the versions of the access files", *either(BROKER, CLUSTER))
async def show_versions(job: Job) -> None:
    """52 at one broker, or at the masters of a cluster."""
    address = job.maybe("b")
    if address is None:
        titles = ("#Cluster Name", "#Broker Name", "#Broker Addr")
        job.row(_VERSIONS, *titles, "#AclFilePath", "#AclConfigVersionNum", "#AclLastUpdateTime")
    for each in [address] if address is not None else await job.admin.masters(job.text("c")):
        header = (await job.admin.call(each, api.GET_BROKER_CLUSTER_ACL_INFO)).header
        files = decode_file_versions(header.all_acl_file_version) if header.all_acl_file_version else {}
        for path, version in (files or {"": DataVersion.decode(header.version.encode())}).items():
            row = (header.cluster_name, header.broker_name, header.broker_addr, path, version.counter)
            job.row(_VERSIONS, *row, seconds_text(version.timestamp))
    whose = "broker's" if address is not None else "cluster's"
    job.line(f"get {whose} plain access config version success.")


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
    "show the accounts of brokers, secrets included",
    *either(BROKER, CLUSTER),
    alias="getAccessConfigSubCommand",
)
async def show_accounts(job: Job) -> None:
    """54 at one broker, or at the masters of a cluster."""
    address = job.maybe("b")
    for each in [address] if address is not None else await job.admin.masters(job.text("c")):
        config = AclConfig.decode((await job.admin.call(each, api.GET_BROKER_CLUSTER_ACL_CONFIG)).body)
        job.line()
        job.row("%-20s: %s", "globalWhiteRemoteAddresses", f"[{', '.join(config.global_white_addrs)}]")
        job.line()
        job.line("accounts:")
        for account in config.plain_access_configs:
            for title, field in _ACCOUNT.items():
                job.row("%-1s %-18s: %s", "", title, _account_text(getattr(account, field)))
            job.line()


def _account_text(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return "" if value is None else shown(value)
