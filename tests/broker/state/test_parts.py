"""Parts of tables: a table that takes what another one gives is equal to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eruca.broker.state.deletions import Deletions
from eruca.broker.state.filters import Filters
from eruca.broker.state.groups import Groups
from eruca.broker.state.locks import EXPIRE_AFTER, Locks
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.parts import Part, Table
from eruca.broker.state.topics import Topics
from eruca.protocol.bloom import BloomFilter
from eruca.protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import MessageQueue
from eruca.protocol.subscription import SQL92

NOW = 1_700_000_000_000
QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def topics(folder: Path) -> tuple[Topics, Callable[[], object]]:
    table = Topics(folder / "topics.json", lambda: NOW)
    table.put(TopicConfig(topic_name="Goes"))

    def change() -> None:
        table.put(TopicConfig(topic_name="Comes", read_queue_nums=2, write_queue_nums=2))
        table.remove("Goes")

    return table, change


def groups(folder: Path) -> tuple[Groups, Callable[[], object]]:
    table = Groups(folder / "subscriptionGroup.json", lambda: NOW, lambda: True)
    table.put(SubscriptionGroupConfig(group_name="Goes"))

    def change() -> None:
        table.put(SubscriptionGroupConfig(group_name="Comes", retry_max_times=3))
        table.remove("Goes")

    return table, change


def offsets(folder: Path) -> tuple[Offsets, Callable[[], object]]:
    table = Offsets(folder / "consumerOffset.json")
    table.commit("Goes", "T", 0, 5)
    table.commit("Stays", "T", 1, 6)

    def change() -> None:
        table.commit("Comes", "T", 2, 7)
        table.clone("Stays", "Clone", "T")
        table.fit(lambda topic, queue_id: 6, without="")
        table.remove_group("Goes")

    return table, change


def filters(folder: Path) -> tuple[Filters, Callable[[], object]]:
    now = NOW
    bloom = BloomFilter.of(20, 32)
    table = Filters(folder / "consumerFilter.json", lambda: now, lambda: 1000, bloom)

    def subscribe(group: str, expression: str, version: int) -> None:
        subscription = SubscriptionData(topic="T", sub_string=expression, expression_type=SQL92, sub_version=version)
        table.register(group, [subscription])

    subscribe("Goes", "a > 1", 1)
    subscribe("Stays", "a > 1", 1)

    def change() -> None:
        nonlocal now
        table.unregister("Goes")
        now += 2000
        subscribe("Stays", "a > 2", 2)
        subscribe("Comes", "a > 3", 1)
        table.clean()

    return table, change


def deletions(folder: Path) -> tuple[Deletions, Callable[[], object]]:
    table = Deletions(folder / "deletedTopics.json", most=1)
    table.note("Goes", 0, 5)
    table.note("Stays", 0, 20)

    def change() -> None:
        table.note("Comes", 0, 30)
        table.settle(10, 15)

    return table, change


def locks(folder: Path) -> tuple[Locks, Callable[[], object]]:
    table = Locks()
    table.lock("G", QUEUES[:2], "c", 0)

    def change() -> None:
        table.unlock("G", QUEUES[:1], "c")
        table.drop_expired(70_000)
        table.lock("G", QUEUES[1:], "d", 70_000)

    return table, change


@pytest.mark.parametrize("make", [topics, groups, offsets, filters, locks, deletions])
def test_a_table_that_takes_the_parts_of_another_one_is_equal_to_it(
    make: Callable[[Path], tuple[Table, Callable[[], object]]], tmp_path: Path
) -> None:
    table, change = make(tmp_path / "one")
    other, _ = make(tmp_path / "two")
    other.take_part(table.part(None))
    assert other.part(None) == table.part(None)
    changed: list[str] = []
    table.on_change = changed.append
    change()
    assert changed and other.part(None) != table.part(None)
    other.take_part(table.part(dict.fromkeys(changed)))
    assert other.part(None) == table.part(None)
    third, strange = make(tmp_path / "three")
    strange()
    third.take_part(table.part(None))
    assert third.part(None) == table.part(None)


@pytest.mark.parametrize("make", [topics, groups, offsets, filters, locks, deletions])
def test_what_is_no_part_is_refused(make: Callable[[Path], tuple[Table, Callable[[], object]]], tmp_path: Path) -> None:
    table, _ = make(tmp_path)
    before = table.part(None)
    with pytest.raises(ProtocolError):
        table.take_part(Part(True, b"\x00", []))
    assert table.part(None) == before


def test_who_holds_a_queue_elsewhere_holds_it_here_until_it_expires_after_a_renewal() -> None:
    one, two = Locks(), Locks()
    one.lock("G", QUEUES, "c", 0)
    two.take_part(one.part(None))
    two.drop_expired(10 * EXPIRE_AFTER)
    assert two.owner("G", QUEUES[0], 10 * EXPIRE_AFTER) == "c"
    two.renew(5)
    assert two.lock("G", QUEUES, "d", 6) == []
    assert two.owner("G", QUEUES[0], 5 + EXPIRE_AFTER) == "c"
    assert two.owner("G", QUEUES[0], 6 + EXPIRE_AFTER) is None
