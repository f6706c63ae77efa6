"""A listener that fails: its messages come again, and end with the dead letters, by a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eruca.client import (
    Backoff,
    Hook,
    Later,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    Suspend,
)
from eruca.client.consuming.last_error import last_error, last_error_of
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import ClientError
from eruca.client.hooks import ConsumeContext
from eruca.standalone.cluster import Cluster
from tests.client.conftest import Lab, Seen, eventually, small_broker


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


@pytest.mark.parametrize("exact", [True, False])
async def test_sent_anew_to_the_retry_topic_it_comes_as_often_and_its_letter_says_why(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    """The way of retries with times of their own, and of all when the broker did not take a message back."""
    tried, dead = Seen(), Seen()

    async def refused(*_: object, **__: object) -> None:
        raise ClientError("not now")

    monkeypatch.setattr("eruca.client.network.brokers.send_back", refused)

    async def fail(message: ReceivedMessage) -> None:
        tried.add(message)
        raise ValueError("never")

    await lab.send("T", b"bad")
    options: dict[str, Any] = {"max_reconsume_times": 1, "retry": Backoff(first=0.05) if exact else None}
    async with PushConsumer("g", fail, nameserver=lab.address, start_from="first", **options).subscribe("T"):
        (letter,) = await letters(lab, dead, 1)
    assert (letter.body, letter.record.properties["DELAY"]) == (b"bad", "0")
    assert [message.reconsume_times for message in tried.messages] == [0, 1]
    assert letter.properties["DEAD_LETTER_ERROR"] == "ValueError"


class Deaths(Hook):
    """Notes what hooks see of dead letters."""

    def __init__(self) -> None:
        self.dead: list[list[bytes]] = []

    def after_consume(self, context: ConsumeContext) -> None:
        self.dead.append([message.body for message in context.dead])


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "is a dead letter" in each.getMessage()]


async def rejects(message: ReceivedMessage) -> Reject:
    return Reject("no such street\x01\x02")


async def raises(message: ReceivedMessage) -> None:
    raise LookupError("no such street")


async def rejects_all(messages: list[ReceivedMessage]) -> Reject:
    return Reject("no such street", consumed=1)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_dead_letter_is_told_once_with_its_reason(
    lab: Lab, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    deaths, dead = Deaths(), Seen()
    sent = await lab.producer.send(Message("T", b"bad", keys=["k1", "k2"]))
    consumer: PushConsumer = PushConsumer(
        "g", raises, nameserver=lab.address, start_from="first", max_reconsume_times=0, orderly=orderly, hooks=[deaths]
    )
    async with consumer.subscribe("T"):
        (letter,) = await letters(lab, dead, 1)
        await eventually(lambda: engine_of(consumer).stats.dead == 1)
        assert (engine_of(consumer).stats.retried, engine_of(consumer).stats.failed) == (0, 1)
    assert deaths.dead == [[b"bad"]]
    assert warnings_of(caplog) == [
        f"message {sent.message_id} of T is a dead letter of g now (keys k1 k2, tried once): "
        "LookupError: no such street"
    ]
    properties = letter.record.properties
    assert (properties["DEAD_LETTER_ERROR"], properties["DEAD_LETTER_TEXT"]) == ("LookupError", "no such street")
    assert 'raise LookupError("no such street")' in properties["DEAD_LETTER_TRACEBACK"]
    assert (properties["UNIQ_KEY"], properties["RETRY_TOPIC"], properties["KEYS"]) == (sent.message_id, "T", "k1 k2")


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_reject_makes_a_dead_letter_at_once(lab: Lab, orderly: bool) -> None:
    dead = Seen()
    await lab.send("T", b"bad")
    options: dict[str, Any] = {"orderly": orderly, "max_reconsume_times": 99}
    async with PushConsumer("g", rejects, nameserver=lab.address, start_from="first", **options).subscribe("T"):
        (letter,) = await letters(lab, dead, 1)
    properties = letter.record.properties
    assert (properties["DEAD_LETTER_ERROR"], properties["DEAD_LETTER_TEXT"]) == ("Reject", "no such street")
    assert letter.record.reconsume_times == 1


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_of_a_list_the_rest_is_rejected(lab: Lab, orderly: bool) -> None:
    dead, deaths = Seen(), Deaths()
    queue = MessageQueue("T", "broker-a", 0)
    for body in (b"1", b"2", b"3"):
        await lab.producer.send(Message("T", body), queue=queue)
    async with PushConsumer(
        "g",
        rejects_all,
        nameserver=lab.address,
        start_from="first",
        orderly=orderly,  # type: ignore[call-overload]
        consume_message_batch_max_size=3,
        hooks=[deaths],
    ).subscribe("T"):
        found = await letters(lab, dead, 2)
        await lab.stores("g", "T", [3, 0, 0, 0])
    assert sorted(letter.body for letter in found) == [b"2", b"3"]
    assert deaths.dead == [[b"2", b"3"]]


async def test_of_a_loop_too(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    dead = Seen()
    queue = MessageQueue("T", "broker-a", 0)
    for body in (b"1", b"2"):
        await lab.producer.send(Message("T", body), queue=queue)
    consumer: PushConsumer = PushConsumer("g", nameserver=lab.address, start_from="first", max_reconsume_times=0)
    async with consumer.subscribe("T"):
        async for message in consumer.messages(auto_ack=False):
            if message.body == b"1":
                message.reject("no such street")
            else:
                with pytest.raises(LookupError), message:
                    raise LookupError("no such town")
                break
        found = await letters(lab, dead, 2)
    why = {letter.body: letter.record.properties["DEAD_LETTER_TEXT"] for letter in found}
    assert why == {b"1": "no such street", b"2": "no such town"}
    assert len(warnings_of(caplog)) == 2


async def test_a_call_that_takes_too_long_says_so_in_its_dead_letter(lab: Lab) -> None:
    dead, go = Seen(), asyncio.Event()

    async def slow(message: ReceivedMessage) -> None:
        await go.wait()

    await lab.send("T", b"slow")
    async with PushConsumer(
        "g", slow, nameserver=lab.address, start_from="first", max_reconsume_times=0, consume_timeout=0.02
    ).subscribe("T") as consumer:
        (letter,) = await letters(lab, dead, 1)
        await eventually(lambda: engine_of(consumer).stats.dead == 1)
        go.set()
    assert letter.record.properties["DEAD_LETTER_TEXT"] == "the listener did not end within 0.02 s"


async def test_an_error_of_any_size_and_kind_fits() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    why = last_error(ValueError("\x01\x02" + "ü" * 5000 + "\udcff"))
    assert len(why.text.encode()) <= 600 and not {"\x01", "\x02"} & set(why.text)
    assert last_error(Odd()).text == "its text cannot be made: RuntimeError"
    assert str(last_error(None, Later(delay_level=-1))) == "Later: returned by the listener"
    for outcome in (Later(cause=OSError("no route")), Suspend(cause=OSError("no route"))):
        assert str(last_error(None, outcome)) == "OSError: no route"
    assert str(last_error(ValueError("one\r\ntwo\u2028three"))) == "ValueError: one\\r\\ntwo\\u2028three"
    assert last_error(ValueError("one\ntwo")).text == "one\ntwo"
    assert str(last_error(None, Reject("no such street", cause=KeyError(7)))) == "KeyError: no such street"
    assert last_error_of(why.properties) == why


async def test_delayed_messages_by_the_client(lab: Lab, seen: Seen) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    await lab.send("T", b"first")
    await lab.producer.send(Message("T", b"level", delay_level=1), queue=queue)
    await lab.producer.send(Message("T", b"own", properties={"TIMER_DELAY_MS": "300"}), queue=queue)
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await seen.reaches(3)
    assert seen.bodies == [b"first", b"own", b"level"]
