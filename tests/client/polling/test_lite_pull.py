"""Polling as a member of a group: who gets what, and what counts as consumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from eruca.client import ClientSettings, Hook, LitePullConsumer, Message, MessageQueue
from eruca.client.errors import BadConfig, BadName, StateError, UsageError
from eruca.client.hooks import ConsumeContext, FilterContext
from eruca.client.polling.lite_pull_consumer import membership_of
from eruca.protocol.bodies import ConsumerRunningInfo
from eruca.protocol.errors import Refused
from tests.client.conftest import Lab, eventually
from tests.client.polled import ONE, QUEUES, bodies, fill, lite, poll, waiting

# ---------------------------------------------------------------------- polling


async def test_a_subscriber_polls_everything_in_the_order_of_each_queue(lab: Lab) -> None:
    for queue in QUEUES:
        await fill(lab, 25, queue)
    async with lite(lab).subscribe("T") as consumer:
        got = await poll(consumer, 100)
        assert max(len(batch) for batch in [await consumer.poll(0)]) == 0
        assert consumer.assignment() == frozenset(QUEUES)
    for queue in QUEUES:
        assert bodies([each for each in got if each.queue == queue]) == list(range(25))


async def test_one_poll_gives_one_pull_of_one_queue(lab: Lab) -> None:
    await fill(lab, 25)
    async with lite(lab, pull_batch_size=10).subscribe("T") as consumer:
        sizes = [len(await consumer.poll()) for _ in range(3)]
    assert sizes == [10, 10, 5]


async def arrived(consumer: LitePullConsumer, count: int) -> None:
    """Wait until these can be polled at once: a pull is handed over in the next turn of the loop."""
    await eventually(lambda: waiting(consumer) == count)
    await asyncio.sleep(0)


async def test_one_poll_gathers_what_has_arrived_of_all_queues(lab: Lab) -> None:
    for queue in QUEUES:
        await fill(lab, 9, queue)
    async with lite(lab, pull_batch_size=1).subscribe("T") as consumer:
        await arrived(consumer, 36)
        first = await consumer.poll(max_messages=30)
        second = await consumer.poll(0, max_messages=30)
        assert (len(first), len(second)) == (30, 6)
        assert await consumer.poll(0, max_messages=30) == []
        await consumer.commit_sync()
    for queue in QUEUES:
        assert bodies([each for each in first + second if each.queue == queue]) == list(range(9))
    assert await lab.offsets("g", "T") == [9] * 4


async def test_gathered_messages_come_again_until_they_are_committed(lab: Lab) -> None:
    await fill(lab, 9)
    async with lite(lab, pull_batch_size=2).subscribe("T") as consumer:
        await arrived(consumer, 9)
        assert len(await consumer.poll(max_messages=4)) == 4
        assert len(await consumer.poll(max_messages=100)) == 5
    assert (await lab.offsets("g", "T"))[0] == 4


async def test_a_poll_waits_and_then_gives_nothing(lab: Lab) -> None:
    await fill(lab, 1)
    async with lite(lab, poll_timeout=0.1).subscribe("T") as consumer:
        assert len(await poll(consumer, 1)) == 1
        assert await consumer.poll() == []
        waiting = asyncio.create_task(consumer.poll(20))
        await fill(lab, 1, start=1)
        assert bodies(await waiting) == [1]


async def test_tags_and_sql_choose(lab: Lab) -> None:
    await fill(lab, 5, tags="A")
    await fill(lab, 5, start=5, tags="B")
    async with lite(lab).subscribe("T", "B") as consumer:
        assert bodies(await poll(consumer, 5)) == [5, 6, 7, 8, 9]
    with pytest.raises(UsageError, match="NULL cannot be compared"):
        lite(lab).subscribe("T", "a = NULL", expression_type="SQL92")


async def test_members_share_the_queues_and_hand_them_on(lab: Lab) -> None:
    for queue in QUEUES:
        await fill(lab, 5, queue)
    told: list[tuple[str, int, int]] = []

    def listener(topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        told.append((topic, len(queues), len(mine)))

    async with lite(lab).subscribe("T", listener=listener) as first:
        await eventually(lambda: told == [("T", 4, 4)])
        async with lite(lab).subscribe("T") as second:
            await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert first.assignment() | second.assignment() == frozenset(QUEUES)
            await eventually(lambda: told == [("T", 4, 4), ("T", 4, 2)])
            await asyncio.gather(poll(first, 10), poll(second, 10))
            await second.commit_sync()
        await eventually(lambda: len(first.assignment()) == 4)
        assert await first.poll(0.2) == []


async def test_everybody_gets_everything_when_broadcasting(lab: Lab, tmp_path: Path) -> None:
    await fill(lab, 5)

    def member(name: str) -> LitePullConsumer:
        settings = ClientSettings(instance_name=name)
        return lite(lab, broadcast=True, offset_folder=tmp_path, settings=settings).subscribe("T")

    async with member("a") as first, member("b") as second:
        assert bodies(await poll(first, 5)) == bodies(await poll(second, 5)) == [0, 1, 2, 3, 4]
        await first.commit_sync()
    async with member("a") as first, member("b") as second:
        assert await first.poll(0.2) == []
        assert bodies(await poll(second, 5)) == [0, 1, 2, 3, 4]


# ---------------------------------------------------------------------- assigned queues


async def test_assigned_queues_are_read_by_whoever_names_them(lab: Lab) -> None:
    for queue in QUEUES:
        await fill(lab, 2, queue)
    consumer = lite(lab)
    consumer.assign(QUEUES[:2])
    async with consumer, lite(lab) as other:
        other.assign(QUEUES[:2])
        assert {each.queue for each in await poll(consumer, 4)} == set(QUEUES[:2])
        assert {each.queue for each in await poll(other, 4)} == set(QUEUES[:2])
        consumer.assign(QUEUES[1:3])
        assert consumer.assignment() == frozenset(QUEUES[1:3])
        assert {each.queue for each in await poll(consumer, 2)} == {QUEUES[2]}
        await fill(lab, 1, QUEUES[0])
        await fill(lab, 1, QUEUES[1])
        assert {each.queue for each in await poll(consumer, 1)} == {QUEUES[1]}
        assert (
            membership_of(consumer).topics() == {"T"} and membership_of(consumer).describe().subscription_data_set == []
        )


async def test_assigned_queues_may_be_filtered_by_tag(lab: Lab) -> None:
    await fill(lab, 2, tags="A")
    await fill(lab, 2, start=2, tags="B")
    consumer = lite(lab)
    consumer.set_sub_expression_for_assign("T", "B")
    consumer.assign([ONE])
    async with consumer:
        assert bodies(await poll(consumer, 2)) == [2, 3]
        with pytest.raises(StateError, match="setAssignTag only can be called before start"):
            consumer.set_sub_expression_for_assign("T", "A")


async def test_a_queue_that_is_not_assigned_any_more_is_not_polled(lab: Lab) -> None:
    await fill(lab, 5)
    consumer = lite(lab)
    consumer.assign([ONE])
    async with consumer:
        await eventually(lambda: waiting(consumer) > 0)
        consumer.assign([QUEUES[1]])
        assert await consumer.poll(0.1) == []


# ---------------------------------------------------------------------- what counts as consumed


@pytest.mark.slow
async def test_asking_for_more_commits_what_came_before(lab: Lab) -> None:
    await fill(lab, 10)
    async with lite(lab, pull_batch_size=5, auto_commit_interval=1.0).subscribe("T") as consumer:
        assert bodies(await consumer.poll()) == [0, 1, 2, 3, 4]
        assert bodies(await consumer.poll()) == [5, 6, 7, 8, 9]
        await lab.stores("g", "T", [5, 0, 0, 0])
        await consumer.poll(0)
        await lab.stores("g", "T", [10, 0, 0, 0])


async def test_what_was_handed_out_last_comes_again_after_a_stop(lab: Lab) -> None:
    await fill(lab, 10)
    async with lite(lab, pull_batch_size=5).subscribe("T") as consumer:
        await consumer.poll()
        await consumer.poll()
    assert await lab.offsets("g", "T") == [5, 0, 0, 0]
    async with lite(lab).subscribe("T") as consumer:
        assert bodies(await poll(consumer, 5)) == [5, 6, 7, 8, 9]


async def test_a_loop_commits_each_message_when_the_next_is_asked_for(lab: Lab) -> None:
    await fill(lab, 10)
    with pytest.raises(ZeroDivisionError):
        async with lite(lab).subscribe("T") as consumer:
            async for message in consumer:
                1 // (int(message.body[1:]) - 7)
    assert await lab.offsets("g", "T") == [7, 0, 0, 0]  # the one that failed comes again
    batches = []
    async with lite(lab, pull_batch_size=2).subscribe("T") as consumer:
        async for batch in consumer.batches():
            batches.append(bodies(batch))
            if batches[-1][-1] == 9:
                await consumer.commit_sync()
                break
    assert batches == [[7, 8], [9]]
    assert await lab.offsets("g", "T") == [10, 0, 0, 0]


async def test_who_waits_may_give_up_and_ask_again(lab: Lab) -> None:
    await fill(lab, 1)
    async with lite(lab, start_from="end").subscribe("T") as consumer:
        iterations = aiter(consumer), consumer.batches()
        for _ in range(3):
            for waiting in (*map(anext, iterations), consumer.poll(10)):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting, 0.02)
        await eventually(lambda: bool(consumer.assignment()))
        first, second = iterations
        for number in range(0, 9, 3):
            await fill(lab, 3, start=number)
            seen = [await anext(first)]
            while len(seen) < 2:
                seen += await anext(second)
            while len(seen) < 3:
                seen += await consumer.poll(1)
            assert bodies(seen) == [number, number + 1, number + 2]
        await consumer.commit_sync()
    assert (await lab.offsets("g", "T"))[0] == 10


async def test_a_stop_ends_loops_and_polls(lab: Lab) -> None:
    await fill(lab, 1)
    consumer = lite(lab).subscribe("T")
    await consumer.start()
    assert consumer.is_running

    async def loop() -> list[bytes]:
        return [message.body async for message in consumer]

    looping, polling = asyncio.create_task(loop()), asyncio.create_task(consumer.poll(60))
    await eventually(lambda: looping.done() or polling.done() or not waiting(consumer))
    await consumer.stop()
    got = [*await looping, *(message.body for message in await polling)]
    assert got in ([b"m0"], []) and not consumer.is_running
    await consumer.stop()
    with pytest.raises(StateError, match="The consumer was stopped"):
        await consumer.poll()


async def test_a_poll_without_a_source_is_an_error(lab: Lab) -> None:
    """It would be empty for ever; a source may come after the start."""
    await fill(lab, 1)
    async with lite(lab) as consumer:
        with pytest.raises(UsageError, match=r"call subscribe\(topic\) or assign\(queues\) first"):
            await consumer.poll(0)
        for source in (consumer.batches, consumer.messages):
            with pytest.raises(UsageError, match="Nothing is subscribed"):
                source()
        consumer.subscribe("T")
        assert bodies(await poll(consumer, 1)) == [0]


async def test_commits_by_hand(lab: Lab) -> None:
    await fill(lab, 10)
    async with lite(lab, auto_commit=False, pull_batch_size=5).subscribe("T") as consumer:
        await poll(consumer, 10)
        assert await consumer.committed(ONE) in (None, 0)
        await consumer.commit_sync({ONE: 3})
        assert (await lab.offsets("g", "T"))[0] == 3 == await consumer.committed(ONE)
        await consumer.commit([ONE])
        assert (await lab.offsets("g", "T"))[0] == 10
        await consumer.commit_sync({ONE: 4}, persist=False)
        assert await consumer.committed(ONE) == 4 and (await lab.offsets("g", "T"))[0] == 10
        await consumer.commit_sync()
        with pytest.raises(StateError, match="The message queue is not in assigned list, may be rebalancing, message"):
            await consumer.commit_sync({MessageQueue("U", "broker-a", 0): 1})
        with pytest.raises(UsageError, match="offset=-1: a whole number of 0 or more is expected"):
            await consumer.commit_sync({ONE: -1})
    assert (await lab.offsets("g", "T"))[0] == 10


async def test_nothing_is_stored_that_was_not_committed_by_hand(lab: Lab) -> None:
    await fill(lab, 10)
    async with lite(lab, auto_commit=False).subscribe("T") as consumer:
        await poll(consumer, 10)
    async with lite(lab, auto_commit=False).subscribe("T") as consumer:
        assert bodies(await poll(consumer, 10)) == list(range(10))


async def test_messages_that_the_filter_passes_over_move_the_offset_too(lab: Lab) -> None:
    await fill(lab, 10, tags="A")
    async with lite(lab, auto_commit_interval=1.0).subscribe("T", "B") as consumer:
        assert await consumer.poll(0.1) == []
        await lab.stores("g", "T", [10, 0, 0, 0])


# ---------------------------------------------------------------------- thresholds


@pytest.mark.parametrize(
    "limit",
    [{"pull_threshold_for_queue": 20}, {"pull_threshold_for_all": 20}, {"consume_max_span": 20}],
)
async def test_what_waits_is_bounded(lab: Lab, limit: dict[str, Any]) -> None:
    await fill(lab, 100)
    async with lite(lab, **limit).subscribe("T") as consumer:
        await eventually(lambda: waiting(consumer) >= 21)
        await asyncio.sleep(0.3)
        assert 20 < waiting(consumer) <= 40
        assert bodies(await poll(consumer, 100)) == list(range(100))


# ---------------------------------------------------------------------- what others learn, and wrong use


class Looking(Hook):
    """Sees what is handed out, and takes out what nobody shall see."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def filter_messages(self, context: FilterContext) -> None:
        context.messages = [each for each in context.messages if each.body != b"m3"]

    def before_consume(self, context: ConsumeContext) -> None:
        self.seen.append(f"begin {len(context.messages)}")

    def after_consume(self, context: ConsumeContext) -> None:
        self.seen.append(f"end {len(context.messages)} {context.status} {context.in_listener}")


