"""Consuming the messages of each queue in their order, against a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

from eruca.client import Decision, Later, Message, MessageQueue, PushConsumer, ReceivedMessage, Suspend
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.push_consumer import PushConsumer as Consumer
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import BadConfig
from eruca.client.outcomes import Outcome
from tests.client.conftest import HASTY, Lab, Seen, eventually
from tests.support.scripted import Scripted

QUEUE = MessageQueue("T", "broker-a", 0)


async def fill(lab: Lab, count: int, *, queues: int = 4) -> None:
    """So many messages, numbered, in each of the first queues."""
    await lab.send("T", *[b"first"] * 4)
    for number in range(count):
        for queue in range(queues):
            body = b"%d" % number
            await lab.producer.send(Message("T", body), queue=MessageQueue("T", "broker-a", queue))


def orderly(lab: Lab, listener: Any, **settings: object) -> PushConsumer:
    given: dict[str, Any] = {"start_from": "first", "orderly": True, "suspend_time": 0.01, **settings}
    consumer = PushConsumer("g", listener, nameserver=lab.address, settings=HASTY, **given)
    return consumer.subscribe("T")


class Watch:
    """A listener that notes each queue's order, and whether two were at work on one."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.running: dict[MessageQueue, int] = defaultdict(int)
        self.most = 0
        self._lock = threading.Lock()

    def begin(self, queue: MessageQueue) -> None:
        with self._lock:
            self.running[queue] += 1
            self.most = max(self.most, self.running[queue])

    def end(self, queue: MessageQueue) -> None:
        with self._lock:
            self.running[queue] -= 1

    async def coroutine(self, message: ReceivedMessage) -> None:
        self.begin(message.queue)
        await asyncio.sleep(0)
        self.seen.add(message)
        self.end(message.queue)

    def function(self, message: ReceivedMessage) -> None:
        self.begin(message.queue)
        time.sleep(0.0005)
        self.seen.function(message)
        self.end(message.queue)

    def order(self, queue: int) -> list[bytes]:
        return [each.body for each in self.seen.messages if each.queue.queue_id == queue and each.body != b"first"]


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_each_queue_is_consumed_in_its_order(lab: Lab, kind: str) -> None:
    await fill(lab, 30)
    watch = Watch()
    async with orderly(lab, getattr(watch, kind)):
        await watch.seen.reaches(124)
    for queue in range(4):
        assert watch.order(queue) == [b"%d" % number for number in range(30)]
    assert watch.most == 1
    assert await lab.offsets("g", "T") == await lab.ends("T") == [31] * 4


