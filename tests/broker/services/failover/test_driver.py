"""Drivers of one group, with a coordination service in the test's hand: founding, election, kills, and trouble."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest
from structlog.testing import capture_logs

from eruca.broker.coordination.port import Entry
from eruca.broker.failover.events import MasterLost, Welcomed
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import State
from eruca.broker.services.failover.group_part import Desk, GroupPart, RecreationRefused
from eruca.broker.services.failover.ports import Frame
from tests.support.coordination import FakeClient, FakeCoordinator
from tests.support.failover_groups import KEYS, Disk, Machine, MemoryGroup, until


async def three(group: MemoryGroup[FakeClient]) -> Machine[FakeClient]:
    """Broker 1 leads, all are in the set, and have ten messages."""
    await group.start(1, 2, 3)
    master = await group.led(by=1, members={1, 2, 3})
    master.put(10)
    await group.all_have(10)
    return master


async def test_the_one_that_is_configured_as_master_founds_the_group_and_all_come_into_the_set(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await group.start(2, 3)
    await until(lambda: all(m.driver.member.known is None for m in group.machines.values()))
    await group.start(1)
    master = await group.led(by=1, members={1, 2, 3})
    master.put(25)
    await group.all_have(25)
    view = KEYS.view(await etcd.read_all(KEYS.prefix))
    assert view.known is not None and view.master is not None
    assert view.known.group.stores == ((1, "store-1"), (2, "store-2"), (3, "store-3"))
    assert (view.master.broker_id, view.master.epoch) == (1, view.known.group.master_epoch)
    assert view.master.ha_address == "broker-1:10912" and set(view.present) == {1, 2, 3}
    assert master.driver.sure


async def test_a_killed_master_is_replaced_and_comes_back_as_a_replica(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    epoch = master.office.leads
    group.alone.add(1)
    master.put(4)  # never on another broker
    await group.kill(1)
    await until(lambda: all(m.driver.member.state is State.JOINING for m in group.machines.values()))
    assert group.master() is None  # its key is there
    etcd.expire(KEYS.master)
    second = await group.led()
    assert epoch is not None and second.office.leads == epoch + 1
    second.put(3)
    await until(lambda: second.office.confirmed == 13)

    group.alone.clear()
    await group.start(1)
    await group.led(by=second.broker_id, members={1, 2, 3})
    await group.all_have(13)


async def test_a_welcome_while_it_follows_finds_where_the_log_ends_be_that_flushed_or_not(
    group: MemoryGroup[FakeClient],
) -> None:
    """Parts came over a connection that was left before its welcome counted, and were not reported yet."""
    master = await three(group)
    replica, its = group.machines[2], master.driver.member
    reports: list[Report] = []
    replica.links.tell = reports.append  # type: ignore[method-assign, assignment]
    replica.disk.log += bytes([its.epoch]) * 2
    replica.driver.post(Welcomed(its.epoch, its.epochs, 12, 10))
    await until(lambda: bool(reports))
    assert reports[0].end == 12


async def test_whose_connection_is_cut_within_a_record_follows_again(group: MemoryGroup[FakeClient]) -> None:
    """What all had of the record was confirmed; the part is cut off then, and comes again."""
    await three(group)
    replica = group.machines[2]
    await until(lambda: replica.office.confirmed == 10)
    settle = replica.office.settle

    async def cut_part_off() -> int:
        replica.office.settle = settle  # type: ignore[method-assign]
        del replica.disk.log[-1:]
        return await settle()

    replica.office.settle = cut_part_off  # type: ignore[method-assign]
    group.alone.add(2)
    await until(lambda: len(replica.disk.log) == 9)
    group.alone.clear()
    await until(lambda: len(replica.disk.log) == 10 or replica.office.barred is not None)
    assert replica.office.barred is None


async def test_a_part_of_a_record_that_was_confirmed_bars_nobody_who_has_all_of_it(
    group: MemoryGroup[FakeClient],
) -> None:
    """Another one, which has the part only, may be elected: then the record is nobody's."""
    await three(group)
    replica = group.machines[2]
    await until(lambda: replica.office.confirmed == 10)
    replica.office.whole = 9
    confirmed: list[int] = []
    settle = replica.office.settle

    async def settled() -> int:
        asyncio.get_running_loop().call_soon(lambda: confirmed.append(replica.driver.member.confirmed))
        return await settle()

    replica.office.settle = settled  # type: ignore[method-assign]
    replica.driver.post(MasterLost())
    await until(lambda: bool(confirmed))
    assert confirmed[0] == 9 and replica.office.barred is None


