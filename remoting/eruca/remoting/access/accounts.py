"""The accounts of a daemon: read from its access files, read again when they change, asked for each request
(PlainPermissionManager in 4.9.7).

Owns where the files are, which of two accounts with the same key holds, and the order of the checks. Must not know
what requests need. Invariant: a fault in any file keeps all that held before; no text of this module holds a secret.

The files are ``conf/acl/**/*.yml`` in RocketMQ's home, in the order of their names, and then ``conf/plain_acl.yml``, or
in its place the file that ``aclFile`` names. The first account with a key holds, as in 4.9, where the order is that of
the file system.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from eruca.protocol.bodies import DataVersion
from eruca.protocol.errors import ProtocolError
from eruca.protocol.signature import ACCESS_KEY, SIGNATURE
from eruca.remoting.access.access_file import AccessFile, read_access_file
from eruca.remoting.access.account import Account
from eruca.remoting.access.refusals import AccessRefused, shown
from eruca.remoting.access.white_addresses import AddressPattern
from eruca.remoting.access.yaml_nodes import BadAccessFile
from eruca.remoting.log import Log
from eruca.remoting.request import Call
from eruca.remoting.slices import sliced

MAIN_FILE: Final = "conf/plain_acl.yml"
FOLDER: Final = "conf/acl"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Java's clients sign this field from 4.9.4 on, while 4.9's brokers leave it out of what they check."""
UNREADABLE: Final = "unreadable"
"""The reason for a request whose fields cannot be read."""
LONG: Final = 256 << 10
"""Bytes of a request whose signature takes about half a millisecond."""
_PIECE: Final = 128 << 10
_MOST_ADDRESSES: Final = 4096

log = Log("eruca.access.start")


