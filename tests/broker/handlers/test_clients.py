"""Clients: heartbeats, leaving, who hears of it, consumer lists, checks of subscriptions: 34, 35, 38, 40, 46."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.handlers.clients import drop_silent
from eruca.broker.state.clients import EXPIRE_AFTER
from eruca.protocol.bodies import SubscriptionGroupConfig
from tests.support.desk import Desk
from tests.support.peers import Peer

HEARTBEAT, LEAVE, LIST, CHANGED, CHECK = 34, 35, 38, 40, 46
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


async def members(desk: Desk, group: str = "g") -> list[str]:
    answer = await desk.ask(LIST, {"consumerGroup": group})
    assert answer.code == 0
    ids: list[str] = json.loads(answer.body)["consumerIdList"]
    return ids


async def heard(peer: Peer, count: int = 1) -> None:
    """The peer is told of a change, so often and no more."""
    pushed = await peer.received(CHANGED, count)
    await peer.ask(30, {"topic": "T", "queueId": 0})
    assert [(each.fields, each.oneway, each.body) for each in pushed] == [({"consumerGroup": "g"}, True, b"")] * count
    await heard_nothing(peer)


async def heard_nothing(peer: Peer) -> None:
    await peer.ask(30, {"topic": "T", "queueId": 0})
    assert peer.pushed == []


# ---------------------------------------------------------------------- heartbeats


async def test_a_heartbeat_makes_a_member_with_its_group_and_retry_topic(desk: Desk) -> None:
    assert (await desk.ask(LIST, {"consumerGroup": "g"})).remark == "no consumer for this group, g"
    await desk.consumer("g", "T", client_id="c1")
    assert await members(desk) == ["c1"]
    assert desk.broker.groups.get("g") == SubscriptionGroupConfig(group_name="g")
    retry = desk.broker.topics.table["%RETRY%g"]
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm, retry.topic_sys_flag) == (1, 1, 6, 0)


async def test_the_answer_shows_the_brokers_version(desk: Desk) -> None:
    answer = await desk.ask(HEARTBEAT, {}, b'{"clientID":"c"}')
    assert (answer.code, answer.body, answer.header["version"]) == (0, b"", 407)


async def test_without_leave_a_group_is_online_all_the_same(prepared: Prepared) -> None:
    def strict(desk: Desk) -> None:
        desk.config.auto_create_subscription_group = False

    desk = await prepared(strict)
    await desk.consumer("g", "T", client_id="c1")
    assert await members(desk) == ["c1"]
    assert desk.broker.groups.get("g") is None and "%RETRY%g" not in desk.broker.topics
    await desk.consumer("CID_RMQ_SYS_g", "T")
    assert desk.broker.groups.get("CID_RMQ_SYS_g") is not None


@pytest.mark.parametrize(
    "body",
    [
        b'{"clientID":"c","consumerDataSet":null,"producerDataSet":null}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_POP","subscriptionDataSet":null}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","subString":"*","codeSet":null,"tagsSet":null}]}],"producerDataSet":[]}',
    ],
)
async def test_heartbeats_of_other_clients_are_read_leniently(desk: Desk, body: bytes) -> None:
    assert (await desk.ask(HEARTBEAT, {}, body)).code == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"clientID":'])
async def test_what_is_no_heartbeat_is_refused(desk: Desk, body: bytes) -> None:
    assert (await desk.ask(HEARTBEAT, {}, body)).code == 1


async def test_one_id_on_two_connections_counts_twice(desk: Desk) -> None:
    await desk.consumer("g", "T", client_id="same")
    await desk.consumer("g", "T", client_id="same")
    assert await members(desk) == ["same", "same"]


async def test_a_subscription_gives_way_only_to_a_newer_one(desk: Desk) -> None:
    peer = await desk.peer()

    def beat(version: int, text: str) -> bytes:
        subscription = {"topic": "T", "subString": text, "subVersion": version}
        consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
        return json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()

    known = []
    for version, text in ((5, "A"), (5, "B"), (4, "C"), (6, "D")):
        assert (await peer.ask(HEARTBEAT, {}, beat(version, text))).code == 0
        known.append(desk.broker.clients.consumers["g"].subscriptions["T"].sub_string)
    assert known == ["A", "A", "A", "D"]


# ---------------------------------------------------------------------- who hears of what


async def test_every_member_hears_of_a_new_one(desk: Desk) -> None:
    first = await desk.consumer("g", "T", client_id="c1")
    await heard(first)
    second = await desk.consumer("g", "T", client_id="c2")
    await heard(first)
    await heard(second)
    await desk.consumer("g", "T", client_id="c2", peer=second)
    await heard_nothing(first)
    await heard_nothing(second)


async def test_a_change_of_topics_is_heard_of_and_a_change_of_expressions_is_not(desk: Desk) -> None:
    peer = await desk.consumer("g", "T")
    await heard(peer)
    await desk.consumer("g", "T", "U", peer=peer)
    await heard(peer)
    await desk.consumer("g", "T", peer=peer)
    await heard(peer)
    assert set(desk.broker.clients.consumers["g"].subscriptions) == {"T"}


async def test_a_group_or_a_broker_that_wants_no_notices(desk: Desk) -> None:
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False))
    peer = await desk.consumer("g", "T")
    await heard_nothing(peer)
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g"))
    await desk.ask(25, {}, b"notifyConsumerIdsChangedEnable=false\n")
    await desk.consumer("g", "T", client_id="d")
    await heard_nothing(peer)


# ---------------------------------------------------------------------- leaving


async def test_who_leaves_is_gone_and_the_others_hear_of_it(desk: Desk) -> None:
    first = await desk.consumer("g", "T", client_id="c1")
    second = await desk.consumer("g", "T", client_id="c2")
    await heard(first, 2)
    await heard(second)
    assert (await second.ask(LEAVE, {"clientID": "c2", "consumerGroup": "g", "producerGroup": ""})).code == 0
    await heard(first)
    assert await members(desk) == ["c1"]
    assert (await second.ask(LEAVE, {"clientID": "c2", "consumerGroup": "g"})).code == 0  # again changes nothing
    await heard_nothing(first)
    assert (await first.ask(LEAVE, {"clientID": "c1", "consumerGroup": "g"})).code == 0
    assert (await desk.ask(LIST, {"consumerGroup": "g"})).code == 1


async def test_a_producer_leaves(desk: Desk) -> None:
    peer = await desk.producer("pg", client_id="p1")
    assert desk.broker.clients.producer("p1") is not None
    assert (await peer.ask(LEAVE, {"clientID": "p1", "producerGroup": "pg"})).code == 0
    assert desk.broker.clients.producer("p1") is None and not desk.broker.clients.producers


async def test_a_lost_connection_leaves_every_group_at_once(desk: Desk) -> None:
    first = await desk.consumer("g", "T", client_id="c1")
    second = await desk.consumer("g", "T", client_id="c2")
    await heard(first, 2)
    await second.close()
    await heard(first)
    assert await members(desk) == ["c1"]


async def test_who_falls_silent_is_dropped(desk: Desk) -> None:
    first = await desk.consumer("g", "T", client_id="c1")
    await heard(first)
    second = await desk.consumer("g", "T", client_id="c2")
    await heard(first)
    desk.now += EXPIRE_AFTER
    await desk.consumer("g", "T", client_id="c1", peer=first)
    drop_silent(desk.broker, desk.passed())
    assert await members(desk) == ["c1", "c2"]
    drop_silent(desk.broker, desk.passed() + 1)
    assert await members(desk) == ["c1"]
    await heard(first)
    assert second is not first


async def test_how_long_a_client_may_be_silent_is_set_by_the_operator(prepared: Prepared) -> None:
    def impatient(desk: Desk) -> None:
        desk.config.channel_expired_timeout = 100

    desk = await prepared(impatient)
    first = await desk.consumer("g", "T", client_id="c1")
    await heard(first)
    silent = await desk.consumer("g", "T", client_id="c2")
    producer = await desk.producer("pg", client_id="p1")
    await heard(first)
    desk.now += 101
    await desk.consumer("g", "T", client_id="c1", peer=first)
    await heard(first)  # by the broker's own look for who is silent
    assert await members(desk) == ["c1"]
    assert desk.broker.clients.producer("p1") is None
    await silent.ended()
    await producer.ended()
    assert (await first.ask(34, {}, b'{"clientID":"c1"}')).code == 0, "who is heard of stays connected"


async def test_a_client_id_of_several_producers_stands_for_the_one_heard_of_last(desk: Desk) -> None:
    old = await desk.producer("pg", client_id="same")
    new = await desk.producer("other", client_id="same")
    connection = desk.broker.clients.producer("same")
    assert connection is not None and connection.connection.remote == new.address
    await new.ask(LEAVE, {"clientID": "same", "producerGroup": "other"})
    left = desk.broker.clients.producer("same")
    assert left is not None and left.connection.remote == old.address


# ---------------------------------------------------------------------- checks of subscriptions


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), (None, 0), ("SQL92", 1)])
async def test_a_subscription_is_checked_before_a_consumer_starts(desk: Desk, kind: str | None, code: int) -> None:
    subscription = {"topic": "T", "subString": "a > 5", "expressionType": kind}
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription}).encode()
    answer = await desk.ask(CHECK, {}, body)
    assert answer.code == code
    if code:
        assert answer.remark == (
            "The broker does not support consumer to filter message by SQL92; "
            "set enablePropertyFilter=true in its configuration"
        )
