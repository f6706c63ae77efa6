"""The latency of the event loop, after which requests are refused: one that stands, and none that passes."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from eruca.remoting.loop_monitor import EVERY, INTERVAL, MOST_WORK, WORK_WHILE_LATE, LoopMonitor, Overload

LIMIT = 0.2


@pytest.fixture
def monitor() -> LoopMonitor:
    return LoopMonitor()


@pytest.fixture
def overload(monitor: LoopMonitor) -> Overload:
    return Overload(monitor, lambda: LIMIT)


def rounds(monitor: LoopMonitor, *late: float) -> None:
    """Rounds that were late by so many seconds, up to the present one, which is late as well."""
    at = monotonic() - sum(each + EVERY for each in late) - 1.0
    monitor.last = at
    for each in late:
        at += each + EVERY
        monitor.ticked(at, each)


def test_one_long_round_refuses_nothing(monitor: LoopMonitor, overload: Overload) -> None:
    rounds(monitor, 0.0, 20.0)
    assert overload.waited() == 0.0
    rounds(monitor, 0.0)
    assert overload.waited() == 0.0


def test_some_long_rounds_with_shorter_ones_between_refuse_nothing(monitor: LoopMonitor, overload: Overload) -> None:
    """A process that is stopped again and again, or bursts."""
    rounds(monitor, *[0.0, 0.5, 0.4, 0.1] * 20)
    assert overload.waited() == 0.0


def test_a_wait_that_stands_is_refused_until_nothing_is_to_be_refused_for_as_long(
    monitor: LoopMonitor, overload: Overload
) -> None:
    rounds(monitor, 0.0, *[0.25] * 6)
    assert overload.stands and overload.waited() >= LIMIT
    now = monotonic()
    monitor.ticked(now + INTERVAL / 2, 0.1)  # shorter rounds, because some of their requests are refused
    assert overload.stands
    monitor.ticked(now + INTERVAL * 1.5, 0.0)
    assert not overload.stands and overload.waited() == 0.0


class Machine:
    """A thread's clock and its work, in seconds."""

    def __init__(self) -> None:
        self.now, self.worked = 1000.0, 5.0

    def run(self, worked: float, stopped: float = 0.0) -> None:
        self.worked += worked
        self.now += worked + stopped


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_while_it_stands_the_first_of_a_round_are_taken(machine: Machine) -> None:
    """For so long as the thread works for half of what may be waited; none that may have waited for twice as long."""
    monitor = LoopMonitor(lambda: machine.now, lambda: machine.worked)
    overload = Overload(monitor, lambda: LIMIT)
    machine.run(LIMIT * MOST_WORK + 0.001)
    assert overload.waited() >= LIMIT and overload.stands
    monitor.ticked(machine.now, 0.1)
    machine.run(LIMIT / 4, LIMIT / 2)  # others had the processor
    assert overload.waited() == 0.0
    machine.run(LIMIT / 8, LIMIT)
    assert overload.waited() >= LIMIT
    monitor.ticked(machine.now, LIMIT * 2)
    machine.run(0.001)
    assert overload.waited() >= LIMIT  # it waited in its socket, for all of the round before
    monitor.ticked(machine.now, 0.1)
    machine.run(LIMIT * WORK_WHILE_LATE - 0.001)
    assert overload.waited() == 0.0
    machine.run(0.002)
    assert overload.waited() >= LIMIT


def test_the_work_of_one_round_has_a_bound(machine: Machine) -> None:
    """Whatever came before: what was read in it must not wait for long, nor what came meanwhile."""
    monitor = LoopMonitor(lambda: machine.now, lambda: machine.worked)
    overload = Overload(monitor, lambda: LIMIT)
    machine.run(LIMIT * MOST_WORK - 0.001, 60.0)
    assert overload.waited() == 0.0
    machine.run(0.002)
    assert overload.waited() >= LIMIT
    monitor.ticked(machine.now, LIMIT)
    assert overload.waited() == 0.0
    machine.run(LIMIT * WORK_WHILE_LATE + 0.001)
    assert overload.waited() >= LIMIT


async def test_the_timer_of_a_loop(monitor: LoopMonitor) -> None:
    ticks: list[float] = []
    monitor.watchers.append(lambda _, late: ticks.append(late))
    monitor.last -= 30  # the store is opened meanwhile
    monitor.start()
    assert ticks == [pytest.approx(0.0, abs=0.04)]
    monitor.last -= 20  # as if so many seconds had passed since
    assert monitor.waited >= 19
    async with asyncio.timeout(10):
        while len(ticks) < 2:  # noqa: ASYNC110 (a timer of the loop)
            await asyncio.sleep(0.01)
    assert ticks[1] >= 19
    monitor.stop()
