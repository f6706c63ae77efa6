"""A broker tries the address that its clients get, and says when nobody answers there."""

from __future__ import annotations

import socket

import pytest
from structlog.testing import capture_logs

from eruca.broker.config import BrokerConfig, complete
from eruca.broker.services.advertised import AdvertisedAddress
from eruca.remoting.addresses import local_address
from tests.support.ports import free_port


async def test_nobody_at_the_address_is_one_line_and_so_is_that_somebody_is_again() -> None:
    port = free_port()
    advertised = AdvertisedAddress(lambda: f"127.0.0.1:{port}")

    with capture_logs() as said:
        await advertised.attempt()
        await advertised.attempt()
        with socket.create_server(("127.0.0.1", port)):
            await advertised.attempt()
            await advertised.attempt()

    assert [(line["event"], line["address"]) for line in said] == [
        ("advertised_address_unreachable", f"127.0.0.1:{port}"),
        ("advertised_address_reachable", f"127.0.0.1:{port}"),
    ]
    assert said[0]["reason"] == "Connection refused" and "set brokerIP1" in said[0]["advice"]


async def test_a_name_that_nobody_knows_is_a_reason() -> None:
    with capture_logs() as said:
        await AdvertisedAddress(lambda: "no.such.host.invalid:10911").attempt()

    assert [line["event"] for line in said] == ["advertised_address_unreachable"]


@pytest.mark.parametrize(
    ("bind_address", "advertised"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("broker.example", "broker.example"),
        ("0.0.0.0", local_address()),
        ("::", local_address()),
    ],
)
def test_clients_get_the_address_at_which_it_listens_if_that_is_one(bind_address: str, advertised: str) -> None:
    config = BrokerConfig()
    config.server.bind_address = bind_address

    assert complete(config).broker_ip1 == advertised
    assert config.broker_ip2 == advertised
