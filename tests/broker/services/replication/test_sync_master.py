"""SYNC_MASTER: what is answered by what a slave confirmed, and what may be read meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.broker.config import BrokerRole
from eruca.protocol.message import parse_offset_message_id
from tests.broker.services.replication.pairs import (
    HandSlave,
    caught_up,
    end,
    filled,
    log_bytes,
    master_of,
    send_fields,
    slave_of,
    until,
)
from tests.support.desk import Desk
from tests.support.peers import Answered
from tests.support.proxy import Proxy
from tests.support.stores import bodies

OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = master_of(tmp_path / "master", BrokerRole.SYNC_MASTER)
    desk.config.store.slave_timeout = 300
    async with desk:
        desk.topic("T")
        await desk.broker.topics.saved()
        yield desk


@pytest.fixture
async def slave(master: Desk) -> AsyncIterator[HandSlave]:
    """A slave that is in reach."""
    slave = await HandSlave().connect(master.broker.ha_address)
    slave.report(end(master))
    await until(lambda: master.broker.slaves.in_reach)
    yield slave
    await slave.close()


def sending(master: Desk, number: int, properties: str = "") -> asyncio.Task[Answered]:
    return asyncio.create_task(master.ask(310, send_fields(number, properties=properties), b"m%d" % number))


def readable(master: Desk) -> int:
    return master.broker.store.max_offset("T", 0)


async def test_without_a_slave_it_is_stored_and_readable_and_answered_with_11(master: Desk) -> None:
    answers = [await sending(master, number) for number in range(3)]
    assert [answer.code for answer in answers] == [SLAVE_NOT_AVAILABLE] * 3
    assert [answer.fields["queueOffset"] for answer in answers] == ["0", "1", "2"]
    assert bodies(master.broker.store, "T", 0) == [b"m0", b"m1", b"m2"]


async def test_nothing_is_answered_or_readable_before_the_slave_has_confirmed(master: Desk, slave: HandSlave) -> None:
    for number in range(3):
        task = sending(master, number)
        await slave.log_to(end(master)) if end(master) > master.broker.slaves.confirmed else await slave.frame()
        assert not task.done() and readable(master) == number
        slave.report(end(master) - 1)
        slave.report(end(master))
        assert (await task).code == OK
        assert readable(master) == number + 1


async def test_a_slave_that_does_not_confirm_in_time_is_12_and_what_it_lacks_is_not_read(
    master: Desk, slave: HandSlave
) -> None:
    assert (await sending(master, 0)).code == FLUSH_SLAVE_TIMEOUT
    assert readable(master) == 0
    slave.report(end(master))
    await until(lambda: readable(master) == 1)


async def test_who_names_the_place_of_what_the_slave_lacks_does_not_get_it_either(
    master: Desk, slave: HandSlave
) -> None:
    late = await sending(master, 0)
    place = {"offset": parse_offset_message_id(late.fields["msgId"])[1]}
    assert late.code == FLUSH_SLAVE_TIMEOUT
    assert (await master.ask(33, place)).code == 1
    back = {**place, "group": "g", "delayLevel": 1, "originTopic": "T"}
    assert (await master.ask(36, back)).remark == f"look message by offset failed, {place['offset']}"
    slave.report(end(master))
    await until(lambda: readable(master) == 1)
    assert (await master.ask(33, place)).code == 0


async def test_when_the_slave_goes_away_what_is_safe_here_is_read(master: Desk, slave: HandSlave) -> None:
    task = sending(master, 0)
    await slave.frame()
    assert readable(master) == 0
    await slave.close()
    await until(lambda: readable(master) == 1)
    assert (await task).code == FLUSH_SLAVE_TIMEOUT
    assert (await sending(master, 1)).code == SLAVE_NOT_AVAILABLE


async def test_who_does_not_wait_is_answered_at_once_and_read_when_confirmed(master: Desk, slave: HandSlave) -> None:
    assert (await sending(master, 0, "WAIT\x01false")).code == OK
    await slave.frame()
    assert readable(master) == 0
    slave.report(end(master))
    await until(lambda: readable(master) == 1)


async def test_a_slave_that_is_too_far_behind_counts_as_none(master: Desk, slave: HandSlave) -> None:
    master.config.store.ha_slave_fallbehind_max = 1
    assert (await sending(master, 0)).code == SLAVE_NOT_AVAILABLE
    assert readable(master) == 1


async def test_a_first_report_answers_no_send_since_its_slave_may_have_another_log(
    master: Desk, slave: HandSlave
) -> None:
    """A slave that compares logs reports once, where its last record begins, and closes if the bytes differ."""
    task = sending(master, 0)
    await slave.frame()
    other = await HandSlave().connect(master.broker.ha_address)
    other.report(end(master))
    await until(lambda: sum(each.acknowledged == end(master) for each in master.broker.slaves.connected) == 1)
    await other.close()
    assert (await task).code == FLUSH_SLAVE_TIMEOUT


async def test_a_first_report_shows_nothing_that_the_slave_in_reach_lacks(master: Desk, slave: HandSlave) -> None:
    """Nor does it afterwards: what it claims to have is not confirmed."""
    task = sending(master, 0)
    await slave.frame()
    slave.report(end(master))
    assert (await task).code == OK
    before = end(master)
    task = sending(master, 1)
    await slave.frame()
    other = await HandSlave().connect(master.broker.ha_address)
    other.report(end(master))
    await until(lambda: sum(each.acknowledged == end(master) for each in master.broker.slaves.connected) == 1)
    assert (readable(master), master.broker.slaves.confirmed) == (1, before)
    await other.close()
    await until(lambda: len(master.broker.slaves.connected) == 1)
    assert (await task).code == FLUSH_SLAVE_TIMEOUT
    assert (readable(master), master.broker.slaves.confirmed) == (1, before)
    slave.report(end(master))
    await until(lambda: readable(master) == 2)


async def test_a_slave_that_connects_again_confirms_what_it_reports_from_then_on(master: Desk) -> None:
    master.config.store.slave_timeout = 5000
    before = end(master)
    first = await HandSlave().connect(master.broker.ha_address)
    first.report(before)
    await until(lambda: master.broker.slaves.in_reach)
    task = sending(master, 0)
    await first.frame()
    await first.close()
    again = await HandSlave().connect(master.broker.ha_address)
    again.report(before)
    await again.log_to(end(master))
    again.report(end(master))
    assert (await task).code == OK
    await again.close()


async def test_messages_before_the_beginning_of_an_empty_slave_are_not_confirmed_by_it(master: Desk) -> None:
    """It gets the newest file alone: a send of an older one that waits cannot be answered with 0."""
    first = await HandSlave().connect(master.broker.ha_address)
    first.report(0)
    await until(lambda: master.broker.slaves.in_reach)
    task = sending(master, 0)
    await first.frame()
    for number in range(1, 9):
        master.store("T", 0, number, body=bytes(3000))
    empty = await HandSlave().connect(master.broker.ha_address)
    empty.report(0)
    await empty.log_to(end(master))
    empty.report(end(master))
    assert (await task).code == FLUSH_SLAVE_TIMEOUT
    await first.close()
    await empty.close()


async def test_a_stop_waits_for_what_a_slave_is_about_to_confirm(master: Desk, slave: HandSlave) -> None:
    task = sending(master, 0)
    await slave.frame()
    stopping = asyncio.create_task(master.app.stop())
    await asyncio.sleep(0)
    slave.report(end(master))
    assert (await task).code == OK
    await stopping


async def test_a_stop_lets_slaves_have_the_rest_but_does_not_wait_for_ever(tmp_path: Path, master: Desk) -> None:
    master.config.store.broker_role = BrokerRole.ASYNC_MASTER
    slow, stuck = [await HandSlave().connect(master.broker.ha_address) for _ in range(2)]
    slow.report(end(master))
    stuck.report(end(master))
    await until(lambda: len(master.broker.slaves.connected) == 2 and master.broker.slaves.in_reach)
    filled(master, 1)
    target = end(master)
    stopping = asyncio.create_task(master.app.stop())
    assert len(await slow.log_to(target)) > 0
    slow.report(target)
    await asyncio.wait_for(stopping, 5)
    await slow.close()
    await stuck.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_what_was_acknowledged_is_on_the_slave_whatever_its_connection_suffers(tmp_path: Path, seed: int) -> None:
    """Cut in the middle of frames, split and held up while four producers send; then the master is gone."""
    chance = random.Random(seed)
    print(f"seed {seed}")
    master = master_of(tmp_path / "master", BrokerRole.SYNC_MASTER, file_size=64 << 10)
    master.config.store.slave_timeout = 400
    await master.start()
    proxy = await Proxy(master.broker.ha_address).start()
    slave = slave_of(tmp_path / "slave", proxy.address, file_size=64 << 10)
    await slave.start()
    await until(lambda: master.broker.slaves.in_reach)
    acknowledged: list[bytes] = []

    async def produce(name: int) -> None:
        for number in range(60):
            body = b"%d/%d;" % (name, number) * (1 + number)
            answer = await master.ask(310, send_fields(number), body)
            if answer.code == OK:
                acknowledged.append(body)
            else:
                assert answer.code in (SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT)
                await until(lambda: master.broker.slaves.in_reach)

    async def disturb() -> None:
        for _ in range(8):
            proxy.piece = chance.choice([None, 7, 100, 1013])
            proxy.delay = chance.choice([0, 0, 0.001, 0.02])
            proxy.cut_after = proxy.forwarded + chance.randrange(1, 9000)
            await asyncio.sleep(chance.random() * 0.2)

    await asyncio.gather(*(produce(name) for name in range(4)), disturb())
    assert acknowledged
    await proxy.stop()
    await slave.stop()
    (tmp_path / "slave" / "store" / "abort").touch()
    await slave.start()
    kept = bodies(slave.broker.store, "T", 0)
    assert set(acknowledged) <= set(kept) and len(set(kept)) == len(kept)
    await slave.stop()
    await master.stop()
    for name, data in log_bytes(slave).items():
        written = data.rstrip(b"\0")
        assert log_bytes(master)[name].startswith(written)


async def test_it_goes_on_within_seconds_after_a_partition(tmp_path: Path, master: Desk) -> None:
    proxy = await Proxy(master.broker.ha_address).start()
    slave = slave_of(tmp_path / "slave", proxy.address)
    await slave.start()
    await until(lambda: master.broker.slaves.in_reach)
    assert (await sending(master, 0)).code == OK
    proxy.blocked = True
    proxy.cut()
    await until(lambda: not master.broker.slaves.connected)
    assert (await sending(master, 1)).code == SLAVE_NOT_AVAILABLE
    proxy.blocked = False
    slaves = master.broker.slaves  # one that compares logs is in reach too, and gone the next moment
    await until(lambda: any(each.acknowledged == end(master) for each in slaves.connected), within=10)
    assert (await sending(master, 2)).code == OK
    await caught_up(master, slave)
    assert bodies(slave.broker.store, "T", 0) == [b"m0", b"m1", b"m2"]
    await slave.stop()
    await proxy.stop()
