"""Access control of brokers: accounts and the files that hold them."""

from __future__ import annotations

from typing import Annotated

from eruca.admin.client import Admin
from eruca.admin.results.answer import NONE, WIDE, Moment, Result
from eruca.protocol import api
from eruca.protocol.bodies import AclConfig, DataVersion, PlainAccessConfig, decode_file_versions


class AccessFile(Result, frozen=True, kw_only=True, rename="camel"):
    """A file of accounts at a broker."""

    cluster: str
    broker: str
    address: str
    path: str | None
    """None where the broker does not say it."""
    version: int
    changed: Moment | None


async def access_files(admin: Admin, address: str) -> list[AccessFile]:
    """The files of accounts at a broker (52). Raises PeerRefused where it has no access control."""
    header = (await admin.call(address, api.GET_BROKER_CLUSTER_ACL_INFO)).header
    files = decode_file_versions(header.all_acl_file_version) if header.all_acl_file_version else {}
    return [
        AccessFile(
            cluster=header.cluster_name,
            broker=header.broker_name,
            address=header.broker_addr,
            path=path or None,
            version=version.counter,
            changed=Moment.known(version.timestamp),
        )
        for path, version in (files or {"": DataVersion.decode(header.version.encode())}).items()
    ]


async def access_config(admin: Admin, address: str) -> AclConfig:
    """The accounts of a broker (54). Raises PeerRefused where it has no access control."""
    return AclConfig.decode((await admin.call(address, api.GET_BROKER_CLUSTER_ACL_CONFIG)).body)


class Account(Result, frozen=True, kw_only=True, rename="camel"):
    """An account at a broker."""

    address: str
    """Of the broker."""
    access_key: Annotated[str | None, NONE]
    secret_key: Annotated[str | None, NONE]
    white_remote_address: Annotated[str | None, NONE]
    admin: bool
    default_topic_perm: Annotated[str | None, NONE]
    default_group_perm: Annotated[str | None, NONE]
    topic_perms: Annotated[list[str] | None, NONE]
    group_perms: Annotated[list[str] | None, NONE]
    global_white_addresses: Annotated[list[str], WIDE]
    """The addresses at this broker that need no account."""


def account_of(address: str, white: list[str], account: PlainAccessConfig) -> Account:
    """An account as a broker says it (54)."""
    return Account(
        address=address,
        access_key=account.access_key,
        secret_key=account.secret_key,
        white_remote_address=account.white_remote_address,
        admin=account.admin,
        default_topic_perm=account.default_topic_perm,
        default_group_perm=account.default_group_perm,
        topic_perms=account.topic_perms,
        group_perms=account.group_perms,
        global_white_addresses=white,
    )
