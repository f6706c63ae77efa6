"""Units in the middle of the queues of transactions that are lost: each transaction is decided once all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.handlers.test_given_up import delivered, give_up
from tests.support.desk import Desk
from tests.support.half_messages import COMMIT, GIVEN_UP, OP, ROLLBACK, end, send


async def lose(desk: Desk, topic: str, queue_id: int, offset: int) -> None:
    """Start the broker again with a unit of a queue that is zero: the second of four, or the start finds it."""
    await desk.stop()
    (file,) = (Path(desk.config.store.store_path_root_dir) / "consumequeue" / topic / str(queue_id)).iterdir()
    with file.open("r+b") as units:
        units.seek(20 * offset)
        units.write(bytes(20))
    await desk.start()


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
async def test_one_that_was_given_up_and_decided_stays_decided(desk: Desk, decision: int) -> None:
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(4)]
    await give_up(desk)
    for place in places:
        assert (await end(desk, place, decision)).code == 0
    before = delivered(desk)

    await lose(desk, OP, 1, 1)

    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == before


async def test_one_that_was_given_up_can_be_committed(desk: Desk) -> None:
    """The log has it; a zero unit names what lies at the beginning of the log, which is no such message."""
    decided = await send(desk, "K0", body=b"decided")
    assert (await end(desk, decided, COMMIT)).code == 0
    places = [await send(desk, f"G{number}", body=b"%d" % number) for number in range(4)]
    await give_up(desk)

    await lose(desk, GIVEN_UP, 0, 1)

    for place in (decided, *places):
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"decided", b"0", b"1", b"2", b"3"]


async def test_one_that_was_decided_stays_decided_while_an_older_one_is_undecided(desk: Desk) -> None:
    await send(desk, "OPEN")
    places = [await send(desk, f"K{number}", body=b"%d" % number) for number in range(4)]
    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0

    await lose(desk, OP, 0, 1)

    assert len(desk.broker.halves.undecided) == 1
    for place in places:
        assert (await end(desk, place, COMMIT)).code == 0
    assert delivered(desk) == [b"0", b"1", b"2", b"3"]
