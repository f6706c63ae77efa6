"""The judge of what a group promised beside sends finds each planted fault."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.support.failover_promises import LEASE, SAVED, BrokerTables, Promises, Register, TopicState, Value

SMALL, LARGE = TopicState(1, 1, 6, "SINGLE_TAG"), TopicState(8, 8, 4, "MULTI_TAG")
OFFSET = "T@G/0"
GROUP = (16, True)


def told() -> Promises:
    """One topic that is there and one that was deleted, a group, an offset, one message that came late and one rolled
    back."""
    promises = Promises()
    promises.topics = {"there": _set(SMALL), "gone": _set(SMALL, None)}
    promises.groups = {"G": _set(GROUP)}
    promises.offsets[OFFSET] = _set(5, 7)
    promises.owed.add(b"late")
    promises.rolled_back.add(b"rolled back")
    return promises


def _set(*values: Value) -> Register:
    register = Register()
    for value in values:
        register.ask(value)
        register.answer(value, 1.0, 2.0, on_disk=False)
    return register


def tables(there: TopicState | None = SMALL, offset: int = 7, **more: TopicState) -> BrokerTables:
    topics = more if there is None else {"there": there, **more}
    return BrokerTables(topics, {OFFSET: offset}, {"G": GROUP})


BROUGHT = [b"late", b"nobody answered this one"]


def kinds(faults: list[str]) -> list[str]:
    return [fault.split()[0] for fault in faults]


def test_promises_that_were_kept_have_no_fault() -> None:
    assert told().faults({1: tables(), 2: tables()}, BROUGHT) == []


@pytest.mark.parametrize(
    ("slave", "word"),
    [
        pytest.param(tables(None), "topic:", id="a topic that was made is not there"),
        pytest.param(tables(LARGE), "topic:", id="a topic is another one"),
        pytest.param(tables(gone=SMALL), "topic:", id="a topic that was deleted is there"),
        pytest.param(tables(offset=5), "offset:", id="an offset is an older one"),
        pytest.param(tables()._replace(groups={}), "group:", id="a group that was made is not there"),
        pytest.param(tables()._replace(groups={"G": (3, True)}), "group:", id="a group is another one"),
    ],
)
def test_a_table_of_one_broker_that_is_not_as_was_answered_is_found(slave: BrokerTables, word: str) -> None:
    assert kinds(told().faults({1: tables(), 2: slave}, BROUGHT)) == [word, "tables:"]
    assert kinds(told().faults({1: slave, 2: slave}, BROUGHT)) == [word, word]


def test_a_change_that_was_not_answered_may_be_done_or_not() -> None:
    promises = told()
    promises.topics["there"].ask(LARGE)
    promises.offsets[OFFSET].ask(9)
    for there, offset in ((SMALL, 7), (LARGE, 9)):
        assert promises.faults({1: tables(there, offset)}, BROUGHT) == []
    promises.topics["there"].answer(LARGE, 3.0, 4.0, on_disk=True)
    promises.offsets[OFFSET].answer(9, 3.0, 4.0, on_disk=False)
    assert kinds(promises.faults({1: tables()}, BROUGHT)) == ["topic:", "offset:"]


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        pytest.param(24.0, [3, 5, 7], id="since the last reset"),
        pytest.param(22.0 + SAVED, [5, 7], id="what was saved since, no more"),
        pytest.param(24.0 + SAVED, [7], id="all is saved"),
        pytest.param(22.5, [7], id="committed afterwards"),
    ],
)
def test_after_no_broker_ran_an_offset_may_be_what_it_was_before_it_was_saved(moment: float, left: list[int]) -> None:
    promises = Promises()
    register = promises.offsets[OFFSET] = _set(9)
    register.answer(3, 20.0, 20.5, on_disk=True)
    register.answer(5, 21.0, 21.5, on_disk=False)
    register.answer(7, 23.0, 23.5, on_disk=False)
    found = [
        value
        for value in range(10)
        if not promises.faults({1: BrokerTables({}, {OFFSET: value}, {})}, [], all_down=[moment])
    ]
    assert found == left


def test_tables_that_differ_in_what_nobody_was_answered_are_found() -> None:
    other = tables(made=LARGE)._replace(groups={"G": GROUP, "other": GROUP})
    assert kinds(told().faults({1: tables(), 2: other}, BROUGHT)) == ["tables:", "tables:"]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        pytest.param([], "missing:", id="a message that was acknowledged is nowhere"),
        pytest.param([b"late", b"late"], "again:", id="a message is there twice"),
        pytest.param([b"late", b"rolled back"], "undone:", id="a message was rolled back and is there"),
    ],
)
def test_a_message_that_is_not_there_once_is_found(found: list[bytes], word: str) -> None:
    assert kinds(told().faults({1: tables(), 2: tables()}, found)) == [word]


def held() -> Promises:
    """A client got a queue at 10 s, by what it asked for at 9 s."""
    promises = Promises()
    promises.holds.granted("q", "one", 9.0, 10.0)
    return promises


def lock_faults(promises: Promises, all_down: Collection[float] = ()) -> list[str]:
    return kinds(promises.faults({1: BrokerTables({}, {}, {})}, [], all_down))


def test_a_lock_that_two_hold_at_once_is_found() -> None:
    promises = held()
    promises.holds.granted("q", "other", 11.0, 12.0)
    assert lock_faults(promises) == ["locked:"]


def test_a_lock_that_its_holder_does_not_get_again_in_time_is_found() -> None:
    promises = held()
    promises.holds.refused("q", "one", 12.0)
    assert lock_faults(promises) == ["taken:"]


def test_a_lock_that_was_renewed_given_up_or_not_renewed_in_time_goes_to_another_one() -> None:
    renewed = held()
    renewed.holds.granted("q", "one", 11.0, 12.0)
    renewed.holds.gives_up("q", "one")
    renewed.holds.granted("q", "other", 11.5, 12.5)
    late = held()
    late.holds.granted("q", "other", 9.0 + LEASE, 9.0 + LEASE)
    refused = held()
    refused.holds.refused("q", "other", 11.0)
    refused.holds.refused("q", "one", 9.0 + LEASE)
    assert lock_faults(renewed) == lock_faults(late) == lock_faults(refused) == []
    assert renewed.holds.granted_locks == 3


@pytest.mark.parametrize(("moment", "kept"), [(10.5, False), (8.0, True), (13.0, True)])
def test_locks_may_be_gone_only_where_no_broker_ran_after_they_were_granted(moment: float, kept: bool) -> None:
    promises = held()
    promises.holds.granted("q", "other", 11.0, 12.0)
    assert bool(lock_faults(promises, [moment])) is kept
