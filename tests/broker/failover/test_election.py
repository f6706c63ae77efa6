"""Who may become master, and who goes first; until when a master is sure; whose logs an acknowledgement needs."""

from __future__ import annotations

import pytest

from eruca.broker.failover import in_sync
from eruca.broker.failover.election import Candidate, first, may_stand
from eruca.broker.failover.group import found
from eruca.broker.failover.in_sync import Replica, Report
from eruca.broker.failover.sureness import sure, sure_until

GROUP = found(0, "a").change(frozenset((0, 1, 2)), {1: "b", 2: "c"})


def candidate(broker_id: int, store: str, end: int, *, epoch: int = 1, priority: int = 5) -> Candidate:
    return Candidate(broker_id, store, epoch, end, priority)


def test_only_the_set_stands_with_the_stores_it_has() -> None:
    assert may_stand(GROUP, 1, "b", epoch=1, end=9)
    assert not may_stand(GROUP, 1, "another disk", epoch=1, end=9)
    assert not may_stand(GROUP, 3, "d", epoch=1, end=9)
    assert not may_stand(GROUP, 1, "b", epoch=2, end=9)  # etcd was restored: it knows less than the log


def test_who_has_lost_its_list_of_epochs_follows_first() -> None:
    assert not may_stand(GROUP, 1, "b", epoch=0, end=9)
    assert may_stand(GROUP, 1, "b", epoch=0, end=0)  # nothing was written, or nothing of it is sound
    assert may_stand(found(0, "a"), 0, "a", epoch=0, end=9)  # a founder: its list is written after it was elected


def test_the_longest_log_goes_first_then_the_priority() -> None:
    assert first(GROUP, [candidate(1, "b", 50), candidate(2, "c", 60)]) == candidate(2, "c", 60)
    assert first(GROUP, [candidate(1, "b", 60, priority=1), candidate(2, "c", 60)]) == candidate(1, "b", 60, priority=1)
    assert first(GROUP, [candidate(1, "new", 90), candidate(2, "c", 60)]) == candidate(2, "c", 60)
    assert first(GROUP, [candidate(1, "new", 90)]) is None


def test_who_has_the_tables_goes_before_who_was_killed() -> None:
    killed = candidate(1, "b", 90, priority=1)._replace(has_tables=False)
    assert first(GROUP, [killed, candidate(2, "c", 60)]) == candidate(2, "c", 60)
    assert first(GROUP, [killed, candidate(2, "new", 60)]) == killed
    assert first(GROUP, [killed, candidate(2, "c", 60)._replace(has_tables=False)]) == killed


def test_a_master_is_sure_by_its_lease_or_by_all_the_others() -> None:
    members = GROUP.sync_state_set
    assert sure_until(members, 0, (10_000, 3000), {}) == 12_700
    assert sure_until(members, 0, None, {1: 20_000, 2: 20_300}) == 21_500
    assert sure_until(members, 0, (19_000, 3000), {1: 20_000, 2: 20_300}) == 21_700
    assert sure_until(members, 0, None, {1: 20_000}) == 0
    assert sure_until(frozenset((0,)), 0, None, {}) is None
    assert sure(21_499, 21_500) and not sure(21_500, 21_500) and sure(21_500, None)


def test_an_acknowledgement_needs_the_set_and_who_is_proposed() -> None:
    alone = found(0, "a")
    wider = alone.change(frozenset((0, 1)), {1: "b"})
    replicas = in_sync.heard((), Report(1, "b", 1, 80, 7))
    assert in_sync.counted(alone, wider) == in_sync.counted(wider, alone) == {0, 1}
    assert in_sync.confirm_offset(50, 100, 0, frozenset((0, 1)), replicas) == 80
    assert in_sync.confirm_offset(90, 100, 0, frozenset((0, 1)), replicas) == 90
    assert in_sync.confirm_offset(50, 100, 0, frozenset((0, 1, 2)), replicas) == 50  # nothing was heard of 2
    assert in_sync.confirm_number(5, 9, 0, frozenset((0, 1)), replicas) == 7
    assert in_sync.confirm_number(8, 9, 0, frozenset((0, 1)), replicas) == 8
    assert in_sync.confirm_number(5, 9, 0, frozenset((0, 1, 2)), replicas) == 5


@pytest.mark.parametrize(
    ("replica", "members"),
    [
        (Replica(3, "d", 80, follows=True, tables=5), {0, 1, 2, 3}),
        (Replica(3, "d", 79, follows=True, tables=5), None),
        (Replica(3, "d", 80, follows=True, tables=4), None),
        (Replica(3, "d", 80, follows=False, tables=5), None),
        (Replica(1, "b", 80, follows=True, tables=5), None),
        (Replica(1, "b", 0, follows=True, tables=5), None),
        (Replica(1, "b", 0, follows=False, tables=5), {0, 2}),
        (Replica(1, "another disk", 80, follows=True, tables=5), {0, 1, 2}),
    ],
)
def test_the_set_that_a_master_proposes(replica: Replica, members: set[int] | None) -> None:
    wanted = in_sync.change(GROUP, (replica,), confirmed=80, tables=5, epoch_start=60)
    assert (wanted.sync_state_set if wanted is not None else None) == members
    if wanted is not None and replica.follows:
        assert wanted.has(replica.broker_id, replica.store)


def test_below_the_minimum_nothing_is_confirmed() -> None:
    alone = found(0, "a")
    wider = alone.change(frozenset((0, 1)), {1: "b"})
    assert in_sync.enough(wider, None, 2)
    assert not in_sync.enough(wider, alone, 2)
    assert not in_sync.enough(alone, wider, 2)
