"""Consuming in the order of each key, different keys at once, against a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from typing import Any

import pytest

from eruca.client import Message, MessageQueue, PushConsumer, ReceivedMessage, Suspend
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import BadConfig, UsageError
from eruca.client.outcomes import Outcome
from tests.client.conftest import HASTY, Lab, Seen, eventually

QUEUE = MessageQueue("T", "broker-a", 0)


def first_key(message: ReceivedMessage) -> str:
    return message.keys[0]


def by_key(lab: Lab, listener: Any, **options: Any) -> PushConsumer:
    given: dict[str, Any] = {"start_from": "first", "ordered_by": first_key, "suspend_time": 0.01, **options}
    return PushConsumer("g", listener, nameserver=lab.address, settings=HASTY, **given).subscribe("T")


async def fill(lab: Lab, *keys: str) -> None:
    """A message of each key to the first queue; bodies number those of a key."""
    await lab.producer.create_topic("T", 1)
    counts: Counter[str] = Counter()
    for key in keys:
        await lab.producer.send(Message("T", b"%s%d" % (key.encode(), counts[key]), keys=key), queue=QUEUE)
        counts[key] += 1


class Watch:
    """A listener that notes the order of each key, and how many calls ran at once."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.running: Counter[str] = Counter()
        self.most_of_a_key = self.most = 0
        self._lock = threading.Lock()

    def begin(self, key: str) -> None:
        with self._lock:
            self.running[key] += 1
            self.most_of_a_key = max(self.most_of_a_key, self.running[key])
            self.most = max(self.most, self.running.total())

    def end(self, key: str) -> None:
        with self._lock:
            self.running[key] -= 1

    async def coroutine(self, message: ReceivedMessage) -> None:
        self.begin(first_key(message))
        await asyncio.sleep(0.005)
        self.seen.add(message)
        self.end(first_key(message))

    def function(self, message: ReceivedMessage) -> None:
        self.begin(first_key(message))
        time.sleep(0.005)
        self.seen.function(message)
        self.end(first_key(message))

    def orders(self) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = defaultdict(list)
        for each in self.seen.messages:
            found[first_key(each)].append(each.body)
        return found


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_each_key_keeps_its_order_and_all_keys_run_at_once(lab: Lab, kind: str) -> None:
    keys = [f"k{number}-" for number in range(10)]
    await fill(lab, *keys * 6)
    watch = Watch()
    async with by_key(lab, getattr(watch, kind), concurrency=10):
        await watch.seen.reaches(60)
    assert watch.orders() == {key: [b"%s%d" % (key.encode(), number) for number in range(6)] for key in keys}
    assert (watch.most_of_a_key, watch.most) == (1, 10)
    assert await lab.offsets("g", "T") == [60]


async def test_offsets_pass_only_what_is_wholly_done(lab: Lab) -> None:
    await fill(lab, *"abcb")
    seen, stuck = Seen(), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"a0":
            await stuck.wait()
        seen.add(message)

    async with by_key(lab, listener, offset_interval=0.02):
        await seen.reaches(3)
        assert await lab.offsets("g", "T") == [0]
        stuck.set()
        await lab.stores("g", "T", [4])
    assert sorted(seen.bodies) == [b"a0", b"b0", b"b1", b"c0"]


async def test_a_key_that_fails_holds_up_itself_only(lab: Lab) -> None:
    await fill(lab, *"abaabb")
    seen = Seen()

    async def listener(message: ReceivedMessage) -> Outcome:
        seen.add(message)
        if message.body == b"a0" and message.reconsume_times < 2:
            if message.reconsume_times:
                return Suspend(0.05)
            raise ValueError("no")
        return None

    async with by_key(lab, listener, concurrency=5):
        await seen.reaches(8)
    tries = [(each.body, each.reconsume_times) for each in seen.messages]
    assert [each for each in tries if each[0].startswith(b"a")] == [
        *((b"a0", times) for times in range(3)), (b"a1", 0), (b"a2", 0)
    ]  # fmt: skip
    assert [body for body, _ in tries if body.startswith(b"b")] == [b"b0", b"b1", b"b2"]
    assert tries.index((b"b2", 0)) < tries.index((b"a0", 2))


async def test_what_fails_too_often_becomes_a_dead_letter_and_its_key_goes_on(lab: Lab) -> None:
    await fill(lab, *"aaab")
    tried, dead = Seen(), Seen()

    async def listener(message: ReceivedMessage) -> None:
        tried.add(message)
        if message.body == b"a1":
            raise ValueError("always")

    async with by_key(lab, listener, max_reconsume_times=2):
        await tried.reaches(6)
        await lab.stores("g", "T", [4])
    assert [each.body for each in tried.messages if first_key(each) == "a"] == [b"a0", b"a1", b"a1", b"a1", b"a2"]
    async with PushConsumer(
        "undertaker", dead.coroutine, nameserver=lab.address, settings=HASTY, start_from="first"
    ).subscribe("%DLQ%g"):
        await dead.reaches(1)
    assert dead.bodies == [b"a1"]


