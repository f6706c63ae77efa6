"""A pull consumer that takes a share of its group's queues, and is told when it is another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca.client import ClientSettings, LitePullConsumer, MessageQueue, PullConsumer, sync
from eruca.client.errors import BrokerRefused, StateError, UsageError
from tests.client.conftest import Lab, eventually
from tests.client.polled import ONE, QUEUES, fill

Told = tuple[str, list[MessageQueue], list[MessageQueue]]


async def test_a_listener_hears_of_each_other_share(lab: Lab) -> None:
    await fill(lab, 1)
    told: list[Told] = []

    async def listener(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        told.append((topic, queues, mine))

    consumer = PullConsumer("g", nameserver=lab.address)
    await consumer.register_message_queue_listener("T", listener)
    assert (consumer.queues, told) == ([], [])
    async with consumer:
        await eventually(lambda: told == [("T", QUEUES, QUEUES)])
        async with LitePullConsumer("g", nameserver=lab.address).subscribe("T") as other:
            await eventually(lambda: len(consumer.queues) == len(other.assignment()) == 2)
            await eventually(lambda: told[1:] == [("T", QUEUES, consumer.queues)])
        await eventually(lambda: told[2:] == [("T", QUEUES, QUEUES)])
        (queue, *_) = consumer.queues
        assert len((await consumer.pull(queue, 0)).records) == 1
    assert consumer.queues == []


async def test_it_may_be_registered_while_the_consumer_runs(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    await fill(lab, 1)
    told: list[str] = []

    def listener(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        told.append(topic)
        if topic == "Later":
            raise ValueError("not this one")

    async with PullConsumer("g", nameserver=lab.address) as consumer:
        await consumer.register_message_queue_listener("T", listener)
        await eventually(lambda: told == ["T"])
        await lab.send("Later", b"x")
        await consumer.register_message_queue_listener("Later", listener)
        await eventually(lambda: told == ["T", "Later"] and len(consumer.queues) == 8)
        await eventually(lambda: "the listener for the queues of Later failed" in caplog.text)
    with pytest.raises(StateError, match=r"The pull consumer was stopped\. Make a new PullConsumer"):
        await consumer.start()


async def test_topics_that_are_registered_at_once_make_one_member(lab: Lab) -> None:
    await fill(lab, 1)
    await lab.send("U", b"x")
    async with PullConsumer("g", nameserver=lab.address) as consumer:
        await asyncio.gather(*(consumer.register_message_queue_listener(each, lambda *_: None) for each in "TU"))
        await eventually(lambda: len(consumer.queues) == 8)
        assert len(await lab.puller.session.members("g", "T")) == 1
    with pytest.raises(BrokerRefused, match="no consumer for this group, g"):
        await lab.puller.session.members("g", "T")


async def test_a_stop_that_is_cancelled_leaves_the_group_all_the_same(lab: Lab) -> None:
    await fill(lab, 1)
    consumer = PullConsumer("g", settings=ClientSettings(nameserver=lab.address, unit_name="own"))
    await consumer.register_message_queue_listener("T", lambda *_: None)
    await consumer.start()
    session = consumer.session
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await consumer.stop()
    master = await lab.puller.session.master("broker-a", "T")
    await eventually(lambda: session.channels.ready(master) is None)
    with pytest.raises(BrokerRefused, match="no consumer for this group, g"):
        await lab.puller.session.members("g", "T")


async def test_everybody_has_all_queues_and_offsets_of_its_own_when_broadcasting(lab: Lab, tmp_path: Path) -> None:
    await fill(lab, 1)

    def member(name: str) -> PullConsumer:
        settings = ClientSettings(instance_name=name, nameserver=lab.address)
        return PullConsumer("g", broadcast=True, offset_folder=tmp_path, settings=settings)

    async with member("a") as one, member("b") as other:
        for consumer in (one, other):
            await consumer.register_message_queue_listener("T", lambda *_: None)
        await eventually(lambda: one.queues == other.queues == QUEUES)
        await one.update_offset(ONE, 1)
        assert (await one.query_offset(ONE), await other.query_offset(ONE)) == (1, None)
        assert await one.query_offset(ONE, group="else") == 0  # of another group the broker is asked
    assert await lab.offsets("g", "T") == [0, 0, 0, 0]
    async with member("a") as one:
        assert await one.query_offset(ONE) == 1


def test_what_cannot_be() -> None:
    with sync.PullConsumer(nameserver="127.0.0.1:9") as consumer:
        with pytest.raises(UsageError, match="give the consumer a group of its own"):
            consumer.register_message_queue_listener("T", lambda *_: None)
        with pytest.raises(UsageError, match="The listener"):
            consumer.register_message_queue_listener("T", 5)  # type: ignore[arg-type]
        assert consumer.queues == []
