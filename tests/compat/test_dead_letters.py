"""Dead letters of both sides: each reads what the other gave up, and what was sent again comes to Java's consumers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eruca.client import (
    Backoff,
    DeadLetter,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Redriven,
    Reject,
    dead_letters,
    redrive,
)
from eruca.client.consuming.push_consumer import engine_of
from tests.compat.conftest import Cluster, start
from tests.support.java import Judge

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]
LEVELS = {"messageDelayLevel": "1s 2s 1s 1s 1s 1s"}


@pytest.fixture(scope="module", params=["apache", "eruca"])
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each kind of cluster, with short delay levels."""
    with start(request.param, tmp_path_factory.mktemp(f"letters-{request.param}"), LEVELS) as cluster:
        yield cluster


@contextmanager
def member(judge: Judge, cluster: Cluster, name: str, group: str, topic: str, **options: Any) -> Iterator[str]:
    """A push consumer of Java's; its name."""
    judge.call("push", name=name, group=group, namesrv=cluster.address, topics={topic: "*"}, **options)
    try:
        yield name
    finally:
        judge.call("stop", name=name)


def received(judge: Judge, name: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = judge.call("received", name=name, atLeast=count, timeoutMs=30_000)["messages"]
    return found


def body(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["body"])


async def letters_of(cluster: Cluster, group: str, count: int) -> list[DeadLetter]:
    """The dead letters of a group, as soon as they are so many."""
    async with asyncio.timeout(30):
        while True:
            found = [letter async for letter in dead_letters(group, nameserver=cluster.address)]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.1)


async def test_letters_of_java_are_read_and_sent_again_to_its_group(
    quick: Cluster, judge: Judge, topic: MakeTopic, fresh: Fresh
) -> None:
    name, group = topic(quick, judge, 1), fresh("group")
    async with Producer("letters", nameserver=quick.address) as producer:
        sent = await producer.send(Message(name, b"java's", keys="k1 k2", tags="t", properties={"colour": "red"}))
    with member(judge, quick, fresh("member"), group, name, refuse=99, maxReconsumeTimes=0):
        (letter,) = await letters_of(quick, group, 1)
    assert (letter.topic, letter.message_id, letter.error) == (name, sent.message_id, "")
    with member(judge, quick, fresh("member"), group, name) as again:
        assert await redrive(group, nameserver=quick.address) == Redriven(1, 0)
        (come,) = received(judge, again, 1)
    assert (body(come), come["topic"], come["reconsumeTimes"]) == (b"java's", name, 0)
    assert (come["properties"]["KEYS"], come["properties"]["TAGS"]) == ("k1 k2", "t")
    assert (come["properties"]["colour"], come["properties"]["REDRIVEN_FROM"]) == ("red", letter.place)
    assert await redrive(group, nameserver=quick.address) == Redriven(0, 0)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_letters_of_python_are_read_by_java_with_their_reason(
    quick: Cluster, judge: Judge, topic: MakeTopic, fresh: Fresh, orderly: bool
) -> None:
    name, group = topic(quick, judge, 1), fresh("group")

    async def reject(message: ReceivedMessage) -> Reject:
        return Reject("no such street")

    async with Producer("letters", nameserver=quick.address) as producer:
        sent = await producer.send(Message(name, b"python's", keys="k", tags="t"))
    options: dict[str, Any] = {"orderly": orderly}
    async with PushConsumer(group, reject, nameserver=quick.address, start_from="first", **options).subscribe(name):
        (letter,) = await letters_of(quick, group, 1)
    assert (letter.topic, letter.error, letter.text) == (name, "Reject", "no such street")
    with member(judge, quick, fresh("reader"), fresh("readers"), f"%DLQ%{group}") as reader:
        (read,) = received(judge, reader, 1)
    properties = read["properties"]
    assert (body(read), read["topic"], properties["RETRY_TOPIC"]) == (b"python's", f"%DLQ%{group}", name)
    assert (properties["KEYS"], properties["TAGS"]) == ("k", "t")
    assert properties["UNIQ_KEY"] == sent.message_id and properties["ORIGIN_MESSAGE_ID"] == sent.offset_message_id
    assert (properties["DEAD_LETTER_ERROR"], properties["DEAD_LETTER_TEXT"]) == ("Reject", "no such street")
    with member(judge, quick, fresh("member"), fresh("others"), name, **{"from": "CONSUME_FROM_FIRST_OFFSET"}) as other:
        assert len(received(judge, other, 1)) == 1
        assert await redrive(group, to="topic", nameserver=quick.address) == Redriven(1, 0)
        again = received(judge, other, 1)[-1]
    assert (body(again), again["topic"]) == (b"python's", name)


async def test_times_of_its_own(quick: Cluster, judge: Judge, topic: MakeTopic, fresh: Fresh) -> None:
    """Exact at Eruca's broker; at Apache's the nearest level."""
    name, group, times = topic(quick, judge, 1), fresh("group"), [0.0] * 0
    done = asyncio.Event()

    async def twice(message: ReceivedMessage) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise ValueError("once")
        done.set()

    async with Producer("letters", nameserver=quick.address) as producer:
        await producer.send(Message(name, b"x"))
    retry = Backoff(first=0.3, factor=1)
    consumer: PushConsumer = PushConsumer(group, twice, nameserver=quick.address, start_from="first", retry=retry)
    async with consumer.subscribe(name), asyncio.timeout(30):
        await done.wait()
        assert engine_of(consumer).stats.retried == 1
    least = 0.3 if type(quick).__name__ == "ErucaCluster" else 1.0
    assert least <= times[1] - times[0] < least + 3
