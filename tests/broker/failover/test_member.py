"""Rules of a member, by hand: what the search of worlds does not meet."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eruca.broker.failover.epochs import Epoch, cut
from eruca.broker.failover.events import Changed, CutTo, Event, Note, Propose, Reported, Stored, Welcomed
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Known, Member, Rules, State

PAIR = Group(1, 2, frozenset((1, 2)), 3, ((1, "a"), (2, "b")))


def after(*events: Event, rules: Rules) -> tuple[Member, list[Group]]:
    """A master of ``PAIR``, whose log ends at 10, after these events; what it has proposed."""
    member = Member(1, "a", 10, (Epoch(2, 0),), State.MASTER, Known(PAIR, 1), confirmed=10, acknowledged=10, tables=2)
    proposed = []
    for event in events:
        step = rules.step(member, event)
        member = step.member
        proposed += [action.group for action in step.actions if isinstance(action, Propose)]
    return member, proposed


def reported(store: str, end: int) -> Reported:
    return Reported(Report(2, store, 2, end, 2))


def test_a_report_brings_up_to_where_the_log_of_the_master_is_written() -> None:
    member, _ = after(Reported(Report(2, "b", 2, 20, 2), 15), rules=Rules())
    assert (member.end, member.confirmed) == (15, 15)
    member = Rules().step(member, Reported(Report(2, "b", 2, 20, 2), 12)).member  # it waited, and says less by now
    assert (member.end, member.confirmed) == (15, 15)


@pytest.mark.parametrize("acknowledging", [None, 2], ids=["all of the set", "inSyncReplicas=2"])
def test_a_member_with_another_store_counts_only_when_etcd_has_it_with_that_one(acknowledging: int | None) -> None:
    """Until then the one with the former store may be elected: of two brokers with one brokerId, or a disk that is back
    again."""
    rules = Rules(acknowledging=acknowledging)
    member, proposed = after(reported("b", 10), Stored(15), reported("another", 15), rules=rules)
    assert (member.confirmed, member.tables_confirmed, rules.promise(member).acknowledged) == (10, 2, 10)
    assert [group.has(2, "another") for group in proposed] == [True]
    member = rules.step(member, Changed(2)).member
    assert (member.confirmed, rules.promise(member).acknowledged) == (15, 15)


def test_of_a_change_of_tables_the_same_holds() -> None:
    rules = Rules()
    member, _ = after(reported("another", 10), rules=rules)
    assert member.tables_confirmed == 0
    assert rules.step(member, Changed(2)).member.tables_confirmed == 2


def test_a_newcomer_counts_from_the_moment_in_which_it_is_proposed() -> None:
    rules = Rules()
    alone = PAIR._replace(sync_state_set=frozenset((1,)))
    member, _ = after(rules=rules)
    step = rules.step(replace(member, known=Known(alone, 1)), reported("new", 10))
    assert [action.group.has(2, "new") for action in step.actions if isinstance(action, Propose)] == [True]
    member = rules.step(step.member, Stored(15)).member
    assert member.confirmed == 10
    assert rules.step(member, reported("new", 15)).member.confirmed == 15


FOLLOWER = Member(2, "new", 30, (Epoch(2, 0), Epoch(4, 20)), State.JOINING, Known(PAIR._replace(master_epoch=5), 1))
"""It knows the master of epoch 5."""


@pytest.mark.parametrize(
    ("damaged_at", "end"), [(None, 30), (25, 25), (20, 20), (15, 15), (0, 0)], ids=lambda value: str(value)
)
def test_a_log_with_damage_is_the_masters_up_to_there_whatever_its_epochs_say(damaged_at: int | None, end: int) -> None:
    answer = Welcomed(5, (Epoch(2, 0), Epoch(4, 20), Epoch(5, 30)), 40, 40)
    step = Rules().step(replace(FOLLOWER, damaged_at=damaged_at), answer)
    epochs = cut(FOLLOWER.epochs, end)
    assert [action for action in step.actions if isinstance(action, CutTo)] == [CutTo(end, epochs)][: end < 30]
    assert (step.member.end, step.member.epochs, step.member.damaged_at) == (end, epochs, None)


@pytest.mark.parametrize(("damaged_at", "end"), [(None, 30), (25, 25)])
def test_a_log_without_epochs_is_taken_over_up_to_its_damage(damaged_at: int | None, end: int) -> None:
    answer = Welcomed(5, (Epoch(1, 0), Epoch(5, 30)), 40, 40, same=end)
    step = Rules().step(replace(FOLLOWER, epochs=(), damaged_at=damaged_at), answer)
    assert step.actions[0] == (Note((Epoch(1, 0),)) if end == 30 else CutTo(end, (Epoch(1, 0),)))
    assert (step.member.end, step.member.confirmed) == (end, end)


@pytest.mark.parametrize(
    ("damaged_at", "epochs"),
    [
        (None, (Epoch(2, 0), Epoch(4, 20), Epoch(6, 30))),
        (25, (Epoch(2, 0), Epoch(4, 20), Epoch(6, 25))),
        (20, (Epoch(2, 0), Epoch(6, 20))),
        (0, (Epoch(6, 0),)),
    ],
)
def test_what_a_master_has_behind_damage_is_of_its_own_epoch(damaged_at: int | None, epochs: tuple[Epoch, ...]) -> None:
    """So that others that have what was lost there are cut back to it."""
    elected = PAIR._replace(master_epoch=5).elect(2, "new")
    candidate = replace(FOLLOWER, state=State.CANDIDATE, proposed=elected, damaged_at=damaged_at)
    step = Rules().step(candidate, Changed(2))
    assert step.actions == (Note(epochs),) and step.member.damaged_at is None


@pytest.mark.parametrize(
    ("damaged_at", "epoch", "end"), [(None, 4, 30), (25, 4, 25), (20, 2, 20), (0, 0, 0), (30, 4, 30)]
)
def test_what_is_behind_damage_lets_nobody_go_first(damaged_at: int | None, epoch: int, end: int) -> None:
    candidate = replace(FOLLOWER, damaged_at=damaged_at).candidate(7)
    assert (candidate.epoch, candidate.end, candidate.priority) == (epoch, end, 7)


def test_an_epoch_without_a_byte_counts_for_a_candidate() -> None:
    assert replace(FOLLOWER, epochs=(*FOLLOWER.epochs, Epoch(5, 30))).candidate(0).epoch == 5


@pytest.mark.parametrize(("end", "epoch"), [(30, 4), (20, 4), (19, 2), (0, 2)])
def test_an_epoch_whose_bytes_a_power_failure_took_lets_nobody_go_first(end: int, epoch: int) -> None:
    """The list of epochs is on the disk before the bytes. Who has not lost those before has more."""
    candidate = replace(FOLLOWER, end=end).candidate(7)
    assert (candidate.epoch, candidate.end) == (epoch, end)