async def test_hooks_see_what_is_handed_out(lab: Lab) -> None:
    await fill(lab, 5)
    looking = Looking()
    consumer = lite(lab).subscribe("T")
    consumer.add_hook(looking)
    async with consumer:
        assert bodies(await consumer.poll()) == [0, 1, 2, 4]
        assert looking.seen == ["begin 4"]
        await consumer.poll(0)
        assert looking.seen == ["begin 4", "end 4 CONSUME_SUCCESS False"]
        await fill(lab, 1, start=5)
        await poll(consumer, 1)
        await consumer.commit_sync()
        assert looking.seen[2:] == ["begin 1", "end 1 CONSUME_SUCCESS False"]


async def test_what_is_polled_is_traced(lab: Lab) -> None:
    sent = await lab.producer.send(Message("T", b"m0"), queue=ONE)
    async with lite(lab, trace="Traces").subscribe("T") as consumer:
        await poll(consumer, 1)
        await consumer.commit_sync()
    traces = await lab.puller.query_messages("Traces", sent.message_id)
    text = b"".join(each.body for each in traces).decode()
    assert [line.split("\x01")[0] for line in text.split("\x02") if line] == ["SubBefore", "SubAfter"]


async def test_a_listener_is_told_of_new_queues(lab: Lab) -> None:
    await fill(lab, 1)
    told: list[tuple[str, int]] = []

    async def listener(topic: str, queues: list[MessageQueue]) -> None:
        told.append((topic, len(queues)))

    async with lite(lab, topic_metadata_check_interval=0.05).subscribe("T") as consumer:
        await consumer.register_topic_message_queue_change_listener("T", listener)
        await consumer.register_topic_message_queue_change_listener("Later", listener)
        await consumer.create_topic("Later", 3)
        await eventually(lambda: ("Later", 3) in told)
        await consumer.create_topic("T", 6, if_exists="change")
        await eventually(lambda: ("T", 6) in told)
        assert len(told) == 2


