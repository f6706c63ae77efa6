"""How often a replica tries again to copy what it could not take in, with a clock in the test's hand."""

from __future__ import annotations

from eruca.broker.services.failover.copy_tries import FIRST, LONGEST, CopyTries
from eruca.protocol.errors import ProtocolError


class Clock:
    """In ms."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def waited(tries: CopyTries, clock: Clock) -> int:
    """Fail, and let the wait pass; how long it was."""
    tries.failed(ProtocolError("planted"))
    begun = clock.now
    while not tries.is_due():
        assert tries.waiting
        clock.now += 100
    assert not tries.waiting
    return clock.now - begun


def test_a_copy_that_fails_again_and_again_is_tried_ever_more_rarely_though_each_try_takes_something_in() -> None:
    clock = Clock()
    tries = CopyTries(clock)
    pauses = []
    for _ in range(6):
        pauses.append(waited(tries, clock))
        clock.now += 300  # a part comes, and the next one fails
    assert pauses == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, LONGEST, LONGEST]


def test_after_a_copy_that_went_well_for_a_while_the_next_failure_is_a_first_one() -> None:
    clock = Clock()
    tries = CopyTries(clock)
    assert [waited(tries, clock) for _ in range(3)] == [FIRST, 2 * FIRST, 4 * FIRST]
    clock.now += LONGEST + 100
    assert waited(tries, clock) == FIRST
