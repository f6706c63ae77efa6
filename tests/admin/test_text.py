"""Times and maps as Java prints them."""

import time
from collections.abc import Iterator

import pytest

from eruca.admin.errors import AdminError
from eruca.admin.text import columns, map_text, millis_text, point_of_time, seconds_text, shown


@pytest.fixture
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_times_are_shown_and_read_in_this_zone(shanghai: None) -> None:
    assert seconds_text(1_577_836_800_007) == "2020-01-01 08:00:00"
    assert millis_text(1_577_836_800_007) == "2020-01-01 08:00:00,007"
    assert point_of_time("2020-01-01#08:00:00:007") == 1_577_836_800_007


def test_a_time_may_be_ms() -> None:
    assert point_of_time("1577836800000") == 1_577_836_800_000
    assert point_of_time("-1") == -1


@pytest.mark.parametrize(
    "text", ["", "nonsense", "2020-13-01#00:00:00:000", "2020-02-31#00:00:00:000", "2020-01-01#24:00:00:000", "1.5"]
)
def test_what_is_no_time_is_said_so(text: str) -> None:
    with pytest.raises(AdminError, match=f"'{text}' is no time: "):
        point_of_time(text)


def test_values_and_maps_look_as_in_java() -> None:
    assert (shown(None), shown(True), shown("x"), columns("%-4.3s|", "broker-a")) == ("null", "true", "x", "bro |")
    properties = {"KEYS": "k", "UNIQ_KEY": "9", "CLUSTER": "C", "TAGS": "TagA", "MIN_OFFSET": "0", "MAX_OFFSET": "5"}
    # the order in which Apache's own mqadmin printed these keys (a HashMap's)
    assert map_text(properties) == "{MIN_OFFSET=0, MAX_OFFSET=5, KEYS=k, UNIQ_KEY=9, CLUSTER=C, TAGS=TagA}"