async def test_messages_without_a_key_share_one_order(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(4):
        await lab.producer.send(Message("T", b"%d" % number), queue=QUEUE)
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)
        await asyncio.sleep(0)

    async with by_key(lab, listener):
        await eventually(lambda: len(got) == 4)
    assert got == [b"0", b"1", b"2", b"3"]
    told = [each for each in caplog.messages if "ordered_by=" in each]
    assert told == [
        "ordered_by= of g raised IndexError('list index out of range'): messages without a key share one order"
    ]


async def test_lists_have_messages_of_one_key(lab: Lab) -> None:
    await fill(lab, *"ab" * 6)
    lists: list[list[bytes]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        lists.append([each.body for each in messages])

    async with by_key(lab, listener, consume_message_batch_max_size=4):
        await eventually(lambda: sum(map(len, lists)) == 12)
    assert all(len({body[:1] for body in bodies}) == 1 for bodies in lists)
    assert max(map(len, lists)) > 1
    for key in (b"a", b"b"):
        assert [body for bodies in lists for body in bodies if body[:1] == key] == [key + b"%d" % n for n in range(6)]


async def test_a_loop_gets_the_next_of_a_key_when_the_last_is_settled(lab: Lab) -> None:
    await fill(lab, *"aab")
    async with by_key(lab, None) as consumer:
        messages = consumer.messages(auto_ack=False)
        first, second = await anext(messages), await anext(messages)
        assert {first.body, second.body} == {b"a0", b"b0"}
        first.ack()
        second.ack()
        third = await anext(messages)
        assert third.body == b"a1"
        third.ack()


async def test_what_is_pulled_is_bounded_while_a_key_is_stuck(lab: Lab) -> None:
    await fill(lab, "a", *"bcdefghij" * 6)
    stuck, seen = asyncio.Event(), Seen()

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"a0":
            await stuck.wait()
        seen.add(message)

    consumer = by_key(lab, listener, consume_max_span=20, pull_batch_size=1)
    async with consumer:
        await seen.reaches(21)
        await eventually(lambda: len(engine_of(consumer).under_way[QUEUE]) == 1)
        processing = engine_of(consumer).membership.processing
        assert isinstance(processing, Orderly)
        assert len(processing.queues[QUEUE].lanes) == 1  # keys that have nothing left take no memory
        assert len(seen.messages) < 30
        stuck.set()
        await seen.reaches(55)


async def test_a_queue_that_is_handed_on_fills_its_gaps_first(lab: Lab) -> None:
    """Messages before others that are consumed are consumed too, so that the next member gets none of them again."""
    await lab.producer.create_topic("T", 2)
    queues = [MessageQueue("T", "broker-a", number) for number in range(2)]
    for number in range(12):
        for queue in queues:
            key = "slow" if number in (0, 3) else f"k{number}"
            await lab.producer.send(Message("T", b"%d" % number, keys=key), queue=queue)
    first, second, released = Seen(), Seen(), asyncio.Event()

    async def at_first(message: ReceivedMessage) -> None:
        if message.body == b"0":
            await released.wait()
        first.add(message)

    async with by_key(lab, at_first, concurrency=8) as one:
        await first.reaches(20)  # all but the two of the slow key
        two = PushConsumer("g", second.coroutine, nameserver=lab.address, settings=HASTY, ordered_by=first_key)
        joining = asyncio.create_task(two.subscribe("T").start())
        processing = engine_of(one).membership.processing
        assert isinstance(processing, Orderly)
        await eventually(lambda: any(ordered.closed for ordered in processing.queues.values()))
        released.set()
        await joining
        await eventually(lambda: len(two.queues) == 1)
        await two.stop()
    assert sorted(first.bodies) == sorted([b"%d" % number for number in range(12)] * 2)
    assert not second.messages
    assert await lab.offsets("g", "T") == [12, 12]


async def test_a_reset_begins_again_for_all_keys(lab: Lab) -> None:
    await fill(lab, *"abab")
    seen = Seen()
    async with by_key(lab, seen.coroutine) as consumer:
        await seen.reaches(4)
        engine_of(consumer).membership.reset("T", {QUEUE: 1})
        await seen.reaches(7)
    assert sorted(seen.bodies[4:]) == [b"a1", b"b0", b"b1"]
    assert seen.bodies[4:].index(b"b0") < seen.bodies[4:].index(b"b1")


def test_wrong_use_is_told() -> None:
    consumer: Any = PushConsumer
    with pytest.raises(UsageError, match="ordered_by is of type str: a function"):
        consumer("g", ordered_by="keys", nameserver="n:1")
    with pytest.raises(BadConfig, match="orderly=True keeps the order of whole queues"):
        consumer("g", ordered_by=first_key, orderly=True, nameserver="n:1")
    with pytest.raises(BadConfig, match="auto_commit=False is for orderly consumers"):
        consumer("g", ordered_by=first_key, auto_commit=False, nameserver="n:1")

    async def asynchronous(message: ReceivedMessage) -> str:
        return ""

    with pytest.raises(UsageError, match="ordered_by is a coroutine function"):
        consumer("g", ordered_by=asynchronous, nameserver="n:1")
