"""Delays and returns by Apache's Java clients: what a broker of Apache writes for them, Eruca writes too."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eruca.protocol.record import Record, decode_record, peek
from tests.compat.conftest import Cluster, start
from tests.support import raw
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.daemons import has_route
from tests.support.eruca import ErucaBroker, ErucaCluster
from tests.support.java import Judge

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]
LEVELS = {"messageDelayLevel": "1s 2s 1s 1s 1s 1s"}
SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
LATE = 1000
"""Milliseconds that a message may come late here: the machine that runs this has other work too."""
RUNTIME, DELAY_OFFSETS = 28, 45
_names = itertools.count(1)


@pytest.fixture(scope="module", params=["apache", "eruca"])
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each kind of cluster, with short delay levels."""
    home = tmp_path_factory.mktemp(f"quick-{request.param}")
    with start(request.param, home, LEVELS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def eruca_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    with ErucaCluster(tmp_path_factory.mktemp("timers"), LEVELS) as cluster:
        yield cluster


@contextmanager
def started(judge: Judge, what: str, cluster: Cluster, group: str, **options: Any) -> Iterator[str]:
    """A producer or a member; its name."""
    name = f"delays-{what}-{next(_names)}"
    judge.call(what, name=name, group=group, namesrv=cluster.address, **options)
    try:
        yield name
    finally:
        judge.call("stop", name=name)


def send(judge: Judge, cluster: Cluster, topic: str, *wishes: dict[str, int]) -> list[dict[str, Any]]:
    """Messages 0, 1, … with these delays."""
    messages = [
        {"topic": topic, "body": base64.b64encode(b"%d" % number).decode(), "tags": "t", **wish}
        for number, wish in enumerate(wishes)
    ]
    with started(judge, "producer", cluster, "producers") as producer:
        sent: list[dict[str, Any]] = judge.call("send", name=producer, how="sync", messages=messages)
    return sent


def received(judge: Judge, member: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = judge.call("received", name=member, atLeast=count, timeoutMs=20_000)["messages"]
    assert len(found) == count
    return found


def body(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["body"])


def stored(message: dict[str, Any]) -> int:
    offset: int = message["queueOffset"]
    return offset


def log(store: Path, *topics: str) -> list[Record]:
    """The records of these topics in a store's log, in order."""
    found = []
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data) and (size := peek(data, at)[0]) and peek(data, at)[1] == 0xDAA320A7:
            found.append(decode_record(data, at))
            at += size
    return [record for record in found if record.topic in topics]


def units(store: Path, topic: str, queue_id: int, count: int) -> list[int]:
    """The tag codes of a queue's first units."""
    data = (store / "consumequeue" / topic / str(queue_id) / f"{0:020d}").read_bytes()
    return [int.from_bytes(data[at + 12 : at + 20], "big") for at in range(0, 20 * count, 20)]


def without(record: Record, *names: str) -> dict[str, str]:
    return {name: value for name, value in record.properties.items() if name not in (*names, "UNIQ_KEY")}


def test_levels(quick: Cluster, judge: Judge, topic: MakeTopic, fresh: Fresh) -> None:
    name = topic(quick, judge, 1)
    with started(judge, "push", quick, fresh("group"), topics={name: "*"}) as member:
        send(judge, quick, name, {"delay": 2}, {"delay": 1}, {}, {"delay": 99})
        come = received(judge, member, 4)
    assert body(come[0]) == b"2"
    waiting = {record.body: record for record in log(quick.broker.store, SCHEDULE)}
    delivered = {record.body: record for record in log(quick.broker.store, name)}
    for number, level, delay in ((b"0", "2", 2000), (b"1", "1", 1000), (b"3", "6", 1000)):
        before, after = waiting[number], delivered[number]
        assert before.queue_id == int(level) - 1
        assert without(before, "REAL_QID", "CLUSTER") == {
            "REAL_TOPIC": name,
            "DELAY": level,
            "WAIT": "true",
            "TAGS": "t",
        }
        assert after.properties_text == before.properties_text
        assert after == before._replace(
            **{name: getattr(after, name) for name in ("size", "topic", "queue_id", "queue_offset")},
            physical_offset=after.physical_offset,
            store_timestamp=after.store_timestamp,
        )
        assert str(after.queue_id) == before.properties["REAL_QID"]
        assert 0 <= after.store_timestamp - before.store_timestamp - delay < LATE
        assert units(quick.broker.store, SCHEDULE, before.queue_id, 1) == [before.store_timestamp + delay]
    figures = raw.ask(quick.broker.address, RUNTIME)[1]
    assert b'"scheduleMessageOffset_2":"1,1"' in figures
    assert raw.ask(quick.broker.address, DELAY_OFFSETS)[1] == b'{"offsetTable":{1:1,2:1,6:1}}'


def test_a_message_that_is_refused_comes_again_and_is_given_up_in_the_end(
    quick: Cluster, judge: Judge, topic: MakeTopic, fresh: Fresh
) -> None:
    name, group = topic(quick, judge, 1), fresh("group")
    options: dict[str, Any] = {"topics": {name: "*"}, "threads": 1}
    with started(judge, "push", quick, group, **options):
        # The group has its retry topic now. Its next member asks for it at its start, and then after 20 s.
        quick.broker.process.wait_until(lambda: has_route(f"%RETRY%{group}", quick.address), "a route to retries")
    with started(judge, "push", quick, group, refuse=2, maxReconsumeTimes=2, **options) as member:
        (sent,) = send(judge, quick, name, {})
        (come,) = received(judge, member, 1)
    assert (come["topic"], come["reconsumeTimes"], body(come)) == (name, 2, b"0")
    returned = log(quick.broker.store, f"%RETRY%{group}")
    assert [each.reconsume_times for each in returned] == [1, 2]
    assert [without(each, "CLUSTER") for each in returned] == [
        {
            "REAL_TOPIC": f"%RETRY%{group}",
            "REAL_QID": "0",
            "RETRY_TOPIC": name,
            "ORIGIN_MESSAGE_ID": sent["offsetMsgId"],
            "WAIT": "false",
            "DELAY": str(level),
            "TAGS": "t",
        }
        for level in (3, 4)
    ]
    dead = f"%DLQ%{group}"
    with started(judge, "push", quick, group, refuse=9, maxReconsumeTimes=1, **options):
        send(judge, quick, name, {})
        quick.broker.process.wait_until(lambda: bool(log(quick.broker.store, dead)), "a dead letter")
        quick.broker.process.wait_until(lambda: has_route(dead, quick.address), "a route to dead letters")
        # The member stays until the letter is read: one that stops before CONSUMER_SEND_MSG_BACK is answered
        # sends the message once more itself, and there are two letters.
        with started(judge, "push", quick, fresh("readers"), topics={dead: "*"}) as reader:
            (letter,) = received(judge, reader, 1)
    assert (letter["topic"], letter["reconsumeTimes"], letter["properties"]["DELAY"]) == (dead, 2, "0")
    assert letter["properties"]["RETRY_TOPIC"] == name


@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_a_delay_of_its_own(
    eruca_only: ErucaCluster, request: pytest.FixtureRequest, release: str, topic: MakeTopic, fresh: Fresh
) -> None:
    judge: Judge = request.getfixturevalue("judge" if release == "4.9.7" else "judge5")
    name = topic(eruca_only, judge, 1)
    with started(judge, "push", eruca_only, fresh("group"), topics={name: "*"}) as member:
        sent = send(judge, eruca_only, name, {"delayMs": 1700}, {"delayMs": 600}, {}, {"delayMs": 41 * 86_400_000})
        assert [each.get("status") for each in sent] == ["SEND_OK"] * 3 + [None]
        assert "CODE: 13" in sent[3]["message"] and "timerMaxDelaySec" in sent[3]["message"]
        come = received(judge, member, 3)
    by_body = {body(message): message for message in come}
    # The member's threads may hand over in another order what a machine that stalls delivers together.
    assert [body(message) for message in sorted(come, key=stored) if message is not by_body[b"2"]] == [b"1", b"0"]
    assert "TIMER_OUT_MS" not in by_body[b"2"]["properties"]
    for message, delay in ((by_body[b"1"], 600), (by_body[b"0"], 1700)):
        due = int(message["properties"]["TIMER_OUT_MS"])
        assert 0 <= message["storeTimestamp"] - due < LATE
        assert 0 <= due - message["bornTimestamp"] - delay < LATE


@dataclass
class Named:
    """Brokers that come and go under one name server."""

    address: str
    broker: ErucaBroker | ApacheBroker


def test_apache_lives_with_messages_that_wait_for_their_time(
    tmp_path: Path, judge: Judge, topic: MakeTopic, fresh: Fresh
) -> None:
    """It keeps them, and Eruca delivers them when it has its folder again."""
    names = ApacheNameServer("4.9.7", tmp_path / "names")
    try:
        cluster: Any = Named(names.address, ErucaBroker(tmp_path, names.address, LEVELS))
        name = topic(cluster, judge, 1)
        send(judge, cluster, name, {"delayMs": 8_000}, {"delay": 2}, {})
        cluster.broker.stop()
        cluster.broker = ApacheBroker("4.9.7", tmp_path, names.address, LEVELS)
        with started(judge, "push", cluster, fresh("group"), topics={name: "*"}) as member:
            assert sorted(body(message) for message in received(judge, member, 2)) == [b"1", b"2"]
        send(judge, cluster, name, {"delay": 1})
        cluster.broker.stop()
        cluster.broker = ErucaBroker(tmp_path, names.address, LEVELS)
        with started(judge, "push", cluster, fresh("group"), topics={name: "*"}) as member:
            assert sorted(body(message) for message in received(judge, member, 4)) == [b"0", b"0", b"1", b"2"]
        cluster.broker.stop()
    finally:
        names.stop()
