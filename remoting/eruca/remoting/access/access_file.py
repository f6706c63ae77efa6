"""One access file: accounts, addresses and versions in the form of ``plain_acl.yml`` (PlainAccessData in 4.9.7).

Owns the keys of the file and how a text becomes accounts. Must not know where files are, and which of two accounts
holds. Invariant: a file is read whole or refused with file, line and column; no message repeats a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from eruca.protocol import names
from eruca.protocol.bodies import DataVersion
from eruca.remoting.access import permissions
from eruca.remoting.access.account import Account
from eruca.remoting.access.white_addresses import AddressPattern
from eruca.remoting.access.yaml_nodes import YamlFile

ACCOUNTS: Final = "accounts"
WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
BROKER_ADDRESSES: Final = "brokerAddresses"
"""Eruca's own: the addresses of brokers that do not sign what they ask of nameservers and masters."""
DATA_VERSION: Final = "dataVersion"
SHORTEST_KEY: Final = 7

_TRUE: Final = {"true", "yes", "on", "1", "y", "t"}
_FALSE: Final = {"false", "no", "off", "0", "n", "f"}
_SHIPPED: Final = {("RocketMQ", "12345678"), ("rocketmq2", "12345678")}
_TEXTS: Final = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "whiteRemoteAddress": "white_address",
    "defaultTopicPerm": "default_topic",
    "defaultGroupPerm": "default_group",
}
SWITCHES: Final = ("admin", "monitor", "broker")
_LISTS: Final = {"topicPerms": "topic", "groupPerms": "group"}


@dataclass(slots=True)
class AccessFile:
    """What a file says. ``warnings`` are sentences with their place."""

    accounts: list[Account] = field(default_factory=list)
    white_addresses: list[AddressPattern] = field(default_factory=list)
    broker_addresses: list[AddressPattern] = field(default_factory=list)
    version: DataVersion = field(default_factory=DataVersion)
    warnings: list[str] = field(default_factory=list)


def read_access_file(text: str, name: str) -> AccessFile:
    """Read a file; ``name`` stands in messages. Raises BadAccessFile."""
    file = YamlFile(text, name)
    found = AccessFile()
    if file.root is None:
        return found
    for key, at, value in file.entries(file.root, "an access file"):
        if key == ACCOUNTS:
            found.accounts = [_AccountReader(file, each, found.warnings).read() for each in file.items(value, key)]
        elif key == WHITE_ADDRESSES:
            found.white_addresses = _patterns(file, value, key, found.warnings)
        elif key == BROKER_ADDRESSES:
            found.broker_addresses = _patterns(file, value, key, found.warnings)
        elif key == DATA_VERSION:
            found.version = _version(file, value)
        else:
            found.warnings.append(f"{file.place(at)}: the key{_named(key)} is not known and is ignored")
    return found


def _named(key: str) -> str:
    """A key for a message, unless it may be a secret that stands in the wrong place."""
    return f" {key}" if key.isascii() and key.isalpha() and len(key) <= 32 else ""


def is_true(text: str) -> bool:
    """What the text of a switch says, as Java reads it."""
    return text.lower() in _TRUE


def _patterns(file: YamlFile, node: Any, key: str, warnings: list[str]) -> list[AddressPattern]:
    return [_pattern(file, each, key, warnings) for each in file.items(node, key)]


def _pattern(file: YamlFile, node: Any, key: str, warnings: list[str]) -> AddressPattern:
    text = file.text(node, key)
    if file.reads_otherwise(node):
        warnings.append(_otherwise(file, node, key))
    try:
        return AddressPattern(text)
    except ValueError as fault:
        raise file.fault(node, str(fault)) from None


def _otherwise(file: YamlFile, node: Any, key: str) -> str:
    return (
        f"{file.place(node)}: Java's broker reads another {key} here, since YAML takes it for a number, a date or a "
        "truth value; put it in single quotes"
    )


def _version(file: YamlFile, node: Any) -> DataVersion:
    for first in file.items(node, DATA_VERSION):
        numbers = {key: _number(file, value) for key, _, value in file.entries(first, DATA_VERSION)}
        return DataVersion(counter=numbers.get("counter", 0), timestamp=numbers.get("timestamp", 0))
    return DataVersion()


def _number(file: YamlFile, node: Any) -> int:
    text = file.text(node, DATA_VERSION) or "0"
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise file.fault(node, f"the numbers of {DATA_VERSION} are whole numbers")
    return int(text)


class _AccountReader:
    """Reads the node of one account."""

    def __init__(self, file: YamlFile, node: Any, warnings: list[str]) -> None:
        self._file = file
        self._node = node
        self._warnings = warnings
        self._permissions: dict[str, int] = {}

    def read(self) -> Account:
        """The account. Raises BadAccessFile."""
        values: dict[str, Any] = {}
        for key, at, node in self._file.entries(self._node, "an account"):
            if key in _TEXTS:
                values[_TEXTS[key]] = self._field(key, node)
            elif key in SWITCHES:
                values[key] = self._switch(key, node)
            elif key in _LISTS:
                self._entries(key, node)
            else:
                self._warn(at, f"an account knows no key{_named(key)}, which is ignored")
        keys = values.get("access_key") or "", values.get("secret_key") or ""
        if min(map(len, keys)) < SHORTEST_KEY:
            raise self._file.fault(
                self._node,
                f"the account {keys[0][:64] or 'without accessKey'} needs an accessKey and a secretKey of "
                f"{SHORTEST_KEY} characters or more",
            )
        if keys in _SHIPPED:
            self._warn(
                self._node,
                f"the account {keys[0]} has the secretKey that RocketMQ ships; change it",
            )
        return Account(**values, permissions=self._permissions)

    def _warn(self, node: Any, sentence: str) -> None:
        self._warnings.append(f"{self._file.place(node)}: {sentence}")

    def _field(self, key: str, node: Any) -> object:
        if key == "whiteRemoteAddress":
            return _pattern(self._file, node, key, self._warnings)
        text = self._file.text(node, key)
        if key.startswith("default"):
            return self._permission(node, text)
        if self._file.reads_otherwise(node):
            self._warnings.append(_otherwise(self._file, node, key))
        return text

    def _permission(self, node: Any, word: str | None) -> int:
        if word is not None and not permissions.known(word):
            self._warn(node, f"this is no permission, and counts as DENY as in 4.9; write one of {permissions.WORDS}")
        return permissions.parse(word)

    def _switch(self, key: str, node: Any) -> bool:
        text = self._file.text(node, key) or "false"
        if text.lower() not in _TRUE | _FALSE:
            raise self._file.fault(node, f"{key} must be true or false")
        return is_true(text)

    def _entries(self, key: str, node: Any) -> None:
        kind = _LISTS[key]
        for each in self._file.items(node, key):
            text = self._file.text(each, key) or ""
            parts = [part for part in text.split("=") if part]
            if len(parts) != 2:
                raise self._file.fault(each, f"write an entry of {key} as {kind}=permission, like {kind}A=PUB|SUB")
            name = parts[0].strip()
            resource = names.retry_topic(name) if kind == "group" else name
            self._permissions[resource] = self._permission(each, parts[1])
