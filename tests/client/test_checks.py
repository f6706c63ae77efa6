"""What passes the checks of calls; what they say to the rest is in docs/wrong-use.md and its test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from eruca.client import MessageQueue, checks
from eruca.client.errors import UsageError

ONE, TWO = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


class Index:
    """A whole number of another type, such as numpy's."""

    def __index__(self) -> int:
        return 5


def test_whole_numbers_of_other_types_become_ints() -> None:
    assert type(checks.check_offset(Index())) is int
    assert checks.check_offsets({ONE: Index(), TWO: 0}) == {ONE: 5, TWO: 0}
    assert checks.check_time("begin", Index()) == 5


@pytest.mark.parametrize("value", [True, 5.0, "5", None, -1])
def test_what_is_no_offset(value: object) -> None:
    with pytest.raises(UsageError, match=f"offset={value!r}: a whole number of 0 or more is expected"):
        checks.check_offset(value)


def test_times() -> None:
    noon = datetime(2026, 11, 22, 12, 0, 0, 5000, UTC)
    assert checks.check_time("begin", noon) == 1_795_348_800_005
    assert checks.check_time("begin", noon.astimezone(timezone(timedelta(hours=5)))) == 1_795_348_800_005
    assert checks.check_time("begin", noon.astimezone().replace(tzinfo=None)) == 1_795_348_800_005, "local time"
    assert checks.check_time("begin", 0) == 0, "before all messages"
    for never in (-1, 1_795_348_800):
        with pytest.raises(UsageError, match=f"begin={never}: "):
            checks.check_time("begin", never)


def test_queues_may_be_any_collection() -> None:
    def each() -> Iterator[MessageQueue]:
        yield from (ONE, TWO)

    assert checks.check_queues({ONE: 1, TWO: 2}) == checks.check_queues(each()) == [ONE, TWO]
    assert checks.check_queues([]) == []


@pytest.mark.parametrize("wait", [0, 1.5, float("inf")])
def test_times_to_wait(wait: float) -> None:
    assert checks.check_wait("timeout", wait) == wait
    checks.check_seconds(0, stop_timeout=wait)
