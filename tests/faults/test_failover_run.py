"""A group that elects its master, under load, and whatever happens to it: brokers, links, etcd, clocks, disks, power.

In each round one thing happens, while producers send to whoever takes it and readers read from all. When it is over,
the group comes together again. In the end nothing that was acknowledged is lost, changed or twice at one offset,
nothing that was seen is gone, and all logs are equal. The judges are tried with a planted fault each.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

from eruca.broker.store.store_id import read_store_id
from tests.support.disks import needs_lossy_disk
from tests.support.etcd import needs_etcd
from tests.support.failover_cluster import FailoverCluster
from tests.support.failover_load import GroupLoad, Witness, differences, shown
from tests.support.failover_promises import Promises
from tests.support.failover_writers import RESETS, Writers, came_later, tables_of
from tests.support.load import read
from tests.support.mqadmin_calls import mqadmin
from tests.support.programme import LONG, chance, rounds
from tests.support.proxy import Proxy
from tests.support.sends import message

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(7200 if LONG else 300)]

HOUR = 3600
SETTINGS = {"mappedFileSizeCommitLog": str(32 << 20), "mappedFileSizeConsumeQueue": "600000"}
ON_DISKS = {"flushDiskType": "SYNC_FLUSH", "cleanFileForciblyEnable": "false", "cleanResourceInterval": "500"}
"""Nothing is deleted on a disk that is full: the judges read all."""
SEND, NOT_AVAILABLE = 310, 14
REST = 0.02 if LONG else 0.0
"""Seconds between two sends of a producer: the judges read all that a run of hours has stored."""
Harm = Callable[[FailoverCluster, random.Random, int], Awaitable[None]]


def one_of(group: FailoverCluster, dice: random.Random, master: int) -> int:
    """The master, or another broker, with the same chance."""
    others = [number for number in group.numbers if number != master]
    return master if dice.random() < 0.5 else dice.choice(others)


async def kill(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """kill -9 of one."""
    await killed(group, dice, [one_of(group, dice, master)])


async def kill_all(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """kill -9 of all: nobody leads before they are back."""
    await killed(group, dice, [*group.numbers])


async def killed(group: FailoverCluster, dice: random.Random, targets: list[int]) -> None:
    """End these brokers at once; they start again at once, or after another one leads."""
    for number in targets:
        group.kill(number)
    await asyncio.sleep(dice.choice((0.0, 0.5, 4.5)))
    await asyncio.gather(*(group.start(number) for number in targets))
    for number in targets:
        clock, kept = group.machines[number].clock, read_store_id(group.store(number))
        assert clock is None or (kept is not None and kept.boot == clock.boot_id), "it knows that the power failed"


async def kill_lacking(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """kill -9 of the master when for a moment nothing of it has reached the others."""
    await _kill_unconfirmed(group, dice, master, "back")


async def kill_having(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """kill -9 of the master when for a moment all has reached the others, but none of their reports it."""
    await _kill_unconfirmed(group, dice, master, "there")


async def _kill_unconfirmed(group: FailoverCluster, dice: random.Random, master: int, lost: str) -> None:
    ways = [await group.machines[master].ha.of(str(each)) for each in group.numbers if each != master]
    async with apart(ways, lost):
        await asyncio.sleep(dice.uniform(0.3, 0.8))
        group.kill(master)
        down = time.monotonic()
    await asyncio.sleep(dice.choice((0.0, 0.5, 4.5)))
    if (await group.found(lambda each: True)).sync_state_set == {master}:
        group.all_down.append(down)  # what it had in memory was nowhere else
    await group.start(master)


async def stop(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """SIGSTOP and SIGCONT; sometimes of the other one while the first is about to be replaced."""
    first = one_of(group, dice, master)
    group.brokers[first].signal(signal.SIGSTOP)
    await asyncio.sleep(dice.uniform(0.5, 8.0))
    if dice.random() < 0.3:
        second = dice.choice([number for number in group.numbers if number != first])
        group.brokers[second].signal(signal.SIGSTOP)
        await asyncio.sleep(dice.uniform(0.1, 1.0))
        group.brokers[second].signal(signal.SIGCONT)
    group.brokers[first].signal(signal.SIGCONT)


async def partition(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """A broker's ways to some others carry nothing: refused, or silent, both ways or one."""
    number = one_of(group, dice, master)
    others = [each for each in group.numbers if each != number]
    pairs = {each: await group.between(number, each) for each in others}
    peers = [way for each in others for way in pairs[each]]
    etcd, names = group.machines[number].to_etcd, group.machines[number].to_names
    ways = {
        "etcd": etcd,
        "one other": pairs[dice.choice(others)],
        "all others": peers,
        "no broker from another": [
            way for pair in combinations(group.numbers, 2) for way in await group.between(*pair)
        ],
        "nameservers": [names],
        "all": [*etcd, *peers, names],
    }
    cut, how = dice.choice([*ways]), dice.choice(("refused", "both", "there", "back"))
    print(f"broker {number} is cut off from {cut}: {how}")
    async with apart(ways[cut], how):
        await asyncio.sleep(dice.uniform(0.5, 7.0))


