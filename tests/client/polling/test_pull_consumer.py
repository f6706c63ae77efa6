"""Pulling by hand, and asking for offsets."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from eruca.client import Hook, Message, MessageQueue, PullConsumer, PullStatus, ReceivedMessage
from eruca.client.errors import BadConfig, BadName, BrokerRefused, StateError, TopicNotFound, UsageError
from eruca.client.hooks import ConsumeContext, FilterContext
from eruca.protocol import api
from eruca.protocol.headers.clients import OfConsumerGroup
from tests.client.conftest import Lab

QUEUE = MessageQueue("T", "broker-a", 0)


async def fill(lab: Lab, count: int, **fields: str) -> None:
    for number in range(count):
        message = Message("T", b"m%d" % number, tags=("AaAa", "BBBB")[number % 2], **fields)  # type: ignore[arg-type]
        await lab.producer.send(message, queue=QUEUE)


async def test_the_queues_of_a_topic(lab: Lab) -> None:
    await fill(lab, 1)
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    assert await lab.puller.fetch_queues("T") == queues
    assert await lab.puller.fetch_send_queues("T") == queues
    with pytest.raises(TopicNotFound):
        await lab.puller.fetch_queues("U")
    with pytest.raises(BadName):
        await lab.puller.fetch_queues("")


async def test_reading_from_the_start_to_the_end(lab: Lab) -> None:
    await fill(lab, 100)
    assert (await lab.puller.min_offset(QUEUE), await lab.puller.max_offset(QUEUE)) == (0, 100)
    bodies, offset = [], 0
    while (result := await lab.puller.pull(QUEUE, offset)).status is PullStatus.FOUND:
        assert (result.min_offset, result.max_offset) == (0, 100)
        bodies += [record.body for record in result.records]
        offset = result.next_offset
    assert bodies == [b"m%d" % number for number in range(100)]
    assert (result.status, result.next_offset, result.records) == (PullStatus.NO_NEW_MESSAGE, 100, [])


async def test_several_pulls_under_way_on_one_connection(lab: Lab) -> None:
    await fill(lab, 96)
    results = await asyncio.gather(*(lab.puller.pull(QUEUE, offset) for offset in (64, 0, 32)))
    assert [result.records[0].body for result in results] == [b"m64", b"m0", b"m32"]


async def test_tags_are_filtered_here_too(lab: Lab) -> None:
    await fill(lab, 10)
    result = await lab.puller.pull(QUEUE, 0, expression="AaAa")
    assert [record.tags for record in result.records] == ["AaAa"] * 5
    assert result.next_offset == 10 and result.body.count(b"BBBB") == 5  # equal hashes pass the broker
    nothing = await lab.puller.pull(QUEUE, 0, expression="C")
    assert nothing.status in (PullStatus.NO_MATCHED_MESSAGE, PullStatus.NO_NEW_MESSAGE) and not nothing.records


async def test_an_offset_outside_is_told_where_to_go_on(lab: Lab) -> None:
    await fill(lab, 3)
    result = await lab.puller.pull(QUEUE, 99)
    assert (result.status, result.next_offset) == (PullStatus.OFFSET_MOVED, 3)


@pytest.mark.parametrize("suspend", [5.0, float("inf")])
async def test_a_pull_may_wait_for_a_message(lab: Lab, suspend: float) -> None:
    await fill(lab, 1)
    waiting = asyncio.create_task(lab.puller.pull(QUEUE, 1, suspend=suspend))
    await lab.puller.max_offset(QUEUE)  # answered on the same connection: the pull is held
    assert not waiting.done()
    await fill(lab, 1)
    assert [record.body for record in (await waiting).records] == [b"m0"]


async def test_offsets_of_a_group(lab: Lab) -> None:
    await fill(lab, 5)
    assert await lab.puller.query_offset(QUEUE, group="g") == 0  # a young queue counts as consumed from its start
    await lab.puller.update_offset(QUEUE, 4, group="g")
    assert await lab.puller.query_offset(QUEUE, group="g") == 4
    async with PullConsumer("g", nameserver=lab.address) as consumer:
        assert await consumer.query_offset(QUEUE) == 4
    with pytest.raises(UsageError, match="offset=-1: a whole number of 0 or more is expected"):
        await lab.puller.update_offset(QUEUE, -1)


async def test_offsets_by_time(lab: Lab) -> None:
    before = time.time_ns() // 1_000_000
    await fill(lab, 5)
    later = time.time_ns() // 1_000_000 + 60_000
    assert await lab.puller.offset_for_timestamp(QUEUE, before - 60_000) == 0
    assert await lab.puller.offset_for_timestamp(QUEUE, later) in (4, 5)
    assert await lab.puller.offset_for_timestamp(QUEUE, datetime.fromtimestamp(before / 1000 - 60, UTC)) == 0
    assert await lab.puller.offset_for_timestamp(QUEUE, datetime.fromtimestamp(later / 1000)) in (4, 5)  # local time
    assert before <= await lab.puller.earliest_store_time(QUEUE) <= later
    assert await lab.puller.earliest_store_time(MessageQueue("T", "broker-a", 3)) == -1


async def test_who_only_pulls_is_not_online(lab: Lab) -> None:
    await fill(lab, 1)
    async with PullConsumer("quiet", nameserver=lab.address) as consumer:
        await consumer.pull(QUEUE, 0)
        session = consumer.session
        with pytest.raises(BrokerRefused, match="no consumer for this group, quiet"):
            await session.call(
                await session.master("broker-a"),
                api.GET_CONSUMER_LIST_BY_GROUP,
                OfConsumerGroup(consumer_group="quiet"),
            )


async def test_wrong_use_is_told(lab: Lab) -> None:
    await fill(lab, 1)
    consumer = PullConsumer(nameserver=lab.address)
    with pytest.raises(StateError, match="The consumer not running, please start it first"):
        await consumer.max_offset(QUEUE)
    with pytest.raises(UsageError, match="offset=-1: a whole number of 0 or more is expected"):
        await lab.puller.pull(QUEUE, -1)
    with pytest.raises(UsageError, match="names no tag"):
        await lab.puller.pull(QUEUE, 0, expression="||")
    with pytest.raises(UsageError, match="NULL cannot be compared"):
        await lab.puller.pull(QUEUE, 0, expression="a = NULL", expression_type="SQL92")
    with pytest.raises(BrokerRefused, match="does not support consumer to filter message by SQL92"):
        await lab.puller.pull(QUEUE, 0, expression="a > 5", expression_type="SQL92")
    with pytest.raises(BrokerRefused, match="queueId"):
        await lab.puller.pull(MessageQueue("T", "broker-a", 77), 0)


async def test_a_pull_blocks_where_nothing_is_found(lab: Lab) -> None:
    await fill(lab, 1)
    waiting = asyncio.create_task(lab.puller.pull_block_if_not_found(QUEUE, 1))
    await lab.puller.max_offset(QUEUE)
    assert not waiting.done()
    await fill(lab, 1)
    assert [record.body for record in (await waiting).records] == [b"m0"]
    async with PullConsumer(nameserver=lab.address, broker_suspend_max_time=0.1) as impatient:
        assert (await impatient.pull_block_if_not_found(QUEUE, 2)).status is PullStatus.NO_NEW_MESSAGE
    with pytest.raises(BadConfig, match="must greater than brokerSuspendMaxTimeMillis"):
        PullConsumer(nameserver=lab.address, consumer_timeout_when_suspend=20.0)


async def test_a_message_is_sent_back_to_the_group(lab: Lab) -> None:
    await fill(lab, 1)
    (record,) = (await lab.puller.pull(QUEUE, 0)).records
    await lab.puller.send_message_back(ReceivedMessage(record, QUEUE), -1, group="g")
    (queue,) = await lab.puller.fetch_queues("%DLQ%g")
    assert await lab.puller.max_offset(queue) == 1


async def test_hooks_see_what_a_pull_found(lab: Lab) -> None:
    """First what is to be left out, then the consumption, which has ended when the pull returns; as Java's does."""
    seen: list[tuple[str, list[bytes]]] = []

    class Watch(Hook):
        def filter_messages(self, context: FilterContext) -> None:
            seen.append(("filter", [each.body for each in context.messages]))
            assert (context.consumer_group, context.queue) == ("g", QUEUE)
            del context.messages[1]

        def before_consume(self, context: ConsumeContext) -> None:
            seen.append(("before", [each.body for each in context.messages]))
            assert not context.success and not context.in_listener

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append(("after", [each.body for each in context.messages]))
            assert (context.success, context.status, context.error) == (True, "CONSUME_SUCCESS", None)

    await fill(lab, 3)
    async with PullConsumer("g", nameserver=lab.address, hooks=[Watch()]) as consumer:
        result = await consumer.pull(QUEUE, 0)
        assert seen == [("filter", [b"m0", b"m1", b"m2"]), ("before", [b"m0", b"m2"]), ("after", [b"m0", b"m2"])]
        assert [record.body for record in result.records] == [b"m0", b"m2"] and result.next_offset == 3
        assert (await consumer.pull(QUEUE, 3)).records == [] and len(seen) == 3, "nothing to see"


async def test_a_hook_may_come_at_any_time(lab: Lab) -> None:
    class Watch(Hook):
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def after_consume(self, context: ConsumeContext) -> None:
            self.seen += [each.body for each in context.messages]

    await fill(lab, 2)
    early, late = Watch(), Watch()
    consumer = PullConsumer("g", nameserver=lab.address)
    consumer.add_hook(early)
    async with consumer:
        await consumer.pull(QUEUE, 0, 1)
        consumer.add_hook(late)
        await consumer.pull(QUEUE, 1, 1)
    assert (early.seen, late.seen) == ([b"m0", b"m1"], [b"m1"])


async def test_pulled_messages_are_traced(lab: Lab) -> None:
    await fill(lab, 1)
    async with PullConsumer("g", nameserver=lab.address, trace="Traces") as consumer:
        (record,) = (await consumer.pull(QUEUE, 0)).records
    (found,) = await lab.puller.query_messages("Traces", record.unique_key or "")
    lines = [line.split("\x01") for line in found.body.decode()[:-1].split("\x02")]
    assert [(line[0], record.unique_key in line, "g" in line) for line in lines] == [
        ("SubBefore", True, True),
        ("SubAfter", True, True),
    ]
