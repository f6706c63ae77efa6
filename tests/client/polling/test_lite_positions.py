"""Polling on from elsewhere: seeks, resets, brokers that come and go."""

from __future__ import annotations

import asyncio
import time

import pytest

from eruca.client import ClientSettings, LitePullConsumer, Message, MessageQueue, Producer
from eruca.client.errors import BrokerRefused, StateError, TopicNotFound, UsageError
from eruca.client.polling.lite_pull_consumer import membership_of
from eruca.protocol import api
from eruca.protocol.bodies import ResetOffsetBody
from eruca.protocol.headers.offsets import ResetOffset
from eruca.protocol.headers.pull import PullReply
from eruca.remoting.clock import now_ms
from tests.client.conftest import Lab, eventually
from tests.client.polled import ONE, QUEUES, bodies, fill, lite, poll
from tests.support.scripted import Scripted


async def test_seeking(lab: Lab) -> None:
    await fill(lab, 50)
    async with lite(lab).subscribe("T") as consumer:
        await poll(consumer, 20)
        await consumer.seek(ONE, 5)
        assert bodies(await poll(consumer, 10))[:3] == [5, 6, 7]
        await consumer.seek_to_begin(ONE)
        assert bodies(await consumer.poll()) == list(range(10))
        await consumer.seek_to_end(ONE)
        assert await consumer.poll(0.1) == []
        await fill(lab, 1, start=50)
        assert bodies(await poll(consumer, 1)) == [50]
        with pytest.raises(UsageError, match="Seek offset illegal, seek offset = 52, min offset = 0, max offset = 51"):
            await consumer.seek(ONE, 52)
        with pytest.raises(StateError, match="not in assigned list, may be rebalancing, message queue: MessageQueue"):
            await consumer.seek(MessageQueue("U", "broker-a", 0), 0)


async def test_a_seek_moves_the_committed_offset(lab: Lab) -> None:
    await fill(lab, 20)
    async with lite(lab, auto_commit_interval=1.0).subscribe("T") as consumer:
        await poll(consumer, 20)
        await consumer.seek(ONE, 5)
        await lab.stores("g", "T", [5, 0, 0, 0])


async def test_seeking_in_assigned_queues_at_once(lab: Lab) -> None:
    await fill(lab, 20)
    async with lite(lab) as consumer:
        consumer.assign([ONE])
        await consumer.seek(ONE, 15)
        assert bodies(await poll(consumer, 5)) == [15, 16, 17, 18, 19]
        with pytest.raises(StateError, match=r"The message queue is not in assigned list, message queue: MessageQueue"):
            await consumer.seek(QUEUES[1], 0)


async def test_a_seek_forgets_the_pull_under_way(lab: Lab) -> None:
    await fill(lab, 3)
    async with lite(lab).subscribe("T") as consumer:
        for offset in (2, 0, 1, 2, 0, 1, 2):
            await consumer.seek(ONE, offset)
        assert bodies(await consumer.poll()) == [2]
        await fill(lab, 1, start=3)
        assert bodies(await poll(consumer, 1)) == [3]


async def test_an_interval_by_time(lab: Lab) -> None:
    await fill(lab, 10)
    await asyncio.sleep(0.005)  # a moment that lies between two store times
    middle = time.time_ns() // 1_000_000
    await asyncio.sleep(0.005)
    await fill(lab, 10, start=10)
    async with lite(lab) as consumer:
        consumer.assign([ONE])
        offset = await consumer.offset_for_timestamp(ONE, middle)
        assert offset in (9, 10)
        await consumer.seek(ONE, offset)
        assert bodies(await poll(consumer, 20 - offset)) == list(range(offset, 20))


async def test_a_pause_stops_pulls_but_not_what_was_pulled(lab: Lab) -> None:
    await fill(lab, 5)
    async with lite(lab, broker_suspend_max_time=0.1).subscribe("T") as consumer:
        await poll(consumer, 5)
        consumer.pause([ONE])
        rebalance = membership_of(consumer).rebalance
        assert rebalance is not None
        reader = rebalance.readers[ONE]
        await eventually(lambda: now_ms() - reader.last_pull > 1000)  # the pull that the broker held is over
        await fill(lab, 5, start=5)
        assert await consumer.poll(0.3) == []
        consumer.resume([ONE])
        assert bodies(await poll(consumer, 5)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("auto_commit", "assigned"), [(True, False), (False, False), (True, True)])
