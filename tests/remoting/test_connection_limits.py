"""The limits of connections, and what a daemon's connections take of them."""

from __future__ import annotations

import pytest

from eruca.remoting.connection_limits import ConnectionSettings, Rejection, ServerLoad
from eruca.remoting.settings import BadSetting, settings_of


def settings(overrides: str) -> ConnectionSettings:
    return ConnectionSettings(
        server_max_connections_per_address=2,
        server_max_connections_per_address_overrides=overrides,
        server_max_connects_per_second_per_address=0,
    )


def taken(load: ServerLoad, address: str) -> int:
    """The connections from this address that are let in; ten come."""
    count = 0
    for _ in range(10):
        if load.rejection(address) is None:
            load.enter(address)
            count += 1
    return count


def test_some_addresses_may_have_other_numbers_of_connections_by_the_first_pattern() -> None:
    load = ServerLoad(settings("10.0.0.7=4; 10.0.0.*=6;10.0.1.{3,4}=0;2001:db8:*=3").limits())
    assert taken(load, "10.0.0.7") == 4
    assert taken(load, "10.0.0.8") == 6
    assert taken(load, "10.0.1.4") == 0
    assert taken(load, "10.0.2.1") == 2
    assert taken(load, "2001:db8::1") == 3


def test_what_has_ended_counts_no_more() -> None:
    load = ServerLoad(settings("").limits())
    assert taken(load, "10.0.0.1") == 2
    load.leave("10.0.0.1")
    assert taken(load, "10.0.0.1") == 1
    assert (load.count.taken, dict(load.by_address)) == (2, {"10.0.0.1": 2})


def test_addresses_of_one_block_of_ipv6_count_as_one() -> None:
    """Who has one address of a /64 has them all."""
    load = ServerLoad(settings("2001:db8:0:5:*=4;2001:db8:0:6::1=9").limits())
    assert [taken(load, f"2001:db8::{number:x}") for number in range(1, 5)] == [2, 0, 0, 0]
    assert taken(load, "2001:db8:0:1::1") == 2
    assert [taken(load, f"2001:db8:0:5::{number:x}") for number in range(1, 4)] == [4, 0, 0]
    assert (taken(load, "2001:db8:0:6::2"), taken(load, "2001:db8:0:6::1")) == (2, 7)
    load.leave("2001:db8::1")
    assert taken(load, "2001:db8::77") == 1
    assert taken(load, "fe80::1%eth0") == 2
    assert taken(load, "fe80::2%eth0") == 0


def test_the_connects_of_one_block_of_ipv6_count_together() -> None:
    load = ServerLoad(ConnectionSettings(server_max_connects_per_second_per_address=3).limits())
    assert [load.rejection(f"2001:db8::{number:x}") for number in range(4)] == [None] * 3 + [
        Rejection.CONNECTS_PER_SECOND
    ]
    assert load.rejection("2001:db8:0:1::1") is None


@pytest.mark.parametrize(
    ("may_have", "unfinished", "unsent"),
    [(0, 64, 512), (24_000, 64, 512), (1000, 64, 250), (256, 32, 64), (90, 16, 22), (32, 16, 16)],
)
def test_budgets_of_bytes_are_a_share_of_little_memory(may_have: int, unfinished: int, unsent: int) -> None:
    limits = ConnectionSettings().limits(may_have << 20)
    assert (limits.unfinished >> 20, limits.unsent >> 20) == (unfinished, unsent)


@pytest.mark.parametrize("text", ["10.0.0.1", "=5", "10.0.0.1=many", "10.0.*.1=5", "10.0.0.1=5;10.0.0.300=6"])
def test_an_override_that_means_nothing_is_refused(text: str) -> None:
    key = "serverMaxConnectionsPerAddressOverrides"
    with pytest.raises(BadSetting, match=f"{key}: .* is not allowed; write addresses and numbers, like 10"):
        settings_of(ConnectionSettings)[key].value(text)