@dataclass(frozen=True, slots=True)
class _Table:
    """What all files say together."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    homes: Mapping[str, Path] = field(default_factory=dict)
    white_addresses: tuple[AddressPattern, ...] = ()
    broker_addresses: tuple[AddressPattern, ...] = ()
    versions: Mapping[Path, DataVersion] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Accounts:
    """The accounts of the files below ``home`` (RocketMQ's), and of ``file`` instead of its ``conf/plain_acl.yml``.

    Raises BadAccessFile, a sentence, when no file is there or one cannot be used.
    """

    def __init__(self, home: Path | None, file: Path | None = None) -> None:
        main = file if file is not None else home / MAIN_FILE if home is not None else None
        if main is None:
            raise BadAccessFile(
                "aclEnable=true needs a file of accounts: set aclFile, or ROCKETMQ_HOME for its conf/plain_acl.yml"
            )
        self.main_file = main
        """The file that new accounts and, unless another is named, white addresses are written to."""
        self._folder = home / FOLDER if home is not None else None
        self._table = _Table()
        self._white: dict[str, bool] = {}
        self.read()
        if self._shut:
            log.warning("no_accounts", files=", ".join(map(str, self.files())), advice="nobody may do anything")

    def files(self) -> list[Path]:
        """The access files that are there."""
        found: list[Path] = []
        if self._folder is not None:
            found = sorted(file for file in self._folder.rglob("*.y*ml") if _is_access_file(file, self._folder))
        if self.main_file.exists() and self.main_file not in found:
            found.append(self.main_file)
        return found

    def read(self) -> list[str]:
        """Read all files again; a sentence for each change. Raises BadAccessFile: then all remains as it was."""
        files = self.files()
        if not files:
            also = f" and in {self._folder}" if self._folder is not None else ""
            raise BadAccessFile(f"aclEnable=true needs a file of accounts: there is none at {self.main_file}{also}")
        former, table = self._table, _merged([(file, _read(file)) for file in files])
        self._table = table
        self._white = {}
        for warning in table.warnings:
            if warning not in former.warnings:
                log.warning("access_file", warning=warning)
        return list(_changes(former, table))

    @property
    def doubts(self) -> Iterator[str]:
        """Sentences about what is in the files, and is hardly meant."""
        yield from self._table.warnings
        if self._shut:
            yield f"there is no account in {', '.join(map(str, self.files()))}, so nobody may do anything"

    @property
    def _shut(self) -> bool:
        return not self._table.accounts and not self._table.white_addresses

    def get(self, access_key: str) -> Account | None:
        """The account with this key."""
        return self._table.accounts.get(access_key)

    def home_of(self, access_key: str) -> Path | None:
        """The file of an account."""
        return self._table.homes.get(access_key)

    @property
    def versions(self) -> Mapping[Path, DataVersion]:
        """The version of each file that was read."""
        return self._table.versions

    def white(self, ip: str) -> bool:
        """Whether requests from an address need no account (globalWhiteRemoteAddresses)."""
        found = self._white.get(ip)
        if found is None:
            if len(self._white) >= _MOST_ADDRESSES:
                self._white = {}
            found = self._white[ip] = any(pattern.matches(ip) for pattern in self._table.white_addresses)
        return found

    def is_broker(self, ip: str) -> bool:
        """Whether an address is one of a broker's that need not sign (brokerAddresses)."""
        return any(pattern.matches(ip) for pattern in self._table.broker_addresses)

    def authenticate(self, call: Call[Any]) -> Account | None:
        """The account that has signed a request; None for one from a white address, which may do everything, as in 4.9.

        White are the global addresses and, for requests that name its key, those of an account. Raises AccessRefused.
        """
        claim = self._claim(call)
        if claim is None:
            return None
        account, fields = claim
        if not _is_signed(account, call, fields):
            raise _wrong_signature(account)
        return account

    async def authenticate_long(self, call: Call[Any]) -> Account | None:
        """The same for a request so long (``is_long``) that its signature is computed in slices of the loop."""
        claim = self._claim(call)
        if claim is None:
            return None
        account, fields = claim
        for form in chain((fields,), _other_forms(call, fields)):
            if await _is_signature(account, call, fields, form):
                present = self.get(account.access_key)
                if present is not None and present.secret_key == account.secret_key:
                    return present
                break
        raise _wrong_signature(account)

    def _claim(self, call: Call[Any]) -> tuple[Account, Mapping[str, str]] | None:
        """The account that a request names, which its signature must prove, and its fields; None for a white address.

        Raises AccessRefused.
        """
        ip = host_of(call.connection.remote)
        if self.white(ip):
            return None
        try:
            fields = call.texts()
        except ProtocolError as fault:
            raise AccessRefused(str(fault), UNREADABLE) from None
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            raise AccessRefused("No accessKey is configured", "no_access_key")
        account = self._table.accounts.get(access_key)
        if account is None:
            raise AccessRefused(f"No acl config for {shown(access_key)}", "unknown_access_key")
        if account.white_address.matches(ip):
            return None
        return account, fields


def is_long(call: Call[Any]) -> bool:
    """Whether the signature of a request takes so long that others should not wait for it."""
    return len(call.body) + len(call.data) > LONG


def host_of(remote: str) -> str:
    """The address of ``ip:port``."""
    return remote.rpartition(":")[0].strip("[]")


def _wrong_signature(account: Account) -> AccessRefused:
    return AccessRefused(f"Check signature failed for accessKey={account.access_key}", "signature")


async def _is_signature(account: Account, call: Call[Any], fields: Mapping[str, str], form: Mapping[str, str]) -> bool:
    given = fields.get(SIGNATURE, "").encode()
    pieces = [piece async for piece in sliced(account.signing_key.in_pieces(form, call.body, _PIECE))]
    return hmac.compare_digest(pieces[-1], given)


def _is_signed(account: Account, call: Call[Any], fields: Mapping[str, str]) -> bool:
    given, sign = fields.get(SIGNATURE, "").encode(), account.signing_key.sign
    return hmac.compare_digest(sign(fields, call.body), given) or any(
        hmac.compare_digest(sign(form, call.body), given) for form in _other_forms(call, fields)
    )


def _other_forms(call: Call[Any], fields: Mapping[str, str]) -> Iterable[Mapping[str, str]]:
    """What a client may have signed instead of all fields as they came."""
    if UNIQUE_KEY_QUERY in fields:
        yield _without_query(fields)
    with_nulls = call.texts_with_nulls()
    if len(with_nulls) > len(fields):
        yield with_nulls
        if UNIQUE_KEY_QUERY in fields:
            yield _without_query(with_nulls)


def _without_query(fields: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in fields.items() if name != UNIQUE_KEY_QUERY}


def _is_access_file(file: Path, folder: Path) -> bool:
    """Whether a file in the folder is one of accounts. Kubernetes keeps the former ones in hidden folders."""
    return file.suffix in (".yml", ".yaml") and not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _read(file: Path) -> AccessFile:
    try:
        found = read_access_file(file.read_text("utf-8-sig"), str(file))
        if not found.version.timestamp:  # nobody has changed it by request
            found.version.timestamp = file.stat().st_mtime_ns // 1_000_000
        return found
    except UnicodeDecodeError:
        raise BadAccessFile(f"{file}: it is not in UTF-8; write it in UTF-8") from None
    except OSError as fault:
        raise BadAccessFile(f"{file} cannot be read ({fault.strerror}): let the user of this process read it") from None
    except ImportError:
        raise BadAccessFile("aclEnable=true needs PyYAML to read its files: pip install 'eruca[acl]'") from None


def _merged(files: list[tuple[Path, AccessFile]]) -> _Table:
    accounts: dict[str, Account] = {}
    homes: dict[str, Path] = {}
    warnings: list[str] = []
    for path, file in files:
        warnings += file.warnings
        for account in file.accounts:
            key = account.access_key
            if key in accounts:
                warnings.append(f"{path}: the account {key} of {homes[key]} holds, not this one; delete one of them")
            else:
                accounts[key], homes[key] = account, path
    return _Table(
        accounts,
        homes,
        tuple(pattern for _, file in files for pattern in file.white_addresses),
        tuple(pattern for _, file in files for pattern in file.broker_addresses),
        {path: file.version for path, file in files},
        tuple(warnings),
    )


def _changes(former: _Table, table: _Table) -> Iterable[str]:
    for key in sorted({*former.accounts, *table.accounts}):
        before, after = former.accounts.get(key), table.accounts.get(key)
        if before != after:
            yield f"account {key} {'added' if before is None else 'removed' if after is None else 'changed'}"
    if former.white_addresses != table.white_addresses:
        yield "global white addresses changed"
    if former.broker_addresses != table.broker_addresses:
        yield "broker addresses changed"
