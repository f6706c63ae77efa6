"""Rebalance listeners: which queues a member gets and gives up, told before it reads them and before others do."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from eruca.client import (
    ClientSettings,
    LitePullConsumer,
    Message,
    MessageQueue,
    PushConsumer,
    ReceivedMessage,
    Waits,
    sync,
)
from eruca.client.errors import UsageError
from tests.client.conftest import HASTY, Lab, Seen, eventually

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


class Story:
    """What was told, in its order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    async def assigned(self, queues: list[MessageQueue]) -> None:
        self.told.append(("assigned", [queue.queue_id for queue in queues]))

    def revoked(self, queues: list[MessageQueue]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.told.append(("revoked", [queue.queue_id for queue in queues]))


def member(lab: Lab, listener: Any, **options: Any) -> PushConsumer:
    given: dict[str, Any] = {"settings": HASTY, "start_from": "first", **options}
    return PushConsumer("g", listener, nameserver=lab.address, **given).subscribe("T")


def of_the_topic(consumer: PushConsumer) -> list[int]:
    return [queue.queue_id for queue in consumer.queues if queue.topic == "T"]


async def fill(lab: Lab, count: int) -> None:
    await lab.producer.create_topic("T", 4)
    for number in range(count):
        for queue in QUEUES:
            await lab.producer.send(Message("T", b"%d" % number), queue=queue)


@pytest.mark.parametrize("order", [{}, {"orderly": True}, {"ordered_by": lambda message: message.body}])
async def test_a_member_is_told_of_its_queues(lab: Lab, order: dict[str, Any]) -> None:
    await fill(lab, 1)
    story, seen = Story(), Seen()
    told = {"on_assigned": story.assigned, "on_revoked": story.revoked}
    async with member(lab, seen.coroutine, **order, **told) as first:
        assert story.told == [("assigned", [0, 1, 2, 3])]
        async with member(lab, seen.coroutine, **order) as second:
            await eventually(lambda: len(of_the_topic(first)) == len(of_the_topic(second)) == 2)
            kept = of_the_topic(first)
            assert story.told[1] == ("revoked", [number for number in range(4) if number not in kept])
        await eventually(lambda: len(story.told) == 3)
        assert story.told[2] == ("assigned", story.told[1][1])
    assert story.told[3:] == [("revoked", [0, 1, 2, 3])]


async def test_nothing_is_consumed_before_the_assignment_is_told(lab: Lab) -> None:
    await fill(lab, 2)
    story: list[object] = []
    warm = asyncio.Event()

    async def prepare(queues: list[MessageQueue]) -> None:
        await asyncio.wait_for(lab.puller.max_offset(QUEUES[0]), 5)  # long enough for a pull
        story.append("prepared")
        warm.set()

    async def listener(message: ReceivedMessage) -> None:
        story.append(message.body)

    async with member(lab, listener, on_assigned=prepare):
        assert warm.is_set()  # start() has waited for it
        await eventually(lambda: len(story) == 9)
    assert story[0] == "prepared"


async def test_what_is_acknowledged_while_a_queue_is_given_up_counts(lab: Lab) -> None:
    await fill(lab, 3)
    batch: list[Any] = []

    async def flush(queues: list[MessageQueue]) -> None:
        for delivery in batch:
            if delivery.queue in queues:
                delivery.ack()

    async with member(lab, None, on_revoked=flush) as consumer:
        messages = consumer.messages(auto_ack=False)
        while len(batch) < 12:
            batch.append(await anext(messages))
        assert await lab.offsets("g", "T") == [0] * 4
    assert await lab.offsets("g", "T") == [3] * 4


async def test_a_polling_member_commits_what_it_gives_up(lab: Lab) -> None:
    await fill(lab, 3)
    story = Story()

    async def flush(queues: list[MessageQueue]) -> None:
        await consumer.commit(queues)

    consumer = LitePullConsumer(
        "g",
        nameserver=lab.address,
        settings=HASTY,
        start_from="first",
        auto_commit=False,
        on_assigned=story.assigned,
        on_revoked=flush,
    ).subscribe("T")
    async with consumer:
        got = 0
        while got < 12:
            got += len(await consumer.poll(10))
    assert story.told == [("assigned", [0, 1, 2, 3])]
    assert await lab.offsets("g", "T") == [3] * 4


async def test_errors_and_dawdling_end_in_the_log(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    await fill(lab, 1)
    seen, never = Seen(), asyncio.Event()

    async def assigned(queues: list[MessageQueue]) -> None:
        raise ValueError("no")

    async def revoked(queues: list[MessageQueue]) -> None:
        await never.wait()

    settings = ClientSettings(waits=Waits(rebalance_listener=0.05))
    async with member(lab, seen.coroutine, on_assigned=assigned, on_revoked=revoked, settings=settings):
        await seen.reaches(4)
    assert "on_assigned of g failed for [" in caplog.text
    assert "on_revoked of g did not end within 0.05 s for [" in caplog.text
    assert await lab.offsets("g", "T") == [1] * 4


def test_a_blocking_consumer_is_told_in_a_thread(address: str) -> None:
    with sync.Producer("p", nameserver=address) as producer:
        producer.create_topic("T", 4)
    told: list[str] = []
    with sync.PushConsumer(
        "g",
        lambda message: None,
        nameserver=address,
        on_assigned=lambda queues: told.append(f"assigned {len(queues)}"),
        on_revoked=lambda queues: told.append(f"revoked {len(queues)}"),
    ).subscribe("T"):
        assert told == ["assigned 4"]
    assert told == ["assigned 4", "revoked 4"]


def test_wrong_use_is_told() -> None:
    consumer: Any = PushConsumer
    with pytest.raises(UsageError, match="on_revoked is of type list: a function or a coroutine function"):
        consumer("g", nameserver="n:1", on_revoked=[])