async def test_lists_keep_the_order_too(lab: Lab) -> None:
    await fill(lab, 20, queues=1)
    lists: list[list[bytes]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        lists.append([each.body for each in messages])

    async with orderly(lab, listener, consume_message_batch_max_size=8):
        await eventually(lambda: sum(map(len, lists)) == 24)
    assert [body for bodies in lists for body in bodies if body != b"first"] == [b"%d" % n for n in range(20)]
    assert max(map(len, lists)) == 8


@pytest.mark.parametrize("failure", [ValueError("no"), Suspend(0.01), Suspend(), Later()])
async def test_a_message_that_fails_comes_again_before_all_others(lab: Lab, failure: Outcome | ValueError) -> None:
    await fill(lab, 5, queues=1)
    seen = Seen()

    async def listener(message: ReceivedMessage) -> Outcome:
        seen.add(message)
        if message.body == b"2" and message.reconsume_times < 3:
            if isinstance(failure, Exception):
                raise failure
            return failure
        return None

    async with orderly(lab, listener) as consumer:
        await seen.reaches(12)
        assert (engine_of(consumer).stats.consumed, engine_of(consumer).stats.failed) == (9, 3)
    tries = [(each.body, each.reconsume_times) for each in seen.messages if each.body != b"first"]
    assert tries == [
        (b"0", 0), (b"1", 0), (b"2", 0), (b"2", 1), (b"2", 2), (b"2", 3), (b"3", 0), (b"4", 0)
    ]  # fmt: skip
    assert (await lab.offsets("g", "T"))[0] == 6


async def test_a_suspended_queue_holds_up_no_other(lab: Lab) -> None:
    await fill(lab, 5, queues=2)
    seen = Seen()

    async def listener(message: ReceivedMessage) -> Outcome:
        seen.add(message)
        return Suspend(30.0) if message.queue.queue_id == 1 else None

    async with orderly(lab, listener, concurrency=1):
        await seen.reaches(9)
    assert [each.body for each in seen.messages if each.queue.queue_id == 0] == [
        b"first",
        *[b"%d" % n for n in range(5)],
    ]
    assert (await lab.offsets("g", "T"))[:2] == [6, 0]


async def test_what_fails_too_often_becomes_a_dead_letter_and_the_queue_goes_on(lab: Lab) -> None:
    await fill(lab, 3, queues=1)
    tried, dead = Seen(), Seen()

    async def listener(message: ReceivedMessage) -> None:
        tried.add(message)
        if message.body == b"1":
            raise ValueError("never")

    async with orderly(lab, listener, max_reconsume_times=2):
        await tried.reaches(9)
        async with PushConsumer("r", dead.coroutine, nameserver=lab.address, start_from="first").subscribe("%DLQ%g"):
            await dead.reaches(1)
    bodies = [each.body for each in tried.messages if each.body != b"first"]
    assert bodies == [b"0", b"1", b"1", b"1", b"2"]
    (letter,) = dead.messages
    assert letter.body == b"1" and letter.properties["RETRY_TOPIC"] == "T"
    assert await lab.offsets("g", "T") == [4, 1, 1, 1]


async def test_a_dead_letter_that_cannot_be_sent_is_tried_again(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    await lab.send("T", b"bad")
    lab.fill_disk()
    tried = Seen()

    async def listener(message: ReceivedMessage) -> Suspend:
        tried.add(message)
        return Suspend(0.01)

    async with orderly(lab, listener, max_reconsume_times=0):
        await tried.reaches(3)
        lab.fill_disk(full=False)
        await lab.stores("g", "T", [end or 0 for end in await lab.ends("T")])
    assert [each.reconsume_times for each in tried.messages][:3] == [0, 1, 2]
    assert "is no dead letter yet, retrying it here: " in caplog.text


async def test_commit_and_rollback_by_hand(lab: Lab) -> None:
    await fill(lab, 6, queues=1)
    seen = Seen()
    rolled_back = False

    async def listener(message: ReceivedMessage) -> Outcome:
        nonlocal rolled_back
        if message.queue != QUEUE or message.body == b"first":
            return Decision.COMMIT
        seen.add(message)
        if message.body == b"2" and not rolled_back:
            rolled_back = True
            return Decision.ROLLBACK
        return Decision.COMMIT if message.body == b"3" else None

    async with orderly(lab, listener, auto_commit=False) as consumer:
        await seen.reaches(9)
        await eventually(lambda: consumer.positions("T")[QUEUE] == 5)
    assert seen.bodies == [b"0", b"1", b"2", b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (await lab.offsets("g", "T"))[0] == 5  # 4 and 5 were consumed, but not committed
    again = Seen()
    async with orderly(lab, again.coroutine):
        await again.reaches(2)
    assert again.bodies == [b"4", b"5"]


async def test_uncommitted_messages_count_as_waiting(lab: Lab) -> None:
    """A listener that never commits is given no more than the limits."""
    await fill(lab, 20, queues=1)
    seen = Seen()
    async with orderly(lab, seen.coroutine, auto_commit=False, pull_batch_size=4, pull_threshold_for_queue=7):
        await seen.reaches(3 + 8)
        await asyncio.sleep(0.05)
        assert len([each for each in seen.messages if each.queue == QUEUE]) == 8


async def test_a_successor_has_the_queues_at_once(lab: Lab) -> None:
    """Locks are given back at a stop, and with each queue that another member is to have."""
    await fill(lab, 10)
    watch = Watch()
    async with orderly(lab, watch.coroutine) as first:
        await watch.seen.reaches(44)
        began = time.monotonic()
        async with orderly(lab, watch.coroutine) as second:
            await eventually(lambda: len(topic_queues(first)) == len(topic_queues(second)) == 2)
            assert not set(topic_queues(first)) & set(topic_queues(second))
            await first.stop()
            await eventually(lambda: len(topic_queues(second)) == 4)
            assert time.monotonic() - began < 8
            await fill(lab, 5)
            await watch.seen.reaches(44 + 24)
    assert [message.queue_offset for message in watch.seen.messages if message.queue == QUEUE] == list(range(17))
    assert watch.most == 1


def topic_queues(consumer: Consumer) -> list[MessageQueue]:
    return [queue for queue in consumer.queues if queue.topic == "T"]


async def test_a_queue_stays_while_its_listener_works(lab: Lab) -> None:
    """Another member gets the queue only when the listener of the first one has ended."""
    await fill(lab, 3)
    busy, release = Seen(), asyncio.Event()
    watch = Watch()

    async def slow(message: ReceivedMessage) -> None:
        watch.begin(message.queue)
        busy.add(message)
        await release.wait()
        watch.end(message.queue)

    async with orderly(lab, slow) as first:
        await busy.reaches(4)
        async with orderly(lab, watch.coroutine) as second:
            owner = engine_of(first).membership.processing
            assert isinstance(owner, Orderly)
            await eventually(lambda: sum(each.closed for each in owner.queues.values()) == 2)
            assert len(topic_queues(first)) == 4 and topic_queues(second) == []
            release.set()
            await eventually(lambda: len(topic_queues(second)) == 2)
            await watch.seen.reaches(2 * 3)
    assert watch.most == 1
    offsets = [each.queue_offset for each in watch.seen.messages]
    assert sorted(offsets) == [1, 1, 2, 2, 3, 3]


async def test_a_lost_lock_stops_the_queue_until_it_is_back(lab: Lab) -> None:
    await lab.send("T", *[b"first"] * 4)
    seen = Seen()
    async with orderly(lab, seen.coroutine) as consumer:
        await seen.reaches(4)
        locks = lab.cluster.broker.broker.locks
        owner = locks.owner("g", QUEUE, 0)
        assert owner is not None
        locks.unlock("g", [QUEUE], owner)
        assert locks.lock("g", [QUEUE], "a thief", lab.cluster.broker.broker.monotonic()) == [QUEUE]
        processing = engine_of(consumer).membership.processing
        assert isinstance(processing, Orderly)
        await processing.renew_locks()
        assert not processing.held(QUEUE) and processing.held(MessageQueue("T", "broker-a", 1))
        await lab.producer.send(Message("T", b"later"), queue=QUEUE)
        await lab.producer.send(Message("T", b"other"), queue=MessageQueue("T", "broker-a", 1))
        await seen.reaches(5)
        assert seen.bodies[-1] == b"other"
        locks.unlock("g", [QUEUE], "a thief")
        await processing.renew_locks()
        await seen.reaches(6)
    assert seen.bodies[-1] == b"later"


async def test_a_member_that_lost_a_lock_goes_on_behind_its_successor(lab: Lab) -> None:
    """What the successor consumed does not come again, and its offset is not put back."""
    await fill(lab, 10, queues=1)
    seen, go_on = Seen(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        if message.body == b"2":
            await go_on.wait()

    async with orderly(lab, listener, offset_interval=0.05) as consumer:
        await eventually(lambda: b"2" in seen.bodies)
        broker = lab.cluster.broker.broker
        owner = broker.locks.owner("g", QUEUE, broker.monotonic())
        assert owner is not None
        broker.locks.unlock("g", [QUEUE], owner)
        broker.locks.lock("g", [QUEUE], "a successor", broker.monotonic())
        processing = engine_of(consumer).membership.processing
        assert isinstance(processing, Orderly)
        await processing.renew_locks()
        broker.offsets.commit("g", "T", 0, 8)
        go_on.set()
        await eventually(lambda: not processing.queues[QUEUE].running)
        broker.locks.unlock("g", [QUEUE], "a successor")
        await eventually(lambda: b"9" in seen.bodies)
    assert [each for each in seen.bodies if each != b"first"] == [b"0", b"1", b"2", b"7", b"8", b"9"]
    assert (await lab.offsets("g", "T"))[0] == 11


async def test_a_queue_that_cannot_be_begun_is_left_to_others(server: Scripted) -> None:
    server.refused_codes.add(14)
    async with PushConsumer("g", nameserver=server.address, orderly=True).subscribe("T") as consumer:
        assert consumer.queues == [] and server.locked == server.unlocked == [[QUEUE]]


async def test_a_queue_that_another_one_holds_is_waited_for(lab: Lab) -> None:
    await lab.send("T", *[b"first"] * 4)
    seen = Seen()
    broker = lab.cluster.broker.broker
    broker.locks.lock("g", [QUEUE], "another", broker.monotonic())
    async with orderly(lab, seen.coroutine) as consumer:
        await seen.reaches(3)
        assert QUEUE not in consumer.queues
        broker.locks.unlock("g", [QUEUE], "another")
        await seen.reaches(4)


async def test_a_reset_waits_for_the_listener(lab: Lab) -> None:
    """The new run of a queue begins, but its first message comes after the old listener has ended."""
    await fill(lab, 3, queues=1)
    watch, release, busy = Watch(), asyncio.Event(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        watch.begin(message.queue)
        watch.seen.add(message)
        if message.body == b"2" and not busy.is_set():
            busy.set()
            await release.wait()
        watch.end(message.queue)

    async with orderly(lab, listener) as consumer:
        await busy.wait()
        await watch.seen.reaches(7)
        engine_of(consumer).membership.reset("T", {QUEUE: 1})
        await lab.stores("g", "T", [1, 1, 1, 1])
        release.set()
        await watch.seen.reaches(10)
    assert [each.body for each in watch.seen.messages if each.queue == QUEUE][1:] == [b"0", b"1", b"2"] * 2
    assert watch.most == 1
    assert await lab.offsets("g", "T") == [4, 1, 1, 1]


async def test_a_loop_takes_them_in_order(lab: Lab) -> None:
    await fill(lab, 5, queues=1)
    bodies = []
    failed = False
    async with orderly(lab, None) as consumer:
        async for message in consumer.messages(auto_ack=False):
            if message.body == b"2" and not failed:
                failed = True
                message.later()
                continue
            bodies.append(message.body)
            message.ack()
            if len(bodies) == 9:
                break
    assert [body for body in bodies if body != b"first"] == [b"0", b"1", b"2", b"3", b"4"]


async def test_wrong_use_is_told(lab: Lab) -> None:
    with pytest.raises(BadConfig, match="auto_commit=False is for orderly consumers"):
        PushConsumer("g", nameserver=lab.address, auto_commit=False)  # type: ignore[call-overload]
    with pytest.raises(BadConfig, match="suspend_time=0"):
        orderly(lab, None, suspend_time=0)


async def test_an_outcome_of_the_other_kind_counts_as_a_failure(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    await lab.send("T", b"x")
    seen = Seen()

    async def listener(message: ReceivedMessage) -> Suspend:
        seen.add(message)
        return Suspend()

    wrong: Any = listener
    async with PushConsumer("g", wrong, nameserver=lab.address, start_from="first").subscribe("T"):
        await eventually(lambda: "A listener returns None, Later() or Reject(), not Suspend: look at " in caplog.text)
    assert (
        "not Suspend: look at test_an_outcome_of_the_other_kind_counts_as_a_failure.<locals>.listener." in caplog.text
    )
