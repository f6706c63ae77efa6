"""Filters of consumer groups: by heartbeats, their life and death, and consumerFilter.json as RocketMQ writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.state.filters import Filters
from eruca.broker.state.state_file import StateUnreadable
from eruca.protocol.bloom import BloomFilter
from eruca.protocol.bodies import SubscriptionData
from tests.support.desk import START

APACHE = Path(__file__).parents[2] / "golden" / "fastjson" / "filters.pretty.json"
BORN = 1700000000123
DAY = 86_400_000


class Table:
    """Filters whose clock is in the test's hand."""

    def __init__(self, folder: Path, *, now: int = START, names: int = 64) -> None:
        self.now = now
        self.path = folder / "consumerFilter.json"
        self.filters = Filters(self.path, lambda: self.now, lambda: DAY, BloomFilter.of(20, names))
        self.filters.load()

    def beat(self, expression: str | None, version: int = 1, *, topic: str = "T", kind: str = "SQL92") -> None:
        """What a heartbeat of group g says; without an expression, that it subscribes nothing."""
        subscription = SubscriptionData(
            topic=topic, sub_string=expression or "", sub_version=version, expression_type=kind
        )
        self.filters.register("g", [subscription] if expression is not None else [])

    @property
    def expression(self) -> str | None:
        found = self.filters.get("T", "g")
        return None if found is None else found.expression.text

    @property
    def dead(self) -> bool:
        found = self.filters.get("T", "g")
        assert found is not None
        return found.dead


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


# ---------------------------------------------------------------------- the file


def test_a_filter_is_filed_as_rocketmq_files_it(tmp_path: Path) -> None:
    table = Table(tmp_path, now=BORN)
    table.beat("a > 5", BORN)
    assert table.filters.dirty
    table.filters.save()
    assert table.path.read_bytes() == APACHE.read_bytes()
    assert not table.filters.dirty


def test_a_file_of_rocketmq_is_read_and_its_groups_count_as_gone(tmp_path: Path) -> None:
    (tmp_path / "consumerFilter.json").write_bytes(APACHE.read_bytes())
    table = Table(tmp_path, now=BORN + 50_000)
    found = table.filters.get("T", "g")
    assert found is not None and found.dead and found.data.dead_time == BORN + 20_000
    assert found.expression.matches({"a": "6"}) and not found.expression.matches({"a": "5"})
    assert Table(tmp_path, now=BORN + 1).dead
    table.beat("a > 5", BORN)  # the group comes back
    assert not table.dead


def test_filters_with_other_bits_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "consumerFilter.json").write_bytes(APACHE.read_bytes())
    assert Table(tmp_path, names=32).expression is None


def test_an_expression_in_the_file_that_cannot_be_compiled_leaves_the_group_without_a_filter(tmp_path: Path) -> None:
    (tmp_path / "consumerFilter.json").write_bytes(APACHE.read_bytes().replace(b"a > 5", b"a > >"))
    assert Table(tmp_path).expression is None


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "consumerFilter.json").write_text("{")
    with pytest.raises(StateUnreadable):
        Table(tmp_path)


async def test_saving_on_the_loop_cleans_first(table: Table) -> None:
    table.beat("a > 5")
    await table.filters.saved()
    assert b'"expression":"a > 5"' in table.path.read_bytes()
    table.filters.unregister("g")
    table.now += DAY
    await table.filters.saved()
    assert b"groupFilterData" not in table.path.read_bytes()


# ---------------------------------------------------------------------- heartbeats


def test_only_a_newer_version_changes_an_expression(table: Table) -> None:
    table.beat("a > 5", 10)
    table.beat("a > 6", 10)
    table.beat("a > 7", 9)
    assert table.expression == "a > 5"
    table.beat("a > 8", 11)
    assert table.expression == "a > 8"


def test_a_newer_version_of_the_same_expression_keeps_the_filter(table: Table) -> None:
    table.beat("a > 5", 10)
    found = table.filters.get("T", "g")
    table.beat("a > 5", 12)
    assert table.filters.get("T", "g") is found and found is not None and found.data.client_version == 12


def test_heartbeats_that_say_nothing_new_change_nothing(table: Table) -> None:
    table.beat("a > 5", 10)
    table.filters.save()
    table.beat("a > 5", 10)
    assert not table.filters.dirty


def test_a_wrong_expression_registers_nothing_and_removes_what_was_there(table: Table) -> None:
    table.beat("a > ", 1)
    assert table.expression is None
    table.beat("a > 5", 2)
    table.beat("a > ", 3)
    assert table.expression is None
    table.beat("a > 6", 4)
    assert table.expression == "a > 6"


@pytest.mark.parametrize(("expression", "kind"), [("A || B", "TAG"), ("*", ""), ("", "SQL92"), ("x", "CLASS")])
def test_what_is_no_expression_is_not_registered(table: Table, expression: str, kind: str) -> None:
    table.beat(expression, kind=kind)
    assert table.expression is None


# ---------------------------------------------------------------------- death


def test_a_filter_dies_with_its_group_and_comes_back_with_it(table: Table) -> None:
    table.beat("a > 5", 1)
    table.filters.unregister("g")
    assert table.dead and table.filters.get("T", "g") is not None
    table.beat("a > 5", 0)
    assert table.dead
    table.beat("a > 5", 1)
    assert not table.dead
    table.filters.unregister("other")
    assert not table.dead


def test_a_filter_dies_when_its_topic_is_no_longer_subscribed(table: Table) -> None:
    table.beat("a > 5")
    table.beat("a > 5", topic="U")
    assert table.dead
    other = table.filters.get("U", "g")
    assert other is not None and not other.dead
    table.beat(None)
    assert other.dead


def test_a_dead_filter_is_kept_for_a_day(table: Table) -> None:
    table.beat("a > 5")
    table.filters.unregister("g")
    table.now += DAY - 1
    table.filters.clean()
    assert table.expression == "a > 5"
    table.now += 1
    table.filters.clean()
    assert table.expression is None


def test_a_living_filter_is_kept_for_ever(table: Table) -> None:
    table.beat("a > 5")
    table.now += 10 * DAY
    table.filters.clean()
    assert table.expression == "a > 5"
