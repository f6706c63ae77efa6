"""mqadmin recreateGroup: a group that etcd has lost is written again, by a broker that has all; what else may be lost
is said, and taken only where the operator names the broker."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eruca.admin.cli import run
from eruca.admin.errors import AdminError
from eruca.admin.results.recreation import Knowledge, plan
from eruca.broker.store.damage_mark import mark_damage
from eruca.protocol.bodies import KVTable
from tests.admin.conftest import Done
from tests.broker.elected import Group
from tests.broker.services.replication.pairs import until
from tests.support.desk import Desk
from tests.support.names import Names
from tests.support.sends import message

SEND, STATUS = 310, 28
SET = {1: "a", 2: "b"}


def knows(number: int, **differs: Any) -> Knowledge:
    """Broker 1, 2 or 3 of a group whose last set were 1 and 2 in epoch 5; etcd has lost it."""
    known = Knowledge(
        broker_id=number,
        address=f"10.0.0.{number}:10911",
        leads=False,
        forgotten=True,
        store="abc"[number - 1],
        log_epoch=5,
        end=100,
        age=(5, 8),
        members=SET,
    )
    return known._replace(**differs)


def test_the_longest_log_of_the_set_is_chosen_and_nothing_is_lost_when_all_of_it_answer() -> None:
    made = plan([knows(1), knows(2, end=140), knows(3, end=900)])
    assert (made.chosen.broker_id, made.losses, made.epoch, made.set_epoch) == (2, (), 5, 8)


def test_the_newest_group_that_anybody_knows_says_who_was_in_the_set() -> None:
    later = knows(1, age=(5, 9), members={1: "a"})
    made = plan([later, knows(2, end=900, log_epoch=6), knows(3)])
    assert (made.chosen, made.losses, made.epoch, made.set_epoch) == (later, (), 6, 9)


def test_where_all_of_the_set_may_have_lost_their_ends_who_goes_furthest_is_offered() -> None:
    """As when the power of all failed with ASYNC_FLUSH; a longer log of an older epoch has an end that nobody took."""
    made = plan([knows(1, store="new"), knows(2, store="new2", end=90), knows(3, log_epoch=4, end=900)])
    assert (made.chosen.broker_id, len(made.losses)) == (1, 3)


@pytest.mark.parametrize(("damaged_at", "end"), [({}, 900), ({"groupDamagedAt": "80"}, 80)])
def test_a_log_counts_up_to_its_damage(damaged_at: dict[str, str], end: int) -> None:
    """A power failure leaves a log torn: one that is shorter, and sound, has more of what was acknowledged."""
    table = {
        "groupBrokerId": "1",
        "groupState": "barred",
        "groupForgotten": "true",
        "groupStore": "new",
        "groupLogEpoch": "5",
        "commitLogMaxOffset": "900",
    }
    torn = Knowledge.of("10.0.0.1:10911", table | damaged_at)
    assert torn.end == end
    assert plan([torn, knows(2, store="new2")]).chosen.broker_id == (1 if end > 100 else 2)
    assert plan([knows(2, store="new2", end=end, reach=end + 10), torn]).chosen.broker_id == (1 if end < 100 else 2)


def test_a_member_of_the_set_that_does_not_answer_may_have_been_the_master_since() -> None:
    (loss,) = plan([knows(1), knows(3)]).losses
    assert loss.startswith("broker 2 of the last syncStateSet (1, 2) does not answer")


def test_a_member_with_another_disk_and_one_that_knows_of_no_group_are_relied_on_no_more() -> None:
    (loss,) = plan([knows(1), knows(2, store="new")]).losses
    assert "broker 2 of the last syncStateSet (1, 2) has another disk" in loss
    (loss,) = plan([knows(1), knows(2, age=(0, 0), members={})]).losses
    assert "broker 2 of the last syncStateSet (1, 2) does not know of which group it was" in loss


def test_a_broker_outside_of_the_set_lacks_what_was_acknowledged_without_it() -> None:
    (loss,) = plan([knows(1), knows(2), knows(3)], 3).losses
    assert loss.startswith("broker 3 was not in the last syncStateSet (1, 2)")


def test_where_nobody_knows_a_group_the_longest_log_is_offered_as_a_loss() -> None:
    made = plan([knows(number, age=(0, 0), members={}, end=number) for number in (1, 2)])
    assert (made.chosen.broker_id, made.epoch) == (2, 5)
    assert made.losses == (
        "broker 2 was not in the last syncStateSet (unknown), or with another store: what was acknowledged without it "
        "is lost",
    )


def test_a_master_by_an_older_state_of_etcd_loses_what_it_has_acknowledged() -> None:
    past = knows(3, forgotten=False, leads=True, age=(4, 9), members={3: "c"}, log_epoch=4)
    (loss,) = plan([knows(1), knows(2), past]).losses
    assert loss == "broker 3 leads by what etcd has now, epoch 4: what it has acknowledged is lost"


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        (None, "etcd has the group of these brokers, there is nothing to recreate: 1 leads, 2 takes part"),
        (1, "etcd has the group of these brokers, there is nothing to recreate: 1 leads, 2 takes part"),
    ],
)
def test_a_group_that_etcd_has_is_left_alone(wanted: int | None, fault: str) -> None:
    with pytest.raises(AdminError) as refused:
        plan([knows(1, forgotten=False, leads=True), knows(2, forgotten=False)], wanted)
    assert str(refused.value) == fault


def test_without_a_master_the_page_that_says_why_is_named() -> None:
    with pytest.raises(AdminError) as refused:
        plan([knows(1, forgotten=False), knows(2, forgotten=False)])
    assert str(refused.value) == (
        "etcd has the group of these brokers, there is nothing to recreate: 1 takes part, 2 takes part; why nobody "
        "leads, see no-master in the runbook"
    )


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        (2, "broker 2 takes part in a group that etcd has: choose one of 1"),
        (7, "broker 7 does not answer: choose one of 1"),
    ],
)
def test_only_a_broker_that_etcd_has_forgotten_is_chosen(wanted: int, fault: str) -> None:
    with pytest.raises(AdminError) as refused:
        plan([knows(1), knows(2, forgotten=False)], wanted)
    assert str(refused.value) == fault


# ---- with brokers


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[Names]:
    async with Names(tmp_path) as names:
        yield names


@pytest.fixture
async def group(tmp_path: Path, names: Names) -> AsyncIterator[Group]:
    async with Group(tmp_path, names) as group:
        yield group


class Operator:
    """Who runs the command, with a terminal or without one."""

    def __init__(self, names: Names, home: Path) -> None:
        self._names = names
        self._variables = {"NAMESRV_ADDR": names.address, "XDG_STATE_HOME": str(home)}

    async def recreate(self, *options: str, answers: str | None = None) -> Done:
        out, err = io.StringIO(), io.StringIO()
        line = ("recreateGroup", "-c", "Lab", "-bn", "broker-a", *options)
        terminal = None if answers is None else io.StringIO(answers)
        return Done(await run(line, self._variables, out, err, terminal), out.getvalue(), err.getvalue())

    async def knows(self, *desks: Desk) -> None:
        """Wait until the nameserver has these brokers, all of them as slaves."""
        there = {desk.broker.role.member_id: desk.app.address for desk in desks}
        async with asyncio.timeout(20):
            while (await self._names.brokers()).get("broker-a") != there:
                await desks[0].broker.registration.register_all()


async def forgotten(*desks: Desk) -> None:
    """Wait until brokers have noticed that etcd has lost their group."""
    for desk in desks:
        await until(lambda: "etcd was emptied" in desk.broker.readiness.reasons.get("group", ""))  # noqa: B023


async def test_an_operator_has_a_group_written_again_after_etcd_was_emptied(
    group: Group, names: Names, tmp_path: Path
) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    one.topic("T", 2)
    assert [(await one.ask(SEND, message(), b"%d" % number)).code for number in range(5)] == [0] * 5
    operator = Operator(names, tmp_path)
    there = await operator.recreate("--yes")
    assert there.status == 1 and "there is nothing to recreate" in there.err

    group.etcd.empty()
    await forgotten(one, two)
    await group.stop(1)
    one = await group.start(1)  # what it knows is on its disk
    await forgotten(one)
    await operator.knows(one, two)
    assert (await one.ask(SEND, message(), b"nobody leads")).code == 14
    unasked = await operator.recreate()
    assert unasked.status == 1 and "nobody is here to be asked; --yes does it" in unasked.err
    declined = await operator.recreate(answers="n\n")
    assert declined.status == 1 and declined.err.endswith("nothing was changed\n")
    assert all("nothing that was acknowledged is lost" in each.err for each in (unasked, declined))

    done = await operator.recreate("-b", "2", answers="y\n")
    assert done.status == 0 and f"#BrokerMasterAddr\t{two.app.address}" in done.out, done
    assert await group.led({1, 2}) is two
    assert (await two.ask(SEND, message(), b"goes on")).code == 0
    await until(lambda: one.broker.store.max_offset("T", 0) == 6)
    assert [bytes(record.body) for record in one.records("T", 0)] == [b"0", b"1", b"2", b"3", b"4", b"goes on"]
    assert one.broker.readiness.reasons == two.broker.readiness.reasons == {}


async def test_what_may_be_lost_is_taken_only_with_the_number_of_the_broker(
    group: Group, names: Names, tmp_path: Path
) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    group.etcd.empty()
    await forgotten(one, two)
    await group.stop(1)
    operator = Operator(names, tmp_path)
    await operator.knows(two)
    refused = await operator.recreate("--yes")
    assert refused.status == 1 and "broker 1 of the last syncStateSet (1, 2) does not answer" in refused.err
    assert "name the master (-b 2) to take that loss" in refused.err
    assert (await operator.recreate("-b", "2", "--yes")).status == 0
    assert await group.led({2}) is two
    await group.start(1)
    assert await group.led({1, 2}) is two


async def test_a_broker_says_where_its_log_is_damaged(group: Group, tmp_path: Path) -> None:
    root = tmp_path / "2" / "store"
    root.mkdir(parents=True)
    mark_damage(root, 80, 120)
    two = await group.start(2)
    assert KVTable.decode((await two.ask(STATUS)).body).table["groupDamagedAt"] == "80"
