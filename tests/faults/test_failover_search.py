"""The rules of failover, searched: in every order of events, who can be elected has all that was acknowledged, messages
and changes of tables, and no broker shows what may vanish.

The search drives the functions that decide in the broker. Each rule is broken once, and the search must find a way to a
loss; two of them need three brokers. Of worlds that are as good as each other it looks at one, and a test compares
these with all. It knows no time. Of tables there are two kinds: those on the disks (topics, groups, what operators
change), and those in memory (commits with an answer, locks), which a kill takes from one broker, and the next master
has, unless the killed one was alone in the set.
"""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from eruca.broker.failover import in_sync
from eruca.broker.failover.election import Candidate
from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.events import Event, Propose, Read, Welcomed
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Known, Member, Rules, State, Step
from tests.support.programme import ENOUGH, LONG, WHY
from tests.support.replica_search import Search, Violation
from tests.support.replica_worlds import (
    PRESENT,
    Bounds,
    Broker,
    Etcd,
    Log,
    Machines,
    Post,
    Request,
    World,
    first_world,
)

pytestmark = ENOUGH
LONG_ONLY = pytest.mark.skipif(not LONG, reason=WHY)


class InMemory(Machines):
    """The tables are commits and locks."""

    in_memory = True


class SyncFlush(Machines):
    """A power failure takes what was not flushed, or tears it; the broker keeps its store."""

    flushes_late = True


class LostLists(Machines):
    """The list of a log's epochs may be lost, and the log is there."""

    loses_epochs = True


def searched(
    brokers: int, bounds: Bounds, *, most: int | None = None, machines: Machines | None = None, in_set: int = 1
) -> Search:
    search = Search(Rules(), bounds, machines=machines)
    begin = time.monotonic()
    complete = search.run(first_world(brokers, in_set=in_set), most=most)
    took = f"{time.monotonic() - begin:.0f} s, {'all' if complete else 'the nearest'}"
    print(f"{brokers} brokers, {bounds}: {search.states:,} states in {took}")
    assert complete is (most is None)
    return search


@pytest.mark.slow
def test_two_brokers_lose_nothing_in_any_order_of_events() -> None:
    bounds = Bounds(messages=2, epochs=3, faults=1)
    search = searched(2, bounds)
    assert search.states > 10_000
    for epoch in (2, 3):
        assert {(epoch, 1, 0), (epoch, 2, 0), (epoch, 1, 2), (epoch, 2, 2)} <= search.met


def test_two_brokers_lose_nothing_when_the_mastership_is_handed_over_and_the_next_one_is_elected() -> None:
    search = searched(2, Bounds(messages=2, epochs=4, faults=0))
    assert {(3, 2, 2), (4, 1, 2)} <= search.met


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "machines"),
    [
        pytest.param(Bounds(messages=0, epochs=3, faults=1, changes=2), Machines(), id="on the disks"),
        pytest.param(Bounds(messages=0, epochs=3, faults=1, changes=1), InMemory(), id="in memory"),
    ],
)
def test_two_brokers_lose_no_change_of_tables_that_was_answered(bounds: Bounds, machines: Machines) -> None:
    search = searched(2, bounds, machines=machines)
    for epoch in (2, 3):
        assert (epoch, 2, bounds.changes) in search.answered


@LONG_ONLY
@pytest.mark.parametrize("machines", [Machines(), InMemory()], ids=["on the disks", "in memory"])
@pytest.mark.parametrize("bounds", [Bounds(1, 3, 1, 1), Bounds(0, 4, 1, 1), Bounds(0, 3, 1, 2)], ids=str)
def test_two_brokers_lose_no_change_of_tables_in_more_worlds(bounds: Bounds, machines: Machines) -> None:
    searched(2, bounds, machines=machines)


@LONG_ONLY
@pytest.mark.parametrize("machines", [Machines(), InMemory()], ids=["on the disks", "in memory"])
def test_three_brokers_lose_no_change_of_tables_in_the_nearest_of_more_worlds(machines: Machines) -> None:
    searched(3, Bounds(messages=0, epochs=4, faults=1, changes=1), most=500_000, machines=machines)


@LONG_ONLY
@pytest.mark.parametrize("bounds", [Bounds(3, 3, 1), Bounds(2, 4, 1), Bounds(2, 3, 2)], ids=str)
def test_two_brokers_lose_nothing_in_more_worlds(bounds: Bounds) -> None:
    searched(2, bounds)


