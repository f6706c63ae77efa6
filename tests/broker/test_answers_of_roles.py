"""What each role answers to each request that only a master may serve, or that changes something: one table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from eruca.protocol.record import encode_batch
from tests.broker.elected import Group
from tests.broker.services.replication.pairs import caught_up, end, master_of, slave_of, until
from tests.support import half_messages
from tests.support.desk import Desk
from tests.support.half_messages import half
from tests.support.sends import LONG, message

SEND, COMMIT, CREATE_GROUP = 310, 15, 200
MINE = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
LOCKED = b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
TOPIC = {
    **{"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"},
    **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
}
PULL = {
    **{**MINE, "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0"},
    **{"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"},
}


class Ask(NamedTuple):
    """A request."""

    code: int
    fields: Mapping[str, object]
    body: bytes = b""


def requests(half_at: Mapping[str, object], stored_at: int) -> dict[str, Ask]:
    """One of each kind."""
    ended = {"producerGroup": "PG", "msgId": "AC11", "fromTransactionCheck": "false", "commitOrRollback": 8, **half_at}
    back = {"group": "G", "offset": stored_at, "delayLevel": 3, "originTopic": "T", "maxReconsumeTimes": 16}
    long = {LONG[name]: value for name, value in message().items()}
    return {
        "send by long names": Ask(10, long, b"x"),
        "send": Ask(SEND, message(), b"x"),
        "send to a new topic": Ask(SEND, message(topic="Fresh"), b"x"),
        "batch": Ask(320, message(m="true", i=""), encode_batch([(0, b"x", b"")])),
        "reply by long names": Ask(324, long, b"x"),
        "reply": Ask(325, message(), b"x"),
        "send back": Ask(36, back),
        "end of a transaction": Ask(37, ended),
        "commit": Ask(COMMIT, {**MINE, "commitOffset": "1"}),
        "lock": Ask(41, {}, LOCKED),
        "unlock": Ask(42, {}, LOCKED),
        "topic": Ask(17, TOPIC),
        "deletion of a topic": Ask(215, {"topic": "Gone"}),
        "group": Ask(CREATE_GROUP, {}, b'{"groupName":"G2","retryQueueNums":1}'),
        "deletion of a group": Ask(207, {"groupName": "G2"}),
        "reset": Ask(222, {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}),
        "clone of offsets": Ask(314, {"srcGroup": "G", "destGroup": "Clone", "topic": "T", "offline": "true"}),
        "pull": Ask(11, PULL),
        "offset": Ask(14, MINE),
        "end of a queue": Ask(30, {"topic": "T", "queueId": "0"}),
        "offsets of delays": Ask(45, {}),
    }


SENDS = ("send by long names", "send", "send to a new topic", "batch")
REPLIES = ("reply by long names", "reply")
TABLES = ("topic", "deletion of a topic", "group", "deletion of a group")
OFFSETS = ("reset", "clone of offsets")
READS = dict.fromkeys(("pull", "offset", "end of a queue"), 0)

MASTER = {
    **dict.fromkeys((*SENDS, *TABLES, "clone of offsets", "send back", "end of a transaction"), 0),
    **dict.fromkeys(("commit", "lock", "unlock"), 0),
    **dict.fromkeys(REPLIES, 1),  # nobody waits for them
    "reset": 1,  # nobody is online
    **READS,
    "offsets of delays": 0,
}
SLAVE = {
    **MASTER,
    **dict.fromkeys(SENDS, 14),
    **dict.fromkeys((*TABLES, "send back"), 1),
    "end of a transaction": 11,
}
"""As those of RocketMQ."""
ONLY_SURELY = (*TABLES, *OFFSETS, "commit", "lock", "unlock", "offsets of delays")
SLAVE_OF_A_GROUP = {**SLAVE, **dict.fromkeys(ONLY_SURELY, 14)}
UNSURE = {**MASTER, **dict.fromkeys(ONLY_SURELY, 14)}
"""What the syncStateSet confirms is right, whoever is the master now: sends."""
BELOW = {
    **dict.fromkeys((*SENDS, *REPLIES, "send back"), 1),
    **dict.fromkeys((*TABLES, "clone of offsets", "commit", "lock", "end of a transaction"), 14),
    **{"unlock": 0, "reset": 1, **READS, "offsets of delays": 0},
}


async def prepared(desk: Desk) -> dict[str, Ask]:
    """Have a master store what the requests need; the requests."""
    desk.topic("T", 2)
    stored = await desk.ask(SEND, message(), b"first")
    waits = await desk.ask(SEND, half(), b"half")
    made = await desk.ask(CREATE_GROUP, {}, b'{"groupName":"G","retryQueueNums":1}')
    committed = await desk.ask(COMMIT, {**MINE, "commitOffset": "0"})
    assert [each.code for each in (stored, waits, made, committed)] == [0] * 4
    return requests(half_messages.place(waits), int(stored.fields["msgId"][16:], 16))


async def codes(desk: Desk, asked: Mapping[str, Ask]) -> dict[str, int]:
    """What a broker answers to each of them, one after the other."""
    return {name: (await desk.ask(ask.code, dict(ask.fields), ask.body)).code for name, ask in asked.items()}


async def test_a_pair(tmp_path: Path) -> None:
    async with master_of(tmp_path / "master") as master:
        asked = await prepared(master)
        async with slave_of(tmp_path / "slave", master.broker.ha_address) as slave:
            await slave.broker.table_sync.fetch(master.app.address)
            await caught_up(master, slave)
            assert await codes(slave, asked) == SLAVE
        assert await codes(master, asked) == MASTER


@pytest.mark.parametrize("least", [1, 3])
async def test_a_group_of_two_that_should_have_more_or_not(group: Group, least: int) -> None:
    for number in (1, 2, 3):
        await group.start(number, min_in_sync_replicas=least)
    one, two = group.desks[1], group.desks[2]
    assert await group.led({1, 2, 3}) is one
    asked = await prepared(one)
    await group.stop(3)
    assert await group.led({1, 2}) is one
    await until(lambda: end(one) == end(two))
    assert await codes(two, asked) == SLAVE_OF_A_GROUP
    assert await codes(one, asked) == (MASTER if least == 1 else BELOW)


async def test_a_master_that_may_be_one_no_more(group: Group) -> None:
    one = await group.start(1)
    assert await group.led({1}) is one
    asked = await prepared(one)
    one.broker.registration.is_sure = lambda: False
    assert await codes(one, asked) == UNSURE


async def test_brokers_that_take_no_part(group: Group) -> None:
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    asked = await prepared(one)
    await until(lambda: end(one) == end(two))
    group.etcd.empty()
    await until(lambda: "group" in one.broker.readiness.reasons and "group" in two.broker.readiness.reasons)
    for desk in (one, two):
        assert await codes(desk, asked) == SLAVE_OF_A_GROUP


async def test_a_broker_that_follows_makes_no_topic_and_no_group(group: Group) -> None:
    """Of what it refuses, reads or hears nothing comes into its tables: all brokers of the group have the master's."""
    one, two = await group.start(1), await group.start(2)
    assert await group.led({1, 2}) is one
    asked = await prepared(one)
    await until(lambda: end(one) == end(two))
    topics, groups = set(two.broker.topics), set(two.broker.groups.table)
    fields = {"group": "New", "consumerGroup": "New"}
    of_others: dict[str, dict[str, object]] = {
        "send back": {**asked["send back"].fields, **fields},
        "dead letter": {**asked["send back"].fields, "delayLevel": -1},
        "pull": {**PULL, **fields},
        "pull of no topic": {**PULL, **fields, "topic": "Nowhere"},
        "send to a retry topic": message(topic="%RETRY%New"),
    }
    kinds = {"send back": 36, "dead letter": 36, "pull": 11, "pull of no topic": 11, "send to a retry topic": SEND}
    answers = {name: (await two.ask(kinds[name], each)).code for name, each in of_others.items()}
    assert answers == {"send back": 1, "dead letter": 1, "pull": 0, "pull of no topic": 17, "send to a retry topic": 14}
    await two.consumer("New", "T")
    assert (set(two.broker.topics), set(two.broker.groups.table)) == (topics, groups)
    await one.consumer("New", "T")
    await until(lambda: "New" in two.broker.groups.table and "%RETRY%New" in two.broker.topics)
