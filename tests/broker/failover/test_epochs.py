"""Epochs of a log: one without a byte is replaced; two logs are the same as far as both have an epoch and its start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.broker.failover.epochs import Epoch, Epochs, at, begin, cut, cut_point, forget


def listed(*entries: tuple[int, int]) -> Epochs:
    return tuple(Epoch(epoch, start) for epoch, start in entries)


def test_an_epoch_without_a_byte_is_replaced() -> None:
    once = begin((), 1, 0)
    assert begin(once, 2, 0) == listed((2, 0))
    assert begin(once, 2, 100) == listed((1, 0), (2, 100))
    assert begin(begin(once, 2, 100), 5, 100) == listed((1, 0), (5, 100))
    assert begin(once, 1, 0) == once


@pytest.mark.parametrize(("epoch", "start"), [(2, 90), (2, 110), (1, 200), (3, 90)])
def test_epochs_and_starts_rise(epoch: int, start: int) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        begin(listed((1, 0), (2, 100)), epoch, start)


def test_what_has_no_byte_left_is_forgotten() -> None:
    three = listed((1, 0), (3, 100), (4, 200))
    assert cut(three, 200) == listed((1, 0), (3, 100))
    assert cut(three, 201) == three
    assert cut(three, 0) == ()
    assert forget(three, 99) == three
    assert forget(three, 100) == listed((3, 100), (4, 200))
    assert forget(three, 5000) == listed((4, 200))
    assert (at(three, 99), at(three, 200), at(three[1:], 99)) == (three[0], three[2], None)


@pytest.mark.parametrize(
    ("mine", "my_end", "theirs", "their_end", "point"),
    [
        (listed((1, 0)), 100, listed((1, 0)), 80, 80),
        (listed((1, 0)), 80, listed((1, 0), (2, 100)), 120, 80),
        (listed((1, 0), (2, 100)), 150, listed((1, 0), (3, 90)), 150, 90),
        (listed((1, 0), (2, 90)), 150, listed((1, 0), (3, 100)), 150, 90),
        (listed((1, 0), (2, 100)), 150, listed((2, 100), (3, 140)), 160, 140),
        (listed((1, 0)), 100, listed((2, 0)), 100, None),
        (listed((1, 0)), 100, (), 100, None),
        ((), 100, listed((1, 0)), 100, None),
    ],
)
def test_the_cut_point_is_the_end_of_what_both_have(
    mine: Epochs, my_end: int, theirs: Epochs, their_end: int, point: int | None
) -> None:
    assert cut_point(mine, my_end, theirs, their_end) == point
    assert cut_point(theirs, their_end, mine, my_end) == point


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12), st.integers(0, 12))
def test_two_logs_with_one_beginning_are_cut_to_it(steps: list[tuple[int, bool]], shared: int) -> None:
    """Two logs grow together for some steps, then each alone; a step is some bytes, perhaps with an epoch before."""
    mine, my_end, theirs, their_end, epoch, parted = begin((), 1, 0), 0, begin((), 1, 0), 0, 1, 0
    for number, (size, new) in enumerate(steps):
        together = number < shared
        if new or number == shared:
            epoch += 1
            mine = begin(mine, epoch, my_end)
            theirs = begin(theirs, epoch if together else epoch + 1, their_end)
            epoch += not together
        my_end += size
        their_end += size
        if together:
            parted = my_end
    if shared >= len(steps):
        parted = my_end
    point = cut_point(cut(mine, my_end), my_end, cut(theirs, their_end), their_end)
    assert point == parted or (point is None and parted == 0)