@pytest.mark.slow
def test_three_brokers_lose_nothing_with_one_election() -> None:
    search = searched(3, Bounds(messages=1, epochs=2, faults=1))
    assert {(2, 1, 1), (2, 2, 1), (2, 3, 1)} <= search.met


@LONG_ONLY
def test_three_brokers_lose_nothing_with_two_elections() -> None:
    search = searched(3, Bounds(messages=1, epochs=3, faults=1))
    for epoch in (2, 3):
        assert {(epoch, 1, 1), (epoch, 2, 1), (epoch, 3, 1)} <= search.met


@LONG_ONLY
@pytest.mark.parametrize("machines", [Machines(), InMemory()], ids=["on the disks", "in memory"])
def test_three_brokers_lose_no_change_of_tables_with_one_election(machines: Machines) -> None:
    search = searched(3, Bounds(messages=0, epochs=2, faults=1, changes=1), machines=machines)
    assert {(2, 2, 1), (2, 3, 1)} <= search.answered


@LONG_ONLY
def test_three_brokers_lose_no_change_of_tables_with_two_elections() -> None:
    search = searched(3, Bounds(messages=0, epochs=3, faults=0, changes=1))
    for epoch in (2, 3):
        assert {(epoch, 1, 1), (epoch, 2, 1), (epoch, 3, 1)} <= search.answered


