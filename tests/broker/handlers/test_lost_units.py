"""Units in the middle of the queues of transactions that are lost: each transaction is decided once all the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.services.lost_units import whole_queue
from eruca.broker.store import Store
from tests.broker.handlers.test_given_up import delivered, give_up
from tests.support.desk import Desk
from tests.support.half_messages import COMMIT, GIVEN_UP, HALF, OP, ROLLBACK, end, send

Damage = Callable[[bytes], bytes]


def lost(unit: bytes) -> bytes:
    """Zero."""
    return bytes(len(unit))


def misled(unit: bytes) -> bytes:
    """One bit of the place is another one: it lies between those of its neighbours still."""
    return unit[:7] + bytes([unit[7] ^ 4]) + unit[8:]


def negative(unit: bytes) -> bytes:
    """The place has another sign."""
    return bytes([unit[0] ^ 0x80]) + unit[1:]


async def damage(desk: Desk, topic: str, queue_id: int, offset: int, how: Damage) -> None:
    """Start the broker again with a damaged unit of a queue: the second of four, or the start finds it."""
    await desk.stop()
    (file,) = (Path(desk.config.store.store_path_root_dir) / "consumequeue" / topic / str(queue_id)).iterdir()
    with file.open("r+b") as units:
        units.seek(20 * offset)
        unit = units.read(20)
        units.seek(20 * offset)
        units.write(how(unit))
    await desk.start()


each_damage = pytest.mark.parametrize("how", [lost, misled, negative])


@each_damage
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
async def test_one_that_was_given_up_and_decided_stays_decided(desk: Desk, decision: int, how: Damage) -> None:
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(4)]
    await give_up(desk)
    for place in places:
        assert (await end(desk, place, decision)).code == 0
    before = delivered(desk)

    await damage(desk, OP, 1, 1, how)

    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == before


@each_damage
async def test_one_that_was_given_up_can_be_committed(desk: Desk, how: Damage) -> None:
    """The log has it; a zero unit names what lies at the beginning of the log, which is no such message."""
    decided = await send(desk, "K0", body=b"decided")
    assert (await end(desk, decided, COMMIT)).code == 0
    places = [await send(desk, f"G{number}", body=b"%d" % number) for number in range(4)]
    await give_up(desk)

    await damage(desk, GIVEN_UP, 0, 1, how)

    for place in (decided, *places):
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"decided", b"0", b"1", b"2", b"3"]


@each_damage
async def test_one_that_was_decided_stays_decided_while_an_older_one_is_undecided(desk: Desk, how: Damage) -> None:
    await send(desk, "OPEN")
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(4)]
    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0

    await damage(desk, OP, 0, 1, how)

    assert len(desk.broker.halves.undecided) == 1
    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"0", b"1", b"2", b"3"]


@each_damage
async def test_one_that_is_undecided_stays_so(desk: Desk, how: Damage) -> None:
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(4)]

    await damage(desk, HALF, 0, 1, how)

    assert len(desk.broker.halves.undecided) == 4
    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("how", [lost, negative])
async def test_the_first_one_that_was_given_up_can_be_committed_where_the_log_begins_later(
    desk: Desk, how: Damage
) -> None:
    while desk.broker.store.figures().max_offset < 2_150_000:
        desk.store(desk.topic("Filler"), 0, 0, body=bytes(60_000))
    places = [await send(desk, f"G{number}", body=b"%d" % number) for number in range(4)]
    await give_up(desk)
    await delete_first_files(desk)

    await damage(desk, GIVEN_UP, 0, 0, how)

    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"0", b"1", b"2", b"3"]


async def test_those_that_are_undecided_stay_so_where_the_log_begins_later(desk: Desk) -> None:
    """Zeros where a halving looks for the queue's beginning do not put it behind them, which would be for good."""
    for number in range(10):
        assert (await end(desk, await send(desk, f"OLD{number}"), ROLLBACK)).code == 0
    while desk.broker.store.figures().max_offset < 2_150_000:
        desk.store(desk.topic("Filler"), 0, 0, body=bytes(60_000))
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(60)]
    desk.broker.store.flush()
    for _ in range(2):
        desk.broker.halves.keep()
    await delete_first_files(desk)
    assert desk.broker.store.min_offset(HALF, 0) == 10

    await damage(desk, HALF, 0, 34, lambda _: bytes(3 * 20))

    assert desk.broker.store.min_offset(HALF, 0) == 10
    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"%d" % number for number in range(60)]


