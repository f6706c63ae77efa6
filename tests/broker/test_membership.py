"""Brokers that elect their master among themselves, in this process: they replicate, and the next one goes on."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.broker.config import BrokerRole
from eruca.broker.coordination.port import Put
from eruca.broker.failover.epochs import Epoch
from eruca.broker.failover.events import Reported
from eruca.broker.failover.group import encode
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import State
from eruca.broker.state.groups import Groups
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.parts import Part, Table
from eruca.broker.state.topics import Topics
from eruca.broker.store.epoch_file import read_epochs
from eruca.client.network.routes import address_to_read
from eruca.protocol.bodies import SubscriptionGroupConfig
from tests.broker.elected import KEYS, Group
from tests.broker.services.replication.pairs import (
    caught_up,
    cut_off,
    end,
    followed,
    log_bytes,
    master_of,
    slave_of,
    until,
)
from tests.support import half_messages
from tests.support.coordination import FakeClient
from tests.support.desk import Desk
from tests.support.names import Names
from tests.support.pages import page
from tests.support.peers import Peer
from tests.support.sends import message
from tests.support.stores import spoil

SEND, LOCK, COMMIT, CREATE_TOPIC = 310, 41, 15, 17
DELETE_TOPIC, CREATE_GROUP, HEARTBEAT, CLONE_OFFSETS = 215, 200, 34, 314
LOCKED = b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
PULL = {
    **{"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4"},
    **{"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"},
}
BY_KEY = {"topic": "T", "key": "AC11", "maxNum": "8", "beginTimestamp": "0", "endTimestamp": str(1 << 50)}
COMMITTED = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}
TOPIC = {
    **{"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"},
    **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
}


async def sent(desk: Desk, count: int, body: bytes = b"x") -> list[int]:
    desk.topic("T", 2)
    return [(await desk.ask(SEND, message(), b"%s%d" % (body, number))).code for number in range(count)]


async def equal(*desks: Desk) -> None:
    """Wait until all have the same log, and show it."""
    await until(lambda: len({end(desk) for desk in desks}) == 1)
    await until(lambda: all(desk.broker.store.figures().dispatch_behind_bytes == 0 for desk in desks))
    assert len({tuple(log_bytes(desk).values()) for desk in desks}) == 1


async def test_what_is_stored_in_the_turn_in_which_a_report_comes_goes_to_the_replicas(group: Group) -> None:
    """The report says up to where the log is written, which nobody has been sent."""
    one, two = [await group.start(number) for number in (1, 2)]
    master = await group.led({1, 2})
    assert master is one and await sent(master, 3) == [0] * 3
    await equal(one, two)
    assert one.broker.group_part is not None and two.broker.group_part is not None
    replica = two.broker.group_part.member
    said = Report(2, replica.store, replica.epoch, end(one), replica.tables)
    hosts: dict[str, Any] = {"born_timestamp": 1, "born_host": bytes(8), "store_host": one.broker.store_host}
    one.broker.store.appender.put("T", 0, b"y", b"", **hosts)
    one.broker.group_part.driver.post(Reported(said, end(one)))
    await equal(one, two)


async def test_brokers_of_a_name_elect_a_master_and_the_others_copy_its_log(group: Group, names: Names) -> None:
    one, two, three = [await group.start(number) for number in (1, 2, 3)]
    master = await group.led({1, 2, 3})
    assert master is one and await sent(master, 30) == [0] * 30
    await equal(one, two, three)
    assert {desk.broker.role.broker_id for desk in (two, three)} == {2, 3}
    assert (await two.ask(SEND, message(), b"no")).code == 14
    assert [each.epoch for each in read_epochs(two.folder / "store")] == [one.broker.role.epoch]
    expected = {0: one.app.address, 2: two.app.address, 3: three.app.address}
    async with asyncio.timeout(10):
        while await names.brokers() != {"broker-a": expected}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_the_next_master_goes_on_where_the_former_one_was(group: Group, names: Names) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 10, b"a") == [0] * 10
    await group.stop(1)
    assert await group.led({2}) is two
    assert await sent(two, 10, b"b") == [0] * 10
    one = await group.start(1)
    assert await group.led({1, 2}) is two
    await equal(one, two)
    assert one.broker.role.is_slave
    async with asyncio.timeout(10):
        while (await names.brokers())["broker-a"].get(0) != two.app.address:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_message_that_the_set_does_not_confirm_is_answered_with_14_and_shown_to_nobody(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0, 0, 0]
    await equal(one, two)
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    answer = await one.ask(SEND, message(), b"alone")
    assert answer.code == 14 and "send it again" in str(answer.remark)
    assert one.broker.store.max_offset("T", 0) + one.broker.store.max_offset("T", 1) == 3
    group.etcd.return_again()
    await group.led({1})
    await until(lambda: one.broker.store.max_offset("T", 0) + one.broker.store.max_offset("T", 1) == 4)


async def test_a_former_master_shows_nothing_that_was_not_confirmed(group: Group) -> None:
    """The end of its log is cut off when it has found the next master."""
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0, 0, 0]
    await equal(one, two)
    assert isinstance(one.coordinator, FakeClient)
    one.coordinator.cut_off = True
    await group.stop(2)
    assert (await one.ask(SEND, message(), b"alone")).code == 14
    view = KEYS.view(await group.etcd.read_all(KEYS.prefix))
    assert view.known is not None
    named = [Put(KEYS.group, encode(view.known.group.hand_over(2)))]
    assert await group.etcd.change({KEYS.group: view.known.revision}, named, [KEYS.master]) is not None
    one.coordinator.cut_off = False
    await until(lambda: one.broker.role.is_slave)
    one.broker.store.drain()
    assert one.broker.store.max_offset("T", 0) + one.broker.store.max_offset("T", 1) == 3


@pytest.mark.parametrize("shorter", [0, 40])
async def test_a_send_after_a_part_of_a_record_was_flushed_and_cut_off_is_confirmed(group: Group, shorter: int) -> None:
    """It may end where the part ended, or before that."""
    one, two = await group.start(1, sync_flush=True), await group.start(2, sync_flush=True)
    await group.led({1, 2})
    body = b"x" * 200
    assert await sent(one, 1) == [0]
    begun = end(one)
    assert (await one.ask(SEND, message(), body + b"x")).code == 0
    await equal(one, two)
    (log,) = log_bytes(two).values()
    copied = end(two)
    with capture_logs() as said:  # what the master has not got is taken back when it ends the connection
        two.broker.store.replicator.append(copied, log[begun : copied - 1])
        two.broker.store.flush()
        await until(lambda: came_into_the_set(said) == [2])
    assert end(two) == copied
    await group.stop(1)
    assert await group.led({2}) is two
    two.topic("T", 2)
    assert (await two.ask(SEND, message(), body[shorter:])).code == 0
    assert end(two) == 2 * copied - 1 - begun - shorter


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["smaller files", "no room"])
async def test_a_broker_that_cannot_take_the_log_in_leaves_the_set_says_why_and_tries_again_rarely(
    group: Group, fault: str
) -> None:
    if fault == "smaller files":
        group.file_sizes[2] = 8 << 10
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    reason = "No space left on device" if fault == "no room" else "set the same mappedFileSizeCommitLog"
    with capture_logs() as said:
        if fault == "no room":
            two.disk.full = "commitlog"
        codes = await sent(one, 40, b"x" * 300)
        assert set(codes) <= {0, 14} and codes[-1] == 0
        await group.led({1})
        await until(lambda: reason in two.broker.readiness.reasons.get("master", ""))
        begun, before = asyncio.get_running_loop().time(), joined(said)
        await until(lambda: joined(said) >= before + 2)
        assert asyncio.get_running_loop().time() - begun > 0.5
        assert one.app.member is not None and one.app.member.known is not None
        assert one.app.member.known.group.sync_state_set == {1}
        assert end(two) == two.broker.store.replicator.whole_offset < end(one)
        status = one.broker.group_part.status(0) if one.broker.group_part is not None else None
        assert status is not None and status.in_sync_slave_nums == 0
    assert len([line for line in said if reason in line.get("reason", "")]) == 1, "one line a minute"
    if fault == "no room":
        two.disk.full = None
    else:
        await group.stop(2)
        shutil.rmtree(two.folder / "store")
        group.file_sizes.clear()
        two = await group.start(2)
    await group.led({1, 2})
    await equal(one, two)
    assert "master" not in two.broker.readiness.reasons


def came_into_the_set(said: Sequence[Mapping[str, Any]]) -> list[int]:
    """Which brokers did, one after the other."""
    sets = [line for line in said if line["event"] == "sync_state_set"]
    return [number for line in sets for number in sorted({*line["members"]} - {*line["former"]})]


def joined(said: Sequence[Mapping[str, Any]]) -> int:
    """How often a broker began to follow."""
    return len([line for line in said if line["event"] == "failover_state" and line["state"] == "following"])


def listens(desk: Desk) -> bool:
    """Whether somebody can connect to a broker that may be starting yet."""
    if not hasattr(desk, "app") or "port" not in desk.app.ports:
        return False
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", desk.app.ports["port"])) == 0


async def test_a_broker_that_was_started_shows_nothing_before_it_knows_what_the_group_has(group: Group) -> None:
    """The end of its log may be cut off: what was never confirmed vanishes then."""
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0] * 3
    await equal(one, two)
    place = one.broker.store.unit("T", 0, 0)
    assert place is not None
    group.etcd.away = True
    await group.stop(2)
    silent = socket.create_server(("127.0.0.1", 0))  # takes no connection: the start waits for it
    nameserver = "{}:{}".format(*silent.getsockname())
    starting = asyncio.create_task(group.start(2, namesrv_addr=nameserver))
    await until(lambda: 2 in group.desks and listens(group.desks[2]))
    two = group.desks[2]
    early = await Peer().connect(two.app.address)
    assert (await early.ask(11, PULL)).code == 14 and not starting.done()
    await early.close()
    await starting
    silent.close()
    queue = {"topic": "T", "queueId": "0"}
    reads: list[tuple[int, dict[str, Any]]] = [
        *((11, PULL), (33, {"offset": place[0]}), (12, BY_KEY), (30, queue), (29, {**queue, "timestamp": "0"})),
        *((14, {**queue, "consumerGroup": "G"}), (321, {**queue, "index": "0", "count": "1"})),
        *((202, {"topic": "T"}), (208, {"consumerGroup": "G", "topic": "T"}), (317, {"isOrder": "false"})),
        (303, {"topic": "T", "group": "G"}),
    ]
    for code, fields in reads:
        refused = await two.ask(code, fields)
        assert refused.code == 14 and "does not know yet" in str(refused.remark)
    group.etcd.return_again()
    await group.led({1, 2})
    await until(lambda: two.broker.confirmation is not None and not two.broker.confirmation.doubtful)
    await until(lambda: two.app.member is not None and two.app.member.has_tables)
    assert {(await two.ask(code, fields)).code for code, fields in reads} == {0}


async def test_a_broker_that_was_started_tells_no_offset_before_it_has_its_masters(group: Group) -> None:
    """An empty one, too: a group without an offset begins where its members wish, perhaps at the end."""
    one = await group.start(1)
    await group.led({1})
    assert await sent(one, 3) == [0] * 3
    assert (await one.ask(COMMIT, COMMITTED)).code == 0
    group.etcd.away = True
    two = await group.start(2)
    asked = {"topic": "T", "queueId": "0", "consumerGroup": "G"}
    refused = await two.ask(14, asked)
    assert refused.code == 14 and "offsets of its master" in str(refused.remark)
    group.etcd.return_again()
    await group.led({1, 2})
    assert (await two.ask(14, asked)).fields["offset"] == "1"


@pytest.mark.parametrize("leads", [True, False], ids=["the former master", "a slave"])
async def test_a_broker_whose_log_was_damaged_copies_it_again_from_there(group: Group, leads: bool) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 20) == [0] * 20
    await equal(one, two)
    damaged, other = (one, two) if leads else (two, one)
    number = damaged.broker.role.member_id
    await group.stop(number)
    await group.led({3 - number})
    assert await sent(other, 5, b"y") == [0] * 5
    start = other.records("T", 0)[5].physical_offset
    spoil(damaged.folder / "store", start)
    await cut_off(await group.start(number), start)
    again = await group.start(number)
    await group.led({1, 2})
    await equal(again, other)


async def test_a_store_that_is_used_outside_its_group_has_left_it(group: Group, tmp_path: Path) -> None:
    one = await group.start(1)
    await group.led({1})
    assert await sent(one, 3) == [0] * 3
    await group.stop(1)
    store = one.folder / "store"
    assert read_epochs(store) != ()
    async with master_of(tmp_path / "1", file_size=1 << 20) as alone:
        assert await sent(alone, 3) == [0] * 3
    assert read_epochs(store) == () and (store / "epochFileCheckpoint.left").exists()


async def test_a_master_that_may_be_one_no_more_grants_no_lock_and_takes_no_commit_and_no_change(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 2) == [0, 0]

    async def codes(desk: Desk) -> list[int]:
        asked = [
            desk.ask(LOCK, {}, LOCKED),
            desk.ask(COMMIT, COMMITTED),
            desk.ask(CREATE_TOPIC, TOPIC),
        ]
        return [(await each).code for each in asked]

    assert await codes(one) == [0, 0, 0]
    assert await codes(two) == [14, 14, 14]
    one.broker.registration.is_sure = lambda: False
    assert await codes(one) == [14, 14, 14]


GROUP = b'{"groupName":"G2","retryQueueNums":3,"retryMaxTimes":5}'
BEAT = b"""{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY",
"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"topic":"T",
"subString":"a > 3","expressionType":"SQL92","subVersion":1,"tagsSet":[],"codeSet":[]}]}]}"""
OTHER = LOCKED.replace(b'"c"', b'"d"')
CLONE = {"srcGroup": "G", "destGroup": "Clone", "topic": "T", "offline": "true"}


def tables(desk: Desk) -> list[Part]:
    """All tables of a broker."""
    broker = desk.broker
    every: list[Table] = [broker.topics, broker.groups, broker.filters, broker.offsets, broker.locks]
    return [table.part(None) for table in every]


async def test_what_is_answered_of_tables_is_on_all_of_the_set_and_the_next_master_goes_on_with_it(
    group: Group,
) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert (await one.ask(CREATE_TOPIC, TOPIC)).code == 0
    assert two.broker.topics.get("New") == one.broker.topics.get("New")
    made = await one.ask(SEND, message(topic="Made"), b"by a send")
    assert made.code == 0 and "Made" in two.broker.topics and not two.broker.topics.dirty
    assert (await one.ask(CREATE_GROUP, {}, GROUP)).code == 0
    assert two.broker.groups.get("G2") == one.broker.groups.get("G2") and not two.broker.groups.dirty
    assert (await one.ask(HEARTBEAT, {}, BEAT)).code == 0
    assert two.broker.filters.get("T", "G") is not None and "%RETRY%G" in two.broker.topics
    assert (await one.ask(COMMIT, COMMITTED)).code == 0
    assert two.broker.offsets.query("G", "T", 0) == 1
    assert (await one.ask(CLONE_OFFSETS, CLONE)).code == 0
    assert not two.broker.offsets.dirty
    assert (await one.ask(LOCK, {}, LOCKED)).code == 0
    assert (await one.ask(DELETE_TOPIC, {"topic": "New"})).code == 0
    assert "New" not in two.broker.topics
    one.broker.offsets.commit("G", "T", 1, 7)  # as a pull does, without an answer
    await until(lambda: two.broker.offsets.query("G", "T", 1) == 7)
    await group.stop(1)
    assert await group.led({2}) is two
    assert (await two.ask(LOCK, {}, OTHER)).body == b'{"lockOKMQSet":[]}'
    assert b"queueId" in (await two.ask(LOCK, {}, LOCKED)).body
    one = await group.start(1)
    await group.led({1, 2})
    await until(lambda: tables(one) == tables(two))


async def test_a_lock_lasts_at_the_other_brokers_as_long_as_its_owner_renews_it_at_the_master(group: Group) -> None:
    """Brokers remove what has expired again and again, those that only have a copy too."""
    one = await group.start(1)
    two = await group.start(2, channel_expired_timeout=20)
    assert await group.led({1, 2}) is one
    assert b"queueId" in (await one.ask(LOCK, {}, LOCKED)).body
    looks = 0
    drop = two.broker.locks.drop_expired

    def dropped(now: int) -> None:
        nonlocal looks
        looks += 1
        drop(now)

    two.broker.locks.drop_expired = dropped  # type: ignore[method-assign]
    await until(lambda: looks > 1)
    await group.stop(1)
    assert await group.led({2}) is two
    assert (await two.ask(LOCK, {}, OTHER)).body == b'{"lockOKMQSet":[]}'
    assert b"queueId" in (await two.ask(LOCK, {}, LOCKED)).body


async def test_what_a_former_master_alone_has_in_its_tables_goes_when_it_returns(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 2) == [0, 0]
    assert (await one.ask(COMMIT, COMMITTED)).code == 0
    await group.stop(1)
    assert await group.led({2}) is two
    offsets = Offsets(one.config.config_folder / "consumerOffset.json")
    offsets.load()
    offsets.commit("Alone", "T", 0, 9)
    offsets.save()
    one = await group.start(1)
    await group.led({1, 2})
    assert one.broker.offsets.query("Alone", "T", 0) == -1
    assert one.broker.offsets.query("G", "T", 0) == 1


async def test_a_change_that_the_set_does_not_confirm_is_answered_with_14(group: Group) -> None:
    await group.start(1)
    await group.start(2)
    one = await group.led({1, 2})
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    one.broker.registration.is_sure = lambda: True
    answer = await one.ask(COMMIT, COMMITTED)
    assert answer.code == 14 and "do it again" in str(answer.remark)


METADATA, SYNC_STATE, EPOCHS, ELECT, HA_STATUS = 1005, 1006, 1007, 1002, 907


def to(number: int) -> dict[str, str]:
    return {"clusterName": "Lab", "brokerName": "broker-a", "brokerId": str(number)}


async def test_every_broker_of_a_group_tells_who_leads_and_who_may(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    assert await sent(one, 5) == [0] * 5
    await equal(one, two)
    for desk in (one, two):
        await until(lambda: desk.broker.group_part is not None)  # noqa: B023
        said = await desk.ask(METADATA)
        assert (said.fields["controllerLeaderAddress"], said.fields["group"]) == (one.app.address, "broker-a")
        assert said.fields["isLeader"] == str(desk is one).lower()
        table = json.loads((await desk.ask(SYNC_STATE, {}, b'["broker-a","broker-b"]')).body)["replicasInfoTable"]
        shown = table.pop("broker-a")
        assert table == {} and (shown["masterBrokerId"], shown["masterAddress"]) == (1, one.app.address)
        assert [(each["brokerId"], each["alive"]) for each in shown["inSyncReplicas"]] == [(1, True), (2, True)]
        assert shown["notInSyncReplicas"] == []
        log = json.loads((await desk.ask(EPOCHS)).body)
        assert (log["brokerName"], log["brokerId"], log["maxOffset"]) == ("broker-a", desk.config.broker_id, end(desk))
        assert [each["epoch"] for each in log["epochList"]] == [one.broker.role.epoch]
        assert (await desk.ask(SYNC_STATE, {}, b"[[")).code == 1
    master, slave = [json.loads((await desk.ask(HA_STATUS)).body) for desk in (one, two)]
    assert master["master"] and master["inSyncSlaveNums"] == 1
    assert [(each["addr"], each["diff"]) for each in master["haConnectionInfo"]] == [(two.app.address, 0)]
    assert slave["haClientRuntimeInfo"]["masterAddr"] == one.app.address


async def test_the_mastership_is_handed_over_in_order(group: Group, names: Names) -> None:
    one, two, three = [await group.start(number) for number in (1, 2, 3)]
    assert await group.led({1, 2, 3}) is one
    assert await sent(one, 20) == [0] * 20
    epoch = one.broker.role.epoch
    assert (await two.ask(ELECT, to(2))).remark == "broker 2 is not the master: ask broker 1, the master"
    begun = asyncio.get_running_loop().time()
    answer = await one.ask(ELECT, to(3))
    print(f"handed over in {asyncio.get_running_loop().time() - begun:.2f} s")
    assert (answer.code, answer.fields["masterBrokerId"]) == (0, "3"), answer.remark
    assert answer.fields["masterAddress"] == three.app.address and int(answer.fields["masterEpoch"]) == epoch + 2
    assert [(await desk.ask(SEND, message(), b"late")).code for desk in (one, two)] == [0, 14], "passed on, refused"
    assert await group.led({1, 2, 3}) is three
    for desk, status in ((one, 503), (two, 503), (three, 200)):
        await desk.app.pages.start("127.0.0.1", None, 0)
        try:
            shown = await page(desk.app.pages.port, "/master")
            assert (shown.status, json.loads(shown.text)["master"]) == (status, status == 200)
        finally:
            await desk.app.pages.stop()
    assert await sent(three, 5) == [0] * 5
    await equal(one, two, three)
    assert (await three.ask(ELECT, to(3))).code == 0
    assert await group.led({1, 2, 3}) is three


async def test_a_stop_in_order_hands_the_mastership_over_first(group: Group) -> None:
    one, two, three = [await group.start(number) for number in (1, 2, 3)]
    assert await group.led({1, 2, 3}) is one
    assert await sent(one, 5) == [0] * 5
    epoch = one.broker.role.epoch
    await group.stop(1)
    await until(lambda: two.broker.accepting or three.broker.accepting)
    leads = [desk for desk in (two, three) if desk.broker.accepting]
    assert [desk.broker.role.epoch for desk in leads] == [epoch + 2], "named by the one that stops, and elected"
    assert await sent(leads[0], 5) == [0] * 5
    assert await group.led({2, 3}) is leads[0]
    await equal(two, three)
    await group.stop(leads[0].config.broker_id)
    (last,) = group.desks.values()
    await until(lambda: last.broker.accepting)
    assert await sent(last, 5) == [0] * 5


async def test_each_change_of_a_brokers_part_has_a_line_with_its_reason(group: Group) -> None:
    with capture_logs() as said:
        one, two = await group.start(1), await group.start(2)
        await group.led({1, 2})
        assert await sent(one, 3) == [0] * 3
        await group.stop(2)
        await group.led({1})
        two = await group.start(2)
        await group.led({1, 2})
        assert (await one.ask(ELECT, to(2))).code == 0
        assert await group.led({1, 2}) is two
        group.etcd.empty()
        await until(lambda: "group" in one.broker.readiness.reasons and "group" in two.broker.readiness.reasons)
    lines = [line for line in said if line["event"] in ("failover_state", "sync_state_set")]
    assert all(line["reason"] for line in lines)
    changes = {(line["state"], line["reason"]) for line in lines if "state" in line}
    assert ("joining", "etcd names broker 2 the master") in changes
    assert ("promoting", "etcd has elected it") in changes
    assert ("barred", "etcd has no group, but this broker knows epoch 4: etcd was emptied") in changes
    assert "broker 2 is lost, or made no progress" in {line["reason"] for line in lines if "state" not in line}


async def test_a_broker_without_a_master_says_who_may_be_elected(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0] * 3
    await group.stop(2)
    await group.led({1})
    await group.stop(1)
    two = await group.start(2)
    await until(lambda: "only these brokers may be elected: 1" in two.broker.readiness.reasons.get("master", ""))
    await group.stop(2)
    shutil.rmtree(one.folder / "store")
    one = await group.start(1)
    await until(lambda: "broker 1 has another store" in one.broker.readiness.reasons.get("master", ""))
    assert "bring its former disk back" in one.broker.readiness.reasons["master"], "nobody else may be elected"


async def stop_both(group: Group) -> None:
    """The set stays as it is, and the key of the master goes."""
    group.etcd.away = True
    await group.stop(2)
    await group.stop(1)
    group.etcd.away = False
    group.etcd.expire(KEYS.master)


async def test_the_copy_of_a_list_of_epochs_is_as_new_as_the_list(group: Group) -> None:
    """With an older one the next master would take the end of a former one, which nobody has confirmed, for its own."""
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0] * 3
    await equal(one, two)
    confirmed = end(one)
    group.etcd.away = True  # the set stays as it is
    await group.stop(2)
    assert (await one.ask(SEND, message(), b"never confirmed")).code == 14
    await group.stop(1)
    group.etcd.away = False
    group.etcd.expire(KEYS.master)
    two = await group.start(2)
    assert await group.led({2}) is two
    assert await sent(two, 3, b"of the next master") == [0] * 3
    await group.stop(2)
    (two.folder / "store" / "epochFileCheckpoint").unlink()
    two = await group.start(2)
    assert await group.led({2}) is two
    one = await group.start(1)
    await until(lambda: one.app.cut_to == confirmed)


async def test_a_broker_with_another_store_than_the_group_knows_says_whom_to_start(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0] * 3
    await equal(one, two)
    await stop_both(group)
    (one.folder / "store" / "eruca.store").unlink()
    with capture_logs() as said:
        one = await group.start(1)
        await until(lambda: "start broker 2 with its store" in one.broker.readiness.reasons.get("master", ""))
    [line] = [each for each in said if each["event"] == "not_electable"]
    assert line["remedy"].startswith("start another broker of the syncStateSet (2)")
    refused = str((await one.ask(ELECT, to(1))).remark)
    assert "nobody leads the group now" in refused and "no-master" in refused
    two = await group.start(2)
    assert await group.led({1, 2}) is two


def files(desk: Desk) -> tuple[Topics, Groups, Offsets]:
    return desk.broker.topics, desk.broker.groups, desk.broker.offsets


@pytest.mark.parametrize("lost", ["topics.json*", "topics.json", "subscriptionGroup.json", "consumerOffset.json"])
async def test_a_broker_that_has_lost_its_tables_follows_before_it_leads(group: Group, lost: str) -> None:
    """All of a file, or the last change of it, as its copy has the one before."""
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0] * 3
    for name in ("Early", "Late"):
        assert (await one.ask(CREATE_TOPIC, TOPIC | {"topic": name})).code == 0
        assert (await one.ask(CREATE_GROUP, {}, SubscriptionGroupConfig(group_name=name).encode())).code == 0
        assert (await one.ask(COMMIT, COMMITTED | {"consumerGroup": name})).code == 0
        await asyncio.gather(*(table.saved() for table in files(one)))
    await equal(one, two)
    await stop_both(group)
    for file in (one.folder / "store" / "config").glob(lost):
        file.unlink()
    with capture_logs() as said:
        one = await group.start(1)
        await until(lambda: "start broker 2 with its store" in one.broker.readiness.reasons.get("master", ""))
    [line] = [each for each in said if each["event"] == "store_id_lost"]
    assert lost.rstrip("*") in line["reason"]
    two = await group.start(2)
    assert await group.led({1, 2}) is two
    assert all(b"Late" in table.part(None).entries for table in files(one))


async def test_a_broker_that_has_lost_the_list_of_its_epochs_follows_before_it_leads(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 3) == [0] * 3
    await equal(one, two)
    await stop_both(group)
    for lost in (two.folder / "store").glob("epochFileCheckpoint*"):
        lost.unlink()
    with capture_logs() as said:
        two = await group.start(2)
        await until(lambda: any(line["event"] == "not_electable" for line in said))
    assert "broker 2 has lost the list of its epochs" in two.broker.readiness.reasons["master"]
    one = await group.start(1)
    assert await group.led({1, 2}) is one
    await equal(one, two)
    assert await sent(one, 3) == [0] * 3


async def test_a_stop_of_the_last_one_waits_for_nobody(group: Group) -> None:
    one = await group.start(1)
    await group.led({1})
    async with asyncio.timeout(3):
        await group.stop(1)
    assert one.app.faults == []


async def test_a_mastership_that_cannot_be_handed_over_stays(group: Group) -> None:
    one, _ = await group.start(1), await group.start(2)
    await group.led({1, 2})
    assert "not in the syncStateSet (1, 2)" in str((await one.ask(ELECT, to(7))).remark)
    assert "ask a broker of that group" in str((await one.ask(ELECT, {**to(2), "brokerName": "broker-b"})).remark)
    group.etcd.away = True
    refused = await one.ask(ELECT, to(2))
    assert refused.code == 1 and "may still do so" in str(refused.remark)
    assert await sent(one, 3) == [0] * 3
    group.etcd.return_again()


@pytest.mark.parametrize("sync_flush", [False, True])
async def test_a_master_whose_log_cannot_be_flushed_any_more_hands_over(group: Group, sync_flush: bool) -> None:
    one, two = [await group.start(number, sync_flush=sync_flush) for number in (1, 2)]
    await group.led({1, 2})
    assert await sent(one, 3) == [0, 0, 0]
    await equal(one, two)
    copied, epochs = end(one), read_epochs(one.folder / "store")
    one.disk.unflushable = True
    answer = await one.ask(SEND, message(), b"on no disk of this broker", within=20)
    if sync_flush:
        assert answer.code == 14
    else:
        assert answer.code == 0
        with pytest.raises(OSError, match="Input/output error"):
            one.broker.store.flush()
    await until(lambda: two.broker.accepting)
    await until(lambda: one.app.member is None or one.app.member.state is not State.MASTER)
    assert await sent(two, 3, b"on") == [0, 0, 0]
    await until(lambda: bool(one.broker.readiness.reasons.get("master")))
    await until(lambda: "could not be flushed" in one.broker.readiness.reasons["master"])
    assert read_epochs(one.folder / "store") == epochs, "what it has alone belongs to no epoch of the next master"
    assert one.broker.tasks.fault is None
    assert (await one.ask(SEND, message(), b"passed on")).code == 0
    one.disk.unflushable = False
    await group.stop(1)
    one = await group.start(1, sync_flush=sync_flush)
    if sync_flush:
        await until(lambda: one.app.cut_to == copied)
    else:
        assert await group.led({1, 2}) is two
        await equal(one, two)


async def test_a_former_master_whose_disk_fails_sends_pulls_to_the_next_one(group: Group) -> None:
    """It does not follow that one: what is new is never here."""
    one, two = [await group.start(number, sync_flush=True) for number in (1, 2)]
    await group.led({1, 2})
    assert await sent(one, 2) == [0, 0]
    await equal(one, two)
    waits = {**PULL, "queueOffset": "2", "sysFlag": "6", "suspendTimeoutMillis": "15000"}
    reader = await Peer().connect(one.app.address)
    held = asyncio.create_task(reader.ask(11, waits, within=20))
    await until(lambda: len(one.broker.holds) == 1)
    one.disk.unflushable = True
    assert (await one.ask(SEND, message(), b"on no disk", within=20)).code == 14
    await until(lambda: two.broker.accepting)
    answers = [await held]
    for offset in ("2", "7"):
        answers.append(await reader.ask(11, {**waits, "queueOffset": offset}))
    places = [(each.code, each.fields["suggestWhichBrokerId"], each.fields["nextBeginOffset"]) for each in answers]
    assert places == [(20, "2", "2"), (20, "2", "2"), (20, "2", "7")]
    assert (await reader.ask(11, PULL)).code == 0, "what was stored is read here, too"
    await reader.close()
    one.disk.unflushable = False


async def test_pulls_that_a_former_master_sends_away_arrive_whatever_route_the_client_has(group: Group) -> None:
    """In place of a broker that its route has not, a client asks the one with the next number: this one again."""
    one, two = [await group.start(number, sync_flush=True) for number in (1, 2)]
    await group.led({1, 2})
    assert (await one.ask(ELECT, to(2), within=20)).code == 0
    assert await group.led({1, 2}) is two
    assert await sent(two, 1) == [0]
    await equal(one, two)
    two.disk.unflushable = True
    assert (await two.ask(SEND, message(), b"on no disk", within=20)).code == 14
    await until(lambda: one.broker.accepting)
    waits = {**PULL, "queueOffset": "1", "sysFlag": "6", "suspendTimeoutMillis": "15000"}
    old, new = {0: two.app.address, 1: one.app.address}, {0: one.app.address, 2: two.app.address}
    for route, suggested in ((old, 0), (new, 1)):
        async with asyncio.timeout(10):
            while (address := address_to_read(route, suggested)) == two.app.address:
                suggested = int((await two.ask(11, waits)).fields["suggestWhichBrokerId"])
        assert address == one.app.address
    two.disk.unflushable = False


@pytest.mark.slow
@pytest.mark.parametrize("sync_flush", [False, True])
async def test_a_master_whose_disk_hangs_hands_over_and_follows_when_it_goes_on(group: Group, sync_flush: bool) -> None:
    one, two = [await group.start(number, sync_flush=sync_flush) for number in (1, 2)]
    await group.led({1, 2})
    assert await sent(one, 3, b"a") == [0] * 3
    await equal(one, two)
    copied = end(one)
    one.disk.hold()
    peer = await Peer().connect(one.app.address)
    waits = asyncio.create_task(peer.ask(SEND, message(), b"b" * 20_000, within=20))
    assert await group.led({2}) is two
    assert await sent(two, 3, b"c") == [0] * 3
    await until(lambda: "its disk hangs" in one.broker.readiness.reasons.get("master", ""))
    code = (await waits).code
    await peer.close()
    one.disk.release()
    if sync_flush:
        assert code == 14, "it was on no disk of the master"
        await until(lambda: one.app.cut_to == copied)
    else:
        assert code == 0
        assert await group.led({1, 2}) is two
        await equal(one, two)
        assert one.broker.role.is_slave
    assert sum(two.broker.store.max_offset("T", number) for number in (0, 1)) == 6 + (code == 0)


@pytest.mark.slow
async def test_a_master_whose_disk_hangs_and_who_is_alone_goes_on_with_it(group: Group) -> None:
    one = await group.start(1, sync_flush=True)
    await group.led({1})
    one.disk.hold()
    peer = await Peer().connect(one.app.address)
    asking = asyncio.create_task(peer.ask(SEND, message(), b"waits", within=20))
    await until(lambda: one.broker.store.flush_hangs, within=20)
    one.disk.release()
    assert (await asking).code in (0, 14) and await sent(one, 2) == [0, 0]
    await peer.close()
    assert one.broker.role.epoch == 2


async def test_a_master_whose_disk_has_failed_stops_in_order_also_where_nobody_takes_over(group: Group) -> None:
    one, _ = [await group.start(number, sync_flush=True) for number in (1, 2)]
    await group.led({1, 2})
    assert await sent(one, 3) == [0, 0, 0]
    group.etcd.away = True
    one.disk.unflushable = True
    peer = await Peer().connect(one.app.address)
    waiting = asyncio.create_task(peer.ask(SEND, message(), b"on no disk", within=20))
    await until(lambda: one.broker.store.refusal is not None)
    with capture_logs() as said:
        await group.stop(1)
    assert (await waiting).code == 14
    await peer.close()
    reasons = [line["reason"] for line in said if line["event"] == "stops_without_hand_over"]
    assert len(reasons) == 1 and "cannot be brought to the disk" in reasons[0]
    assert "the next start recovers it" in one.app.faults[-1]
    one.disk.unflushable = False
    group.etcd.return_again()


@pytest.mark.slow
async def test_a_master_that_stays_goes_on_behind_what_the_set_has_not_confirmed(group: Group) -> None:
    """Also those messages have places in their queues, which no other message may get."""
    one, two = [await group.start(number, sync_flush=True) for number in (1, 2)]
    await group.led({1, 2})
    assert await sent(one, 3) == [0, 0, 0]
    await equal(one, two)
    group.etcd.away = True  # so that the one whose disk hangs stays in the set
    two.disk.hold()
    peer = await Peer().connect(one.app.address)
    waiting = asyncio.create_task(peer.ask(SEND, message(), b"waits"))
    await until(lambda: one.broker.waiting_sends == 1)
    refused = await one.ask(ELECT, to(2))
    assert refused.code == 1 and "did not get all" in str(refused.remark)
    two.disk.release()
    group.etcd.return_again()
    await waiting
    await group.led({1, 2})
    assert await sent(one, 3, b"on") == [0, 0, 0]
    await equal(one, two)
    await peer.close()
    bodies = [bytes(record.body) for record in one.records("T", 0)]
    assert bodies == [b"x0", b"x1", b"x2", b"waits", b"on0", b"on1", b"on2"]


async def test_a_broker_of_no_such_group_does_not_know_these_requests(tmp_path: Path) -> None:
    async with master_of(tmp_path / "alone") as alone:
        for code, fields in ((ELECT, to(2)), (METADATA, {}), (SYNC_STATE, {}), (EPOCHS, {})):
            answer = await alone.ask(code, fields, b"[]")
            assert answer.code == 3 and "enableControllerMode" in str(answer.remark)


async def test_below_the_minimum_a_send_is_refused_before_it_is_stored(group: Group) -> None:
    one = await group.start(1, min_in_sync_replicas=2)
    await group.led({1})
    end_before = end(one)
    one.topic("T", 2)
    answers = [await one.ask(SEND, message(), b"alone") for _ in range(3)]
    assert {each.code for each in answers} == {1} and "minInSyncReplicas" in str(answers[0].remark)
    assert end(one) == end_before
    await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 20) == [0] * 20  # by the fast path, too
    await group.stop(2)
    await group.led({1})
    assert (await one.ask(SEND, message(), b"alone")).code == 1


@pytest.mark.parametrize(("needed", "codes"), [(1, [0, 0]), (2, [14, 14])])
async def test_without_all_of_the_set_so_many_acknowledge_as_the_settings_say(
    group: Group, needed: int, codes: list[int]
) -> None:
    one = await group.start(1, all_ack_in_sync_state_set=False, in_sync_replicas=needed)
    two = await group.start(2)
    await group.led({1, 2})
    assert await sent(one, 2) == [0, 0]
    await equal(one, two)
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    one.topic("T", 2)
    assert [(await one.ask(SEND, message(), b"alone")).code for _ in range(2)] == codes
    assert one.broker.store.max_offset("T", 0) == 2  # what not all of the set have is shown to nobody


async def test_a_half_message_is_ended_that_was_acknowledged_before_all_of_the_set_have_it(group: Group) -> None:
    one = await group.start(1, all_ack_in_sync_state_set=False)
    await group.start(2)
    await group.led({1, 2})
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    for state in (half_messages.COMMIT, half_messages.ROLLBACK):
        where = await half_messages.send(one, f"K{state}")
        assert (await half_messages.end(one, where, state)).code == 0


async def test_a_pair_becomes_a_group_with_the_stores_that_it_has(group: Group, tmp_path: Path) -> None:
    master = master_of(tmp_path / "1", BrokerRole.SYNC_MASTER, file_size=1 << 20)
    async with master:
        slave = slave_of(tmp_path / "2", master.broker.ha_address, file_size=1 << 20)
        async with slave:
            await followed(master)
            assert await sent(master, 20, b"of the pair ") == [0] * 20
            assert (await master.ask(COMMIT, COMMITTED)).code == 0
            await caught_up(master, slave)
    before = [log_bytes(desk) for desk in (master, slave)]
    assert before[0] == before[1] and len(before[0]) == 1
    size = end(master)

    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    assert await sent(one, 5, b"of the group ") == [0] * 5
    await equal(one, two)
    for desk in (one, two):
        ((name, log),) = log_bytes(desk).items()
        assert log[:size] == before[0][name][:size], "what was there is as it was"
        assert read_epochs(desk.folder / "store") == (Epoch(1, 0), Epoch(2, size))
    await group.stop(1)
    assert await group.led({2}) is two
    assert two.broker.store.max_offset("T", 0) + two.broker.store.max_offset("T", 1) == 25
    assert two.broker.offsets.query("G", "T", 0) == 1


async def test_a_slave_that_lacks_the_end_of_its_masters_log_copies_it_in_the_group(
    group: Group, tmp_path: Path
) -> None:
    master = master_of(tmp_path / "1", file_size=1 << 20)
    async with master:
        async with slave_of(tmp_path / "2", master.broker.ha_address, file_size=1 << 20) as slave:
            await followed(master)
            assert await sent(master, 20) == [0] * 20
            await caught_up(master, slave)
        assert await sent(master, 20, b"alone ") == [0] * 20
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    await equal(one, two)
