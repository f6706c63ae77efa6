"""Bounds that Apache has not: what its nameserver reads of a large table, its mqadmin prints of a refusal, and that
heartbeats of its clients stay within them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eruca.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper, TopicList, TopicRouteData
from tests.compat.transcript import Mqadmin, eruca_mqadmin, java_mqadmin
from tests.support.apache import ApacheNameServer
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.java import Judge
from tests.support.peers import Answered, Peer

UNIT_TOPICS, ROUTE, CONNECTIONS = 311, 105, 203
UNIT = 1


def asked(address: str, code: int, fields: dict[str, str]) -> Answered:
    """One answer of a server."""

    async def ask() -> Answered:
        peer = await Peer().connect(address)
        try:
            return await peer.ask(code, fields, within=20)
        finally:
            await peer.close()

    return asyncio.run(ask())


def with_topics(home: Path, count: int) -> Path:
    """A store whose broker has so many topics; each is of a unit, and has 3 queues to read and 2 to write."""
    folder = home / "store" / "config"
    folder.mkdir(parents=True)
    names = [f"topic-of-a-unit-{number}" for number in range(count)]
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=3, write_queue_nums=2, perm=4, topic_sys_flag=UNIT)
        for name in names
    }
    (folder / "topics.json").write_bytes(TopicConfigSerializeWrapper(topic_config_table=table).encode())
    return home


@pytest.mark.parametrize(("count", "units"), [(100, True), (40_000, False)])
def test_apaches_nameserver_reads_a_large_table_and_loses_only_the_flags_of_units(
    tmp_path: Path, count: int, units: bool
) -> None:
    server = ApacheNameServer("4.9.7", tmp_path / "namesrv")
    broker = ErucaBroker(with_topics(tmp_path / "broker", count), server.address)
    try:
        name = f"topic-of-a-unit-{count - 1}"
        [queue] = TopicRouteData.decode(asked(server.address, ROUTE, {"topic": name}).body).queue_datas
        assert (queue.read_queue_nums, queue.write_queue_nums, queue.perm) == (3, 2, 4)
        assert queue.topic_sys_flag == (UNIT if units else 0)
        listed = TopicList.decode(asked(server.address, UNIT_TOPICS, {}).body).topic_list
        assert (name in listed) is units
        assert ("registration_compressed" in broker.process.output) is not units
    finally:
        broker.discard()
        server.stop()


@pytest.fixture(params=["apache", "eruca"])
def mqadmin(request: pytest.FixtureRequest, judge: Judge) -> Mqadmin:
    """Apache's mqadmin and ours."""
    return java_mqadmin(judge) if request.param == "apache" else eruca_mqadmin


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("updateSubGroup -g typo -q 2147483647", "retryQueueNums = [2147483647] is not between 0 and 65536"),
        ("updateSubGroup -g typo -q 65537", "retryQueueNums = [65537] is not between 0 and 65536"),
        ("updateTopic -t Typo -r 2147483647 -w 4", "readQueueNums = [2147483647] is not between 0 and 65536"),
        ("updateTopic -t Typo -r 4 -w 70000", "writeQueueNums = [70000] is not between 0 and 65536"),
        (
            "updateBrokerConfig -k startAcceptSendRequestTimeStamp -v 9223372036854775807",
            "startAcceptSendRequestTimeStamp: '9223372036854775807' is not allowed; write a whole number from 0 to ",
        ),
    ],
)
def test_mqadmin_prints_why_a_value_was_refused(eruca: ErucaCluster, mqadmin: Mqadmin, line: str, fault: str) -> None:
    command, *options = line.split()
    done = mqadmin((command, "-n", eruca.address, "-b", eruca.broker.address, *options))
    assert fault in done.stdout + done.stderr, done
    assert "success" not in done.stdout


def test_mqadmin_prints_what_to_do_when_there_is_no_room(
    eruca: ErucaCluster, mqadmin: Mqadmin, fresh: Callable[[str], str]
) -> None:
    where = ("-n", eruca.address, "-b", eruca.broker.address)
    eruca_mqadmin(("updateBrokerConfig", *where, "-k", "maxTopicNum", "-v", "1"))
    try:
        done = mqadmin(("updateTopic", *where, "-t", fresh("Full")))
    finally:
        eruca_mqadmin(("updateBrokerConfig", *where, "-k", "maxTopicNum", "-v", "20000"))
    assert "and maxTopicNum allows 1; delete unused topics, or raise maxTopicNum" in done.stdout + done.stderr, done


def test_a_heartbeat_of_apaches_client_is_taken_as_it_is(
    eruca: ErucaCluster, judge: Judge, fresh: Callable[[str], str]
) -> None:
    topic, group, name = fresh("Beats"), fresh("g"), fresh("member")
    eruca_mqadmin(("updateTopic", "-n", eruca.address, "-b", eruca.broker.address, "-t", topic, "-r", "2", "-w", "2"))
    judge.call("push", name=name, group=group, topics={topic: "TagA || TagB"}, namesrv=eruca.address)
    try:
        judge.call("assigned", name=name, atLeast=2, timeoutMs=30_000)
        answer = asked(eruca.broker.address, CONNECTIONS, {"consumerGroup": group})
        body = json.loads(answer.body)
        [member] = body["connectionSet"]
        assert (member["language"], member["version"]) == ("JAVA", 407)
        assert set(body["subscriptionTable"]) == {topic, f"%RETRY%{group}"}
        assert sorted(body["subscriptionTable"][topic]["tagsSet"]) == ["TagA", "TagB"]
    finally:
        judge.call("stop", name=name)