@asynccontextmanager
async def apart(ways: Sequence[Proxy], how: str) -> AsyncIterator[None]:
    """These ways are refused meanwhile, or silent: ``both``, or one way (``there``, ``back``)."""
    for way in ways:
        if how == "refused":
            way.blocked = True
            way.cut()
        else:
            way.lost = frozenset(("there", "back") if how == "both" else (how,))
    try:
        yield
    finally:
        for way in ways:
            way.blocked, way.lost = False, frozenset()
            way.cut()  # what carried a part of something ends, as a connection does whose bytes were lost


async def harm_etcd(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """A member of etcd, the leader or another one, is killed, stopped, or cut off from one or both others; or all of
    etcd is away."""
    etcd, leader = group.etcd, await asyncio.to_thread(group.etcd.leader)
    everybody = range(len(etcd.members))
    one = dice.choice((leader, dice.choice([member for member in everybody if member != leader])))
    how = dice.choice(("killed", "stopped", "cut off", "all away"))
    print(f"etcd: {how} (member {one}, if not all)")
    if how == "cut off":
        others = [member for member in everybody if member != one]
        ways = [await group.between_members(one, other) for other in dice.sample(others, dice.choice((1, 2)))]
        async with apart([way for pair in ways for way in pair], dice.choice(("refused", "both", "there", "back"))):
            await asyncio.sleep(dice.uniform(0.5, 7.0))
        return
    if how == "killed":
        etcd.kill(one)
        await asyncio.sleep(dice.uniform(0.5, 3.0))
        await asyncio.to_thread(etcd.start, one)
        return
    members = everybody if how == "all away" else [one]
    for member in members:
        etcd.pause(member)
    await asyncio.sleep(dice.uniform(10.0, 60.0) if LONG and dice.random() < 0.2 else dice.uniform(3.0, 10.0))
    for member in members:
        etcd.go_on(member)


async def empty_etcd(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """etcd loses all keys; an operator has the group written again, as the runbook says."""
    await asyncio.to_thread(group.etcd.empty)
    await asyncio.sleep(dice.uniform(0.0, 2.0))
    line = f"recreateGroup -n {group.names.address} -c DefaultCluster -bn broker-a --yes"
    async with asyncio.timeout(60):
        while (done := await mqadmin(line.split(), {}))[0]:  # noqa: ASYNC110 (not all brokers know it yet)
            await asyncio.sleep(0.2)
    assert "nothing that was acknowledged is lost" in done[1]


async def harm_names(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """The nameserver is killed, or stopped: sends go on, and when it is back it names the master."""
    names = group.names.process
    if dice.random() < 0.5:
        names.kill()
        names.close_pipes()
        await asyncio.sleep(dice.uniform(0.5, 4.0))
        await group.send()
        await group.start_names()
    else:
        names.signal(signal.SIGSTOP)
        await asyncio.sleep(dice.uniform(0.5, 8.0))
        await group.send()
        names.signal(signal.SIGCONT)
    await group.known_to_clients(60)


async def jump(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """The wall clock of one broker jumps, and stays there."""
    clock = group.machines[one_of(group, dice, master)].clock
    if clock is None:
        pytest.skip("needs gcc, for a clock of one's own")
    clock.shift(dice.choice((HOUR, -HOUR, 24 * HOUR, -24 * HOUR, 0)))
    await asyncio.sleep(1)


async def switch(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """The mastership is handed over by a command, or by a stop in order."""
    if dice.random() < 0.5:
        await asyncio.to_thread(group.brokers[master].stop)
        await group.start(master)
    else:
        to = dice.choice([number for number in group.numbers if number != master])
        said = await group.asked_to_hand_over(to)
        if said is not None:
            print(f"not handed over: {said}")


async def lose_power(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """The power of one broker, or of all, fails: what was not synced is lost, or torn."""
    await without_power(group, dice, [*group.numbers] if dice.random() < 0.3 else [one_of(group, dice, master)])


async def without_power(group: FailoverCluster, dice: random.Random, targets: list[int]) -> None:
    """End these brokers and what their disks had not synced, and start them again."""
    for number in targets:
        disk = group.machines[number].disk
        assert disk is not None
        disk.tell("off", dice.randrange(1 << 30), dice.choice(("drop", "torn")))
    for number in targets:
        if group.brokers[number].running:
            group.kill(number)
    for number in targets:
        disk, clock = group.machines[number].disk, group.machines[number].clock
        assert disk is not None
        await asyncio.to_thread(disk.come_back)
        if clock is not None:
            clock.boot()
    await asyncio.gather(*(group.start(number) for number in targets))


async def fail_disk(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """A write or an fsync of the log, or of a table, fails; then the power of that broker does."""
    number = one_of(group, dice, master)
    disk = group.machines[number].disk
    assert disk is not None
    part = dice.choice(("/commitlog/0", "/topics.json", "/epochFileCheckpoint", "/eruca.group"))
    disk.tell("fail", dice.choice(("write", "fsync")), dice.randrange(1, 20), part)
    await asyncio.sleep(dice.uniform(0.5, 3.0))
    await without_power(group, dice, [number])  # which takes back a fault that has not come


async def fill_disk(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """The master's disk is full: it leads on, refuses sends, and takes them when there is room; or its power fails."""
    disk = group.machines[master].disk
    assert disk is not None
    disk.tell("full", "yes")
    await group.hang_up(master)  # the connection may be one to a former life
    refused = 0
    async with asyncio.timeout(30):
        while refused != NOT_AVAILABLE:
            refused = (await group.ask(master, SEND, message(i=""), b"full")).code
            await asyncio.sleep(0.05)
    await asyncio.sleep(dice.uniform(0.5, 3.0))
    assert "flush_failed" not in group.brokers[master].output, "it has given the mastership up"
    if dice.random() < 0.3:
        await without_power(group, dice, [master])
    disk.tell("full", "no")


async def isolate(group: FailoverCluster, dice: random.Random, master: int) -> None:
    """The master is cut off from all the others and from etcd until another one leads."""
    others = [each for each in group.numbers if each != master]
    pairs = [way for each in others for way in await group.between(master, each)]
    async with apart([*group.machines[master].to_etcd, *pairs], "both"):
        await group.led_by_another(master)


NEMESES: dict[str, tuple[Harm, int]] = {
    "kill": (kill, 195),
    "kill, others lack the last": (kill_lacking, 30),
    "kill, others have the last": (kill_having, 30),
    "kill of all": (kill_all, 45),
    "stop": (stop, 100),
    "partition": (partition, 200),
    "etcd": (harm_etcd, 50),
    "etcd emptied": (empty_etcd, 20),
    "nameserver": (harm_names, 40),
    "clock": (jump, 20),
    "switch-over": (switch, 100),
}
"""What happens, and how often in a long run; the order is by chance."""
DISKS: dict[str, tuple[Harm, int]] = {"power": (lose_power, 50), "disk": (fail_disk, 20), "full disk": (fill_disk, 20)}


@asynccontextmanager
async def watched(
    folder: Path, count: int, name: str, *, lossy: bool = False, resets: float = RESETS
) -> AsyncIterator[Run]:
    """A group under load; judged at the end."""
    dice, witness, promises = chance(f"{name} of {count}"), Witness(), Promises()
    settings = {**SETTINGS, "slaveTimeout": "1000", **(ON_DISKS if lossy else {})}
    async with FailoverCluster(folder, count, settings, machines=True, lossy=lossy) as group:
        await group.send()
        await group.all_in_set()
        ends = witness.acknowledged_ends
        writers = Writers(group, promises, dice, lambda queue: ends.get(queue, 0), resets=resets)
        async with GroupLoad(group, witness, dice, rest=REST) as load, writers:
            run = Run(group, load, dice)
            try:
                yield run
            finally:
                run.tell()
        await group.all_in_set(60)
        master = group.address(await group.master())
        came, found, tables = await came_later(master, promises), await read(master), await tables_of(group)
        logs = await group.logs()
    faults = [*witness.faults(found), *promises.faults(tables, came, group.all_down), *differences(logs)]
    others = ", ".join(f"{count:,} {what}" for what, count in sorted(promises.answers.items()))
    print(f"{witness.history.acknowledged:,} acknowledged, {len(witness.seen):,} seen; {others}")
    assert faults == [], shown(faults)


class Run:
    """The rounds of one run."""

    def __init__(self, group: FailoverCluster, load: GroupLoad, dice: random.Random) -> None:
        self.pauses: dict[str, list[float]] = {}
        self._group = group
        self._load = load
        self._dice = dice

    async def round(self, name: str, harm: Harm, calm: int = 200) -> None:
        """Some messages, what happens, and the group together again."""
        await self._load.more(calm)
        self._load.begin_round()
        try:
            await harm(self._group, self._dice, await self._group.master())
            await self._load.more(50)  # before that etcd may still have the set of the master that was killed
            await self._group.all_in_set(60)
        except TimeoutError:
            said = [f"{number}: {broker.output[-2000:]}" for number, broker in self._group.brokers.items()]
            raise AssertionError("\n".join([f"no group after {name}: {await self._group.view()}", *said])) from None
        self.pauses.setdefault(name, []).append(self._load.pause)

    def tell(self) -> None:
        """Say what happened."""
        for name, found in self.pauses.items():
            print(f"{name}: {len(found)}, longest pause {median(found):.2f} s (median), {max(found):.2f} s (maximum)")


def programme(dice: random.Random, nemeses: dict[str, tuple[Harm, int]]) -> list[str]:
    """All that happens in a long run, in an order by chance that begins with one of each."""
    every = [name for name, (_, often) in nemeses.items() for _ in range(often - 1)]
    dice.shuffle(every)
    return [*nemeses, *every]


@pytest.mark.parametrize("count", [2, 3])
async def test_nothing_acknowledged_or_seen_is_lost_whatever_happens(tmp_path: Path, count: int) -> None:
    order = programme(chance("order"), NEMESES)
    async with watched(tmp_path, count, "failover") as run:
        for number in rounds(len(NEMESES), len(order), seconds=60, least=len(NEMESES)):
            await run.round(order[number], NEMESES[order[number]][0])


@needs_lossy_disk
async def test_nothing_synced_is_lost_when_disks_and_power_fail(tmp_path: Path) -> None:
    order = programme(chance("order of disks"), DISKS)
    async with watched(tmp_path, 2, "disks", lossy=True) as run:
        for number in rounds(len(DISKS), len(order), seconds=30, least=len(DISKS)):
            await run.round(order[number], DISKS[order[number]][0], calm=30)


async def test_of_three_brokers_one_can_be_cut_off_from_one_other_only(tmp_path: Path) -> None:
    """The master loses one replica, which still is at etcd; the other one follows on, and is elected next."""
    async with FailoverCluster(tmp_path, 3, SETTINGS, machines=True) as group:
        await group.send()
        await group.all_in_set()
        async with apart(await group.between(1, 3), "refused"):
            await group.found(lambda each: each.sync_state_set == {1, 2})
            assert [await group.send() for _ in range(20)] == [1] * 20
            group.kill(1)
            await group.led_by_another(1)
            assert await group.master() == 2
            await group.found(lambda each: each.sync_state_set == {2, 3})
            await group.start(1)
        await group.all_in_set()
        assert differences(await group.logs()) == []


# ---- the judges


def told() -> Witness:
    """A witness of two messages, which were both read."""
    witness = Witness()
    for offset in range(2):
        body = witness.history.next_body(0, 0)
        witness.promise(0, offset, body)
        witness.see(0, offset, body)
    return witness


FOUND = {0: [(0, b"0/0/0/"), (1, b"0/0/1/")]}


def test_a_run_in_which_all_is_well_has_no_fault() -> None:
    assert told().faults(FOUND) == [] and differences({1: b"log", 2: b"log"}) == []
    late = told()
    late.history.next_body(0, 0)
    assert late.faults({0: [(0, b"0/0/0/"), (1, b"0/0/1/"), (2, b"0/0/2/")]}) == []


@pytest.mark.parametrize(
    ("found", "word"),
    [
        pytest.param({0: [(0, b"0/0/0/")]}, "lost", id="lost"),
        pytest.param({0: [(0, b"0/0/0/"), (1, b"0/0/9/")]}, "lost", id="another one at its offset"),
        pytest.param({0: [(0, b"0/0/0/"), (1, b"0/0/1!")]}, "lost", id="changed"),
        pytest.param({0: [(0, b"0/0/0/"), (2, b"0/0/1/")]}, "gone", id="seen at another offset"),
    ],
)
def test_what_was_promised_or_seen_and_is_not_there_is_found(
    found: dict[int, list[tuple[int, bytes]]], word: str
) -> None:
    assert any(fault.startswith(word) for fault in told().faults(found))


def test_an_offset_that_is_promised_twice_is_found() -> None:
    witness = told()
    witness.promise(0, 1, b"0/1/0/")
    assert any(fault.startswith("twice") for fault in witness.faults(FOUND))


def test_an_end_that_was_told_and_given_to_a_later_message_is_found() -> None:
    witness = told()
    witness.tell(0, 3)
    witness.tell(0, 2)
    witness.promise(0, 2, b"0/1/0/", witness.ends[0])
    assert [fault.split()[0] for fault in witness.at_once] == ["end:"]


def test_what_is_seen_and_changes_is_found() -> None:
    witness = told()
    witness.see(0, 1, b"0/1/0/")
    assert any(fault.startswith("changed") for fault in witness.faults(FOUND))


def test_what_is_wrong_is_counted_by_its_kind() -> None:
    assert not told().counts(FOUND).total()
    assert told().counts({0: []}) == {"lost": 2, "gone": 2, "moved": 0, "twice": 0}
    assert told().counts({0: [(0, b"0/0/0/"), (2, b"0/0/1/")]}) == {"lost": 0, "gone": 1, "moved": 1, "twice": 0}
    for kept in (b"0/0/1/", b"0/1/0/"):
        witness = told()
        witness.promise(0, 1, b"0/1/0/")
        counts = witness.counts({0: [(0, b"0/0/0/"), (1, kept)]})
        assert counts == {"lost": 1, "gone": kept == b"0/1/0/", "moved": 0, "twice": 1}, kept


def test_logs_that_differ_are_found() -> None:
    assert len(differences({1: b"log", 2: b"log", 3: b"lo"})) == 1
