"""Message traces: Java reads Python's word for word, and both mqadmins show those of either side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from eruca.client import (
    Later,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from eruca.client.consuming.push_consumer import engine_of
from tests.compat.clients import PATIENCE, JavaClients, PythonClients
from tests.compat.conftest import Cluster
from tests.compat.transcript import Mqadmin, eruca_mqadmin, java_mqadmin
from tests.support.java import Judge

MakeTopic = Callable[[Cluster, Judge, int], str]
Fresh = Callable[[str], str]


def steps(mqadmin: Mqadmin, cluster: Cluster, topic: str, message_id: str, count: int) -> list[list[str]]:
    """What mqadmin shows of a message: kind, group, and whether it went well, as soon as there are so many steps."""
    deadline = time.monotonic() + PATIENCE
    while True:
        shown = mqadmin(("queryMsgTraceById", "-n", cluster.address, "-i", message_id, "-t", topic)).stdout
        rows = [line.split() for line in shown.splitlines() if line.startswith(("Pub", "Sub"))]
        if len(rows) >= count or time.monotonic() > deadline:
            assert len(rows) == count, shown
            return sorted([row[0], row[1], row[-1]] for row in rows)
        time.sleep(0.1)


async def work(cluster: Cluster, topic: str, traces: str, group: str) -> dict[str, str]:
    """Send, consume and end a transaction with traces; the ids of what was sent."""

    async def listener(message: ReceivedMessage) -> Later | None:
        return Later(delay_level=-1) if message.body == b"refused" else None

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    ids: dict[str, str] = {}
    async with Producer(group, nameserver=cluster.address, trace=traces) as producer:
        ids["plain"] = (await producer.send(Message(topic, b"plain", tags="a", keys=["k1", "k2"]))).message_id
        ids["refused"] = (await producer.send(Message(topic, b"refused"))).message_id
        batch = await producer.send_batch([Message(topic, b"1"), Message(topic, b"2", keys="k3")])
        ids["first"], ids["second"] = batch.message_id.split(",")
    async with TransactionProducer(group + "-t", check, nameserver=cluster.address, trace=traces) as dealer:
        done = await dealer.send_in_transaction(Message(topic, b"deal", keys="d"), lambda *_: TransactionState.COMMIT)
        ids["deal"] = done.transaction_id
    consumer = PushConsumer(group, listener, nameserver=cluster.address, start_from="first", trace=traces)
    async with consumer.subscribe(topic):
        deadline = time.monotonic() + PATIENCE
        while engine_of(consumer).stats.consumed + engine_of(consumer).stats.failed < 5 and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return ids


async def texts(cluster: Cluster, traces: str) -> list[str]:
    """The bodies of all messages of traces."""
    async with PullConsumer(nameserver=cluster.address) as puller:
        return [
            ReceivedMessage(record, queue).body.decode()
            for queue in await puller.fetch_queues(traces)
            for record in (await puller.pull(queue, 0)).records
        ]


@pytest.mark.parametrize("kind", ["apache", "eruca", "apache5"])
def test_java_reads_what_python_traces(
    kind: str,
    request: pytest.FixtureRequest,
    judge: Judge,
    judge5: Judge,
    python: PythonClients,
    topic: MakeTopic,
    fresh: Fresh,
) -> None:
    cluster: Cluster = request.getfixturevalue(kind)
    name, group = topic(cluster, judge, 2), fresh("traced")
    traces = "RMQ_SYS_TRACE_TOPIC" if kind == "apache5" else topic(cluster, judge, 1)
    ids = python.run(work(cluster, name, traces, group))

    for show in (java_mqadmin(judge), eruca_mqadmin):
        sub = ["Sub", group, "success"]
        assert steps(show, cluster, traces, ids["plain"], 2) == [["Pub", group, "success"], sub]
        assert steps(show, cluster, traces, ids["refused"], 2)[1] == ["Sub", group, "failed"]
        assert steps(show, cluster, traces, ids["first"], 2) == steps(show, cluster, traces, ids["second"], 2)
        assert steps(show, cluster, traces, ids["deal"], 2) == [["Pub", group + "-t", "success"], sub]

    read = []
    for text in python.run(texts(cluster, traces)):
        for java in (judge, judge5):
            answer = java.call("read-traces", text=text)
            assert answer["text"] == text
        read += answer["traces"]
    kinds = [each["type"] for each in read]
    assert {kind: kinds.count(kind) for kind in kinds} == {"Pub": 5, "SubBefore": 5, "SubAfter": 5, "EndTransaction": 1}
    assert {each["keys"] for each in read if each["msgId"] == ids["plain"]} == {"k1 k2"}
    assert {each["success"] for each in read if each["msgId"] == ids["refused"] and each["type"] == "SubAfter"} == {
        False
    }


def lines_of(mqadmin: Mqadmin, line: tuple[str, ...]) -> list[str]:
    """The lines of a command, padding included."""
    return [each.rstrip() for each in mqadmin(line).stdout.splitlines()]


def test_both_mqadmins_show_what_java_traces(cluster: Cluster, judge: Judge, topic: MakeTopic, fresh: Fresh) -> None:
    name, traces, group = topic(cluster, judge, 1), topic(cluster, judge, 1), fresh("traced")
    clients = JavaClients(judge)
    with clients.member(group, cluster.address, {name: "*"}, traces=traces) as member:
        judge.call("producer", name=group, group=group, namesrv=cluster.address, traces=traces)
        message = {"topic": name, "body": "aGk=", "keys": "k"}
        (sent,) = judge.call("send", name=group, how="sync", messages=[message])
        assert len(member.received(1)) == 1
        judge.call("stop", name=group)

    line = ("queryMsgTraceById", "-n", cluster.address, "-i", sent["msgId"], "-t", traces)
    for show in (java_mqadmin(judge), eruca_mqadmin):
        assert steps(show, cluster, traces, sent["msgId"], 2) == [["Pub", group, "success"], ["Sub", group, "success"]]
    assert lines_of(eruca_mqadmin, line) == lines_of(java_mqadmin(judge), line)
