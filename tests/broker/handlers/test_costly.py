"""What requests cost the event loop: which declare it, and how long the loop works on the costliest without a break."""

from __future__ import annotations

import asyncio
from time import thread_time

import pytest

from eruca.broker.handlers import TABLES
from eruca.protocol.bodies import MAX_DIALECT, HeartbeatData, LockBatchAnswer, LockBatchRequest
from eruca.protocol.queues import MessageQueue
from tests.support import raw
from tests.support.desk import Desk
from tests.support.pairs import eventually
from tests.support.turns import turns_during, turns_of_the_loop

READS = {12, 14, 21, 26, 28, 29, 30, 31, 32, 33, 38, 43, 45, 46, 201, 202, 203, 204, 208, 223, 300, 303, 305, 307, 308}
READS |= {52, 54, 315, 317, 321, 328, 351, 352, 907, 1005, 1006, 1007}
CHANGES = {10, 310, 320, 324, 325, 36, 37, 323, 15, 17, 25, 34, 35, 41, 42, 200, 207, 215, 222, 306, 309, 314, 316, 329}
CHANGES |= {50, 51, 53, 1002}
CHANGES |= {11, 361}  # a pull commits an offset on its way
COSTLY = {21, 25, 43, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 306, 308, 314, 316, 317, 321, 328, 329}

QUEUES = 65_536
LONGEST = 0.05
"""Seconds of CPU time of a core of the usual pace, of a turn that has also the requests of others in it."""

HEARTBEAT, STATISTICS, TIMES = 34, 202, 303


def test_each_request_is_known_to_read_or_to_change_and_to_be_costly_or_not() -> None:
    served = {code: route for table in TABLES for code, route in table.handlers.items()}
    assert {code for code, route in served.items() if route.reads} == READS
    assert {code for code, route in served.items() if not route.reads} == CHANGES
    assert {code for code, route in served.items() if route.costly} == COSTLY


@pytest.fixture
async def wide(desk: Desk) -> Desk:
    """A broker with a topic of many queues, in each of which a group has an offset."""
    desk.topic("Wide", QUEUES)
    desk.commit("g", "Wide", *range(QUEUES))
    await desk.consumer("g", "Wide")
    return desk


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (STATISTICS, {"topic": "Wide"}),
        (208, {"consumerGroup": "g", "topic": "Wide"}),
        (208, {"consumerGroup": "g"}),
        (TIMES, {"group": "g", "topic": "Wide"}),
        (317, {"isOrder": "false"}),
        (222, {"group": "g", "topic": "Wide", "timestamp": -1, "isForce": "true"}),
        (222, {"group": "g", "topic": "Wide", "timestamp": 5, "isForce": "true"}),
        (308, {"filterGroups": "", "compareGroup": "x", "topic": "Wide"}),
        (43, {}),
    ],
)
async def test_the_loop_has_time_for_others_during_a_costly_request(
    wide: Desk, code: int, fields: dict[str, object]
) -> None:
    texts = {name: str(value) for name, value in fields.items()}

    async def ask() -> None:
        head, _ = await asyncio.to_thread(raw.ask, wide.app.address, code, texts, timeout=60)
        assert head["code"] == (1 if code == TIMES else 0), "the times of so many queues are more than a frame holds"

    turns = await turns_during(ask, LONGEST)
    assert turns.longest < LONGEST
    assert turns.count > 20


async def test_a_request_that_nobody_reads_the_answer_of_costs_nothing(wide: Desk) -> None:
    begin = thread_time()
    assert (await wide.ask(STATISTICS, {"topic": "Wide"}, within=60)).code == 0
    one = thread_time() - begin
    begin = thread_time()
    for _ in range(60):
        wide.operator.tell(STATISTICS, {"topic": "Wide"})
    assert (await wide.ask(30, {"topic": "Wide", "queueId": 0})).code == 0
    assert thread_time() - begin < one


def heartbeat(size: int) -> bytes:
    """Of a member of one group, in fastjson's dialect: names without quotes, texts in single ones."""
    topic = b"{topic:'T%d',subString:'" + b" || ".join(b"Tag-of-orders-%d" % n for n in range(8)) + b"',subVersion:5}"
    count = size // (len(topic) + 6)
    topics = b",".join(topic % number for number in range(count))
    return b"{clientID:'c',consumerDataSet:[{groupName:'dialect',subscriptionDataSet:[" + topics + b"]}]}"


async def test_a_long_heartbeat_that_is_no_plain_json_is_read_beside_others(desk: Desk) -> None:
    body = heartbeat(900 << 10)
    assert 800 << 10 < len(body) < MAX_DIALECT
    async with turns_of_the_loop() as turns:
        asking = asyncio.create_task((await desk.peer()).ask(HEARTBEAT, {}, body, within=60))
        while not asking.done():
            assert (await desk.ask(30, {"topic": "T", "queueId": 0})).code == 0
    assert (await asking).code == 0
    assert turns.count > 20 and turns.longest < 0.2, "what was read is applied at once"


