"""The limits of connections, and what a daemon's connections take of them."""

from __future__ import annotations

import pytest

from eruca.remoting.connection_limits import ConnectionSettings, ServerLoad
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
