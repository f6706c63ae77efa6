"""A broker changes its role while it runs: who asks sees the new role at once, nothing of the old one is left."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eruca.broker.config import BrokerRole
from eruca.broker.services.replication.transfer import frame_head
from eruca.protocol.bodies import ConsumerData, HeartbeatData
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
from tests.support import half_messages
from tests.support.desk import Desk
from tests.support.names import Names
from tests.support.peers import Peer
from tests.support.sends import message

CHANGE, SHOW, SEND, STATUS, LOCK = 25, 26, 310, 907, 41
LOCKED = b'{"consumerGroup":"G","clientId":"%s","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'


@pytest.fixture
async def master(tmp_path: Path, names: Names) -> AsyncIterator[Desk]:
    desk = master_of(tmp_path / "master")
    desk.config.namesrv_addr = names.address
    async with desk:
        desk.topic("T", 2)
        yield desk


@pytest.fixture
async def slave(tmp_path: Path, names: Names, master: Desk) -> AsyncIterator[Desk]:
    desk = slave_of(tmp_path / "slave", "")
    desk.config.store.ha_master_address = None
    desk.config.namesrv_addr = names.address
    async with desk:
        await until(lambda: desk.broker.ha_client.connected)
        yield desk


async def become(desk: Desk, settings: str) -> None:
    answer = await desk.ask(CHANGE, {}, settings.encode())
    assert answer.code == 0, answer.remark


async def member(desk: Desk, *groups: str) -> Peer:
    """A client that is a member of these groups."""
    peer = await Peer().connect(desk.app.address)
    consumers = [ConsumerData(group_name=group, consume_type="CONSUME_PASSIVELY") for group in groups]
    beat = HeartbeatData(client_id="-".join(groups), consumer_data_set=consumers)
    assert (await peer.ask(34, {}, beat.encode())).code == 0
    return peer


async def test_whoever_becomes_the_master_has_each_consumer_look_at_its_group(slave: Desk) -> None:
    """Their pulls may wait at a former master that hangs."""
    two, one = await member(slave, "G", "H"), await member(slave, "I")
    for peer in (two, one):
        peer.pushed.clear()
    await become(slave, "brokerRole=SYNC_MASTER")
    ((told,), (also,)) = [await peer.received(40) for peer in (two, one)]
    assert told.oneway and told.fields["consumerGroup"] in ("G", "H")
    assert also.fields["consumerGroup"] == "I"
    for peer in (two, one):
        await peer.close()


async def test_consumers_are_not_told_where_that_is_switched_off(slave: Desk) -> None:
    slave.config.notify_consumer_ids_changed_enable = False
    peer = await member(slave, "G")
    await become(slave, "brokerRole=SYNC_MASTER")
    assert (await peer.ask(SHOW, {})).code == 0
    assert peer.pushed == []
    await peer.close()


async def test_a_slave_becomes_the_master_and_its_former_master_follows_it(
    master: Desk, slave: Desk, names: Names
) -> None:
    """As an operator moves the mastership, without a restart."""
    filled(master, 100)
    await caught_up(master, slave)
    await until(lambda: "T" in slave.broker.topics)

    await become(master, "brokerId=2\nbrokerRole=SLAVE")
    assert (await master.ask(SEND, send_fields(1), b"no")).code == 14
    await become(slave, "brokerRole=SYNC_MASTER")

    await until(lambda: slave.broker.registration.registered != frozenset(), within=10)
    await until(lambda: master.broker.ha_client.connected, within=15)
    answer = await slave.ask(SEND, send_fields(1), b"goes on")
    assert (answer.code, answer.fields["queueOffset"]) == (0, "50")
    await caught_up(slave, master)
    assert log_bytes(slave) == log_bytes(master)
    async with asyncio.timeout(10):
        while await names.brokers() != {"broker-a": {0: slave.app.address, 2: master.app.address}}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await names.route("T") is not None


async def test_the_new_role_is_in_the_configuration_file_and_shown(tmp_path: Path) -> None:
    slave = slave_of(tmp_path, "127.0.0.1:1")
    slave.file = tmp_path / "broker.conf"
    slave.file.write_text("# ours\nbrokerId=1\nbrokerRole=SLAVE\n")
    async with slave:
        await become(slave, "brokerRole=ASYNC_MASTER")
        assert slave.file.read_text() == "# ours\nbrokerId=1\nbrokerRole=ASYNC_MASTER\n"
        shown = (await slave.ask(SHOW)).body.decode().splitlines()
        assert {"brokerId=0", "brokerRole=ASYNC_MASTER"} <= set(shown)
        await become(slave, "brokerRole=SLAVE")
        shown = (await slave.ask(SHOW)).body.decode().splitlines()
        assert {"brokerId=1", "brokerRole=SLAVE"} <= set(shown)


async def test_a_master_without_an_id_for_slaves_stays_what_it_is(tmp_path: Path) -> None:
    async with master_of(tmp_path) as desk:
        answer = await desk.ask(CHANGE, {}, b"brokerRole=SLAVE")
        assert (answer.code, answer.remark) == (
            1,
            "brokerId must be above 0 on a slave: set brokerId=1, or another brokerRole than SLAVE",
        )
        assert (await desk.ask(SEND, message(), b"x")).code == 0


async def test_what_an_operator_sees_follows_the_role(tmp_path: Path) -> None:
    slave = slave_of(tmp_path, "127.0.0.1:1")
    async with slave:
        broker = slave.broker
        assert broker.readiness.reasons == {"master": "this slave follows no master"}
        await become(slave, "brokerRole=ASYNC_MASTER")
        assert broker.readiness.ready
        assert b'"master":true' in (await slave.ask(STATUS)).body
        await become(slave, "brokerRole=SLAVE")
        assert b'"master":false' in (await slave.ask(STATUS)).body
        assert broker.readiness.reasons == {"master": "this slave follows no master"}


async def test_a_slave_takes_another_id_at_once(master: Desk, slave: Desk, names: Names) -> None:
    await become(slave, "brokerId=7")
    async with asyncio.timeout(10):
        while await names.brokers() != {"broker-a": {0: master.app.address, 7: slave.app.address}}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_nobody_connects_to_the_ha_port_of_a_former_master_and_it_is_the_brokers_all_the_same(
    tmp_path: Path,
) -> None:
    """Its former slaves find that there is no master, and not one that sends no log."""
    async with master_of(tmp_path) as desk:
        ports, address = desk.app.ports, desk.broker.ha_address
        await become(desk, "brokerId=1\nbrokerRole=SLAVE")
        with pytest.raises(ConnectionRefusedError):
            await HandSlave().connect(address)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", ports["ha_port"]))
        await become(desk, "brokerRole=ASYNC_MASTER")
        hand = await HandSlave().connect(address)
        hand.report(0)
        await until(lambda: bool(desk.broker.slaves.connected))
        assert desk.app.ports == ports
        await hand.close()


# ---------------------------------------------------------------------- what waits


async def test_delayed_messages_and_transactions_are_the_new_masters(master: Desk, slave: Desk) -> None:
    where = await half_messages.send(master, "AC11")
    assert (await master.ask(SEND, message(i="DELAY\x011\x02UNIQ_KEY\x01D1"), b"later")).code == 0
    await caught_up(master, slave)
    await slave.broker.table_sync.fetch(master.app.address)
    assert (await half_messages.end(slave, where, half_messages.COMMIT)).code == 11

    await become(master, "brokerId=2\nbrokerRole=SLAVE")
    assert (await half_messages.end(master, where, half_messages.COMMIT)).code == 11
    await become(slave, "brokerRole=ASYNC_MASTER")

    assert len(slave.broker.halves.undecided) == 1 and len(master.broker.halves.undecided) == 0
    assert (await half_messages.end(slave, where, half_messages.COMMIT)).code == 0
    slave.now = master.now = slave.now + 1000
    await until(lambda: slave.broker.store.max_offset("T", 0) == 2)
    assert [record.body for record in slave.records()] == [b"half", b"later"]
    assert (await half_messages.end(slave, where, half_messages.COMMIT)).code == 0
    assert len(slave.records()) == 2, "it was decided before"


async def test_a_delayed_message_that_was_delivered_does_not_come_again(master: Desk, slave: Desk) -> None:
    for number in range(3):
        assert (await master.ask(SEND, message(i=f"DELAY\x011\x02UNIQ_KEY\x01D{number}"), b"%d" % number)).code == 0
    master.now += 1000
    await until(lambda: master.broker.store.max_offset("T", 0) == 3)
    await caught_up(master, slave)
    await become(master, "brokerId=2\nbrokerRole=SLAVE")
    slave.now = master.now
    await become(slave, "brokerRole=ASYNC_MASTER")
    assert slave.turn() > slave.now
    assert [record.body for record in slave.records()] == [b"0", b"1", b"2"]


async def test_a_group_that_was_further_than_the_new_masters_log_reads_what_comes_there(
    master: Desk, slave: Desk
) -> None:
    """Its offset was copied, the messages before it were not: those that take their places would be passed over."""
    filled(master, 10, queues=1)
    await caught_up(master, slave)
    await slave.broker.ha_client.stop()
    filled(master, 10, first=10, queues=1)
    master.commit("ahead", "T", 20)
    master.commit("behind", "T", 7)
    await slave.broker.table_sync.fetch(master.app.address)
    await become(slave, "brokerRole=ASYNC_MASTER")
    assert slave.broker.offsets.query("ahead", "T", 0) == 10
    assert slave.broker.offsets.query("behind", "T", 0) == 7


async def test_locks_end_with_the_role(tmp_path: Path) -> None:
    async with master_of(tmp_path) as desk:
        assert b'"queueId":0' in (await desk.ask(LOCK, {}, LOCKED % b"one")).body
        assert b'"queueId":0' not in (await desk.ask(LOCK, {}, LOCKED % b"two")).body
        await become(desk, "brokerId=1\nbrokerRole=SLAVE")
        await become(desk, "brokerRole=ASYNC_MASTER")
        assert b'"queueId":0' in (await desk.ask(LOCK, {}, LOCKED % b"two")).body


# ---------------------------------------------------------------------- sends that wait


@asynccontextmanager
async def in_reach(master: Desk) -> AsyncIterator[HandSlave]:
    hand = await HandSlave().connect(master.broker.ha_address)
    hand.report(end(master))
    await until(lambda: master.broker.slaves.in_reach)
    yield hand
    await hand.close()


async def test_a_send_that_a_slave_has_is_answered_with_0_before_its_master_steps_down(tmp_path: Path) -> None:
    async with master_of(tmp_path, BrokerRole.SYNC_MASTER) as desk:
        desk.topic("T")
        await desk.broker.topics.saved()
        async with in_reach(desk) as hand:
            sent = asyncio.create_task(desk.ask(SEND, send_fields(1), b"m"))
            await hand.frame()
            changed = asyncio.create_task(become(desk, "brokerId=1\nbrokerRole=SLAVE"))
            await until(lambda: not desk.broker.accepting)
            assert not sent.done() and not changed.done()
            hand.report(end(desk))
            assert (await sent).code == 0
            await changed
            assert await hand.closed()


async def test_a_send_that_no_slave_confirms_is_not_answered_with_0_by_a_step_down(tmp_path: Path) -> None:
    desk = master_of(tmp_path, BrokerRole.SYNC_MASTER)
    desk.config.store.slave_timeout = 100
    async with desk:
        desk.topic("T")
        await desk.broker.topics.saved()
        async with in_reach(desk) as hand:
            sent = asyncio.create_task(desk.ask(SEND, send_fields(1), b"m"))
            await hand.frame()
            await become(desk, "brokerId=1\nbrokerRole=SLAVE")
            assert (await sent).code == 12


async def test_sends_wait_for_a_slave_from_the_moment_that_the_master_is_a_sync_master(tmp_path: Path) -> None:
    async with master_of(tmp_path) as desk:
        desk.topic("T")
        assert (await desk.ask(SEND, send_fields(1), b"m")).code == 0
        await become(desk, "brokerRole=SYNC_MASTER")
        assert (await desk.ask(SEND, send_fields(2), b"m")).code == 11
        await become(desk, "brokerRole=ASYNC_MASTER")
        assert (await desk.ask(SEND, send_fields(3), b"m")).code == 0


async def test_what_a_slave_confirmed_to_a_former_master_confirms_nothing_to_the_same_one_again(tmp_path: Path) -> None:
    desk = master_of(tmp_path, BrokerRole.SYNC_MASTER)
    desk.config.store.slave_timeout = 100
    async with desk:
        desk.topic("T")
        filled(desk, 10)
        async with in_reach(desk) as hand:
            hand.report(end(desk))
            await until(lambda: desk.broker.slaves.confirmed == end(desk))
            await become(desk, "brokerId=1\nbrokerRole=SLAVE")
            assert await hand.closed()
        await become(desk, "brokerRole=SYNC_MASTER")
        assert desk.broker.slaves.confirmed == 0
        assert (await desk.ask(SEND, send_fields(1), b"m")).code == 11


# ---------------------------------------------------------------------- the end of the log


@pytest.mark.parametrize("part", [1, 7, 40, 90])
async def test_a_new_master_goes_on_behind_the_last_whole_record(tmp_path: Path, part: int) -> None:
    """Of the last record a part had come when the master died."""
    async with master_of(tmp_path / "master") as master:
        filled(master, 10, queues=1)
        whole = end(master)
        filled(master, 1, first=10, queues=1)
        log = b"".join(log_bytes(master).values())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        data = log[: whole + part]
        writer.write(frame_head(0, len(data)) + data)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as dead:
        host, port = dead.sockets[0].getsockname()
        slave = slave_of(tmp_path / "slave", f"{host}:{port}")
        async with slave:
            await until(lambda: end(slave) == whole + part)
            await become(slave, "brokerRole=ASYNC_MASTER")
            assert end(slave) == whole
            answer = await slave.ask(SEND, send_fields(1), b"goes on")
            assert (answer.code, answer.fields["queueOffset"]) == (0, "10")
            assert int(answer.fields["msgId"][16:], 16) == whole
            bodies = [record.body for record in slave.records()]
            await slave.restart()
            assert [record.body for record in slave.records()] == bodies and len(bodies) == 11
            assert not slave.broker.store.recovery.damages


async def test_a_stop_in_the_middle_of_a_change_stops(tmp_path: Path) -> None:
    """The slave in reach never confirms, and the change waits for it as long as slaveTimeout says."""
    desk = master_of(tmp_path, BrokerRole.SYNC_MASTER)
    await desk.start()
    desk.topic("T")
    async with in_reach(desk) as hand:
        desk.store("T", 0, 1)
        desk.operator.tell(CHANGE, {}, b"brokerId=1\nbrokerRole=SLAVE")
        await until(lambda: not desk.broker.accepting)
        await hand.frame()
        async with asyncio.timeout(8):
            await desk.stop()
    async with desk:
        assert desk.broker.store.recovery.clean and len(desk.records()) == 1


async def test_an_end_of_a_transaction_that_comes_while_its_master_steps_down_is_not_answered_with_0(
    master: Desk,
) -> None:
    """Nothing is stored any more, and the disk lets the change wait."""
    half = await half_messages.send(master)
    asker = await master.peer()
    with master.disk.held():
        changing = asyncio.create_task(become(master, "brokerRole=SLAVE\nbrokerId=1"))
        await until(lambda: not master.broker.accepting)
        ended = {"producerGroup": "PG", "msgId": "AC11", "commitOrRollback": half_messages.COMMIT, **half}
        codes = {(await asker.ask(half_messages.END, ended)).code for _ in range(20)}
        assert not master.broker.role.is_slave
    await changing
    assert codes == {14} and master.records("T") == []
