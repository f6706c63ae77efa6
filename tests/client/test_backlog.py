"""The lag of a group: what waits, for how long, and what nobody can say."""

from __future__ import annotations

import time

import pytest

from eruca.client import ClientSettings, MessageQueue, PullConsumer, QueueLag, lag, total_lag
from eruca.client.errors import TopicNotFound
from tests.client.conftest import Lab
from tests.support.scripted import Scripted


async def test_each_queue(lab: Lab) -> None:
    before = time.time()
    await lab.send("T", *[b"x"] * 12)
    await lab.send("U", b"x")
    for number, offset in enumerate((0, 1, 3, 5)):
        await lab.puller.update_offset(MessageQueue("T", "broker-a", number), offset, group="g")
    rows = await lab_lag(lab, "T")
    assert [(row.queue.queue_id, row.broker_offset, row.consumer_offset, row.difference) for row in rows] == [
        (0, 3, 0, 3),
        (1, 3, 1, 2),
        (2, 3, 3, 0),
        (3, 3, 5, -2),
    ]
    assert rows[0].behind is not None and 0 <= rows[0].behind <= time.time() - before + 1
    assert rows[2].behind == 0.0
    assert rows[3].behind is None and rows[3].error == "the offset 5 is beyond the end of the queue, 3"
    assert total_lag(rows) == 3
    assert {row.queue.topic for row in await lab_lag(lab, None)} == {"T"}  # where it has offsets
    assert len(await lab_lag(lab, ["T", "U"])) == 8


async def lab_lag(lab: Lab, topics: str | list[str] | None) -> list[QueueLag]:
    return await lag("g", topics, nameserver=lab.address)


async def test_a_topic_that_is_not_there(lab: Lab) -> None:
    with pytest.raises(TopicNotFound):
        await lab_lag(lab, "Nowhere")


async def test_a_group_that_never_was_has_no_lag(lab: Lab) -> None:
    """A misspelt group must not look like a backlog, though brokers answer 0 for a young queue."""
    await lab.send("T", *[b"x"] * 12)
    await lab.puller.update_offset(MessageQueue("T", "broker-a", 2), 0, group="g")
    rows = await lab_lag(lab, "T")
    assert [(row.broker_offset, row.consumer_offset) for row in rows] == [(3, None), (3, None), (3, 0), (3, None)]
    assert rows[0].error == "the group g has no offset of this queue" and total_lag(rows) is None


async def test_topics_of_a_namespace_are_told_without_it(lab: Lab) -> None:
    settings = ClientSettings(namespace="tenant", nameserver=lab.address)
    async with PullConsumer("g", settings=settings) as consumer:
        await consumer.create_topic("T", 1)
        queue = MessageQueue("T", "broker-a", 0)
        await consumer.update_offset(queue, 0)
    assert [row.queue for row in await lag("g", settings=settings)] == [queue]


async def test_what_nobody_can_say_is_not_0() -> None:
    async with Scripted() as server, Scripted("broker-b") as gone:
        server.knows("T", server, gone)
        server.bounds["max"] = 10
        await gone.stop()
        known, away = await lag("g", "T", nameserver=server.address)
    assert (known.broker_offset, known.consumer_offset, known.difference) == (10, None, None)
    assert known.error == "the group g has no offset of this queue"
    assert (away.broker_offset, away.difference, away.behind) == (None, None, None) and away.error
    assert total_lag([known]) is None and total_lag([]) is None
