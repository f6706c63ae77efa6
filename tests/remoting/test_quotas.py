"""Whose quota a request takes: the account's that signed it, else the address's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eruca.protocol import frame
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.remoting import Call
from eruca.remoting.quotas import NEVER_REFUSED, Quotas, QuotaSettings


def call(account: str, remote: str, code: int = 11, body: bytes = b"") -> Call[Any]:
    head = frame.read(frame.JSON, b'{"code":%d,"flag":0,"opaque":1,"version":1}' % code)
    return Call(Empty(), body, SimpleNamespace(remote=remote), head, frame.JSON, b"", account)


def quotas(requests: int = 0, size: int = 0) -> Quotas:
    made = Quotas(QuotaSettings(quota_requests_per_second=requests, quota_bytes_per_second=size))
    made.requests.now = made.bytes.now = lambda: 100.0
    return made


def test_an_account_has_one_quota_wherever_it_asks_from() -> None:
    guard = quotas(requests=2)
    guard(call("alice", "10.0.0.1:5000"))
    guard(call("alice", "10.0.0.2:5000"))
    guard(call("bob", "10.0.0.1:5000"))
    with pytest.raises(Refused, match="alice may send 2 requests a second"):
        guard(call("alice", "10.0.0.3:5000"))


def test_an_address_has_one_quota_over_all_its_connections() -> None:
    guard = quotas(requests=2)
    guard(call("", "[2001:db8::1]:5000"))
    guard(call("", "[2001:db8::2]:5001"))
    with pytest.raises(Refused, match="2001:db8::/64 may send"):
        guard(call("", "[2001:db8::1]:5002"))


@pytest.mark.parametrize("code", sorted(NEVER_REFUSED))
def test_what_keeps_a_client_in_its_place_is_counted_and_never_refused(code: int) -> None:
    guard = quotas(requests=1, size=10)
    for _ in range(3):
        guard(call("", "10.0.0.1:5000", code, b"x" * 100))
    with pytest.raises(Refused):
        guard(call("", "10.0.0.1:5000"))


def test_off_by_default() -> None:
    assert not Quotas(QuotaSettings()).on
    assert quotas(requests=1).on and quotas(size=1).on
