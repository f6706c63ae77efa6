"""Changes of access files by requests: create, change and delete an account, set the white addresses
(PlainPermissionManager in 4.9.7).

Owns what a change makes of a file, and 4.9.7's texts for what it refuses. Must not know requests. Invariant: a file is
replaced only by one that can be read, and whole; each change counts its version up; accounts hold as soon as their file
is written. No text holds a secret, though 4.9.7's do. Its methods write files: call them in a thread.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eruca.remoting.access import permissions
from eruca.remoting.access.access_file import (
    ACCOUNTS,
    DATA_VERSION,
    SHORTEST_KEY,
    SWITCHES,
    WHITE_ADDRESSES,
    is_true,
    read_access_file,
)
from eruca.remoting.access.accounts import Accounts
from eruca.remoting.access.document import head_of, read_document, write_document
from eruca.remoting.access.white_addresses import AddressPattern
from eruca.remoting.access.yaml_nodes import BadAccessFile
from eruca.remoting.files import replace_file

_OWNER_ONLY: Final = 0o600
_COMMA: Final = re.compile(r",(?![^{}]*\})")
"""A comma that is not within braces."""


class ChangeRefused(ValueError):
    """A change that is not made; the message is the sentence for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """What is to hold for an account; None leaves a value as it is. Lists are texts: ``T1=PUB,T2=SUB``."""

    access_key: str
    secret_key: str | None = None
    white_address: str | None = None
    admin: bool = False
    default_topic: str | None = None
    default_group: str | None = None
    topics: str | None = None
    groups: str | None = None

    def check(self) -> None:
        """Raise ChangeRefused for values that no account may have."""
        if len(self.access_key) < SHORTEST_KEY or len(self.secret_key or "") < SHORTEST_KEY:
            secret = "null" if self.secret_key is None else "(not shown)"
            raise ChangeRefused(
                f"The accessKey={self.access_key[:255]} and secretKey={secret} cannot be null and length should longer "
                "than 6"
            )
        for entry in (*(items(self.topics) or ()), *(items(self.groups) or ())):
            _check_entry(entry)
        for word in (self.default_topic, self.default_group):
            if word and not permissions.known(word):
                raise ChangeRefused(f"the permission '{word[:64]}' is not one of {permissions.WORDS}")

    def entries(self) -> dict[str, Any]:
        """The entries of the account that change, in the order of 4.9's files."""
        found = {
            "accessKey": self.access_key,
            "secretKey": self.secret_key or None,
            "whiteRemoteAddress": self.white_address,
            "admin": self.admin,
            "defaultTopicPerm": self.default_topic or None,
            "defaultGroupPerm": self.default_group or None,
            "topicPerms": items(self.topics),
            "groupPerms": items(self.groups),
        }
        return {key: value for key, value in found.items() if value is not None}


def items(text: str | None) -> list[str] | None:
    """The items of a list with commas, as Java splits it; a comma in braces is part of an address pattern."""
    if text is None:
        return None
    found = _COMMA.split(text)
    while len(found) > 1 and not found[-1]:
        found.pop()
    return found


def _check_entry(entry: str) -> None:
    parts = [part for part in entry.split("=") if part]
    if len(parts) != 2:
        raise ChangeRefused(
            f"Parse Resource format error for {entry[:255]}.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
        )
    if not permissions.known(parts[1]):
        raise ChangeRefused(
            f"Parse resource permission error for {entry[:255]}.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
        )


class AccountEditor:
    """Changes the files of accounts; ``clock`` returns ms since 1970."""

    def __init__(self, accounts: Accounts, clock: Callable[[], int]) -> None:
        self.accounts = accounts
        self._clock = clock
        self._lock = threading.Lock()

    def update(self, change: AccountChange) -> None:
        """Create an account, in the main file, or change it where it is. Raises ChangeRefused, OSError."""
        change.check()
        key = change.access_key

        def edit(values: dict[str, Any]) -> None:
            known = _accounts_of(values)
            account = next((each for each in known if each.get("accessKey") == key), {})
            others = [each for each in known if each is not account]
            values[ACCOUNTS] = [*others, {**account, **change.entries()}]

        with self._lock:
            self._rewrite(self.accounts.home_of(key) or self.accounts.main_file, edit)

    def delete(self, access_key: str) -> None:
        """Delete an account. Raises ChangeRefused, OSError."""

        def edit(values: dict[str, Any]) -> None:
            values[ACCOUNTS] = [each for each in _accounts_of(values) if each.get("accessKey") != access_key]

        with self._lock:
            home = self.accounts.home_of(access_key)
            if home is None:
                raise ChangeRefused(
                    f"The accesskey[{access_key[:255]}] corresponding to accessConfig has been deleted failed."
                )
            self._rewrite(home, edit)

    def set_white_addresses(self, addresses: str, file: str | None) -> str:
        """Set the global white addresses of a file, by default of the main one, and return those that were there.

        Raises ChangeRefused, OSError.
        """
        former: list[str] = []
        patterns = [each for each in items(addresses) or () if each.strip()]

        def edit(values: dict[str, Any]) -> None:
            former.extend(str(each) for each in values.get(WHITE_ADDRESSES) or ())
            values[WHITE_ADDRESSES] = patterns

        for pattern in patterns:
            _check_pattern(pattern)
        with self._lock:
            path = Path(file) if file else self.accounts.main_file
            if path not in self.accounts.files():
                raise ChangeRefused(
                    f"The globalWhiteAddresses[{addresses[:1024]}] has been updated failed. {path} is no access file "
                    "of this broker"
                )
            self._rewrite(path, edit)
        return ",".join(former)

    def _rewrite(self, path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
        try:
            former = path.read_text("utf-8-sig") if path.exists() else ""
            values = read_document(former, str(path))
            version = read_access_file(former, str(path)).version.following(self._clock())
            edit(values)
            for account in _accounts_of(values):
                account.update({key: is_true(account[key]) for key in SWITCHES if isinstance(account.get(key), str)})
            values[DATA_VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
            text = write_document(values, head_of(former))
            read_access_file(text, f"{path} with this change")
        except UnicodeDecodeError:
            raise ChangeRefused(f"{path} is not in UTF-8; write it in UTF-8 first") from None
        except BadAccessFile as fault:
            raise ChangeRefused(str(fault)) from None
        replace_file(path, text.encode(), backup=False, mode=_OWNER_ONLY)
        try:
            self.accounts.read()
        except BadAccessFile as fault:
            raise ChangeRefused(f"{path} is written, but holds only when all files can be read: {fault}") from None


def _check_pattern(pattern: str) -> None:
    try:
        AddressPattern(pattern)
    except ValueError as fault:
        raise ChangeRefused(str(fault)) from None


def _accounts_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = values.get(ACCOUNTS) or []
    return found