async def test_what_operators_see(lab: Lab) -> None:
    await fill(lab, 5)
    async with lite(lab).subscribe("T") as consumer:
        await poll(consumer, 5)
        data = membership_of(consumer).describe()
        assert (data.consume_type, data.message_model, data.group_name) == ("CONSUME_ACTIVELY", "CLUSTERING", "g")
        assert [each.topic for each in data.subscription_data_set] == ["T"]
        info = ConsumerRunningInfo.decode((await membership_of(consumer).running_info(True)).encode())
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert (info.properties["pullBatchSize"], info.properties["autoCommit"]) == ("10", "true")
        assert set(info.mq_table) == set(QUEUES) and info.jstack
        with pytest.raises(Refused, match="The Consumer Group <g> not exist in this consumer"):
            await membership_of(consumer).consume_directly(None, "broker-a")  # type: ignore[arg-type]


async def test_wrong_use_is_told(lab: Lab) -> None:
    consumer = lite(lab).subscribe("T")
    with pytest.raises(StateError, match="Subscribe and assign are mutually exclusive"):
        consumer.assign([ONE])
    with pytest.raises(StateError, match="The consumer not running, please start it first"):
        await consumer.poll()
    with pytest.raises(UsageError, match="Topic can not be null or empty"):
        consumer.subscribe("")
    with pytest.raises(UsageError, match="Message queues can not be null or empty"):
        lite(lab).assign([])
    with pytest.raises(UsageError, match="subExpression can not be null or empty"):
        lite(lab).set_sub_expression_for_assign("T", " ")
    async with consumer:
        with pytest.raises(UsageError, match="Timeout must not be negative"):
            await consumer.poll(-1)
        with pytest.raises(StateError, match="The PullConsumer service state not OK, maybe started once"):
            await consumer.start()
        with pytest.raises(BadName, match="conflict with system topic"):
            await consumer.create_topic("TBW102")
    with pytest.raises(BadConfig, match=r"auto_commit_interval=0.5 is not allowed: 1 or more seconds"):
        lite(lab, auto_commit_interval=0.5)
    with pytest.raises(BadConfig, match="must greater than brokerSuspendMaxTimeMillis"):
        lite(lab, broker_suspend_max_time=30.0)
    with pytest.raises(BadConfig, match="pull_batch_size=0 is not allowed"):
        lite(lab, pull_batch_size=0)
    with pytest.raises(BadConfig, match="add broadcast=True"):
        lite(lab, offset_folder="x")
