"""Heartbeats that brokers do not take: what the log says of them, and how often."""

from __future__ import annotations

import asyncio

import pytest

from eruca.client import ClientSettings, Message, Producer
from eruca.protocol.bodies import MOST_GROUPS, ConsumerData, HeartbeatData, ProducerData
from tests.client.conftest import Lab, eventually
from tests.support.scripted import Scripted


async def test_a_broker_that_refuses_each_heartbeat_is_told_of_once(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ClientSettings(nameserver=server.address, heartbeat_interval=0.02)

    async def beats(count: int) -> None:
        before = len(server.heartbeats)
        await eventually(lambda: len(server.heartbeats) >= before + count)

    async with Producer("p", settings=settings) as producer:
        await producer.session.directory.route("T")
        server.refused_codes.add(34)
        await beats(5)
        assert caplog.text.count(f"the heartbeat was refused by {server.address}: CODE: 1") == 1
        server.refused_codes.clear()
        await beats(3)
        server.refused_codes.add(34)
        await beats(5)
        assert caplog.text.count("the heartbeat was refused") == 2, "it was well in between"


async def test_a_client_with_many_groups_sends_several_heartbeats(lab: Lab) -> None:
    """A broker takes 200 groups in one, and the clients of one loop with the same settings share them."""
    settings = ClientSettings(nameserver=lab.address)
    every = [Producer(f"p{number}", settings=settings) for number in range(450)]
    await asyncio.gather(*(producer.start() for producer in every))
    await every[0].send(Message("T", b"x"))
    online = lab.cluster.broker.broker.clients.producers
    await eventually(lambda: {f"p{number}" for number in range(450)} <= set(online))
    await asyncio.gather(*(producer.stop() for producer in every))


def test_parts_of_a_heartbeat_have_all_groups_once() -> None:
    assert [part.client_id for part in HeartbeatData(client_id="c").parts()] == ["c"]
    consumers = [ConsumerData(group_name=f"g{number}") for number in range(230)]
    producers = [ProducerData(group_name=f"p{number}") for number in range(101)]
    parts = HeartbeatData(client_id="c", consumer_data_set=consumers, producer_data_set=producers).parts()
    assert [data for part in parts for data in part.consumer_data_set] == consumers
    assert [data for part in parts for data in part.producer_data_set] == producers
    assert all(len(part.consumer_data_set) + len(part.producer_data_set) <= MOST_GROUPS for part in parts)
