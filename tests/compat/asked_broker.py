"""What a session asks the broker: every request that an operator or a client may send, well and badly.

Reads like a transcript: the state that a request finds is what the ones before it made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from eruca.protocol.record import decode_records
from tests.compat.asked import BROKER, EVER, MEMBER, MESSAGES, TOPIC, Ask, Session, heartbeat, new_topic, pull, sent
from tests.support.peers import Peer


async def run(session: Session, operator: Peer, member: Peer) -> None:
    """Ask everything, in order."""
    for ask in (*topics(), *groups()):
        await session.ask(operator, ask)
    for number in range(MESSAGES):
        ask = Ask(310, f"message {number}", sent(number), f"message {number}".encode())
        session.ids.append((await session.ask(operator, ask)).fields["msgId"])
    for ask in bad_sends():
        await session.ask(operator, ask)
    await session.ask(member, Ask(34, "member", None, heartbeat()))
    for ask in offsets_kept():
        await session.ask(operator, ask)
    await reached(operator, (TOPIC, 0, 5), (TOPIC, 1, 6))
    await indexed(operator)
    for ask in (*places(), *pulls(), *lookups(session.ids), *locks(), *returns(session.ids)):
        await session.ask(operator, ask)
    await reached(operator, ("OFFSET_MOVED_EVENT", 0, 2), ("%DLQ%keepers", 0, 1))
    for ask in (*made(), *tables(), *progress(), *members(session.ids), *resets(), *ends(session.ids), *counters()):
        await session.ask(operator, ask)
    await session.ask(member, Ask(35, "member", {"clientID": MEMBER, "consumerGroup": "keepers"}))
    for ask in (*after(), *unknown()):
        await session.ask(operator, ask)


async def reached(operator: Peer, *ends: tuple[str, int, int]) -> None:
    """Until queues end at these offsets: they follow the log a moment later."""
    for topic, queue, end in ends:
        async with asyncio.timeout(30):
            while (await operator.ask(30, {"topic": topic, "queueId": queue})).fields["offset"] != str(end):
                pass


async def indexed(operator: Peer) -> None:
    """Until both messages with the key of the last one are in the index, which follows, too."""
    key = {"topic": TOPIC, "key": "key-1", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": EVER}
    async with asyncio.timeout(30):
        while len(decode_records((await operator.ask(12, key)).body)) < 2:
            pass


def topics() -> Iterator[Ask]:
    yield Ask(17, "Asked", new_topic(TOPIC, 2))
    yield Ask(17, "Other", new_topic("Other"))
    yield Ask(17, "of the system", new_topic("SCHEDULE_TOPIC_XXXX"))
    yield Ask(17, "illegal name", new_topic("a b"))
    yield Ask(17, "blank name", new_topic(" "))
    yield Ask(17, "name too long", new_topic("x" * 128))
    yield Ask(17, "filter type", new_topic("Filtered", topicFilterType="X"))


def groups() -> Iterator[Ask]:
    yield Ask(
        200, "keepers", None, b'{"groupName":"keepers","retryMaxTimes":3,"retryQueueNums":1,"consumeEnable":true}'
    )
    yield Ask(200, "garbage", None, b"nonsense")
    yield Ask(200, "no body")
    yield Ask(34, "garbage", None, b"nonsense")
    yield Ask(34, "no body")


def bad_sends() -> Iterator[Ask]:
    reply = "JudgeCluster_REPLY_TOPIC"
    nobody = "REPLY_TO_CLIENT\x01nobody\x02CORRELATION_ID\x017\x02"
    yield Ask(310, "no such topic", sent(b="NoSuch", c="Nope"), b"x")
    yield Ask(310, "no such queue", sent(e=9), b"x")
    yield Ask(310, "illegal topic", sent(b="a b"), b"x")
    yield Ask(310, "topic too long", sent(b="t" * 128), b"x")
    yield Ask(310, "forbidden topic", sent(b="SCHEDULE_TOPIC_XXXX"), b"x")
    yield Ask(310, "no body", sent(), b"")
    yield Ask(310, "body too long", sent(), bytes(4_194_305))
    yield Ask(310, "properties too long", sent(i="k\x01" + "v" * 33_000 + "\x02"), b"x")
    yield Ask(325, "to no one", sent(b=reply, e=0), b"x")
    yield Ask(325, "to nobody", sent(b=reply, e=0, i=nobody), b"x")


def offsets_kept() -> Iterator[Ask]:
    for group, offsets in (("keepers", (3, 4)), ("leavers", (1, 5))):
        for queue, offset in enumerate(offsets):
            where = {"consumerGroup": group, "topic": TOPIC, "queueId": queue, "commitOffset": offset}
            yield Ask(15, f"{group} {queue}", where)


def places() -> Iterator[Ask]:
    for queue in (0, 1, 7):
        where: dict[str, Any] = {"topic": TOPIC, "queueId": queue}
        for code in (30, 31, 32):
            yield Ask(code, f"queue {queue}", where)
        yield Ask(14, f"queue {queue}", {"consumerGroup": "keepers", **where})
        for name, at in (("long ago", 5), ("some day", EVER), ("negative", -1)):
            yield Ask(29, f"queue {queue} {name}", {**where, "timestamp": at})
    for group, topic in (("nobody", TOPIC), ("nobody", "Other"), ("nobody", "NoSuch")):
        yield Ask(14, f"{group} {topic}", {"consumerGroup": group, "topic": topic, "queueId": 0})


def pulls() -> Iterator[Ask]:
    yield Ask(11, "all", pull())
    yield Ask(11, "one", pull(maxMsgNums=1))
    yield Ask(11, "tag", pull(subscription="Tag1"))
    yield Ask(11, "end", pull(queueOffset=5))
    yield Ask(11, "beyond", pull(queueOffset=500))
    yield Ask(11, "negative", pull(queueId=1, queueOffset=-5))  # Eruca reports one event a queue in 10 s
    yield Ask(11, "no such group", pull(consumerGroup="young"))
    yield Ask(11, "no such topic", pull(topic="NoSuch"))
    yield Ask(11, "no such queue", pull(queueId=9))
    yield Ask(11, "negative queue", pull(queueId=-1))
    yield Ask(11, "subscription of the heartbeat", pull(sysFlag=0))
    yield Ask(11, "nothing subscribed", pull(topic="Other", sysFlag=0))
    yield Ask(11, "SQL92", pull(expressionType="SQL92", subscription="a>1"))
    yield Ask(11, "unknown expression", pull(expressionType="X"))
    yield Ask(11, "no messages wanted", pull(maxMsgNums=0))


def lookups(ids: list[str]) -> Iterator[Ask]:
    key = {"topic": TOPIC, "key": "key-3", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": EVER}
    offset = int(ids[3][16:], 16)
    queue = {"topic": TOPIC, "queueId": 0, "index": 0, "count": 5}
    yield Ask(12, "key", key)
    yield Ask(12, "unique key", {**key, "key": f"{3:032X}", "_UNIQUE_KEY_QUERY": "true"})
    yield Ask(12, "no such key", {**key, "key": "nothing"})
    yield Ask(12, "no such topic", {**key, "topic": "NoSuch"})
    yield Ask(12, "another time", {**key, "endTimestamp": 5})
    yield Ask(12, "none wanted", {**key, "maxNum": 0})
    yield Ask(33, "message", {"offset": offset})
    yield Ask(33, "within a message", {"offset": offset + 7})
    yield Ask(33, "beyond", {"offset": 10**12})
    yield Ask(33, "negative", {"offset": -1})
    yield Ask(321, "all", queue)
    yield Ask(321, "some", {**queue, "index": 1, "count": 2})
    yield Ask(321, "none wanted", {**queue, "count": 0})
    yield Ask(321, "group", {**queue, "consumerGroup": "keepers"})
    yield Ask(321, "offline group", {**queue, "consumerGroup": "nobody"})
    yield Ask(321, "beyond", {**queue, "index": 99})
    yield Ask(321, "negative", {**queue, "index": -1})
    yield Ask(321, "no such queue", {**queue, "queueId": 9})
    yield Ask(321, "no such topic", {**queue, "topic": "Nowhere"})


def locks() -> Iterator[Ask]:
    def body(client: str, *queues: int) -> bytes:
        places = [{"brokerName": BROKER, "queueId": queue, "topic": TOPIC} for queue in queues]
        return json.dumps({"clientId": client, "consumerGroup": "keepers", "mqSet": places}).encode()

    yield Ask(41, "first", None, body("c1", 0, 1))
    yield Ask(41, "second", None, body("c2", 0, 1))
    yield Ask(42, "one", None, body("c1", 0))
    yield Ask(41, "again", None, body("c2", 0, 1))
    yield Ask(41, "garbage", None, b"x")
    yield Ask(41, "no body")
    yield Ask(42, "no body")
    for kind in ("TAG", "SQL92"):
        subscription = {"topic": TOPIC, "subString": "a > 1", "expressionType": kind}
        beat = {"clientId": "c", "group": "g", "subscriptionData": subscription}
        yield Ask(46, kind, None, json.dumps(beat).encode())
    yield Ask(46, "no body")
    yield Ask(38, "online", {"consumerGroup": "keepers"})
    yield Ask(38, "offline", {"consumerGroup": "nobody"})


def returns(ids: list[str]) -> Iterator[Ask]:
    back = {"offset": int(ids[1][16:], 16), "group": "keepers", "delayLevel": 3, "originMsgId": ids[1]}
    yield Ask(36, "message", back)
    yield Ask(36, "no such message", {**back, "offset": 10**12})
    yield Ask(36, "to the dead letters", {**back, "delayLevel": -1})


def made() -> Iterator[Ask]:
    """What the broker itself has stored."""
    yield Ask(11, "dead letter", pull(topic="%DLQ%keepers"))
    yield Ask(11, "moved", pull(topic="OFFSET_MOVED_EVENT"))


def tables() -> Iterator[Ask]:
    for code in (43, 45, 21, 201, 305, 328, 26):
        yield Ask(code)
    for code, name in ((202, "topic"), (300, "topic"), (203, "consumerGroup"), (204, "producerGroup")):
        there = {"topic": TOPIC, "consumerGroup": "keepers", "producerGroup": "askers"}[name]
        yield Ask(code, "there", {name: there})
        yield Ask(code, "not there", {name: "Nothing"})


def progress() -> Iterator[Ask]:
    yield Ask(208, "online", {"consumerGroup": "keepers"})
    yield Ask(208, "topic", {"consumerGroup": "keepers", "topic": TOPIC})
    yield Ask(208, "no such topic", {"consumerGroup": "keepers", "topic": "NoSuch"})
    yield Ask(208, "not subscribed", {"consumerGroup": "keepers", "topic": "Other"})
    yield Ask(208, "offline", {"consumerGroup": "leavers"})
    yield Ask(208, "no such group", {"consumerGroup": "nobody"})
    yield Ask(317, "all", {"isOrder": "false"})
    yield Ask(317, "ordered", {"isOrder": "true"})
    for topic, group in ((TOPIC, "keepers"), (TOPIC, "leavers"), ("Other", "keepers"), ("NoSuch", "keepers")):
        yield Ask(303, f"{topic} {group}", {"topic": topic, "group": group})
    yield Ask(308, "there", {"topic": TOPIC, "compareGroup": "keepers"})
    yield Ask(308, "no such group", {"topic": TOPIC, "compareGroup": "nobody"})
    yield Ask(308, "no such topic", {"topic": "NoSuch", "compareGroup": "keepers"})
    clone = {"srcGroup": "leavers", "destGroup": "clones", "topic": TOPIC, "offline": "true"}
    yield Ask(314, "offline", clone)
    yield Ask(208, "clone", {"consumerGroup": "clones"})
    yield Ask(314, "no such group", {**clone, "srcGroup": "nobody"})
    yield Ask(314, "not subscribed", {**clone, "srcGroup": "keepers", "destGroup": "d", "topic": "Other"})
    yield Ask(208, "no clone", {"consumerGroup": "d"})


def members(ids: list[str]) -> Iterator[Ask]:
    for group in ("keepers", "leavers"):
        who = {"consumerGroup": group, "clientId": MEMBER}
        yield Ask(307, group, {**who, "jstackEnable": "false"})
        yield Ask(309, group, {**who, "msgId": ids[3]})
    yield Ask(307, "no such member", {"consumerGroup": "keepers", "clientId": "x"})
    yield Ask(309, "no such message", {"consumerGroup": "keepers", "clientId": MEMBER, "msgId": ids[3][:16] + "F" * 16})
    yield Ask(309, "no id", {"consumerGroup": "keepers", "clientId": MEMBER, "msgId": "x"})
    for name, topic, group, client in (
        ("all members", TOPIC, "keepers", ""),
        ("one member", TOPIC, "keepers", MEMBER),
        ("another member", TOPIC, "keepers", "x"),
        ("offline", TOPIC, "leavers", ""),
    ):
        yield Ask(223, name, {"topic": topic, "group": group, "clientAddr": client})


def resets() -> Iterator[Ask]:
    ask = {"topic": TOPIC, "group": "keepers", "timestamp": 0, "isForce": "true"}
    yield Ask(222, "to the start", ask)
    yield Ask(222, "to the end", {**ask, "timestamp": -1})
    yield Ask(222, "only back", {**ask, "timestamp": -1, "isForce": "false"})
    yield Ask(222, "offline", {**ask, "group": "leavers"})
    yield Ask(222, "no such group", {**ask, "group": "nobody"})
    yield Ask(222, "no such topic", {**ask, "topic": "NoSuch"})


def ends(ids: list[str]) -> Iterator[Ask]:
    end = {"producerGroup": "askers", "tranStateTableOffset": 0, "msgId": "x", "commitOrRollback": 8}
    yield Ask(37, "no half message", {**end, "commitLogOffset": 10**12})
    yield Ask(37, "no such decision", {**end, "commitLogOffset": 0, "commitOrRollback": 5})
    yield Ask(323, "no id", {"msgId": "x"})
    yield Ask(323, "no such message", {"msgId": ids[3][:16] + "0" * 8 + "F" * 8})


def counters() -> Iterator[Ask]:
    for name, key in (
        ("TOPIC_PUT_NUMS", "NoSuch"),
        ("NO_SUCH_NUMS", TOPIC),
        ("GROUP_GET_FALL_TIME", f"0@{TOPIC}@keepers"),
        ("GROUP_GET_FROM_DISK_NUMS", f"{TOPIC}@keepers"),
    ):
        yield Ask(315, name, {"statsName": name, "statsKey": key})


def after() -> Iterator[Ask]:
    yield Ask(203, "gone", {"consumerGroup": "keepers"})
    yield Ask(35, "stranger", {"clientID": "nobody", "consumerGroup": "keepers"})
    for code in (306, 316, 329):
        yield Ask(code)
    for name, topic in (("there", "Other"), ("not there", "NoSuch"), ("of the system", "TBW102"), ("illegal", "a b")):
        yield Ask(215, name, {"topic": topic})
    yield Ask(207, "there", {"groupName": "leavers", "removeOffset": "true"})
    yield Ask(207, "not there", {"groupName": "Nothing"})
    yield Ask(208, "deleted", {"consumerGroup": "leavers"})
    yield Ask(201, "deleted")
    yield Ask(21, "deleted")
    yield Ask(25, "changed", None, b"fileReservedTime=48\n")
    yield Ask(25, "no body")


def unknown() -> Iterator[Ask]:
    for code in (13, 22, 23, 27, 209, 217, 301, 302, 9999):
        yield Ask(code, "not served")
