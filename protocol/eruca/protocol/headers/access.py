"""Headers of access control: accounts and white lists at the broker (codes 50 to 54 in 4.9.7)."""

from __future__ import annotations

from eruca.protocol.header import Header


class UpdateAccessConfig(Header, kw_only=True):
    """50: create or change an account; permissions as ``topic=PUB|SUB`` joined by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfig(Header, kw_only=True):
    """51: remove an account."""

    access_key: str


class UpdateGlobalWhiteAddrs(Header, kw_only=True):
    """53: the addresses that need no account, joined by commas."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class AccessConfigVersion(Header, kw_only=True):
    """52's answer: versions (DataVersion as JSON text) of the access files."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str
