"""Masters of a group are killed: the next one goes on within seconds, and has all that was acknowledged."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from eruca.client import ClientSettings, PushConsumer, ReceivedMessage
from tests.support import half_messages
from tests.support.disks import needs_lossy_disk
from tests.support.etcd import needs_etcd
from tests.support.failover_cluster import FailoverCluster, bodies
from tests.support.half_messages import half
from tests.support.peers import Answered, Peer
from tests.support.programme import ENOUGH
from tests.support.pulls import SUBSCRIPTION, SUSPEND, pull
from tests.support.sends import message

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow, ENOUGH]

SEND, END, COMMIT, LOCK, GET_TOPIC, GET_OFFSET, GET_END, RESET = 310, 37, 15, 41, 351, 14, 30, 222
ENDED: dict[str, object] = {
    "producerGroup": "PG",
    "fromTransactionCheck": "false",
    "commitOrRollback": half_messages.COMMIT,
}
RESET_TO: dict[str, object] = {"topic": "T", "group": "G", "queueId": 0, "timestamp": 0, "isForce": "true"}
OFFSET: dict[str, object] = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
LOCKS = b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":%d}]}'


def judged(group: FailoverCluster, logs: dict[int, bytes]) -> None:
    """All logs are equal, and hold each acknowledged message, in the order in which they were acknowledged."""
    assert len(set(logs.values())) == 1
    found = bodies(logs[1])
    places = {body: place for place, body in enumerate(found)}  # the last one, of those that were sent again
    assert [body for body in group.acknowledged if body not in places] == []
    order = [places[body] for body in group.acknowledged]
    assert order == sorted(order)


async def test_killed_masters_are_replaced_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    pauses = []
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(4):
            for _ in range(200):
                master = await group.send()
            group.kill(master)
            begun = time.monotonic()
            await group.send()
            pauses.append(time.monotonic() - begun)
            await group.start(master)
            await group.all_in_set()
        judged(group, await group.logs())
    print(f"{len(group.acknowledged):,} messages; pauses of {', '.join(f'{each:.2f}' for each in pauses)} s")


@needs_lossy_disk
async def test_a_master_whose_disk_hangs_is_replaced_and_follows_when_the_disk_goes_on(tmp_path: Path) -> None:
    """Its fsync does not return, and says no error."""
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with FailoverCluster(tmp_path, 2, settings, machines=True, lossy=True) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(50):
            assert await group.send() == 1
        disk = group.machines[1].disk
        assert disk is not None
        disk.tell("slow", 300)
        try:
            begun = time.monotonic()
            await group.send(60)  # perhaps passed on by the former master
            pause = time.monotonic() - begun
            assert await group.master() == 2
            for _ in range(50):
                await group.send()
        finally:
            disk.tell("slow", 0)
        await group.all_in_set(60)
        assert await group.master() == 2
        judged(group, await group.logs())
    print(f"a pause of {pause:.2f} s")


@needs_lossy_disk
async def test_an_heir_whose_disk_hangs_lets_another_one_lead(tmp_path: Path) -> None:
    """Nothing was to be flushed since, so nobody has noticed it before the master is killed."""
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with FailoverCluster(tmp_path, 3, settings, machines=True, lossy=True) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(20):
            assert await group.send() == 1
        disk = group.machines[2].disk
        assert disk is not None
        disk.tell("slow", 300)
        try:
            group.kill(1)
            begun = time.monotonic()
            assert await group.send() == 3
            pause = time.monotonic() - begun
            await group.start(1)
            await group.found(lambda each: each.sync_state_set == {1, 3})
        finally:
            disk.tell("slow", 0)
        await group.all_in_set(60)
        assert await group.master() == 3
        judged(group, await group.logs())
    print(f"a pause of {pause:.2f} s")


@needs_lossy_disk
async def test_a_former_master_whose_disk_hangs_answers_clients_and_sends_their_pulls_to_the_new_one(
    tmp_path: Path,
) -> None:
    """It becomes a slave without its disk; each pull that finds nothing names the new master."""
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with FailoverCluster(tmp_path, 2, settings, machines=True, lossy=True) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(50):
            assert await group.send() == 1
        waits = pull(51, SUSPEND | SUBSCRIPTION)
        reader = await Peer().connect(group.address(1))
        held = asyncio.create_task(reader.ask(11, waits, within=40))
        disk = group.machines[1].disk
        assert disk is not None
        disk.tell("slow", 300)
        try:
            await group.send(60)
            assert await group.master() == 2
            answers = [await held]
            await asyncio.to_thread(group.brokers[1].wait_for_line, "former=SYNC_MASTER role=SLAVE seconds=")
            answers.append(await reader.ask(11, waits))
            assert [sent_away(each) for each in answers] == [(20, "2")] * 2
        finally:
            disk.tell("slow", 0)
        await reader.close()
        await group.all_in_set(60)
        judged(group, await group.logs())


@needs_lossy_disk
async def test_a_former_master_whose_small_files_hang_sends_pulls_to_the_new_one_as_well(tmp_path: Path) -> None:
    """There was nothing to flush in its log: it writes that a member of the set is gone, and that does not return."""
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with FailoverCluster(tmp_path, 3, settings, machines=True, lossy=True) as group:
        await group.send()
        await group.all_in_set()
        waits = pull(1, SUSPEND | SUBSCRIPTION)
        reader = await Peer().connect(group.address(1))
        held = asyncio.create_task(reader.ask(11, waits, within=40))
        disk = group.machines[1].disk
        assert disk is not None
        disk.tell("slow", 300)
        try:
            group.kill(2)
            await group.led_by_another(1)
            assert await group.master() == 3
            answers = [await held]
            await asyncio.to_thread(group.brokers[1].wait_for_line, "former=SYNC_MASTER role=SLAVE seconds=")
            answers.append(await reader.ask(11, waits))
            assert [sent_away(each) for each in answers] == [(20, "3")] * 2
        finally:
            disk.tell("slow", 0)
        await reader.close()
        await group.start(2)
        await group.all_in_set(60)
        judged(group, await group.logs())


def sent_away(answer: Answered) -> tuple[int, str]:
    """What a pull was answered, and the number of the broker that it is sent to."""
    return answer.code, answer.fields["suggestWhichBrokerId"]


async def test_masters_that_are_stopped_in_order_hand_over_first(tmp_path: Path) -> None:
    pauses = []
    async with FailoverCluster(tmp_path, 3) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(3):
            for _ in range(100):
                master = await group.send()
            epoch = known.group.master_epoch if (known := (await group.view()).known) is not None else 0
            ended = asyncio.create_task(asyncio.to_thread(group.brokers[master].stop))
            pause = 0.0
            while not ended.done():
                begun = time.monotonic()
                await group.send()
                pause = max(pause, time.monotonic() - begun)
            await ended
            pauses.append(pause)
            known = (await group.view()).known
            assert known is not None and known.group.master_epoch == epoch + 2, "named by it, and elected"
            await group.start(master)
            await group.all_in_set()
        judged(group, await group.logs())
    print(f"pauses of {', '.join(f'{each:.2f}' for each in pauses)} s")


async def test_a_master_that_slept_has_acknowledged_nothing_that_the_next_one_lacks(tmp_path: Path) -> None:
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(50):
            master = await group.send()
        group.brokers[master].signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert await group.send() != master
        pause = time.monotonic() - begun
        for _ in range(50):
            await group.send()
        group.brokers[master].signal(signal.SIGCONT)
        await group.all_in_set()
        output = group.brokers[master].output
        assert "rejoining" in output and "log_cut" in output  # the send that came while it slept
        judged(group, await group.logs())
    print(f"a pause of {pause:.2f} s")


async def test_what_a_former_master_was_asked_while_the_next_one_hangs_is_refused_soon_and_never_promised(
    tmp_path: Path,
) -> None:
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        assert [await group.send() for _ in range(20)] == [1] * 20  # the master knows of the set, too
        await group.hand_over(2)
        await group.all_in_set()
        assert (await group.ask(1, SEND, message(i=""), b"passed on")).code == 0
        group.brokers[2].signal(signal.SIGSTOP)
        begun = time.monotonic()
        codes = [(await group.ask(1, SEND, message(i=""), b"in vain")).code]
        pause = time.monotonic() - begun
        while codes[-1] != 0:
            codes.append((await group.ask(1, SEND, message(i=""), b"taken")).code)
        elected = time.monotonic() - begun
        group.brokers[2].signal(signal.SIGCONT)
        await group.all_in_set()
        found = bodies((await group.logs())[1])
    print(f"refused after {pause:.2f} s, taken after {elected:.2f} s")
    assert set(codes[:-1]) == {14} and pause < 2.5
    assert found.count(b"passed on") == 1 and found[-1] == b"taken"


async def test_what_was_answered_of_tables_delays_and_transactions_is_there_once_after_each_failover(
    tmp_path: Path,
) -> None:
    """Each kill comes with the answers to a topic, an offset, a lock, a message that waits, an end of a transaction."""
    once: list[bytes] = []
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        for number in range(4):
            master = await group.send()
            waits = await group.ask(master, SEND, message(i="DELAY\x011"), b"waits %d" % number)
            place = half_messages.place(await group.ask(master, SEND, half(f"K{number}"), b"half %d" % number))
            ended = await group.ask(master, END, {**ENDED, "msgId": f"K{number}", **place})
            made = await group.ask(master, SEND, message(f"Made{number}"), b"makes its topic")
            committed = await group.ask(master, COMMIT, {**OFFSET, "commitOffset": number + 1})
            locked = await group.ask(master, LOCK, {}, LOCKS % number)
            group.kill(master)
            assert {each.code for each in (waits, ended, made, committed, locked)} == {0}
            once += [b"waits %d" % number, b"half %d" % number]
            following = await group.send()
            assert following != master
            assert (await group.ask(following, GET_TOPIC, {"topic": f"Made{number}"})).code == 0
            assert (await group.ask(following, GET_OFFSET, OFFSET)).fields["offset"] == str(number + 1)
            stranger = await group.ask(following, LOCK, {}, LOCKS.replace(b'"c"', b'"d"') % number)
            assert stranger.code == 0 and b"queueId" not in stranger.body
            await group.start(master)
            await group.all_in_set()
        async with asyncio.timeout(30):
            stored = 0
            while stored < len(group.acknowledged) + len(once):
                await asyncio.sleep(0.05)
                answer = await group.ask(following, GET_END, {"topic": "T", "queueId": "0"})
                stored = int(answer.fields["offset"])
        found = bodies((await group.logs())[1])
    assert [found.count(each) for each in once] == [1] * len(once)


async def test_a_master_that_is_killed_and_back_at_once_has_what_it_kept_in_memory_from_the_others(
    tmp_path: Path,
) -> None:
    """An offset that was committed with an answer, and a lock, are in memory only: who was killed goes last."""
    settings = {"flushConsumerOffsetInterval": "3600000"}
    async with FailoverCluster(tmp_path, 2, settings) as group:
        await group.send()
        await group.all_in_set()
        for number in range(3):
            await group.send()
            master = await group.master()
            committed = await group.ask(master, COMMIT, {**OFFSET, "commitOffset": number + 1})
            locked = await group.ask(master, LOCK, {}, LOCKS % number)
            group.kill(master)
            begun = time.monotonic()
            await group.hang_up(master)
            assert (committed.code, locked.code) == (0, 0)
            await group.start(master)
            await group.send()
            print(f"a pause of {time.monotonic() - begun:.2f} s")
            following = await group.master()
            assert (await group.ask(following, GET_OFFSET, OFFSET)).fields.get("offset") == str(number + 1)
            stranger = await group.ask(following, LOCK, {}, LOCKS.replace(b'"c"', b'"d"') % number)
            assert stranger.code == 0 and b"queueId" not in stranger.body
            await group.all_in_set()


async def test_members_consume_from_where_they_were_reset_to_when_the_master_is_killed_as_soon_as_it_has_answered(
    tmp_path: Path,
) -> None:
    """The next master has the offsets that were committed before."""
    bodies: list[bytes] = []

    async def listen(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    async with FailoverCluster(tmp_path) as group:
        for _ in range(30):
            await group.send()
        await group.all_in_set()
        settings = ClientSettings(nameserver=group.names.address)
        async with PushConsumer("G", listen, settings=settings, start_from="first", offset_interval=0.1).subscribe("T"):
            for number in range(2):
                master = await group.master()
                await committed(group, master, 30)
                reset = await group.ask(master, RESET, {**RESET_TO, "offset": 20})
                group.kill(master)
                await group.hang_up(master)
                assert (reset.code, reset.remark) == (0, None)
                await group.led_by_another(master)
                await seen(bodies, 30 + 10 * (number + 1))
                await committed(group, await group.master(), 30)
                await group.start(master)
                await group.all_in_set()
    assert sorted(bodies) == sorted([*group.acknowledged, *2 * group.acknowledged[20:]])


async def committed(group: FailoverCluster, master: int, offset: int) -> None:
    """Wait until a group has committed this at the master."""
    async with asyncio.timeout(30):
        while (await group.ask(master, GET_OFFSET, OFFSET)).fields.get("offset") != str(offset):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def seen(bodies: list[bytes], count: int) -> None:
    """Wait until so many messages have come."""
    async with asyncio.timeout(30):
        while len(bodies) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("waits", ["DELAY\x011", "TIMER_DELAY_MS\x01500"])
async def test_what_a_new_master_delivered_does_not_come_again_when_all_were_killed(tmp_path: Path, waits: str) -> None:
    """The former master took the messages, and was killed before they were due."""
    async with FailoverCluster(tmp_path) as group:
        await group.send()
        await group.all_in_set()
        for _ in range(3):
            assert await group.send() == 1
            assert (await group.ask(1, SEND, message(i=waits), b"late 0")).code == 0
        group.kill(1)
        await group.hang_up(1)
        assert await group.send() == 2
        await delivered_late(group, 2, 3)
        await group.start(1)
        await group.all_in_set()
        for each in group.numbers:
            group.kill(each)
            await group.hang_up(each)
        await group.start(2)
        assert await group.send() == 2
        assert (await group.ask(2, SEND, message(i=waits), b"late 1")).code == 0
        await delivered_late(group, 2, 4)
        await group.start(1)
        await group.all_in_set()
        found = bodies((await group.logs())[1])
    assert [found.count(b"late %d" % number) for number in range(2)] == [3, 1]


async def delivered_late(group: FailoverCluster, master: int, count: int) -> None:
    """Wait until the queue has what was sent at once, and so many messages that waited."""
    async with asyncio.timeout(30):
        stored = 0
        while stored < len(group.acknowledged) + count:
            await asyncio.sleep(0.05)
            answer = await group.ask(master, GET_END, {"topic": "T", "queueId": "0"})
            assert answer.code == 0, answer.remark
            stored = int(answer.fields["offset"])


async def test_an_end_of_a_transaction_that_comes_again_is_not_acknowledged_before_the_first_one_is(
    tmp_path: Path,
) -> None:
    """The other broker is in the set, and gets nothing: it may be the next master."""
    async with FailoverCluster(tmp_path, 2, machines=True) as group:
        await group.send()
        await group.all_in_set()
        assert await group.send() == 1
        place = half_messages.place(await group.ask(1, SEND, half("K"), b"half"))
        (await group.machines[1].ha.of("2")).lost = frozenset({"back"})
        codes: list[int] = []
        while not codes or codes[-1]:
            codes.append((await group.ask(1, END, {**ENDED, "msgId": "K", **place})).code)
        members = (await group.found(lambda each: True)).sync_state_set
        assert members == {1} and {*codes[:-1]} == {14}
