"""Requests and bytes a second of an account or, where nobody signs, of an address; off unless they are set.

Owns the settings, and the guard that refuses what is too much with 2 (SYSTEM_BUSY). Must not know what a request asks.
Invariant: what keeps a client, a broker or an offset in its place is counted, and never refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eruca.protocol.codes import RequestCode, ResponseCode
from eruca.protocol.errors import Refused
from eruca.remoting.access.accounts import host_of
from eruca.remoting.addresses import block_of
from eruca.remoting.rates import Rate
from eruca.remoting.request import Call
from eruca.remoting.settings import setting

NEVER_REFUSED = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
    }
)


@dataclass(kw_only=True)
class QuotaSettings:
    """Keys of Eruca's own; 0 for any number."""

    quota_requests_per_second: int = setting(0, at_least=0)
    """The requests a second of one account; of one address (IPv6: of a /64 block) where they are not signed."""
    quota_bytes_per_second: int = setting(0, at_least=0)
    """The bytes of its requests a second."""


class Quotas:
    """A guard of routers. It comes after that of access control, which knows the account."""

    def __init__(self, settings: QuotaSettings) -> None:
        self.requests = Rate(settings.quota_requests_per_second)
        self.bytes = Rate(settings.quota_bytes_per_second)

    @property
    def on(self) -> bool:
        """Whether anything is limited. A fast path, which passes guards by, must not be used then."""
        return bool(self.requests.a_second or self.bytes.a_second)

    @property
    def rates(self) -> dict[str, Rate]:
        """What is counted, by name."""
        return {"requests": self.requests, "bytes": self.bytes}

    def __call__(self, call: Call[Any]) -> None:
        """Count a request. Raises Refused if it is too much."""
        who, forced = asker(call), call.code in NEVER_REFUSED
        if not self.requests.take(who, forced=forced):
            raise too_much(who, f"{self.requests.a_second:g} requests", "quotaRequestsPerSecond")
        if not self.bytes.take(who, len(call.data) + len(call.body), forced=forced):
            raise too_much(who, f"{self.bytes.a_second:g} bytes of requests", "quotaBytesPerSecond")


def asker(call: Call[Any]) -> str:
    """Whose quota a request takes: the account that signed it, else the address it came from (IPv6: its block)."""
    return call.account or block_of(host_of(call.connection.remote))


def too_much(who: str, what: str, key: str) -> Refused:
    """The refusal of what is more than a quota."""
    return Refused(
        ResponseCode.SYSTEM_BUSY, f"{who} may send {what} a second ({key}): wait a second and repeat it, more slowly"
    )
