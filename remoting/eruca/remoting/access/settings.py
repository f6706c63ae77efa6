"""The settings of access control, which both daemons have, and what follows from them at a start.

Owns the keys and their warnings. Must not know what accounts may do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eruca.remoting.access.accounts import Accounts
from eruca.remoting.access.yaml_nodes import BadAccessFile
from eruca.remoting.settings import Finding, setting


@dataclass(kw_only=True)
class AccessSettings:
    """Who may do what; without it everybody who connects may do everything."""

    acl_enable: bool = False
    """Whether requests need an account."""
    acl_file: str | None = setting(None, path=True)
    """The file of accounts in place of ``conf/plain_acl.yml`` below RocketMQ's home; a key of Eruca's own."""
    acl_compat: str = setting("", one_of=("", "4.9"))
    """4.9: requests that 4.9 leaves open need nothing but a known account; a key of Eruca's own."""

    @property
    def as_49(self) -> bool:
        """Whether what RocketMQ 4.9 does not check is left open to every account."""
        return self.acl_compat == "4.9"

    def accounts(self, home: str | None) -> Accounts | None:
        """The accounts of a daemon with this RocketMQ home; None without access control. Raises BadAccessFile."""
        if not self.acl_enable:
            return None
        return Accounts(Path(home) if home else None, Path(self.acl_file) if self.acl_file else None)

    def warnings(self, bind_address: str) -> Iterator[str]:
        """What is said at each start of a daemon that listens on an address."""
        if not self.acl_enable and not _is_loopback(bind_address):
            yield (
                f"access control is off: everybody who reaches {bind_address or '0.0.0.0'} may do everything; "
                "set aclEnable=true, or bindAddress=127.0.0.1"
            )
        if self.acl_enable and self.acl_compat:
            yield (
                f"aclCompat={self.acl_compat} leaves requests open that RocketMQ {self.acl_compat} leaves open: every "
                "account may change others' offsets and delete queues; remove it"
            )


def access_faults(settings: AccessSettings, home: str | None) -> Iterator[Finding]:
    """Why there are no accounts though they are wanted, and what is in doubt about their files."""
    key = "aclFile" if settings.acl_file else "aclEnable"
    try:
        accounts = settings.accounts(home)
    except BadAccessFile as fault:
        lack = str(fault).removeprefix("aclEnable=true ") if key == "aclEnable" else f"does not work: {fault}"
        yield Finding(key, lack)
    else:
        for doubt in accounts.doubts if accounts is not None else ():
            yield Finding(key, f"is in doubt: {doubt}", False)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"