async def test_a_reset_by_mqadmin_is_felt(lab: Lab, auto_commit: bool, assigned: bool) -> None:
    await fill(lab, 20)
    consumer = lite(lab, auto_commit=auto_commit)
    if assigned:
        consumer.assign(QUEUES)
    else:
        consumer.subscribe("T")
    async with consumer:
        await poll(consumer, 20)
        await consumer.commit_sync()
        session = lab.puller.session
        answer = await session.call(
            await session.master("broker-a", "T"),
            api.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffset(topic="T", group="g", timestamp=0, is_force=True),
        )
        assert ResetOffsetBody.decode(answer.body).offset_table[ONE] == 0
        assert bodies(await poll(consumer, 20)) == list(range(20))
        assert await consumer.committed(ONE) in (0, 10)


@pytest.fixture
def server(server: Scripted) -> Scripted:
    server.bounds = {"min": 0, "max": 90, "time": 50}
    server.committed["g", "T", 0] = 10
    return server


async def test_how_a_pull_asks(server: Scripted) -> None:
    async with LitePullConsumer("g", nameserver=server.address).subscribe("T", "A || B"):
        await eventually(lambda: len(server.pulls) == 1)
    (pull,) = server.pulls
    assert (pull.queue_offset, pull.max_msg_nums, pull.sys_flag, pull.commit_offset) == (10, 10, 22, 0)
    assert (pull.subscription, pull.sub_version, pull.suspend_timeout_millis) == ("A || B", 0, 20_000)


async def test_a_broker_that_names_another_offset_is_followed(server: Scripted) -> None:
    """10 was deleted; then a broker of RocketMQ 5 was reset, and says so in its answer to a pull inside the queue."""
    server.moved.append(PullReply(suggest_which_broker_id=0, next_begin_offset=20, min_offset=20, max_offset=90))
    server.moved.append(PullReply(suggest_which_broker_id=0, next_begin_offset=50, min_offset=20, max_offset=90))
    async with LitePullConsumer("g", nameserver=server.address, auto_commit=False).subscribe("T"):
        await eventually(lambda: [pull.queue_offset for pull in server.pulls] == [10, 20, 50])
        assert server.committed["g", "T", 0] == 50  # a reset is stored; what was deleted ahead moves no offset


async def test_a_commit_that_the_broker_refuses_is_told(server: Scripted) -> None:
    async with LitePullConsumer("g", nameserver=server.address, auto_commit=False).subscribe("T") as consumer:
        server.refused_codes.add(15)
        with pytest.raises(BrokerRefused, match="not now"):
            await consumer.commit_sync({ONE: 11})
        await consumer.commit_sync({ONE: 12}, persist=False)
        server.refused_codes.clear()
    assert server.committed["g", "T", 0] == 12


async def test_nameservers_may_be_replaced(server: Scripted) -> None:
    async with Scripted() as other, LitePullConsumer("g", nameserver=server.address).subscribe("T") as consumer:
        other.knows("New", server)
        with pytest.raises(TopicNotFound):
            await consumer.fetch_queues("New")
        await consumer.update_nameserver_address(other.address)
        assert len(await consumer.fetch_queues("New")) == 1


async def test_a_restarted_broker_is_pulled_again(lab: Lab) -> None:
    await fill(lab, 5)
    settings = ClientSettings(route_interval=0.2)
    async with lite(lab, settings=settings, pull_time_delay_when_exception=0.05).subscribe("T") as consumer:
        await poll(consumer, 5)
        await consumer.commit_sync()
        await lab.restart_broker()
        await lab.producer.fetch_queues("T")  # where it is now
        await fill(lab, 1, start=5)
        assert bodies(await poll(consumer, 1)) == [5]


async def test_names_of_a_namespace(lab: Lab) -> None:
    settings = ClientSettings(namespace="tenant")
    async with Producer("p", nameserver=lab.address, settings=settings) as producer:
        await producer.create_topic("T", 1)
        sent = await producer.send(Message("T", b"m0", keys="k"))
        async with lite(lab, settings=settings).subscribe("T") as consumer:
            (message,) = await poll(consumer, 1)
            assert (message.topic, message.queue) == ("T", ONE)
            await consumer.commit_sync()
            for found in (
                *await consumer.query_messages("T", "k"),
                await consumer.view_message(sent.message_id, topic="T"),
                await consumer.view_message(sent.offset_message_id),
            ):
                assert (found.topic, found.queue.topic, found.body) == ("T", "T", b"m0")
    assert await lab.puller.query_offset(MessageQueue("tenant%T", "broker-a", 0), group="tenant%g") == 1
