"""Units in the middle of the queues of transactions that are lost: each transaction is decided once all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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


both = pytest.mark.parametrize("how", [lost, misled])


@both
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


@both
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


@both
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


@both
async def test_one_that_is_undecided_stays_so(desk: Desk, how: Damage) -> None:
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(4)]

    await damage(desk, HALF, 0, 1, how)

    assert len(desk.broker.halves.undecided) == 4
    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"0", b"1", b"2", b"3"]


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
    desk.topic("Filler")
    files = Path(desk.config.store.store_path_root_dir) / "commitlog"
    while len(list(files.iterdir())) < 8:
        desk.store("Filler", 0, 0, body=bytes(60_000))
    await desk.stop()
    with min(files.iterdir()).open("r+b") as log:
        log.seek(damaged.physical_offset + at)
        log.write(b"3")
    await desk.start()

    assert [offset for offset, _ in desk.broker.halves.undecided.items()] == [0, 2, 3, 5]
    assert (await end(desk, places[3], COMMIT)).code == 0
    assert delivered(desk)[-1] == b"3"
