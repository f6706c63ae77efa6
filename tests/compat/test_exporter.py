"""What Apache's exporter for Prometheus (rocketmq-exporter) reads of a broker, asked as it asks: Apache's and Eruca's.

The exporter itself is in no registry of Java's, so its questions are put by the same DefaultMQAdminExt. Each of its
gauges is one of these figures.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

from tests.compat.clients import JavaClients, Letter, Queue
from tests.compat.conftest import Cluster
from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge

BODY = b"b" * 100
EACH = 20
"""Messages to each of two queues; the first that the member gets is sent back."""
RUNTIME = {
    *("bootTimestamp", "brokerVersion", "brokerVersionDesc", "runtime", "startAcceptSendRequestTimeStamp"),
    *(
        "commitLogDirCapacity",
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "commitLogMaxOffset",
        "commitLogMinOffset",
    ),
    *("dispatchBehindBytes", "dispatchMaxBuffer", "earliestMessageTimeStamp", "pageCacheLockTimeMills"),
    *("remainHowManyDataToFlush", "remainTransientStoreBufferNumbs"),
    *("msgPutTotalTodayNow", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning"),
    *("msgGetTotalTodayNow", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning"),
    *("putTps", "getMissTps", "getFoundTps", "getTotalTps", "getTransferedTps"),
    *("putMessageAverageSize", "putMessageDistributeTime", "putMessageEntireTimeMax", "putMessageSizeTotal"),
    *("putMessageTimesTotal", "getMessageEntireTimeMax"),
    *(
        f"{pool}ThreadPoolQueue{what}"
        for pool in ("send", "pull", "query")
        for what in ("Size", "Capacity", "HeadWaitTimeMills")
    ),
}
"""The keys of a broker's runtime info (28) that the exporter reads; without one of them it fails."""


class Asker:
    """The exporter at one cluster."""

    def __init__(self, cluster: Cluster, judge: Judge, topic: str) -> None:
        self.cluster, self.judge, self.topic = cluster, judge, topic
        self.group = f"eaters-of-{topic}"

    def figures(self) -> dict[str, Any]:
        of_group = f"{self.topic}@{self.group}"
        counters = {"TOPIC_PUT_NUMS": self.topic, "TOPIC_PUT_SIZE": self.topic, "SNDBCK_PUT_NUMS": of_group}
        counters |= {"GROUP_GET_NUMS": of_group, "GROUP_GET_SIZE": of_group}
        counters |= {"BROKER_PUT_NUMS": "JudgeCluster", "BROKER_GET_NUMS": "JudgeCluster"}
        found: dict[str, Any] = self.judge.call(
            "exporter-figures",
            namesrv=self.cluster.address,
            address=self.cluster.broker.address,
            topic=self.topic,
            group=self.group,
            counters=counters,
        )
        return found

    def settled(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The figures when their samples have what went through: after half a minute at most."""
        deadline = time.monotonic() + 60
        while not true(found := self.figures()):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)
        return found


def load_and_ask(cluster: Cluster, judge: Judge, topic: str) -> dict[str, Any]:
    asker, java = Asker(cluster, judge, topic), JavaClients(judge)
    with (
        java.producer(f"makers-of-{topic}", cluster.address) as producer,
        java.member(asker.group, cluster.address, {topic: "*"}, refuse=1) as member,
    ):
        member.assigned(2)
        for number in range(2):
            producer.send([Letter(topic, BODY) for _ in range(EACH)], queue=Queue(topic, "broker-a", number))
        producer.heartbeat()
        member.received(2 * EACH)
        member.consumed(2 * EACH)

        def true(found: dict[str, Any]) -> bool:
            counted = {name: minute[0] for name, minute in found["counters"].items()}
            return (
                found["consumed"] == counted["TOPIC_PUT_NUMS"] == counted["GROUP_GET_NUMS"] == 2 * EACH
                and counted["SNDBCK_PUT_NUMS"] == 1
                and all(status[0] > 0 and status[2] > 0 for status in found["members"].values())
            )

        return asker.settled(true)


def judged(found: dict[str, Any], topic: str) -> dict[str, Any]:
    """Holds the figures to what went through; the rest of them, which both brokers must have alike."""
    assert topic in found["topics"] and found["producers"][f"makers-of-{topic}"] == 1
    assert (found["brokers"], found["groups"]) == (1, [f"eaters-of-{topic}"])
    assert (found["messages"], found["consumed"], found["behind"]) == (2 * EACH, 2 * EACH, 0)
    assert len(found["members"]) == 1
    counters = found["counters"]
    assert counters["BROKER_PUT_NUMS"][0] >= 2 * EACH and counters["BROKER_GET_NUMS"][0] >= 2 * EACH
    assert set(found["runtime"]) >= RUNTIME
    for name, value in found["runtime"].items():
        assert value != "", name
    size = counters["TOPIC_PUT_SIZE"]
    assert size[0] == 2 * EACH * size[1]
    return {"counted": {name: counters[name][0] for name in ("TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "SNDBCK_PUT_NUMS")}}


def test_it_reads_the_same_of_both(
    apache: ApacheCluster, eruca: ErucaCluster, judge: Judge, topic: Callable[[Cluster, Judge, int], str]
) -> None:
    names = [topic(cluster, judge, 2) for cluster in (apache, eruca)]

    async def both() -> list[dict[str, Any]]:
        clusters: list[Cluster] = [apache, eruca]
        asked = (asyncio.to_thread(load_and_ask, *each) for each in zip(clusters, (judge, judge), names, strict=True))
        return list(await asyncio.gather(*asked))

    of_apache, of_eruca = asyncio.run(both())
    assert judged(of_apache, names[0]) == judged(of_eruca, names[1])
    eruca_keys, apache_keys = ({general(key) for key in each["runtime"]} for each in (of_eruca, of_apache))
    assert eruca_keys >= apache_keys


def general(key: str) -> str:
    """Without the folder, or the level of a delay: there is a key for each that the broker has had."""
    return re.sub(r"(_/.*|_\d+)$", "", key)
