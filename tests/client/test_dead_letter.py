"""Dead letters are read and sent again: none is lost, and each says where it came from and why."""

from __future__ import annotations

import time

import pytest

from eruca.client import (
    ClientSettings,
    DeadLetter,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Redriven,
    Reject,
    dead_letters,
    redrive,
    sync,
)
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import ClientError, UsageError
from tests.client.conftest import Lab, Seen, eventually


async def reject(message: ReceivedMessage) -> Reject:
    return Reject(f"cannot use {message.body.decode()}")


async def dies(lab: Lab, *bodies: bytes, topic: str = "T") -> list[DeadLetter]:
    """Let the group g give up these messages; all letters of the group then."""
    before = len([letter async for letter in dead_letters("g", nameserver=lab.address)])
    for body in bodies:
        await lab.producer.send(Message(topic, body, keys="k", tags="t", properties={"colour": "red"}))
    consumer: PushConsumer = PushConsumer("g", reject, nameserver=lab.address, start_from="first")
    async with consumer.subscribe(topic):
        await eventually(lambda: engine_of(consumer).stats.dead == len(bodies))
    found = [letter async for letter in dead_letters("g", nameserver=lab.address)]
    assert len(found) == before + len(bodies)
    return found


async def test_a_letter_says_where_it_came_from_and_why(lab: Lab) -> None:
    before = int(time.time() * 1000)
    (letter,) = await dies(lab, b"x")
    assert (letter.group, letter.topic, letter.error, letter.text) == ("g", "T", "Reject", "cannot use x")
    assert (letter.message.body, letter.message.keys, letter.message.tags) == (b"x", ["k"], "t")
    assert letter.message.properties["colour"] == "red" and letter.traceback == ""
    assert before <= letter.died <= time.time() * 1000
    assert letter.place == "broker-a:0:0"
    assert repr(letter) == f"<DeadLetter {letter.message_id} of T, given up by g: Reject>"


async def test_a_group_without_dead_letters_has_none(lab: Lab) -> None:
    assert [letter async for letter in dead_letters("nobody", nameserver=lab.address)] == []
    assert await redrive("nobody", nameserver=lab.address) == Redriven(0, 0)


async def test_by_topic_and_time(lab: Lab) -> None:
    await dies(lab, b"1")
    (first, second) = await dies(lab, b"2", topic="Other")

    async def bodies(**choice: object) -> list[bytes]:
        found = dead_letters("g", nameserver=lab.address, **choice)  # type: ignore[arg-type]
        return [letter.message.body async for letter in found]

    assert await bodies(topic="Other") == [b"2"]
    assert await bodies(begin=second.died) == [b"2"]
    assert await bodies(end=first.died) == [b"1"]
    assert await bodies(begin=second.died + 1) == []


async def test_some_come_again_and_the_next_call_goes_on_behind_them(lab: Lab) -> None:
    await dies(lab, b"1", b"2", b"3")
    assert await redrive("g", most=2, to="topic", nameserver=lab.address) == Redriven(2, 0, rest=1)
    assert await redrive("g", most=2, to="topic", nameserver=lab.address) == Redriven(1, 0)
    first, *_ = [letter.place async for letter in dead_letters("g", nameserver=lab.address)]
    chosen = await redrive("g", where=lambda letter: letter.place != first, most=1, nameserver=lab.address)
    assert chosen == Redriven(1, 1, rest=1), "the first was looked at and left, the third one was not looked at"


async def test_all_come_again_once_to_their_group_only(lab: Lab) -> None:
    letters = await dies(lab, *(b"%d" % number for number in range(100)))
    assert await redrive("g", nameserver=lab.address) == Redriven(100, 0)
    assert await redrive("g", nameserver=lab.address) == Redriven(0, 0), "the place is kept"
    again, others = Seen(), Seen()
    async with (
        PushConsumer("g", again.coroutine, nameserver=lab.address).subscribe("T"),
        PushConsumer("h", others.coroutine, nameserver=lab.address, start_from="end").subscribe("T"),
    ):
        await again.reaches(100)
    assert sorted(message.message_id for message in again.messages) == sorted(each.message_id for each in letters)
    one = again.messages[0]
    assert (one.topic, one.keys, one.tags, one.reconsume_times) == ("T", ["k"], "t", 0)
    assert one.properties["colour"] == "red" and not others.messages
    assert {each.place for each in letters} == {each.properties["REDRIVEN_FROM"] for each in again.messages}
    assert "DEAD_LETTER_ERROR" not in one.properties


