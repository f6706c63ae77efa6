"""Points of time: what users may give, and what would silently mean another time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from eruca.client.moments import LATEST, moment

AT = datetime(2027, 1, 15, 8, tzinfo=UTC)
MS = 1_800_000_000_000


@pytest.mark.parametrize("value", [MS, AT, AT.astimezone().replace(tzinfo=None), AT.astimezone()])
def test_a_time_in_each_of_its_forms(value: int | datetime) -> None:
    assert moment(value) == MS


def test_the_ends_of_time() -> None:
    assert (moment(0), moment(LATEST)) == (0, LATEST)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (MS // 1000, "seconds? A datetime or ms since 1970, such as 1800000000000, is expected"),
        (MS * 1000, "microseconds? A datetime or ms since 1970, such as 1800000000000, is expected"),
        (MS * 1_000_000, "nanoseconds? A datetime or ms since 1970, such as 1800000000000, is expected"),
        (LATEST + 1, "ms since 1970 of 64 bits, 9223372036854775807 at most, are expected"),
        (timedelta(hours=1), "a point of time is expected, such as datetime.now(UTC) + timedelta(hours=1)"),
        (datetime(1969, 12, 31, tzinfo=UTC), "a time from 1970 on is expected"),
        (datetime.min, "a time from 1970 on is expected"),
        *(
            (value, "a datetime or ms since 1970, a whole number, is expected")
            for value in (-1, 1.8e12, True, None, "now")
        ),
        (date(2027, 1, 15), "a datetime or ms since 1970, a whole number, is expected"),
    ],
)
def test_what_is_no_time_is_refused(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        moment(value)
    assert str(raised.value) == sentence
