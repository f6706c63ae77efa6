"""The mqadmin session that every pair of a cluster and an mqadmin goes through.

Owns the order of commands and the state they find: a topic of two queues with ten messages, a group
with one Java member, a group that has gone. Knows neither who runs the commands nor what answers.
"""

import asyncio
import base64
import contextlib
import io
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eruca.admin.cli import run
from tests.support.java import Judge

CLUSTER = "JudgeCluster"
BROKER = "broker-a"
TOPIC = "Orders"
ONLINE = "online-group"
OFFLINE = "offline-group"
_sessions = itertools.count(1)


@dataclass(frozen=True)
class Outcome:
    """What one command printed, and its exit status."""

    line: tuple[str, ...]
    stdout: str
    stderr: str
    exit: int

    @property
    def command(self) -> str:
        return self.line[0]


Mqadmin = Callable[[tuple[str, ...]], Outcome]


def java_mqadmin(judge: Judge) -> Mqadmin:
    """Apache's mqadmin inside the judge's JVM."""

    def run(line: tuple[str, ...]) -> Outcome:
        done = judge.call("admin", line=list(line))
        return Outcome(line, done["stdout"], done["stderr"], done["exit"])

    return run


def session(mqadmin: Mqadmin, judge: Judge, name_server: str, broker: str) -> Iterator[Outcome]:
    """Runs the whole session, clients by `judge`; yields what each command did, in order."""

    def run(command: str, *options: str) -> Outcome:
        return mqadmin((command, "-n", name_server, *options))

    yield run("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "2", "-w", "2")
    yield run("updateTopic", "-b", broker, "-t", "Ordered", "-r", "3", "-w", "3", "-o", "true")
    yield run("updateTopic", "-c", CLUSTER, "-t", "OrderedToo", "-o", "true", "-p", "4")
    yield run("updateTopic", "-c", CLUSTER, "-t", "Single", "-r", "1", "-w", "1")
    yield run("updateTopic", "-c", "NoSuchCluster", "-t", "Nowhere")
    yield run("updateTopic")
    yield run("updateSubGroup", "-c", CLUSTER, "-g", ONLINE)
    yield run("updateSubGroup", "-b", broker, "-g", OFFLINE, "-s", "true", "-m", "true", "-r", "3")
    yield run("consumerProgress", "-g", "no-such-group")
    with _clients(judge, name_server) as sent:
        first = sent[0]["msgId"], sent[0]["offsetMsgId"]
        yield run("topicList")
        yield run("topicList", "-c")
        yield run("topicRoute", "-t", TOPIC)
        yield run("topicRoute", "-t", TOPIC, "-l")
        yield run("topicRoute", "-t", "NoSuchTopic")
        yield run("topicStatus", "-t", TOPIC)
        yield run("topicStatus", "-t", "NoSuchTopic")
        yield run("topicClusterList", "-t", TOPIC)
        yield run("clusterList")
        yield run("clusterList", "-m")
        yield run("brokerStatus", "-b", broker)
        yield run("brokerStatus", "-c", CLUSTER)
        yield run("consumerProgress", "-g", ONLINE)
        yield run("consumerProgress", "-g", ONLINE, "-s", "true")
        yield run("consumerProgress")
        yield run("consumerConnection", "-g", ONLINE)
        yield run("consumerConnection", "-g", OFFLINE)
        yield run("consumerStatus", "-g", ONLINE)
        yield run("consumerStatus", "-g", OFFLINE)
        yield run("producerConnection", "-g", "transcript-producers", "-t", TOPIC)
        yield run("getConsumerConfig", "-g", ONLINE)
        yield run("sendMessage", "-t", "Single", "-p", "by hand", "-k", "hand", "-c", "TagH")
        yield run("sendMessage", "-t", TOPIC, "-p", "to one", "-b", BROKER, "-i", "1")
        yield run("queryMsgById", "-i", first[1])
        yield run("queryMsgByKey", "-t", TOPIC, "-k", "key-0")
        yield run("queryMsgByKey", "-t", TOPIC, "-k", "no-such-key")
        yield run("queryMsgByUniqueKey", "-t", TOPIC, "-i", first[0])
        yield run("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", "0", "-o", "1")
        yield run("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", "0", "-o", "0", "-c", "2")
        yield run("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "1", "-b", broker)
        yield run("statsAll", "-t", TOPIC)
        for group in (ONLINE, OFFLINE):
            target = ("-g", group, "-t", TOPIC)
            yield run("resetOffsetByTime", *target, "-s", "2020-01-01#00:00:00:000")
            yield run("resetOffsetByTime", *target, "-s", "now")
            yield run("resetOffsetByTime", *target, "-s", "1577836800000", "-f", "false")
            yield run("skipAccumulatedMessage", *target)
        yield run("resetOffsetByTime", "-g", "no-such-group", "-t", TOPIC, "-s", "now")
        yield run("resetOffsetByTime", "-g", ONLINE, "-t", TOPIC, "-s", "nonsense")
        yield run("consumerProgress", "-g", OFFLINE)
    yield run("updateBrokerConfig", "-b", broker, "-k", "fileReservedTime", "-v", "48")
    yield run("getBrokerConfig", "-b", broker)
    yield run("getBrokerConfig", "-c", CLUSTER)
    yield run("getNamesrvConfig")
    yield run("updateKvConfig", "-s", "judge", "-k", "colour", "-v", "green")
    yield run("deleteKvConfig", "-s", "judge", "-k", "colour")
    yield run("updateTopicPerm", "-b", broker, "-t", "Ordered", "-p", "4")
    yield run("wipeWritePerm", "-b", BROKER)
    yield run("addWritePerm", "-b", BROKER)
    yield run("deleteSubGroup", "-b", broker, "-g", OFFLINE)
    yield run("deleteSubGroup", "-c", CLUSTER, "-g", ONLINE)
    yield run("deleteTopic", "-c", CLUSTER, "-t", "Ordered")
    yield mqadmin(("help", "resetOffsetByTime"))
    yield mqadmin(("noSuchCommand",))


@contextlib.contextmanager
def _clients(judge: Judge, name_server: str) -> Iterator[list[dict[str, Any]]]:
    """Ten messages, a member that has consumed them, and a group that has come and gone."""
    number = next(_sessions)
    producer, member = f"producer-{number:06d}", f"member-{number:06d}"
    judge.call("producer", name=producer, group="transcript-producers", namesrv=name_server)
    sent = []
    for n in range(10):
        queue = {"topic": TOPIC, "brokerName": BROKER, "queueId": n % 2}
        body = base64.b64encode(f"order {n}".encode()).decode()
        message = {"topic": TOPIC, "body": body, "tags": "TagA", "keys": f"key-{n}"}
        sent += judge.call("send", name=producer, how="sync", messages=[message], queue=queue)
    judge.call("heartbeat", name=producer)
    for group in (OFFLINE, ONLINE):
        judge.call("push", name=member, group=group, topics={TOPIC: "*"}, namesrv=name_server, persistMs=500)
        got = judge.call("received", name=member, atLeast=10, timeoutMs=30_000)["messages"]
        assert len(got) == 10, f"{group} got {len(got)} of 10 messages"
        judge.call("consumed", name=member, atLeast=10, timeoutMs=10_000)
        _wait_for_commits(judge, name_server, group)
        judge.call("stop", name=member)
    judge.call("push", name=member, group=ONLINE, topics={TOPIC: "*"}, namesrv=name_server)
    judge.call("assigned", name=member, atLeast=2, timeoutMs=30_000)
    try:
        yield sent
    finally:
        judge.call("stop", name=producer)
        # Java's client sleeps 10 s for each reset before it stops; nobody waits for that.
        judge.begin("stop", name=member)


def _wait_for_commits(judge: Judge, name_server: str, group: str) -> None:
    """Until the broker has the offsets of what was consumed.

    Java's client commits one-way, and Apache's broker works on commits side by side: the last one of a member that
    stops may be overtaken by the one before it.
    """
    deadline = time.monotonic() + 30
    while True:
        printed = judge.call("admin", line=["consumerProgress", "-n", name_server, "-g", group])["stdout"]
        if "Diff Total: 0" in printed:
            return
        assert time.monotonic() < deadline, f"{group} did not commit what it consumed:\n{printed}"
        time.sleep(0.2)


def eruca_mqadmin(line: tuple[str, ...]) -> Outcome:
    """Eruca's mqadmin, without the start of a process for each of the many commands."""
    out, err = io.StringIO(), io.StringIO()
    status = asyncio.run(run(line, {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}, out, err))
    return Outcome(line, out.getvalue(), err.getvalue(), status)
