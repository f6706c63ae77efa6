"""Addresses as settings, routes and brokers write them."""

from __future__ import annotations

import pytest

from eruca.remoting.addresses import peer_of, split_address, vip_address, whole_address


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


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("mq1", "mq1:9876"),
        ("mq-1.lan:80", "mq-1.lan:80"),
        ("10.0.0.7", "10.0.0.7:9876"),
        ("[::1]", "[::1]:9876"),
        ("[fe80::1%eth0]:1", "[fe80::1%eth0]:1"),
        ("my_service:65535", "my_service:65535"),
    ],
)
def test_an_address_that_a_person_wrote_is_made_whole(text: str, address: str) -> None:
    assert whole_address(text, 9876) == address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user@mq1:9876", "leave out the account before @"),
        ("user:word@mq1:9876", "leave out the account before @"),
        ("::1:9876", r'an IPv6 address stands in brackets, such as "\[::1\]:9876"'),
        ("2001:db8::7", "an IPv6 address stands in brackets"),
        ("mq1:0", "a port is a number from 1 to 65535"),
        ("mq1:65536", "a port is a number from 1 to 65535"),
        ("mq1:" + "9" * 5000, "a port is a number from 1 to 65535"),
        ("mq1:٣", "a port is a number from 1 to 65535"),
        ("mq1:", '"host:port" is expected'),
        ("mq1:98 76", '"host:port" is expected'),
        ("mq 1:9876", '"host:port" is expected'),
        ("mq1:-1", '"host:port" is expected'),
        ("mq1:port", '"host:port" is expected'),
        (":9876", '"host:port" is expected'),
        ("mq1/x:9876", '"host:port" is expected'),
        ("10.0.0.256:9876", '"host:port" is expected'),
        ("[mq1]:9876", '"host:port" is expected'),
        ("[::1]9876", '"host:port" is expected|in brackets'),
        ("m\ud800:1", '"host:port" is expected'),
    ],
)
def test_what_no_person_meant_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        whole_address(text, 9876)


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
