"""Rates: a second's tokens at once, and then as many a second; each name for itself."""

from __future__ import annotations

from eruca.remoting.rates import Rate


class Clock:
    """Seconds, in the test's hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_name_has_the_tokens_of_a_second_and_gets_them_back() -> None:
    clock = Clock()
    rate = Rate(4, clock)
    assert [rate.take("a") for _ in range(6)] == [True] * 4 + [False] * 2
    assert rate.take("b"), "another name has its own"
    clock.seconds += 0.5
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    assert rate.refused == 3


def test_less_than_one_a_second() -> None:
    clock = Clock()
    rate = Rate(0.25, clock)
    assert [rate.take("a"), rate.take("a")] == [True, False]
    clock.seconds += 3.9
    assert not rate.take("a")
    clock.seconds += 0.2
    assert rate.take("a")


def test_something_larger_than_a_seconds_tokens_is_granted_and_paid_for_afterwards() -> None:
    clock = Clock()
    rate = Rate(1000, clock)
    assert rate.take("a", 5000)
    clock.seconds += 3.9
    assert not rate.take("a", 10)
    clock.seconds += 0.2
    assert rate.take("a", 10)


def test_what_is_forced_is_counted_and_not_refused() -> None:
    rate = Rate(2, Clock())
    assert all(rate.take("a", forced=True) for _ in range(5))
    assert not rate.take("a")


def test_nothing_is_limited_and_kept_without_a_rate() -> None:
    rate = Rate(0, Clock())
    assert all(rate.take(str(number), 1e9) for number in range(100))
    assert len(rate) == 0


def test_names_are_forgotten_when_their_tokens_are_complete() -> None:
    clock = Clock()
    rate = Rate(10, clock)
    for number in range(1000):
        rate.take(str(number))
    clock.seconds += 20
    rate.take("late")
    assert len(rate) == 1
