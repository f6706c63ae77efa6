"""A slave beside its master at one nameserver: what it learns, fetches and serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.broker.config import BrokerRole
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol.bodies import DelayOffsetSerializeWrapper, SubscriptionGroupConfig
from eruca.protocol.record import decode_records
from tests.broker.services.replication.pairs import (
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


@pytest.fixture
async def names() -> AsyncIterator[str]:
    nameserver = Nameserver(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
    await nameserver.start()
    yield nameserver.address
    await nameserver.stop()


@pytest.fixture
async def master(tmp_path: Path, names: str) -> AsyncIterator[Desk]:
    desk = master_of(tmp_path / "master")
    desk.config.namesrv_addr = names
    desk.config.slave_read_enable = True
    async with desk:
        yield desk


@pytest.fixture
async def slave(tmp_path: Path, names: str, master: Desk) -> AsyncIterator[Desk]:
    desk = slave_of(tmp_path / "slave", "")
    desk.config.store.ha_master_address = None
    desk.config.namesrv_addr = names
    desk.config.slave_read_enable = True
    async with desk:
        yield desk


def pull_fields(offset: int, **changes: object) -> dict[str, object]:
    fields: dict[str, object] = {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": offset}
    fields |= {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
    return fields | {"subscription": "*", "subVersion": 0, "expressionType": "TAG"} | changes


async def test_it_learns_its_master_from_the_nameserver_and_has_topics_groups_and_offsets(
    master: Desk, slave: Desk
) -> None:
    master.topic("T", 3)
    master.broker.groups.put(SubscriptionGroupConfig(group_name="G", retry_max_times=7))
    master.commit("G", "T", 5, 6)
    assert (await master.ask(310, send_fields(1, properties="DELAY\x011"), b"later")).code == 0
    master.now += 5000
    await until(lambda: master.broker.delays.offsets.table.get(1) == 1)
    await until(lambda: end(slave) == end(master))  # a slave writes the delays that its own log contains
    await slave.broker.table_sync.fetch(master.app.address)
    topic = slave.broker.topics.get("T")
    assert topic is not None and topic.write_queue_nums == 3
    assert slave.broker.topics.version == master.broker.topics.version
    assert slave.broker.groups.table["G"].retry_max_times == 7
    assert slave.broker.groups.version == master.broker.groups.version
    assert slave.broker.offsets.of("G", "T") == {0: 5, 1: 6}
    assert slave.broker.delays.offsets.table[1] == 1
    await until(lambda: slave.broker.ha_client.connected)
    await slave.restart()
    assert "T" in slave.broker.topics and slave.broker.offsets.of("G", "T") == {0: 5, 1: 6}
    kept = DelayOffsetSerializeWrapper.decode((slave.folder / "store" / "config" / "delayOffset.json").read_bytes())
    assert kept.offset_table[1] == 1


async def test_a_topic_that_messages_come_for_is_fetched_at_once(master: Desk, slave: Desk) -> None:
    await until(lambda: slave.broker.ha_client.connected)
    answer = await master.ask(310, send_fields(1), b"first")
    assert answer.code == 0
    await until(lambda: "T" in slave.broker.topics, within=5)


async def test_names_that_nobody_may_have_are_not_taken_over(master: Desk, slave: Desk) -> None:
    master.topic("../evil")
    master.commit("G", "../evil", 1)
    master.topic("T")
    master.broker.groups.put(SubscriptionGroupConfig(group_name="a/b"))
    await slave.broker.table_sync.fetch(master.app.address)
    assert "T" in slave.broker.topics and "../evil" not in slave.broker.topics
    assert slave.broker.offsets.table == {} and "a/b" not in slave.broker.groups.table


async def test_it_serves_pulls_refuses_sends_and_corrects_no_offset(master: Desk, slave: Desk) -> None:
    filled(master, 40, queues=1)
    master.topic("T")
    await until(lambda: end(slave) == end(master) and "T" in slave.broker.topics)
    await caught_up(master, slave)
    found = await slave.ask(11, pull_fields(3))
    assert found.code == 0 and found.body == (await master.ask(11, pull_fields(3))).body
    assert [record.queue_offset for record in decode_records(found.body)] == list(range(3, 35))
    assert found.fields["suggestWhichBrokerId"] == "0"
    ahead = await slave.ask(11, pull_fields(1000))
    assert (ahead.code, ahead.fields["nextBeginOffset"]) == (20, "1000")
    before = end(slave)
    assert (await slave.ask(310, send_fields(1), b"no")).code == 14
    assert end(slave) == before and log_bytes(slave).keys() == log_bytes(master).keys()


async def test_a_reader_far_behind_is_sent_to_the_slave_and_back(master: Desk, slave: Desk) -> None:
    filled(master, 40, queues=1)
    master.topic("T")
    await until(lambda: end(slave) == end(master) and "T" in slave.broker.topics)
    for desk in (master, slave):
        desk.config.store.access_message_in_memory_max_ratio = 0
        desk.broker.reconfigured()
    assert (await master.ask(11, pull_fields(0))).fields["suggestWhichBrokerId"] == "1"
    slave.config.store.access_message_in_memory_max_ratio = 40
    slave.broker.reconfigured()
    found = await slave.ask(11, pull_fields(0))
    assert (found.code, found.fields["suggestWhichBrokerId"]) == (0, "0")
    master.config.slave_read_enable = False
    assert (await master.ask(11, pull_fields(0))).fields["suggestWhichBrokerId"] == "0"


async def test_offsets_are_committed_at_the_slave_while_the_master_is_dead(master: Desk, slave: Desk) -> None:
    filled(master, 3, queues=1)
    master.topic("T")
    await until(lambda: end(slave) == end(master) and "T" in slave.broker.topics)
    await master.stop()
    committed = {"consumerGroup": "G", "topic": "T", "queueId": 0}
    await slave.ask(11, pull_fields(0, sysFlag=5, commitOffset=1))
    assert slave.broker.offsets.query("G", "T", 0) == -1
    assert (await slave.ask(15, {**committed, "commitOffset": 2})).code == 0
    assert (await slave.ask(14, committed)).fields["offset"] == "2"
    await master.start()


async def test_the_slave_becomes_a_master_with_all_it_has(
    tmp_path: Path, names: str, master: Desk, slave: Desk
) -> None:
    filled(master, 100)
    master.topic("T", 2)
    await until(lambda: end(slave) == end(master) and "T" in slave.broker.topics)
    await slave.stop()
    await master.stop()
    slave.config.store.broker_role = BrokerRole.ASYNC_MASTER
    await slave.start()
    answer = await slave.ask(310, send_fields(1), b"goes on")
    assert (answer.code, answer.fields["queueOffset"]) == (0, "50")
    master.config.store.broker_role = BrokerRole.SLAVE
    master.config.broker_id = 1
    await master.start()
    await until(lambda: end(slave) == end(master))
    assert log_bytes(slave) == log_bytes(master)


async def test_a_slave_needs_an_id_above_that_of_the_master(tmp_path: Path) -> None:
    desk = slave_of(tmp_path, "127.0.0.1:1")
    desk.config.broker_id = 0
    with pytest.raises(ValueError, match="brokerId must be above 0"):
        await desk.start()
