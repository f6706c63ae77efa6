"""A delay of its own on the half of a transaction: it counts from the commit, and is refused with the half."""

from __future__ import annotations

import pytest

from tests.support.desk import START, Desk
from tests.support.half_messages import COMMIT, HALF, ROLLBACK, SEND, end, half, place, send

TIMER = "rmq_sys_wheel_timer"
DAY = 86_400_000


def bodies(desk: Desk) -> list[bytes]:
    return [record.body for record in desk.records("T")]


@pytest.mark.parametrize(
    ("wish", "due"),
    [("TIMER_DELAY_MS\x0190000", 97_000), ("TIMER_DELAY_SEC\x0190", 97_000), (f"TIMER_DELIVER_MS\x01{START}", 7_000)],
)
async def test_a_committed_message_comes_once_at_its_time(desk: Desk, wish: str, due: int) -> None:
    where = await send(desk, "AC11", wish)
    desk.now += 7_000

    assert (await end(desk, where, COMMIT)).code == 0
    assert (await end(desk, where, COMMIT)).code == 0  # said again, as an answer to a check that crossed it

    desk.deliver(due - 1) if due > 7_000 else None
    assert bodies(desk) == ([] if due > 7_000 else [b"half"])
    desk.deliver(due)
    (come,) = desk.records("T")
    assert (come.body, come.unique_key, come.tags) == (b"half", "AC11", "TagT")
    assert (await end(desk, where, COMMIT)).code == 0
    desk.deliver(due + 200_000)
    assert bodies(desk) == [b"half"]


async def test_it_comes_after_a_restart_too(desk: Desk) -> None:
    where = await send(desk, "AC11", "TIMER_DELAY_SEC\x0190")
    await desk.restart()
    assert (await end(desk, where, COMMIT)).code == 0
    await desk.restart()

    assert bodies(desk) == []
    desk.deliver(90_000)
    assert bodies(desk) == [b"half"]
    await desk.restart()
    desk.deliver(200_000)
    assert bodies(desk) == [b"half"]


async def test_a_message_that_is_rolled_back_does_not_wait(desk: Desk) -> None:
    where = await send(desk, "AC11", "TIMER_DELAY_SEC\x0190")
    assert (await end(desk, where, ROLLBACK)).code == 0
    desk.deliver(100_000)
    assert bodies(desk) == []
    assert desk.records(TIMER) == []


@pytest.mark.parametrize(
    ("wish", "remark"),
    [
        ("TIMER_DELAY_MS\x01soon", "TIMER_DELAY_MS is 'soon'; write a whole number"),
        (
            f"TIMER_DELAY_MS\x01{40 * DAY + 1}",
            "TIMER_DELAY_MS 3456000001 delays the message by 3456000001 ms, the longest delay is 3456000000 ms "
            "(timerMaxDelaySec): send it with a shorter delay",
        ),
    ],
)
async def test_a_delay_that_cannot_be_is_refused_with_the_half(desk: Desk, wish: str, remark: str) -> None:
    desk.topic("T")
    answer = await desk.ask(SEND, half("AC11", wish), b"half")
    assert (answer.code, answer.remark) == (13, remark)
    assert desk.records(HALF) == []


async def test_a_limit_lowered_before_the_commit_loses_nothing(desk: Desk) -> None:
    desk.topic("T")
    where = place(await desk.ask(SEND, half("AC11", "TIMER_DELAY_SEC\x0190"), b"half"))
    assert (await desk.ask(25, {}, b"timerMaxDelaySec=60\n")).code == 0

    assert (await end(desk, where, COMMIT)).code == 0

    assert bodies(desk) == [b"half"]  # at once, and logged
