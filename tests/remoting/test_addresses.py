"""Addresses as settings, routes and brokers write them."""

from __future__ import annotations

import pytest

from eruca.remoting.addresses import peer_of, split_address, vip_address


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1:10911", "127.0.0.1"), ("mq-1:10911", "mq-1"), ("[::1]:10911", "::1"), ("::1:10911", "::1")],
)
def test_host_and_port(address: str, host: str) -> None:
    assert split_address(address) == (host, 10911)


@pytest.mark.parametrize("address", ["", "mq-1", ":10911", "mq-1:", "mq-1:port", "mq-1:-1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)


def test_the_vip_port_is_two_below() -> None:
    assert vip_address("127.0.0.1:10911") == "127.0.0.1:10909"
    assert vip_address("[::1]:10911") == "[::1]:10909"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("10.0.0.7", 5), "10.0.0.7"),
        (("::ffff:10.0.0.7", 5, 0, 0), "10.0.0.7"),
        (("::1", 5, 0, 0), "::1"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::1%eth0"),
        (("2001:db8::ffff:7", 5, 0, 0), "2001:db8::ffff:7"),
    ],
)
def test_an_ipv4_peer_has_one_address_whatever_the_socket_that_accepted_it(name: object, address: str) -> None:
    assert peer_of(name) == (address, 5)
