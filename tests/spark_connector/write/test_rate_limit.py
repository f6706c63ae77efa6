"""Rows at a rate, on a clock that the test moves."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eruca.spark_connector import BadOption
from eruca.spark_connector.sink_options import read_sink_options
from eruca.spark_connector.write.rate_limit import paced


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def batch(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"number": list(range(first, first + count))})


def test_rows_keep_their_order_and_the_rate() -> None:
    clock, seen = Clock(), []
    for part in paced([batch(0, 95), batch(95, 5)], 50, clock, clock.sleep):
        seen += [(clock.now, number) for number in part["number"].to_pylist()]

    assert [number for _, number in seen] == list(range(100))
    assert max(moment for moment, _ in seen) == pytest.approx(1.9)
    for start in (0.0, 0.5, 0.9):
        assert sum(start <= moment < start + 1 for moment, _ in seen) <= 60, "50 a second, in pieces of 10"


def test_a_task_that_was_slow_does_not_make_up_for_it() -> None:
    clock, moments = Clock(), []
    for part in paced([batch(0, 100)], 50, clock, clock.sleep):
        moments.append(clock.now)
        if part["number"][0].as_py() == 30:
            clock.now += 60

    later = [moment for moment in moments if moment >= 60]
    assert later[-1] - later[0] >= (len(later) - 3) * 0.2


def test_less_than_one_row_a_second() -> None:
    clock, moments = Clock(), []
    for part in paced([batch(0, 3)], 0.5, clock, clock.sleep):
        moments.append((clock.now, part.num_rows))

    assert moments == [(0.0, 1), (2.0, 1), (4.0, 1)]


@pytest.mark.parametrize("given", ["0", "-1", "fast", "inf", "nan"])
def test_a_rate_is_a_number_above_0(given: str) -> None:
    with pytest.raises(BadOption, match=r"a number from 0\.001 to 1000000000 is expected"):
        read_sink_options({"nameServer": "a:1", "maxRowsPerSecond": given}, streaming=False)
