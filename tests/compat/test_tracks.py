"""Message tracks: what became of one message in each group of its topic, told by every mqadmin on either cluster.

The groups' members are sockets that say they are members; so each verdict that a track can have is there.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Iterator

import pytest

from eruca.admin.cli import run
from tests.compat.asked import sent
from tests.compat.conftest import Cluster
from tests.support.java import Judge
from tests.support.peers import Peer

MakeTopic = Callable[[Cluster, Judge, int], str]
TRACK = re.compile(r"MessageTrack \[consumerGroup=(\S+), trackType=(\w+), exceptionDesc=([^\]]*)\]")
VERDICTS = {
    "consumed": "CONSUMED",
    "filtered": "CONSUMED_BUT_FILTERED",
    "behind": "NOT_CONSUME_YET",
    "broadcast": "NOT_CONSUME_YET",  # its offsets are with its members
    "pulling": "PULL",
    "gone": "NOT_ONLINE",
}
NOT_TOLD = dict.fromkeys(("CONSUMED", "CONSUMED_BUT_FILTERED", "NOT_CONSUME_YET"), "UNKNOWN")


def heartbeat(group: str, topic: str, kind: str) -> bytes:
    tag = "TagZ" if kind == "filtered" else "*"
    subscription = {"topic": topic, "subString": tag, "subVersion": 7, "tagsSet": [] if tag == "*" else [tag]}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_ACTIVELY" if kind == "pulling" else "CONSUME_PASSIVELY",
        "messageModel": "BROADCASTING" if kind == "broadcast" else "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{**subscription, "codeSet": [], "expressionType": "TAG"}],
    }
    return json.dumps({"clientID": f"c@{group}", "consumerDataSet": [consumer], "producerDataSet": []}).encode()


class Scene:
    """A topic with one message and a group for each verdict."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.message_id = ""
        self.loop = asyncio.new_event_loop()
        self._members: list[Peer] = []
        self.loop.run_until_complete(self._set())

    def close(self) -> None:
        for member in self._members:
            self.loop.run_until_complete(member.close())
        self.loop.close()

    def group(self, kind: str) -> str:
        return f"{kind}-of-{self.topic}"

    async def _set(self) -> None:
        for kind in VERDICTS:
            member = await Peer().connect(self.cluster.broker.address)
            self._members.append(member)
            group = self.group(kind)
            assert (await member.ask(34, None, heartbeat(group, self.topic, kind))).code == 0
            if kind == "gone":
                assert (await member.ask(35, {"clientID": f"c@{group}", "consumerGroup": group})).code == 0
            offset = 1 if kind in ("consumed", "filtered") else 0
            where = {"consumerGroup": group, "topic": self.topic, "queueId": 0, "commitOffset": offset}
            assert (await member.ask(15, where)).code == 0
        answer = await self._members[0].ask(310, sent(b=self.topic, e=0), b"hello")
        self.message_id = answer.fields["msgId"]
        async with asyncio.timeout(30):
            while (await self._members[0].ask(30, {"topic": self.topic, "queueId": 0})).fields["offset"] != "1":
                pass


@pytest.fixture
def scene(cluster: Cluster, judge: Judge, topic: MakeTopic) -> Iterator[Scene]:
    scene = Scene(cluster, topic(cluster, judge, 1))
    yield scene
    scene.close()


def test_each_verdict(scene: Scene, judge: Judge, judge5: Judge) -> None:
    line = ("queryMsgById", "-n", scene.cluster.address, "-i", scene.message_id)
    out = io.StringIO()
    assert scene.loop.run_until_complete(run(line, {}, out, io.StringIO())) == 0
    printed = {
        "eruca": out.getvalue(),
        "4.9.7": judge.call("admin", line=list(line))["stdout"],
        "5.3.3": judge5.call("admin", line=[*line, "-t", scene.topic])["stdout"],
    }

    expected = {scene.group(kind): verdict for kind, verdict in VERDICTS.items()}
    for whose, text in printed.items():
        found = {group: verdict for group, verdict, _ in TRACK.findall(text)}
        if whose == "5.3.3" and scene.cluster.name != "eruca":
            # It asks 351 on its way to a verdict, which a broker of 4.9.7 does not answer.
            assert found == {group: NOT_TOLD.get(verdict, verdict) for group, verdict in expected.items()}, text
        elif whose == "eruca":
            # Nobody wrote a trace: an offset beyond a message does not say that anybody consumed it.
            passed = {group: "PASSED" if verdict == "CONSUMED" else verdict for group, verdict in expected.items()}
            assert found == passed, text
        else:
            assert found == expected, f"{whose}: {text}"
    reasons = {reason for _, _, reason in TRACK.findall(printed["4.9.7"])}
    assert {reason for _, _, reason in TRACK.findall(printed["eruca"])} == reasons
