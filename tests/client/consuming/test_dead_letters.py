"""A listener that fails: its messages come again, and end with the dead letters, by a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.client import Later, Message, MessageQueue, Producer, PullConsumer, PushConsumer, ReceivedMessage
from eruca.client.errors import ClientError
from eruca.standalone.cluster import Cluster
from tests.client.conftest import Lab, Seen, small_broker


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """As everywhere, with a second for each delay level."""
    broker = small_broker()
    broker.store.message_delay_level = "1s 1s 1s 1s 1s 1s"
    async with (
        Cluster(tmp_path, broker=broker) as cluster,
        Producer("lab", nameserver=cluster.address) as producer,
        PullConsumer(nameserver=cluster.address) as puller,
    ):
        yield Lab(cluster, producer, puller)


async def letters(lab: Lab, seen: Seen, count: int) -> list[ReceivedMessage]:
    """The dead letters of group g, as a group that reads them gets them."""
    async with PushConsumer("readers", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("%DLQ%g"):
        await seen.reaches(count)
    return seen.messages


@pytest.mark.slow
async def test_a_message_that_always_fails_comes_as_often_as_it_may_and_is_a_dead_letter_then(lab: Lab) -> None:
    tried, dead = Seen(), Seen()

    async def fail(message: ReceivedMessage) -> None:
        tried.add(message)
        raise ValueError("never")

    sent = await lab.producer.send(Message("T", b"bad", tags="t", keys="k"))
    async with PushConsumer("g", fail, nameserver=lab.address, start_from="first", max_reconsume_times=2).subscribe(
        "T"
    ):
        await tried.reaches(3)
        (letter,) = await letters(lab, dead, 1)
    assert [message.record.reconsume_times for message in tried.messages] == [0, 1, 2]
    assert {message.topic for message in tried.messages} == {"T"}
    assert (letter.body, letter.record.topic, letter.record.reconsume_times) == (b"bad", "%DLQ%g", 3)
    properties = letter.record.properties
    assert (properties["RETRY_TOPIC"], properties["TAGS"], properties["KEYS"]) == ("T", "t", "k")
    assert properties["UNIQ_KEY"] == sent.message_id
    assert properties["ORIGIN_MESSAGE_ID"] == tried.messages[0].record.offset_message_id


async def test_a_message_that_fails_once_comes_once_more(lab: Lab) -> None:
    tried = Seen()

    async def fail_first(message: ReceivedMessage) -> None:
        tried.add(message)
        if len(tried.messages) == 1:
            raise ValueError("once")

    await lab.send("T", b"x")
    async with PushConsumer("g", fail_first, nameserver=lab.address, start_from="first").subscribe("T"):
        await tried.reaches(2)
        await lab.stores("g", "%RETRY%g", [1])
    again = tried.messages[1].record
    assert (again.topic, again.reconsume_times) == ("%RETRY%g", 1)
    waited = again.store_timestamp - tried.messages[0].record.store_timestamp
    assert 1000 <= waited < 5000, "the first level of the delays is 1 s, the next one 5 s"


async def test_a_listener_may_give_a_message_up_at_once(lab: Lab) -> None:
    dead = Seen()

    async def give_up(message: ReceivedMessage) -> Later:
        return Later(delay_level=-1)

    await lab.send("T", b"x")
    async with PushConsumer("g", give_up, nameserver=lab.address, start_from="first").subscribe("T"):
        (letter,) = await letters(lab, dead, 1)
    assert letter.record.reconsume_times == 1


async def test_sent_anew_to_the_retry_topic_it_is_a_dead_letter_as_soon(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way that clients take when their broker did not take a message back."""
    tried, dead = Seen(), Seen()

    async def refused(*_: object, **__: object) -> None:
        raise ClientError("not now")

    monkeypatch.setattr("eruca.client.network.brokers.send_back", refused)

    async def fail(message: ReceivedMessage) -> None:
        tried.add(message)
        raise ValueError("never")

    await lab.send("T", b"bad")
    async with PushConsumer("g", fail, nameserver=lab.address, start_from="first", max_reconsume_times=1).subscribe(
        "T"
    ):
        (letter,) = await letters(lab, dead, 1)
    assert (letter.body, letter.record.properties["DELAY"]) == (b"bad", "0")
    assert len(tried.messages) == 1  # it says itself that it came once, and that is enough


async def test_delayed_messages_by_the_client(lab: Lab, seen: Seen) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    await lab.send("T", b"first")
    await lab.producer.send(Message("T", b"level", delay_level=1), queue=queue)
    await lab.producer.send(Message("T", b"own", properties={"TIMER_DELAY_MS": "300"}), queue=queue)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await seen.reaches(3)
    assert seen.bodies == [b"first", b"own", b"level"]
