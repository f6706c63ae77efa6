"""startMonitoring: what a round says of groups and brokers."""

from __future__ import annotations

import json
import time

from eruca.admin.client import Admin
from eruca.admin.messages import pull
from eruca.admin.results.monitor import Monitor
from eruca.protocol.bodies import (
    ConsumerRunningInfo,
    ProcessQueueInfo,
    SubscriptionData,
    TopicConfig,
)
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Lab
from tests.support.peers import Answering, Pushed


def running(topic: str, *, orderly: bool = False, expression: str = "*", **queue: int | bool) -> Answering:
    """A member that has held a queue of a topic for long, and answers 307."""
    info = ConsumerRunningInfo(
        properties={
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": str(orderly).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": "1",
        },
        mq_table={MessageQueue(topic, "broker-a", 0): ProcessQueueInfo(**queue)},  # type: ignore[arg-type]
        subscription_set=[SubscriptionData(topic=topic, sub_string=expression)],
    )

    def answer(pushed: Pushed) -> tuple[int, bytes] | None:
        return (0, info.encode()) if pushed.code == 307 else None

    return answer


async def lines(lab: Lab) -> list[dict[str, object]]:
    """The lines of one round."""
    done = await lab.mqadmin("startMonitoring", "--rounds", "1", "-o", "jsonl")
    assert done.status == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


async def test_a_round_reports_lag_and_members(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one", "two", "three")
    await lab.member("g", "T", client_id="a@1", answering=running("T", cached_msg_count=2, last_consume_timestamp=1))
    await lab.member("g", "T", client_id="b@1", answering=running("T", expression="A", last_consume_timestamp=1))
    await lab.commit("g", "T", 1)
    done = await lab.done("startMonitoring", "--rounds", "1")
    printed = [line.split(" ", 2)[2] for line in done.out.splitlines()]
    assert printed[0] == "[MONITOR] =========================================beginRound"
    assert printed[1].startswith(
        "[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=g, topic=T, undoneMsgsTotal=2, undoneMsgsSingleMQ=2, "
    )
    head = "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: g, "
    assert f"{head}Subscription different" in printed
    stuck = f"{head}ClientId: a@1, a@1 MessageQueue [topic=T, brokerName=broker-a, queueId=0] can't consume for a while"
    assert len([line for line in printed if line.startswith(stuck)]) == 1
    assert printed[-1] == "[MONITOR] =========================================endRound"


async def test_a_queue_that_cannot_be_locked_is_reported(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    answering = running("T", orderly=True, locked=False, last_lock_timestamp=int(time.time() * 1000) - 5000)
    await lab.member("g", "T", answering=answering)
    await lab.commit("g", "T", 0)
    stuck = [line for line in await lines(lab) if line["kind"] == "queueStuck"]
    assert [(line["group"], line["member"], line["topic"]) for line in stuck] == [("g", "10.0.0.1@c", "T")]
    assert "can't lock for a while, " in str(stuck[0]["text"])


async def test_silent_peers_are_named(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    await lab.member("g", "T", answering=lambda pushed: None)
    await lab.commit("g", "T", 0)
    await lab.register("broker-b", "127.0.0.1:1", TopicConfig(topic_name="U", read_queue_nums=1, write_queue_nums=1))
    done = await lab.mqadmin("startMonitoring", "--rounds", "1", "-o", "jsonl", "--timeout", "0.3")
    silent = [line for line in map(json.loads, done.out.splitlines()) if line["kind"] == "silent"]
    assert {(line["member"], line["broker"]) for line in silent} == {("10.0.0.1@c", None), (None, "127.0.0.1:1")}


async def test_offsets_that_brokers_corrected_are_reported_once(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    queue = MessageQueue("T", "broker-a", 0)
    async with Admin([lab.nameserver]) as admin:
        monitor = Monitor(admin)
        before = [line async for line in monitor.round()]
        assert (await pull(admin, lab.broker, queue, 1000, 1, group="g")).status == "OFFSET_ILLEGAL"
        after = [line async for line in monitor.round()]
        later = [line async for line in monitor.round()]
    moved = [[line for line in lines if line.kind == "offsetMoved"] for lines in (before, after, later)]
    assert [len(lines) for lines in moved] == [0, 1, 0]
    assert (moved[1][0].group, moved[1][0].topic, moved[1][0].broker) == ("g", "T", "broker-a")
    assert "offsetRequest=1000, offsetNew=1], eventTimestamp=" in moved[1][0].text


async def test_a_last_round_that_nobody_answered(lab: Lab) -> None:
    done = await lab.mqadmin("startMonitoring", "--rounds", "1", "-n", "127.0.0.1:1")
    assert (done.status, done.out.endswith("beginRound\n")) == (1, True)
    assert "127.0.0.1:1" in done.err and "the next round" not in done.err


async def test_wrong_intervals_are_refused(lab: Lab) -> None:
    for option in ("--interval", "--rounds"):
        done = await lab.mqadmin("startMonitoring", option, "0")
        assert (done.status, done.out) == (2, "")
        assert "1 or more, not 0" in done.err