async def test_to_the_topic_all_its_groups_get_them(lab: Lab) -> None:
    await dies(lab, b"1", b"2")
    others = Seen()
    async with PushConsumer("h", others.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await others.reaches(2)
        assert await redrive("g", to="topic", nameserver=lab.address) == Redriven(2, 0)
        await others.reaches(4)
    assert "RETRY_TOPIC" not in others.messages[-1].properties


async def test_one_of_them_and_the_others_stay(lab: Lab) -> None:
    await dies(lab, b"1", b"2", b"3")
    chosen = await redrive("g", where=lambda letter: letter.message.body == b"2", nameserver=lab.address)
    assert chosen == Redriven(1, 2)
    assert await redrive("g", nameserver=lab.address) == Redriven(3, 0), "a selection keeps no place"


async def test_a_selection_may_keep_a_place_of_its_own(lab: Lab) -> None:
    await dies(lab, b"1", b"2")

    async def twos() -> Redriven:
        return await redrive(
            "g", where=lambda letter: letter.message.body == b"2", progress="outage", nameserver=lab.address
        )

    assert [await twos(), await twos()] == [Redriven(1, 1), Redriven(0, 0)]


async def test_a_letter_that_cannot_be_sent_again_is_not_passed(lab: Lab) -> None:
    await dies(lab, b"1", b"2")
    lab.fill_disk()
    with pytest.raises(ClientError):
        await redrive("g", nameserver=lab.address)
    lab.fill_disk(full=False)
    assert await redrive("g", nameserver=lab.address) == Redriven(2, 0)


async def test_a_rate(lab: Lab) -> None:
    await dies(lab, *(b"%d" % number for number in range(10)))
    began = time.monotonic()
    await redrive("g", rate=50, nameserver=lab.address)
    assert time.monotonic() - began >= 0.2


async def test_in_a_namespace(lab: Lab) -> None:
    settings = ClientSettings(nameserver=lab.address, namespace="ns")
    async with Producer("p", settings=settings) as producer:
        await producer.send(Message("T", b"x"))
    consumer: PushConsumer = PushConsumer("g", reject, settings=settings, start_from="first")
    async with consumer.subscribe("T"):
        await eventually(lambda: engine_of(consumer).stats.dead == 1)
    (letter,) = [each async for each in dead_letters("g", settings=settings)]
    assert letter.topic == "T"
    assert await redrive("g", settings=settings) == Redriven(1, 0)
    again = Seen()
    async with PushConsumer("g", again.coroutine, settings=settings).subscribe("T"):
        await again.reaches(1)
    assert again.messages[0].topic == "T"


def test_blocking(address: str) -> None:
    with sync.Producer("p", nameserver=address) as producer:
        producer.send(Message("T", b"x"))
        producer.send(Message("T", b"y"))
    with sync.PushConsumer("g", nameserver=address, start_from="first").subscribe("T") as consumer:
        for number, message in enumerate(consumer):
            message.reject("no")
            if number == 1:
                break
    with sync.PullConsumer(nameserver=address) as puller:
        (queue,) = puller.fetch_queues("%DLQ%g")
        while puller.max_offset(queue) < 2:
            time.sleep(0.005)
    for letter in sync.dead_letters("g", nameserver=address):
        assert letter.text == "no"
        break
    assert sync.redrive("g", nameserver=address) == Redriven(2, 0)


async def test_wrong_calls(lab: Lab) -> None:
    with pytest.raises(UsageError, match='"retry" or "topic" is expected'):
        await redrive("g", to="group", nameserver=lab.address)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a function of a DeadLetter is expected"):
        await redrive("g", where=3, nameserver=lab.address)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="rate=0"):
        await redrive("g", rate=0, nameserver=lab.address)
    with pytest.raises(UsageError, match="most"):
        await redrive("g", most=0, nameserver=lab.address)
