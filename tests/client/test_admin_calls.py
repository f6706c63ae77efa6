"""What every client may ask: topics created, messages looked up, the bounds of a queue."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from eruca.client import LitePullConsumer, Message, PullConsumer, PushConsumer
from eruca.client.admin_calls import Client
from eruca.client.errors import BadName, BrokerRefused, MessageNotFound, StateError, TopicExists, TopicNotFound
from tests.client.conftest import Lab
from tests.support.scripted import Scripted


async def test_every_client_may_ask(lab: Lab) -> None:
    await lab.send("T", b"a")
    push = PushConsumer("push", nameserver=lab.address).subscribe("T")
    lite = LitePullConsumer("lite", nameserver=lab.address).subscribe("T")
    async with push, lite:
        for number, client in enumerate[Client]([lab.producer, push, lab.puller, lite]):
            await client.create_topic(f"new-{number}", 2)
            (queue, _) = await client.fetch_queues(f"new-{number}")
            assert len(await client.fetch_send_queues(f"new-{number}")) == 2
            assert (await client.min_offset(queue), await client.max_offset(queue)) == (0, 0)
            assert await client.earliest_store_time(queue) == -1
            assert await client.offset_for_timestamp(queue, 0) == 0
    with pytest.raises(StateError, match="The consumer was stopped, and starts once only"):
        await push.create_topic("new")


async def test_a_topic_is_created_and_changed_only_by_an_explicit_word(lab: Lab) -> None:
    await lab.producer.create_topic("T", 8)
    for _ in range(16):
        await lab.producer.send(Message("T", b"x"))
    for given in ({}, {"queues": 2}, {"queues": 12}, {"key": "DefaultCluster"}, {"if_exists": "keep"}):
        await lab.producer.create_topic("T", **given)
        assert len(await lab.producer.fetch_queues("T")) == len(await lab.producer.fetch_send_queues("T")) == 8
    with pytest.raises(TopicExists, match="The topic T exists already, at broker-a") as raised:
        await lab.producer.create_topic("T", if_exists="error")
    assert raised.value.brokers == ("broker-a",) and not raised.value.retriable
    for number in (12, 3):
        await lab.producer.create_topic("T", number, key="DefaultCluster", if_exists="change")
        assert len(await lab.producer.fetch_queues("T")) == number
    await lab.producer.create_topic("U", if_exists="error")
    assert len(await lab.producer.fetch_queues("U")) == 4
    with pytest.raises(TopicNotFound, match="No route info of this topic: nowhere"):
        await lab.producer.create_topic("T", key="nowhere")
    with pytest.raises(BadName, match=r"The topic\[TBW102\] is conflict with system topic"):
        await lab.producer.create_topic("TBW102")
    with pytest.raises(BadName, match="illegal characters"):
        await lab.producer.create_topic("a b")
    with pytest.raises(BrokerRefused) as refused:
        await lab.producer.create_topic("V", 1_000_000)
    assert not refused.value.retriable, "a topic with as many queues is refused at the next try, too"


async def test_a_topic_that_one_broker_of_two_has_is_kept_on_both() -> None:
    async with Scripted("names") as names, Scripted("broker-a") as a, Scripted("broker-b") as b:
        names.knows("TBW102", a, b, perm=7)
        names.knows("T", b, queues=8)
        async with PullConsumer(nameserver=names.address) as consumer:
            await consumer.create_topic("T", 4)
            assert names.asked == ["TBW102", "T"] and not a.connections and not b.connections
            with pytest.raises(TopicExists, match="The topic T exists already, at broker-b"):
                await consumer.create_topic("T", 4, if_exists="error")


async def test_a_message_is_found_by_either_id(lab: Lab) -> None:
    sent = await lab.producer.send(Message("T", b"x" * 5000, keys=["k1", "k2"]))
    for id, topic in ((sent.offset_message_id, None), (sent.offset_message_id, "T"), (sent.message_id, "T")):
        found = await lab.puller.view_message(id, topic=topic)
        assert (found.message_id, found.body, found.keys) == (sent.message_id, b"x" * 5000, ["k1", "k2"])
        assert found.queue.queue_id == sent.queue.queue_id
    with pytest.raises(MessageNotFound, match=r"no message: nonsense\. To find it by its producer's"):
        await lab.puller.view_message("nonsense")
    with pytest.raises(MessageNotFound, match=r"To find it by its producer's id give its topic, too\."):
        await lab.puller.view_message(sent.message_id)
    with pytest.raises(MessageNotFound, match="query message by id finished, but no message"):
        await lab.puller.view_message("7F00000100007E3D0000000000000001", topic="T")
    with pytest.raises(MessageNotFound, match="says"):
        await lab.puller.view_message(sent.offset_message_id[:-4] + "FFFF")


async def test_messages_are_found_by_key_and_time(lab: Lab) -> None:
    for number in range(5):
        await lab.producer.send(Message("T", b"%d" % number, keys=f"k{number % 2}"))
    found = await lab.puller.query_messages("T", "k0")
    assert [each.body for each in found] == [b"0", b"2", b"4"]
    assert {each.queue for each in found} <= set(await lab.puller.fetch_queues("T"))
    assert len(await lab.puller.query_messages("T", "k0", most=1)) == 1
    assert await lab.puller.query_messages("T", "k7") == []
    hour = 3_600_000
    now = time.time_ns() // 1_000_000
    assert await lab.puller.query_messages("T", "k0", begin=now + hour) == []
    assert len(await lab.puller.query_messages("T", "k0", begin=now - hour, end=now + hour)) == 3
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert len(await lab.puller.query_messages("T", "k0", begin=datetime.fromtimestamp(0, UTC), end=soon)) == 3
    assert await lab.puller.query_messages("T", "k0", begin=soon) == []
    with pytest.raises(TopicNotFound):
        await lab.puller.query_messages("U", "k")


async def test_a_broker_that_cannot_look_is_told_of(server: Scripted) -> None:
    server.refused_codes.update({12, 17})
    async with PullConsumer(nameserver=server.address) as consumer:
        with pytest.raises(BrokerRefused):
            await consumer.query_messages("T", "k")
        with pytest.raises(BrokerRefused):
            await consumer.create_topic("U", key="T")
