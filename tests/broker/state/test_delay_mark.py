"""What is kept of waiting messages: the set of settled units, and the mark."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.broker.state.delay_mark import DelayMark, Deliveries, decode_mark, encode_mark
from eruca.broker.state.settled import Settled

MARKS = st.builds(
    Deliveries,
    st.integers(0, 1 << 60),
    st.dictionaries(st.integers(1, 100), st.integers(0, 1 << 60)),
    st.integers(0, 1 << 60),
    st.binary(max_size=200),
)


@settings(deadline=None)
@given(st.integers(0, 50), st.lists(st.integers(0, 300)), st.integers(0, 300))
def test_settled_is_a_set_that_knows_its_first_gap(base: int, numbers: list[int], end: int) -> None:
    settled = Settled(base)
    for number in numbers:
        settled.add(number)
    model = {*range(base), *numbers}
    for _ in range(2):
        assert [number for number in range(320) if number in settled] == sorted(model)
        assert settled.first == next(number for number in range(400) if number not in model)
        again = Settled(*settled.contents())
        assert [number for number in range(320) if number in again] == sorted(model)
        assert again.first == settled.first
        settled.cut(end)
        model = {number for number in model if number < end}


def test_a_long_run_does_not_pile_up() -> None:
    settled = Settled()
    for number in range(100_000):
        settled.add(number)
    assert settled.first == 100_000 and len(settled.contents()[1]) <= 4096
    settled.add_below(100_010)
    assert settled.first == 100_010 and 100_010 not in settled and 5 in settled


@given(MARKS)
def test_a_mark_is_read_as_it_was_written(mark: Deliveries) -> None:
    assert decode_mark(encode_mark(mark)) == mark


@given(MARKS, st.data())
def test_a_damaged_mark_is_none(mark: Deliveries, data: st.DataObject) -> None:
    whole = bytearray(encode_mark(mark))
    at = data.draw(st.integers(0, len(whole) - 1))
    assert decode_mark(bytes(whole[:at])) is None
    whole[at] ^= data.draw(st.integers(1, 255))
    assert decode_mark(bytes(whole)) is None


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "eruca.delays"
    mark = DelayMark(path)
    mark.load()
    assert mark.current is None
    mark.stage(Deliveries(7, {3: 4}, 8, b"\x01"))
    mark.save()
    other = DelayMark(path)
    other.load()
    assert other.current == Deliveries(7, {3: 4}, 8, b"\x01")
    path.write_bytes(b"")
    other.load()
    assert other.current is None