async def test_a_heartbeat_of_2_mb_that_is_no_plain_json_is_refused(desk: Desk) -> None:
    body = heartbeat(1900 << 10)

    async def ask() -> None:
        head, _ = await asyncio.to_thread(raw.ask, desk.app.address, HEARTBEAT, {}, body, timeout=60)
        assert head["code"] == 1
        assert head["remark"] == (
            f"the heartbeat cannot be read: it has {len(body)} bytes and is no plain JSON with members "
            "of the right types; such a text may have 1048576 bytes"
        )

    turns = await turns_during(ask, LONGEST)
    assert turns.longest < LONGEST


async def test_plain_json_may_be_longer(desk: Desk) -> None:
    beat = HeartbeatData.decode(heartbeat(1200 << 10))
    assert len(beat.encode()) > MAX_DIALECT
    assert (await desk.ask(HEARTBEAT, {}, beat.encode(), within=60)).code == 0


@pytest.mark.parametrize("code", [41, 42, 46, 200])
async def test_other_bodies_that_are_no_plain_json_may_have_32_kib(desk: Desk, code: int) -> None:
    short, long = (
        b"{consumerGroup:'g',groupName:'g',clientId:'" + b"c" * size + b"'}" for size in (30 << 10, 33 << 10)
    )
    assert "such a text may have 32768 bytes" not in str((await desk.ask(code, {}, short)).remark)
    assert "such a text may have 32768 bytes" in str((await desk.ask(code, {}, long)).remark)


async def test_many_locks_are_taken_and_released_in_slices(desk: Desk) -> None:
    """The longest turn is that in which the request is read, the same of both; one release of all took 3.8 times it."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(20_000)]
    body = LockBatchRequest(consumer_group="g", client_id="c", mq_set=queues).encode()
    other = LockBatchRequest(consumer_group="g", client_id="d", mq_set=queues[:5]).encode()

    async def lock() -> None:
        _, answer = await asyncio.to_thread(raw.ask, desk.app.address, 41, {}, body, timeout=60)
        assert LockBatchAnswer.decode(answer).locked == queues
        assert LockBatchAnswer.decode((await desk.ask(41, {}, other)).body).locked == []

    async def unlock() -> None:
        await lock()
        await asyncio.to_thread(raw.ask, desk.app.address, 42, {}, body, timeout=60)
        assert LockBatchAnswer.decode((await desk.ask(41, {}, other)).body).locked == queues[:5]
        await desk.ask(42, {}, other)

    locked = await turns_during(lock, 0)
    assert locked.longest < LONGEST
    unlocked = await turns_during(unlock, 2.5 * locked.longest)
    assert unlocked.longest < 2.5 * locked.longest


@pytest.mark.parametrize("code", [215, 316])
async def test_the_files_of_many_queues_are_deleted_in_slices(desk: Desk, code: int) -> None:
    for number in range(1500):
        desk.store("Wide", number, 0)
    desk.store("Other", 0, 0)
    desk.topic("Other")
    desk.broker.store.persist(sync=False)
    if code == 215:
        desk.topic("Wide", 1500)
    async with turns_of_the_loop() as turns:
        head, _ = await asyncio.to_thread(raw.ask, desk.app.address, code, {"topic": "Wide"}, timeout=60)
    assert head["code"] == 0
    assert turns.longest < LONGEST and turns.count > 20
    assert desk.broker.store.topics() == {"Other"}
    queues = desk.folder / "store" / "consumequeue"
    assert [path.name for path in queues.iterdir()] == ["Other"]


async def test_a_topic_that_is_made_again_while_it_is_deleted_keeps_what_has_come_since(desk: Desk) -> None:
    """Queues that were not deleted yet have the former messages, too: the answer says so."""
    desk.topic("Wide", 500)
    for number in reversed(range(500)):
        desk.store("Wide", number, 0)
    deleting = asyncio.create_task(desk.ask(215, {"topic": "Wide"}, within=60))
    while len(desk.broker.store.queue_ids("Wide")) == 500:  # noqa: ASYNC110 (each turn of the loop is looked at)
        await asyncio.sleep(0)
    desk.topic("Wide", 500)
    left = desk.broker.store.queue_ids("Wide")
    assert min(left) >= 64, "the queues of a topic that is made by a send go first"
    desk.store("Wide", left[-1], 0, body=b"new")
    desk.commit("G", "Wide", 1, *[0] * 8)
    answer = await deleting
    assert answer.code == 1 and "1 of its queues have new messages, and those from before" in (answer.remark or "")
    assert [record.body for record in desk.records("Wide", left[-1])] == [b"body", b"new"]
    assert desk.broker.offsets.of("G", "Wide").get(0, 0) == 0, "it lay beyond the end of the new queue"


async def test_a_topic_whose_deleter_leaves_is_deleted_all_the_same(desk: Desk) -> None:
    desk.topic("Wide", 500)
    for number in range(500):
        desk.store("Wide", number, 0)
    leaving = await desk.peer()
    leaving.tell(215, {"topic": "Wide"})
    while len(desk.broker.store.queue_ids("Wide")) == 500:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await leaving.close()
    await eventually(lambda: not desk.broker.store.queue_ids("Wide"))