async def delete_first_files(desk: Desk) -> None:
    """Let the log's first two files be so old that they go."""
    desk.config.store.file_reserved_time = 1
    files = Path(desk.config.store.store_path_root_dir) / "commitlog"
    for file in sorted(files.iterdir())[:2]:
        os.utime(file, (1, 1))
    assert await desk.broker.store.clean(by_hand=True) == 2


async def test_the_log_is_read_once_for_units_that_lie_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some are not wanted; and no record is read for a unit that is zero."""
    for number in range(30):
        await send(desk, f"K{number}", body=b"%d" % number)
    desk.broker.store.drain()
    await damage(desk, HALF, 0, 5, lambda _: bytes(20 * 20))
    store = desk.broker.store
    read = []

    def record(physical_offset: int) -> bytes | None:
        read.append(physical_offset)
        return Store.record(store, physical_offset)

    monkeypatch.setattr(store, "record", record)

    with capture_logs() as logs:
        found = list(whole_queue(store, HALF, without=range(1, 30, 2)))

    assert [one.queue_offset for one in found if one is not None] == list(range(0, 30, 2))
    assert [(one["event"], one["first"], one["last"], one["count"]) for one in logs] == [
        ("queue_units_lost", 6, 24, 10)
    ]
    assert 0 not in read[1:]


@pytest.mark.parametrize("what", ["body", "size", "its offset", "queue", "topic"])
@pytest.mark.parametrize(("topic", "queue_id"), [(HALF, 0), (OP, 0), (OP, 1), (GIVEN_UP, 0)])
async def test_what_the_log_has_lost_is_said(desk: Desk, topic: str, queue_id: int, what: str) -> None:
    """One bit of a record whose unit is sound, in a file of the log that the start does not read."""
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(6)]
    if queue_id or topic == GIVEN_UP:
        await give_up(desk)
    if topic == OP:
        for number in (1, 2, 4):
            assert (await end(desk, places[number], COMMIT)).code == 0
    record = desk.records(topic, queue_id)[1]
    data = desk.broker.store.record(record.physical_offset)
    assert data is not None
    at = {"body": 88, "size": 3, "its offset": 35, "queue": 15, "topic": bytes(data).rindex(topic.encode())}[what]
    await flip(desk, record.physical_offset + at)

    with capture_logs() as logs:
        await desk.start()
        await end(desk, places[0], COMMIT)

    said = [one for one in logs if one["event"] == "queue_records_lost"]
    assert [(one["topic"], one["queue_id"], one["first"], one["last"], one["count"]) for one in said] == [
        (topic, queue_id, 1, 1, 1)
    ]


async def flip(desk: Desk, physical_offset: int) -> None:
    """Stop the broker, and change one bit of the first file of its log, which is one that the start does not read."""
    desk.topic("Filler")
    files = Path(desk.config.store.store_path_root_dir) / "commitlog"
    while len(list(files.iterdir())) < 8:
        desk.store("Filler", 0, 0, body=bytes(60_000))
    await desk.stop()
    with min(files.iterdir()).open("r+b") as log:
        log.seek(physical_offset)
        (byte,) = log.read(1)
        log.seek(physical_offset)
        log.write(bytes([byte ^ 1]))


async def test_a_damaged_op_message_closes_no_other_transaction(desk: Desk) -> None:
    """One bit of its body names another half message. It lies in a file of the log that the start does not read."""
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(6)]
    for number in (1, 2, 4):
        assert (await end(desk, places[number], COMMIT)).code == 0
    damaged = desk.records(OP)[1]
    assert damaged.body == b"2"
    data = desk.broker.store.record(damaged.physical_offset)
    assert data is not None
    at = bytes(data).index(b"2" + bytes([len(OP)]) + OP.encode())
    await flip(desk, damaged.physical_offset + at)
    await desk.start()

    assert [offset for offset, _ in desk.broker.halves.undecided.items()] == [0, 2, 3, 5]
    assert (await end(desk, places[3], COMMIT)).code == 0
    assert delivered(desk)[-1] == b"3"
