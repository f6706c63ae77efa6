"""One account: its keys, the addresses from which it need not sign, and its permissions (PlainAccessResource in 4.9.7).

Owns which permission holds for a topic or a group. Must not know where accounts come from, and what requests need.
Invariant: the secret key is part of no ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eruca.protocol import names
from eruca.protocol.signature import SigningKey
from eruca.remoting.access.permissions import DENY, PUB, SUB, word
from eruca.remoting.access.white_addresses import AddressPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account.

    ``white_address``: from there it needs no signature and may do everything, as in 4.9. ``admin`` may use the requests
    of operators, ``monitor`` those that read states but no messages, ``broker`` those of slaves and of registrations;
    the last two are Eruca's own. ``permissions`` are by resource: a topic, or the retry topic of a group.
    """

    access_key: str
    secret_key: str = field(repr=False)
    white_address: AddressPattern = field(default_factory=lambda: AddressPattern(""))
    admin: bool = False
    monitor: bool = False
    broker: bool = False
    default_topic: int = DENY
    default_group: int = DENY
    permissions: Mapping[str, int] = field(default_factory=dict)
    signing_key: SigningKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signing_key", SigningKey(self.secret_key))

    def __str__(self) -> str:
        """All but the secret, in the words of a file."""
        roles = [role for role in ("admin", "monitor", "broker") if getattr(self, role)]
        defaults = f"topics by default {word(self.default_topic)}, groups {word(self.default_group)}"
        listed = [f"{_resource(name)}={word(each)}" for name, each in self.permissions.items()]
        white = [f"white {self.white_address.text}"] if self.white_address.text else []
        return f"account {self.access_key} ({', '.join([*roles, *white, defaults, *listed])})"

    def topic(self, name: str) -> int:
        """The permission for a topic; a retry topic has its group's. An admin without entries may do everything."""
        found = self.permissions.get(name)
        if found is not None:
            return found
        if self.admin and not self.permissions:
            return PUB | SUB
        return self.default_group if names.is_retry_topic(name) else self.default_topic

    def group(self, name: str) -> int:
        """The permission for a group."""
        return self.topic(names.retry_topic(name))


def _resource(name: str) -> str:
    """What a permission is for, in words: that of a group is kept under its retry topic."""
    return f"group {name[len(names.RETRY_PREFIX) :]}" if names.is_retry_topic(name) else name
