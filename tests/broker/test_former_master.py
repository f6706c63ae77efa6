"""A broker that handed the mastership over passes on what clients still send to it, in this process."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.coordination.port import Put
from eruca.broker.failover.group import encode
from eruca.protocol import api, frame
from eruca.protocol.headers.send import SendMessageV2
from eruca.remoting import Channels
from eruca.remoting.access.settings import AccessSettings
from tests.broker.elected import KEYS, Group
from tests.broker.services.replication.pairs import end, until
from tests.support import half_messages
from tests.support.accounts import ADMIN, NOBODY, PUBLISHER, Signing, refused, write_accounts
from tests.support.coordination import FakeClient
from tests.support.desk import Desk
from tests.support.half_messages import half
from tests.support.pages import scrape
from tests.support.peers import Answered, Peer
from tests.support.sends import message

SEND, BACK, END, COMMIT, LOCK, UNLOCK, ELECT, STATUS, CREATE_GROUP = 310, 36, 37, 15, 41, 42, 1002, 28, 200
ENDED = {"producerGroup": "PG", "fromTransactionCheck": "false", "commitOrRollback": half_messages.COMMIT}
LOCKED = b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
OTHER = LOCKED.replace(b'"c"', b'"d"')
COMMITTED = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}


def to(number: int) -> dict[str, str]:
    return {"clusterName": "Lab", "brokerName": "broker-a", "brokerId": str(number)}


async def handed_over(group: Group) -> tuple[Desk, Desk]:
    """Brokers 1 and 2, of which 2 leads since a moment ago."""
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    one.topic("T", 2)
    assert (await one.ask(SEND, message(), b"first")).code == 0
    assert (await one.ask(ELECT, to(2))).code == 0
    assert await group.led({1, 2}) is two
    return one, two


async def test_a_former_master_answers_what_only_a_master_may_with_the_masters_answers(group: Group) -> None:
    one, two = await handed_over(group)
    stored = await one.ask(SEND, message(), b"second")
    assert (stored.code, stored.fields["queueOffset"]) == (0, "1")
    assert stored.fields["msgId"].startswith(two.broker.store_host_hex), "the master's own answer"
    assert two.broker.store.max_offset("T", 0) == 2
    refused = await one.ask(SEND, message(e="99"), b"no such queue")
    assert refused.code == 1 and refused.fields["MSG_REGION"] == "DefaultRegion"
    assert (await one.ask(COMMIT, COMMITTED)).code == 0
    assert two.broker.offsets.query("G", "T", 0) == 1
    assert json.loads((await one.ask(LOCK, {}, LOCKED)).body)["lockOKMQSet"] != []
    assert json.loads((await two.ask(LOCK, {}, OTHER)).body)["lockOKMQSet"] == []
    assert (await one.ask(UNLOCK, {}, LOCKED)).code == 0
    assert json.loads((await two.ask(LOCK, {}, OTHER)).body)["lockOKMQSet"] != []
    assert one.broker.relay is not None and one.broker.relay.relayed == 5


async def test_requests_that_come_while_the_mastership_is_handed_over_wait_for_the_next_master(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    one.topic("T", 2)
    peer = await Peer().connect(one.app.address)
    codes: list[int] = []

    async def sends() -> None:
        for number in range(300):
            codes.append((await peer.ask(SEND, message(), b"%d" % number)).code)

    sending = asyncio.create_task(sends())
    await until(lambda: len(codes) > 20)
    assert (await one.ask(ELECT, to(2))).code == 0
    await sending
    await peer.close()
    assert set(codes) == {0} and one.broker.relay is not None and one.broker.relay.relayed > 0
    bodies = [bytes(record.body) for record in two.records("T", 0)]
    assert bodies == [b"%d" % number for number in range(300)], "in their order, each once"


@pytest.mark.slow
async def test_a_handover_that_fails_leaves_the_requests_that_waited_to_the_master_that_stays(group: Group) -> None:
    one, _ = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    one.topic("T", 2)
    group.etcd.away = True
    asking = asyncio.create_task(one.ask(ELECT, to(2)))
    await until(lambda: not one.broker.accepting)
    peer = await Peer().connect(one.app.address)
    answers: list[Answered] = []

    async def send() -> None:
        answers.append(await peer.ask(SEND, message(), b"waits"))

    waiting = asyncio.create_task(send())
    refused = await asking
    await waiting
    await peer.close()
    assert (refused.code, answers[0].code) == (1, 0)
    assert (await one.ask(SEND, message(), b"goes on")).code == 0
    group.etcd.return_again()


async def test_what_was_passed_on_is_not_passed_on_again(group: Group) -> None:
    one, two = await handed_over(group)
    three = await group.start(3)
    await group.led({1, 2, 3})
    relayed = two.broker.relay
    assert relayed is not None
    assert (await two.ask(ELECT, to(3))).code == 0
    assert (await one.ask(SEND, message(), b"by one")).code == 0
    assert (await two.ask(SEND, message(), b"by two")).code == 0
    assert relayed.relayed == 1, "the first one went to the master itself"
    assert three.broker.store.max_offset("T", 0) == 3


@pytest.mark.slow
async def test_what_the_master_has_stored_and_could_not_confirm_is_not_sent_again_to_the_next_one(group: Group) -> None:
    one, two = await handed_over(group)
    await group.start(3)
    await group.led({1, 2, 3})
    assert isinstance(two.coordinator, FakeClient)
    two.coordinator.cut_off = True
    await group.stop(3)
    before = end(two)
    sending = asyncio.create_task(one.ask(SEND, message(), b"second"))
    await until(lambda: end(one) == end(two) > before)
    view = KEYS.view(await group.etcd.read_all(KEYS.prefix))
    assert view.known is not None
    named = [Put(KEYS.group, encode(view.known.group.hand_over(1)))]
    assert await group.etcd.change({KEYS.group: view.known.revision}, named, [KEYS.master]) is not None
    await until(lambda: one.broker.accepting)
    answer = await sending
    assert answer.code == 14 and "may be stored" in str(answer.remark), "the client decides whether it sends again"
    await until(lambda: [bytes(record.body) for record in one.records("T", 0)] == [b"first", b"second"])


async def test_what_a_client_has_signed_is_what_the_master_reads(tmp_path: Path, group: Group) -> None:
    home = str(write_accounts(tmp_path / "home"))
    settings: dict[str, Any] = {"access": AccessSettings(acl_enable=True), "rocketmq_home": home}
    one, two = [await group.start(number, **settings) for number in (1, 2)]
    await group.led({1, 2})
    one.topic("T", 2)
    admin = Signing(await one.peer())
    assert (await admin.ask(ADMIN, ELECT, to(2))).code == 0
    signing = Signing(await one.peer())
    assert (await signing.ask(PUBLISHER, SEND, message(), b"signed")).code == 0
    assert [bytes(record.body) for record in two.records("T", 0)] == [b"signed"]
    assert refused(await signing.ask(None, SEND, message(), b"unsigned")) == "No accessKey is configured"
    assert refused(await signing.ask(NOBODY, SEND, message(), b"not allowed")) == "No default permission for topic:T"
    assert one.broker.relay is not None and one.broker.relay.relayed == 1, "the others were refused here"


async def test_the_mastership_comes_back_and_nothing_is_passed_on_any_more(group: Group) -> None:
    one, two = await handed_over(group)
    assert (await two.ask(ELECT, to(1))).code == 0
    assert await group.led({1, 2}) is one
    assert (await one.ask(SEND, message(), b"here")).code == 0
    assert one.broker.relay is not None and one.broker.relay.relayed == 0


async def test_operators_see_the_group_at_each_broker(group: Group) -> None:
    one, two = await handed_over(group)
    assert (await one.ask(SEND, message(), b"second")).code == 0
    await until(lambda: end(one) == end(two))
    for desk in (one, two):
        table = json.loads((await desk.ask(STATUS)).body)["table"]
        leads = desk is two
        assert table["groupState"] == ("master" if leads else "following") and table["groupBrokerId"] == "12"[leads]
        assert (table["masterBrokerId"], table["masterEpoch"]) == ("2", str(two.broker.role.epoch))
        assert (table["syncStateSet"], table["masterSwitches"]) == ("1,2", "1")
        assert table["syncStateSetEpoch"].isdecimal() and int(table["confirmOffset"]) <= end(desk)
        assert (table["masterSure"], table["relayed"]) == (str(leads).lower(), "01"[not leads])
        await desk.app.pages.start("127.0.0.1", None, 0)
        found = await scrape(desk.app.pages.port)
        await desk.app.pages.stop()
        assert found.value("eruca_failover_state", state=table["groupState"]) == 1
        assert found.value("eruca_master_epoch") == two.broker.role.epoch
        assert found.value("eruca_sync_state_set_size") == 2
        assert found.value("eruca_master_switches_total") == 1
        assert found.value("eruca_relayed_requests_total") == (not leads)
        assert found.value("eruca_group_has_master") == 1 and found.value("eruca_group_forgotten") == 0
        silent = found.value("eruca_etcd_silent_seconds")
        assert silent is not None and silent < 3


async def test_returns_and_ends_of_transactions_go_to_the_master_one_way_ones_too(group: Group) -> None:
    one, two = await handed_over(group)
    places = [
        half_messages.place(await one.ask(SEND, half(key), key.encode())) for key in ("committed", "by-the-way", "back")
    ]
    assert (await one.ask(END, {**ENDED, "msgId": "committed", **places[0]})).code == 0
    peer = await one.peer()
    peer.tell(END, {**ENDED, "msgId": "by-the-way", **places[1]})
    await until(lambda: [bytes(each.body) for each in two.records("T", 0)] == [b"first", b"committed", b"by-the-way"])
    assert (await two.ask(CREATE_GROUP, {}, b'{"groupName":"G","retryQueueNums":1}')).code == 0
    back = {"group": "G", "offset": 0, "delayLevel": 3, "originTopic": "T", "maxReconsumeTimes": 16}
    assert (await one.ask(BACK, back)).code == 0
    assert "%RETRY%G" in two.broker.topics
    assert one.broker.relay is not None and one.broker.relay.relayed == 6


async def test_a_client_that_connects_after_a_hand_over_agrees_on_a_serialization_and_goes_on(group: Group) -> None:
    one, two = await handed_over(group)
    channels = Channels()
    try:
        connection = await channels.get(one.app.address)
        ask = SendMessageV2(
            producer_group="P", topic="T", queue_id=0, sys_flag=0, born_timestamp=1, flag=0, properties=""
        )
        for number in range(3):
            answer = await connection.call(api.SEND_MESSAGE_V2, ask, b"%d" % number)
            assert (answer.code, answer.header.queue_offset) == (0, number + 1)
        assert connection.serialization == frame.MSGPACK
    finally:
        await channels.close()
    assert len(two.records("T", 0)) == 4


@pytest.mark.slow
async def test_without_a_master_requests_wait_for_a_while_as_many_as_the_setting_says(group: Group) -> None:
    one, _ = await handed_over(group)
    one.config.send_thread_pool_queue_capacity = 3
    group.etcd.away = True
    await group.stop(2)
    peer = await one.peer()
    answers = await asyncio.gather(*(peer.ask(SEND, message(), b"waits", within=20) for _ in range(5)))
    assert sorted(each.code for each in answers) == [2, 2, 14, 14, 14]
    assert {str(each.remark).partition(":")[0] for each in answers} == {
        "too many requests wait for the new master of the group",
        "this broker has handed the mastership over, and the new master cannot be reached",
    }
    group.etcd.return_again()


@pytest.mark.slow
async def test_without_a_master_requests_wait_for_a_while_up_to_64_mib_of_them(group: Group) -> None:
    one, _ = await handed_over(group)
    group.etcd.away = True
    await group.stop(2)
    peers = [await one.peer() for _ in range(17)]
    large = bytes(4_000_000)  # 16 of them and their headers are less than 64 MiB, 17 are more
    answers = await asyncio.gather(*(peer.ask(SEND, message(), large, within=20) for peer in peers))
    assert sorted(each.code for each in answers) == [2, *[14] * 16]
    assert (await peers[0].ask(SEND, message(), large, within=20)).code == 14, "they make room when they end"
    group.etcd.return_again()


async def deposed(group: Group) -> tuple[Desk, Desk]:
    """Brokers 1 and 2, of which 2 was elected without a word to 1, as while that slept."""
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    one.topic("T", 2)
    assert (await one.ask(SEND, message(), b"first")).code == 0
    view = KEYS.view(await group.etcd.read_all(KEYS.prefix))
    assert view.known is not None
    named = [Put(KEYS.group, encode(view.known.group.hand_over(2)))]
    assert await group.etcd.change({KEYS.group: view.known.revision}, named, [KEYS.master]) is not None
    await until(lambda: two.broker.accepting)
    assert await group.led({1, 2}) is two
    return one, two


async def test_a_master_that_was_deposed_passes_on_what_its_clients_still_send(group: Group) -> None:
    one, two = await deposed(group)
    assert [(await one.ask(SEND, message(), b"%d" % number)).code for number in range(3)] == [0] * 3
    assert (await one.ask(COMMIT, COMMITTED)).code == 0
    assert [bytes(record.body) for record in two.records("T", 0)] == [b"first", b"0", b"1", b"2"]
    assert one.broker.relay is not None and one.broker.relay.relayed == 4


@pytest.mark.slow
async def test_a_deposed_master_whose_next_one_is_gone_too_lets_its_clients_look_elsewhere_at_once(
    group: Group,
) -> None:
    one, two = await deposed(group)
    part = one.broker.group_part
    assert part is not None and isinstance(two.coordinator, FakeClient)
    two.coordinator.cut_off = True
    group.etcd.expire(KEYS.master)
    await until(lambda: part.driver.view is not None and part.driver.view.master is None)
    assert (await one.ask(SEND, message(), b"it is followed, though etcd does not know of it")).code == 0
    group.etcd.away = True
    await group.stop(2)
    asked = time.monotonic()
    assert (await one.ask(SEND, message(), b"nobody")).code == 14
    assert time.monotonic() - asked < 2
    group.etcd.return_again()


async def test_a_barred_broker_passes_nothing_on(group: Group) -> None:
    one, two = await deposed(group)
    group.etcd.empty()
    await until(lambda: "group" in one.broker.readiness.reasons and "group" in two.broker.readiness.reasons)
    asked = time.monotonic()
    assert (await one.ask(SEND, message(), b"nobody")).code == 14
    assert time.monotonic() - asked < 2


def connections_to(desk: Desk) -> int:
    """How many connections a broker's port has."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{desk.app.port:04X}") and row[3] == "01" for row in rows)


def relaying() -> list[str]:
    """The tasks that pass requests on, or close connections."""
    return [repr(task) for task in asyncio.all_tasks() if {"Relay", "Channels"} & {*re.findall(r"\w+", repr(task))}]


async def test_a_relay_that_nobody_uses_any_more_leaves_no_connection_and_no_task(group: Group) -> None:
    one, two = await deposed(group)
    assert one.broker.relay is not None
    one.broker.relay.idle = 0.1
    before = connections_to(two)
    for _ in range(3):
        assert (await one.ask(SEND, message(), b"x")).code == 0
        assert connections_to(two) == before + 1
        await until(lambda: connections_to(two) == before and relaying() == [])
    assert one.broker.relay.relayed == 3