@LONG_ONLY
def test_three_brokers_lose_nothing_in_the_nearest_of_more_worlds() -> None:
    searched(3, Bounds(messages=2, epochs=4, faults=1), most=1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("in_set", [1, 2])
def test_two_brokers_lose_nothing_that_was_flushed_when_power_failures_tear_their_logs(in_set: int) -> None:
    search = searched(2, Bounds(messages=2, epochs=3, faults=2), machines=SyncFlush(), in_set=in_set)
    for epoch in (2, 3):
        assert {(epoch, 1, 0), (epoch, 2, 0), (epoch, 1, 2), (epoch, 2, 2)} <= search.met


@pytest.mark.slow
@pytest.mark.parametrize("in_set", [1, 2])
def test_two_brokers_lose_nothing_when_lists_of_epochs_are_lost(in_set: int) -> None:
    search = searched(2, Bounds(messages=2, epochs=3, faults=1), machines=LostLists(), in_set=in_set)
    for epoch in (2, 3):
        assert {(epoch, 1, 0), (epoch, 2, 0), (epoch, 1, 2), (epoch, 2, 2)} <= search.met


@LONG_ONLY
@pytest.mark.parametrize(
    ("brokers", "bounds"),
    [(2, Bounds(3, 3, 1)), (2, Bounds(2, 4, 1)), (3, Bounds(1, 2, 1)), (3, Bounds(1, 2, 2))],
    ids=str,
)
def test_brokers_lose_nothing_that_was_flushed_in_more_worlds(brokers: int, bounds: Bounds) -> None:
    searched(brokers, bounds, machines=SyncFlush())


# ---- what the search leaves out


@pytest.mark.parametrize(
    ("brokers", "bounds", "machines"),
    [
        pytest.param(2, Bounds(1, 3, 1), Machines(), id="messages"),
        pytest.param(2, Bounds(1, 3, 1), SyncFlush(), id="messages that are flushed late"),
        pytest.param(2, Bounds(1, 3, 1), LostLists(), id="messages and lost lists of epochs"),
        pytest.param(2, Bounds(0, 3, 1, 1), Machines(), id="tables on the disks"),
        pytest.param(2, Bounds(0, 3, 1, 1), InMemory(), id="tables in memory"),
        pytest.param(3, Bounds(0, 2, 0), Machines(), id="3 brokers"),
        pytest.param(3, Bounds(1, 2, 0), Machines(), id="3 brokers with a message", marks=LONG_ONLY),
    ],
)
def test_the_worlds_looked_at_are_the_forms_of_all_worlds(brokers: int, bounds: Bounds, machines: Machines) -> None:
    whole = Search(Rules(), bounds, machines=machines, reduces=False)
    whole.run(first_world(brokers))
    search = Search(Rules(), bounds, machines=machines)
    search.run(first_world(brokers))
    assert {search.form(world) for world in whole.worlds()} == set(search.worlds())
    assert (whole.met, whole.answered) == (search.met, search.answered)
    print(f"{brokers} brokers, {bounds}: {search.states:,} forms of {whole.states:,} states")


# ---- planted faults


class CountsTheOldSetOnly(Rules):
    """Who is proposed for the set counts only when etcd has said yes: it may be in the set before that is heard."""

    def counted(self, member: Member, known: Known) -> frozenset[int]:
        return known.group.sync_state_set


class ShrinksAtOnce(Rules):
    """Who is to leave the set counts no more before etcd has said yes."""

    def counted(self, member: Member, known: Known) -> frozenset[int]:
        group = member.proposed or known.group
        return group.sync_state_set


class ElectsAnybody(Rules):
    """A broker outside the set stands, too."""

    def may_stand(self, member: Member, known: Known) -> bool:
        return True


class CutsByLength(Rules):
    """A log is cut to the length of the master's, whatever is in it."""

    def cut_point(self, member: Member, answer: Welcomed) -> int | None:
        return min(member.end, answer.end)


class CountsAnyReport(Rules):
    """A report of any epoch counts."""

    def counts(self, member: Member, known: Known, report: Report) -> bool:
        return True


class TakesAReadForAnAnswer(Rules):
    """A change counts as refused when the key is read and has not changed: it may still be under way."""

    def is_decided(self, known: Known, read: Read) -> bool:
        return True


class ChangesBlindly(Etcd):
    """A change is taken whatever the key is."""

    def takes(self, request: Request) -> bool:
        return True


class KeepsItsStore(Machines):
    """A broker that lost the end of its log goes on as if it had not."""

    def store_after_loss(self, member: Member) -> str:
        return member.store


class ForgetsDamage(SyncFlush):
    """A broker whose log was torn takes what is behind the damage for its master's."""

    def damaged_at(self, flushed: int) -> int | None:
        return None


class CutsBehindDamage(Rules):
    """A log is compared by its epochs up to its end, damage or not."""

    def cut_point(self, member: Member, answer: Welcomed) -> int | None:
        return super().cut_point(replace(member, damaged_at=None), answer)


class AnswersAtOnce(Rules):
    """A change of tables is answered before the others have it."""

    def step(self, member: Member, event: Event) -> Step:
        step = super().step(member, event)
        after = step.member
        if after.state is State.MASTER:
            after = replace(after, tables_confirmed=after.tables)
        return replace(step, member=after)


class TakesInWithoutTables(Rules):
    """Whoever has the log comes into the set."""

    def wanted(self, member: Member, known: Known) -> Group | None:
        return in_sync.change(known.group, member.replicas, member.confirmed, 0, member.epochs[-1].start)


class ReportsBeforeItsDisk(Machines):
    """Tables are reported before they are on the disk."""

    def tables_after_kill(self, tables: Log) -> Log:
        return tables[:-1]


class ForgetsWhoWasKilled(InMemory):
    """Who was killed stands as any other: its log may be the longest."""

    def first(self, group: Group, candidates: list[Candidate]) -> Candidate | None:
        return super().first(group, [each._replace(has_tables=True) for each in candidates])


class MajorityIsEnough(Rules):
    """A message is acknowledged when most of the set have it."""

    def counted(self, member: Member, known: Known) -> frozenset[int]:
        members = super().counted(member, known)
        ends = {replica.broker_id: replica.end for replica in member.replicas}
        others = sorted(members - {member.broker_id}, key=lambda each: -ends.get(each, 0))
        return frozenset((member.broker_id, *others[: len(members) // 2]))


class AsksForMoreAtOnce(Rules):
    """Another change of the set is asked for before it is known what became of the last one, which counts no more."""

    def step(self, member: Member, event: Event) -> Step:
        step = super().step(member, event)
        after, known = step.member, step.member.known
        if after.state is not State.MASTER or known is None or after.proposed is None:
            return step
        wanted = self.wanted(after, known)
        its_own = after.proposed.master_broker_id == after.broker_id
        if wanted is None or not its_own or wanted.sync_state_set == after.proposed.sync_state_set:
            return step
        return Step(replace(after, proposed=wanted), (*step.actions, Propose(wanted, known.revision)))


def two(in_set: int) -> World:
    return first_world(2, in_set=in_set)


def with_an_old_report() -> World:
    """Broker 0 is master for the second time. In its first epoch broker 1 had a message of it, which it lost to a third
    broker's epoch in between; its report is still under way."""
    world = first_world(2)
    group = world.group._replace(master_epoch=4)
    master = Member(0, "a", 0, (Epoch(4, 0),), State.MASTER, Known(group, PRESENT))
    return world._replace(
        group=group,
        brokers=(Broker(master, ()), world.brokers[1]),
        posts=frozenset((Post(0, Report(1, "b", 2, 1)),)),
    )


def with_an_old_report_of_tables() -> World:
    """The same of a change of tables, number 2 in both epochs."""
    world = with_an_old_report()
    return world._replace(
        brokers=(world.brokers[0]._replace(member=replace(world.brokers[0].member, tables=1)), world.brokers[1]),
        posts=frozenset((Post(0, Report(1, "b", 2, 0, 2)),)),
    )


@pytest.mark.parametrize(
    ("rules", "etcd", "machines", "first", "bounds"),
    [
        pytest.param(CountsTheOldSetOnly(), Etcd(), Machines(), two(1), Bounds(2, 3, 0), id="expansion not counted"),
        pytest.param(ShrinksAtOnce(), Etcd(), Machines(), two(2), Bounds(2, 3, 0), id="shrinks before etcd's yes"),
        pytest.param(ElectsAnybody(), Etcd(), Machines(), two(1), Bounds(2, 3, 0), id="election outside the set"),
        pytest.param(CutsByLength(), Etcd(), Machines(), two(1), Bounds(2, 4, 0), id="cut by length"),
        pytest.param(
            CountsAnyReport(), Etcd(), Machines(), with_an_old_report(), Bounds(2, 5, 0), id="reports of any epoch"
        ),
        pytest.param(
            TakesAReadForAnAnswer(), Etcd(), Machines(), two(1), Bounds(2, 3, 0), id="a read taken for an answer"
        ),
        pytest.param(Rules(), ChangesBlindly(), Machines(), two(1), Bounds(2, 3, 0), id="blind change"),
        pytest.param(Rules(), Etcd(), KeepsItsStore(), two(2), Bounds(1, 3, 1), id="lost tail"),
        pytest.param(Rules(), Etcd(), ForgetsDamage(), two(2), Bounds(1, 3, 1), id="damage that nobody knows of"),
        pytest.param(CutsBehindDamage(), Etcd(), SyncFlush(), two(2), Bounds(1, 3, 1), id="cut behind damage"),
        pytest.param(
            AnswersAtOnce(), Etcd(), Machines(), two(1), Bounds(0, 3, 0, 1), id="a change answered before all have it"
        ),
        pytest.param(
            TakesInWithoutTables(), Etcd(), Machines(), two(1), Bounds(0, 3, 0, 1), id="in the set without tables"
        ),
        pytest.param(
            CountsAnyReport(),
            Etcd(),
            Machines(),
            with_an_old_report_of_tables(),
            Bounds(0, 5, 0, 1),
            id="reports of tables of any epoch",
        ),
        pytest.param(
            Rules(), Etcd(), ReportsBeforeItsDisk(), two(1), Bounds(0, 3, 1, 1), id="tables that are not on the disk"
        ),
        pytest.param(
            Rules(), Etcd(), ForgetsWhoWasKilled(), two(1), Bounds(0, 3, 1, 1), id="who was killed goes first"
        ),
    ],
)
def test_a_planted_fault_is_found(rules: Rules, etcd: Etcd, machines: Machines, first: World, bounds: Bounds) -> None:
    search = Search(rules, bounds, etcd=etcd, machines=machines)
    with pytest.raises(Violation) as wrong:
        search.run(first)
    print(f"{search.states:,} states\n{wrong.value}")


@pytest.mark.parametrize("rules", [MajorityIsEnough(), AsksForMoreAtOnce()], ids=["a majority", "two changes at once"])
def test_a_planted_fault_that_two_brokers_do_not_show_is_found_with_three(rules: Rules) -> None:
    bounds = Bounds(1, 3, 0)
    assert Search(rules, bounds).run(first_world(2))
    search = Search(rules, bounds)
    with pytest.raises(Violation) as wrong:
        search.run(first_world(3))
    print(f"{search.states:,} states\n{wrong.value}")


def test_the_world_with_an_old_report_is_sound_by_itself() -> None:
    Search(Rules(), Bounds(messages=1, epochs=5, faults=0)).run(with_an_old_report())
