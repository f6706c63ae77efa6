"""Points of time as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol.times import parse_time

NOW = 1_795_365_000_000  # 2026-11-22 17:30:00 in Berlin
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW),
        ("1795365000007", 1795365000007),
        ("-1", -1),
        ("2026-11-22#17:30:00:007", NOW + 7),
        ("2026-11-22 17:30", NOW),
        ("2026-11-22 17:30:01", NOW + 1000),
        ("2026-11-22 17:30:01,855", NOW + 1855),
        ("2026-11-22T17:30:01.5+01:00", NOW + 1500),
        ("2026-11-22T16:30Z", NOW),
        ("17:30", NOW),
        ("today 17:30:02", NOW + 2000),
        ("yesterday 17:00", NOW - 24 * 3_600_000 - 30 * 60_000),
        ("2026-11-22", NOW - (17 * 60 + 30) * 60_000),
        ("-30m", NOW - 30 * 60_000),
        ("2h ago", NOW - 2 * 3_600_000),
        ("-1W", NOW - 7 * 86_400_000),
    ],
)
def test_each_form_is_read(text: str, ms: int) -> None:
    assert parse_time(text, NOW, BERLIN) == ms


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("2026-02-31 10:00", BERLIN, "is no time: day"),
        ("2026-13-01#10:00:00:000", BERLIN, "is no time: month must be in 1..12"),
        ("25:00", BERLIN, "is no time: hour must be in 0..23"),
        ("2026-03-08#02:30:00:000", NEW_YORK, "does not exist: the clocks of this zone skip it"),
        ("2026-11-01 01:30", NEW_YORK, "exists twice: the clocks of this zone are set back"),
        ("tomorrow", BERLIN, "is no time: give ms since 1970, now, "),
        ("", BERLIN, "is no time: give ms since 1970, now, "),
    ],
)
def test_what_is_no_time_is_said_so(text: str, zone: tzinfo, words: str) -> None:
    with pytest.raises(ValueError) as told:
        parse_time(text, NOW, zone)
    assert str(told.value).startswith(f"'{text}' ") and words in str(told.value)


def test_an_hour_that_exists_twice_is_told_apart_by_its_zone() -> None:
    assert (
        parse_time("2026-11-01T01:30-05:00", NOW, NEW_YORK) - parse_time("2026-11-01T01:30-04:00", NOW, NEW_YORK)
        == 3_600_000
    )


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-12, 14))
def test_every_moment_is_read_back(moment: datetime, hours: int) -> None:
    zoned = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=timezone(timedelta(hours=hours)))
    assert parse_time(zoned.isoformat(), NOW) == round(zoned.timestamp() * 1000)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_told(text: str) -> None:
    try:
        parse_time(text, NOW, BERLIN)
    except ValueError as error:
        assert str(error).startswith("'")