async def test_who_stops_in_order_is_replaced_at_once(group: MemoryGroup[FakeClient]) -> None:
    await three(group)
    await group.stop(1)
    second = await group.led()
    second.put()
    await until(lambda: second.office.confirmed == 11)


async def test_a_master_whose_disk_has_failed_names_another_one_and_neither_stands_nor_follows(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    master.office.disk_failed = True
    await until(lambda: master.office.leads is None)
    second = await group.led(members={2, 3})
    third = next(m for m in group.machines.values() if m not in (master, second))
    await group.kill(second.broker_id)
    etcd.expire(KEYS.master)
    assert await group.led() is third


async def test_who_cannot_write_a_file_is_not_elected_and_another_one_is(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    """It has flushed all of its log before, and learns only now that its disk hangs, or takes no more."""
    await three(group)
    heir = group.machines[2]
    heir.office.unwritable = True
    await group.kill(1)
    etcd.expire(KEYS.master)
    third = await group.led(by=3, members={3})
    third.put(2)
    heir.office.unwritable = False
    await group.led(by=3, members={2, 3})
    await group.all_have(12)


async def test_who_left_a_silent_master_and_could_not_stand_follows_it_again(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    """The master puts its key again in the same epoch."""
    master = await three(group)
    await group.kill(3)
    await group.led(by=1, members={1, 2})
    heir = group.machines[2]
    heir.office.unwritable = True
    heir.slept = 3000
    master.coordinator.cut_off = True
    etcd.expire(KEYS.master)
    await until(lambda: heir.links.master is None)
    heir.slept = 0
    master.coordinator.cut_off = False
    await until(lambda: KEYS.master in etcd.keys)
    heir.office.unwritable = False
    master.put(2)
    await group.led(by=1, members={1, 2})
    await group.all_have(12)


async def test_a_master_whose_disk_hangs_names_another_one_and_follows_it_when_the_disk_goes_on(
    group: MemoryGroup[FakeClient],
) -> None:
    master = await three(group)
    master.put(2)
    master.office.disk_failed = True
    await until(lambda: master.office.leads is None)
    second = await group.led(members={2, 3})
    second.put()
    await until(lambda: master.members == {2, 3})
    master.office.disk_failed = False
    assert await group.led(members={1, 2, 3}) is second
    assert master.driver.member.state is State.FOLLOWING


async def test_a_master_whose_disk_hangs_stays_where_no_other_one_may_lead_and_serves_when_it_goes_on(
    group: MemoryGroup[FakeClient],
) -> None:
    await group.start(1)
    master = await group.led(by=1)
    master.office.disk_failed = True
    events = iter(range(4))
    await master.driver.until(lambda: next(events, None) is None)
    assert master.office.leads is not None
    master.office.disk_failed = False
    master.put()
    await until(lambda: master.office.confirmed == len(master.disk.log))


async def test_a_master_whose_disk_has_failed_stays_where_no_other_one_may_lead(group: MemoryGroup[FakeClient]) -> None:
    await group.start(1)
    master = await group.led(by=1)
    master.office.disk_failed = True
    await group.start(2)
    assert (await group.led(members={2})).broker_id == 2, "it has come into the set"


async def test_a_master_that_restarts_soon_lets_another_one_lead_which_has_what_it_kept_in_memory(
    group: MemoryGroup[FakeClient],
) -> None:
    master = await three(group)
    epoch = master.office.leads
    await group.kill(1)
    await group.start(1)
    second = await group.led(members={1, 2, 3})
    assert second.broker_id != 1
    assert epoch is not None and second.office.leads == epoch + 1
    second.put()
    await group.all_have(11)


async def test_a_master_that_restarts_soon_leads_again_in_a_new_epoch_where_nobody_else_may(
    group: MemoryGroup[FakeClient],
) -> None:
    master = await three(group)
    epoch = master.office.leads
    await group.kill(2)
    await group.kill(3)
    await group.led(by=1, members={1})
    group.alone.add(2)
    await group.start(2)  # it is up, and not in the set before it has all
    await group.kill(1)
    await group.start(1)
    again = await group.led(by=1)
    assert epoch is not None and again.office.leads == epoch + 1


@pytest.mark.parametrize(("behind", "ahead"), [(2, 3), (3, 2)])
async def test_the_longest_log_goes_first(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator, behind: int, ahead: int
) -> None:
    master = await three(group)
    etcd.away = True  # so that the set cannot change
    group.alone.add(behind)
    master.put(5)
    await until(lambda: len(group.machines[ahead].disk.log) == 15)
    await group.kill(1)
    group.alone.clear()
    etcd.expire(KEYS.master)
    etcd.return_again()
    second = await group.led(members={2, 3})
    assert second.broker_id == ahead
    await group.all_have(15)


@pytest.mark.parametrize("lost", [1, 2])
async def test_an_outcome_that_is_lost_is_found_out(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator, lost: int
) -> None:
    master = await three(group)
    epoch = master.office.leads
    await group.kill(1)
    etcd.lost_answers = lost
    etcd.expire(KEYS.master)
    second = await group.led()
    assert epoch is not None and second.office.leads == epoch + 1
    second.put()
    await until(lambda: second.office.confirmed == 11)


async def test_without_etcd_a_master_goes_on_and_nobody_stands(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    epoch = master.office.leads
    etcd.away = True
    for count in range(11, 40):
        master.put()
        await until(lambda: master.office.confirmed == count)  # noqa: B023
        assert master.driver.sure
    etcd.pass_time(10)  # all holds are over
    etcd.return_again()
    await until(lambda: {KEYS.master, *map(KEYS.member, (1, 2, 3))} <= etcd.keys)
    assert group.master() is master and master.office.leads == epoch
    view = KEYS.view(await etcd.read_all(KEYS.prefix))
    assert view.master is not None and view.master.epoch == epoch


async def test_a_master_that_reaches_nobody_is_not_sure_and_confirms_nothing(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    etcd.away = True
    group.alone.add(1)
    master.put()
    assert master.driver.sure  # a moment ago it heard of all
    master.slept = 3000
    assert not master.driver.sure
    assert master.office.confirmed == 10 and master.office.leads is not None


async def test_a_slave_that_is_lost_leaves_the_set_and_the_others_go_on(group: MemoryGroup[FakeClient]) -> None:
    master = await three(group)
    group.alone.add(3)
    await group.led(by=1, members={1, 2})
    master.put(5)
    await until(lambda: master.office.confirmed == 15)
    group.alone.clear()
    await group.led(by=1, members={1, 2, 3})
    await group.all_have(15)


async def test_a_former_master_that_lives_steps_down_and_what_only_it_has_is_cut_off(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    """As after SIGSTOP: its hold ended, and another one was elected."""
    master = await three(group)
    group.alone.add(1)
    master.coordinator.cut_off = True
    master.put(7)
    etcd.expire(KEYS.master)
    second = await group.led(members={2, 3})
    second.put(2)
    await until(lambda: second.office.confirmed == 12)
    master.slept = 3000
    assert (master.office.confirmed, master.driver.sure, master.office.leads) == (10, False, 2)

    group.alone.clear()
    master.coordinator.cut_off = False
    await group.led(by=second.broker_id, members={1, 2, 3})
    assert master.office.leads is None
    await group.all_have(12)


async def test_a_master_that_is_cut_off_from_etcd_only_stays(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    master.coordinator.cut_off = True
    etcd.expire(KEYS.master)
    for count in range(11, 60):
        master.put()
        await until(lambda: master.office.confirmed == count)  # noqa: B023
    assert group.master() is master and master.driver.sure


async def test_a_group_that_is_gone_from_etcd_bars_its_brokers(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    etcd.empty()
    await until(lambda: all(m.office.barred is not None for m in group.machines.values()))
    assert master.office.leads is None
    assert "etcd was emptied" in str(master.office.barred)


async def test_an_older_state_of_the_group_in_etcd_bars_who_has_known_a_newer_one_after_a_restart_too(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    old = etcd.backup()
    group.alone.add(3)
    await group.led(by=1, members={1, 2})
    master.put(5)
    await until(lambda: master.office.confirmed == 15)
    group.alone.clear()
    await group.kill(3)
    etcd.restore(old)
    await until(lambda: None not in {m.office.barred for m in group.machines.values()})
    assert master.office.leads is None and "etcd was restored" in str(master.office.barred)
    await group.kill(1)
    await group.start(1)
    await until(lambda: group.machines[1].office.barred is not None)


async def test_brokers_take_part_again_when_the_newest_state_is_back(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    newest = etcd.backup()
    etcd.empty()
    await until(lambda: all(m.office.barred is not None for m in group.machines.values()))
    etcd.restore(newest)
    master = await group.led(members={1, 2, 3})
    assert [m.office.barred for m in group.machines.values()] == [None] * 3
    master.put(5)
    await group.all_have(15)


def part(machine: Machine[FakeClient]) -> GroupPart:
    """What operators ask of a broker."""
    return GroupPart(machine.driver, Desk(lambda: len(machine.disk.log), bool, bool, bool))


async def test_a_broker_writes_the_group_again_that_etcd_has_lost_and_the_others_follow_it(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await three(group)
    with pytest.raises(RecreationRefused, match="there is nothing to recreate"):
        await part(group.machines[1]).recreate(2, 2)
    etcd.empty()
    await until(lambda: all(m.driver.member.forgotten for m in group.machines.values()))
    epoch = group.disks[2].epochs[-1].epoch
    written = await part(group.machines[2]).recreate(epoch, 7)
    assert written.master_epoch > epoch + 1 and written.master_broker_id == 2
    second = await group.led(by=2, members={1, 2, 3})
    second.put(5)
    await group.all_have(15)
    with pytest.raises(RecreationRefused, match="there is nothing to recreate"):
        await part(group.machines[1]).recreate(epoch, 7)


async def test_of_two_that_write_the_group_again_one_leads(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await three(group)
    etcd.empty()
    await until(lambda: all(m.driver.member.forgotten for m in group.machines.values()))
    outcomes = await asyncio.gather(
        *(part(group.machines[number]).recreate(2, 4) for number in (1, 2)), return_exceptions=True
    )
    assert [type(each).__name__ for each in outcomes].count("RecreationRefused") == 1, outcomes
    master = await group.led(members={1, 2, 3})
    master.put()
    await group.all_have(11)


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_master_of_the_restored_past_follows_the_group_that_is_written_again(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator, lost: int
) -> None:
    """Broker 3 knows only the past, and leads in it until then; what it took there is cut off."""
    master = await three(group)
    await group.kill(3)
    await group.led(by=1, members={1, 2})
    past = {KEYS.group: Entry(etcd.backup()[KEYS.group].value.replace(b"[1,2]", b"[1,2,3]"), 5)}
    group.disks[3].group = None
    master.put(5)
    await until(lambda: master.office.confirmed == 15)
    await group.kill(1)
    etcd.expire(KEYS.master)
    second = await group.led(by=2)
    second.put(5)
    await until(lambda: second.office.confirmed == 20)
    etcd.restore(past)
    await until(lambda: second.driver.member.forgotten)
    await group.start(3)
    third = await group.led(by=3)
    third.disk.log += b"x" * 9
    await until(lambda: "was confirmed up to 20" in str(second.office.barred))
    etcd.lost_answers = lost
    await part(second).recreate(second.driver.member.epoch, 9)
    assert (await group.led(by=2, members={2, 3})) is second
    await group.all_have(20)


async def test_who_has_more_that_was_confirmed_than_the_group_that_was_written_again_is_not_cut_back(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await three(group)
    etcd.empty()
    await until(lambda: all(m.driver.member.forgotten for m in group.machines.values()))
    await group.kill(1)
    await group.kill(3)
    del group.disks[1].log[6:]
    await group.start(1)
    await until(lambda: group.machines[1].driver.member.forgotten)
    group.acknowledged = group.acknowledged[:6]  # an operator takes the loss
    await part(group.machines[1]).recreate(2, 4)
    second = group.machines[2]
    await until(lambda: "was confirmed up to 10" in str(second.office.barred))
    assert len(second.disk.log) == 10
    await group.kill(2)
    await group.start(2)
    await group.led(by=1, members={1, 2})


async def test_a_broker_takes_no_part_in_another_group_of_the_same_name_even_if_their_epochs_are_the_same(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    """As when the machine of broker 1 was lost with the only member of etcd, and both are new."""
    await group.start(1, 2)
    (await group.led(by=1, members={1, 2})).put(10)
    await group.all_have(10)
    await group.kill(1)
    await group.kill(2)
    etcd.empty()
    group.disks[1] = Disk("store-of-another-disk")
    group.acknowledged = b""
    await group.start(1, 3)
    founder = await group.led(by=1, members={1, 3})
    founder.put(4)
    await until(lambda: founder.office.confirmed == 4)
    await group.start(2)
    second = group.machines[2]
    await until(lambda: second.office.barred is not None)
    assert "another group" in str(second.office.barred)
    assert len(group.disks[2].log) == 10 and group.disks[1].epochs == group.disks[2].epochs


async def test_another_disk_is_no_member_before_it_has_copied_all(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await three(group)
    await group.kill(2)
    await group.kill(3)
    await group.led(by=1, members={1})
    del group.disks[2]
    await group.kill(1)
    etcd.expire(KEYS.master)
    await group.start(2)
    await until(lambda: group.machines[2].driver.member.state is State.JOINING)
    await group.start(1)
    await group.led(by=1, members={1, 2})
    await group.start(3)
    await group.led(by=1, members={1, 2, 3})
    await group.all_have(10)


async def test_a_broker_whose_own_key_was_deleted_puts_it_again(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await three(group)
    await FakeClient(etcd).change({}, [], [KEYS.member(2)])
    await until(lambda: KEYS.member(2) in etcd.keys)
    await until(lambda: all(set(m.driver.view.present) == {1, 2, 3} for m in group.machines.values() if m.driver.view))


async def test_a_copy_of_the_masters_disk_that_is_started_elsewhere_takes_nothing_from_the_master_that_lives(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    master = await three(group)
    epoch = master.office.leads
    copy = Machine(group, 1, deepcopy(master.disk), address="elsewhere:10911")
    await copy.driver.start()
    shown = KEYS.member(1)
    async with asyncio.timeout(20):
        while b"elsewhere" not in (await etcd.read_all(KEYS.prefix))[shown].value:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    for count in range(11, 40):
        master.put()
        await until(lambda: master.office.confirmed == count)  # noqa: B023
    assert KEYS.master in etcd.keys and group.master() is master and master.office.leads == epoch
    assert copy.office.leads is None
    await copy.driver.stop()
    await copy.coordinator.close()


async def test_a_master_that_comes_back_with_another_store_says_why_nobody_leads(
    group: MemoryGroup[FakeClient], etcd: FakeCoordinator
) -> None:
    await group.start(1)
    await group.led(by=1)
    await group.kill(1)
    etcd.expire(KEYS.master)
    group.disks[1] = Disk("another")
    with capture_logs() as said:
        await group.start(1)
        await until(lambda: any(line["event"] == "not_electable" for line in said))
    assert group.machines[1].driver.member.state is State.SEEKING
    (line,) = [line for line in said if line["event"] == "not_electable"]
    assert "with another store" in line["reason"] and "no-master" in line["remedy"]


@pytest.mark.slow
async def test_a_replica_that_cannot_take_in_one_part_after_another_tries_ever_more_rarely(
    group: MemoryGroup[FakeClient],
) -> None:
    """Also where each try takes in a part before."""
    await group.start(1, 2)
    master = await group.led(by=1, members={1, 2})
    office, failures, parts = group.machines[2].office, list[float](), 0
    append = office.append

    def every_second_time(frame: Frame) -> int:
        nonlocal parts
        parts += 1
        if parts % 2 == 0:
            failures.append(asyncio.get_running_loop().time())
            raise OSError(28, "No space left on device")
        return append(frame)

    office.append = every_second_time  # type: ignore[method-assign]
    master.put(30)
    await until(lambda: len(failures) == 4)
    assert failures[3] - failures[0] > 0.5 + 1 + 2
