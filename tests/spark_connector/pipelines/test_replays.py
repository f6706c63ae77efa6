"""Replays: to another topic in order and at a rate, and to one group whose consumer takes them for its own topic's."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.client import ReceivedMessage, sync
from eruca.spark_connector.pipelines import Progress, archive, replay
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic

SCHEMA = "topic string, queueId int, queueOffset bigint, body binary, tags string, keys string, flag int, "
SCHEMA += "messageId string, storeTimestamp timestamp, properties map<string,string>"


def rows(spark: SparkSession, topic: Topic, name: str) -> list[Any]:
    """The messages of a topic, in the order of its queues."""
    reader = spark.read.format("rocketmq").option("nameServer", topic.name_server).option("subscribe", name)
    return reader.schema(SCHEMA).load().orderBy("queueId", "queueOffset").collect()


def fill(topic: Topic, count: int) -> None:
    for number in range(count):
        fields = {"tags": "even" if number % 2 == 0 else "odd", "properties": {"shop": f"s{number % 5}"}}
        topic.send(number % 4, f"order {number}".encode(), keys=f"k{number} all", flag=number, **fields)


def test_a_topic_gets_the_messages_in_order_with_marks_of_their_origin(spark: SparkSession, topic: Topic) -> None:
    fill(topic, 60)
    told: list[Progress] = []

    done = replay(
        spark,
        name_server=topic.name_server,
        topic=topic.name,
        to=f"{topic.name}_again",
        access={"pullGroup": "replayers", "createPullGroup": "true"},
        tell=told.append,
    )

    assert (done.messages, done.sent, told[-1]) == (60, True, Progress("sent", 60, 60))
    assert done.queues == {f"broker-a:{queue}": 15 for queue in range(4)}
    originals = {(row["queueId"], row["queueOffset"]): row for row in rows(spark, topic, topic.name)}
    copies = rows(spark, topic, f"{topic.name}_again")
    assert len(copies) == 60
    for copy in copies:
        marks = copy["properties"]
        assert marks["REPLAY_QUEUE"] == f"broker-a:{copy['queueId']}"
        origin = originals[copy["queueId"], int(marks["REPLAY_OFFSET"])]
        for name in ("body", "tags", "keys", "flag"):
            assert copy[name] == origin[name], name
        assert marks["shop"] == origin["properties"]["shop"]
        assert (marks["REPLAY_ID"], marks["REPLAY_TOPIC"]) == (done.replay_id, topic.name)
        assert marks["REPLAY_MESSAGE_ID"] == origin["messageId"] != copy["messageId"]
        assert int(marks["REPLAY_STORED"]) == round(origin["storeTimestamp"].timestamp() * 1000)
    for queue in range(4):
        order = [int(row["properties"]["REPLAY_OFFSET"]) for row in copies if row["queueId"] == queue]
        assert order == sorted(order)


def test_one_group_works_through_an_interval_again_and_nobody_else(
    cluster: ErucaCluster, spark: SparkSession, topic: Topic
) -> None:
    fill(topic, 40)
    times = sorted(row["storeTimestamp"].timestamp() for row in rows(spark, topic, topic.name))
    start = round(times[20] * 1000)
    expected = sum(round(each * 1000) >= start for each in times)

    news = threading.Condition()
    ours: list[ReceivedMessage] = []
    theirs: list[ReceivedMessage] = []

    def until(count: int) -> None:
        with news:
            assert news.wait_for(lambda: len(ours) >= count and len(theirs) >= 40, timeout=60)

    def keep(where: list[ReceivedMessage]) -> Any:
        def handle(message: ReceivedMessage) -> None:
            with news:
                where.append(message)
                news.notify_all()

        return handle

    consumers = [
        sync.PushConsumer(f"{topic.name}_{name}"[-100:], keep(where), nameserver=topic.name_server, start_from="first")
        for name, where in (("ours", ours), ("theirs", theirs))
    ]
    for consumer in consumers:
        consumer.subscribe(topic.name)
    group = f"{topic.name}_ours"[-100:]
    with consumers[0], consumers[1]:
        until(40)
        done = replay(spark, name_server=topic.name_server, topic=topic.name, group=group, start=start)
        assert done.messages == expected
        until(40 + expected)

    assert len(theirs) == 40
    again = ours[40:]
    assert {message.topic for message in again} == {topic.name}
    assert len({message.body for message in again}) == len(again) == expected
    assert {message.properties["REPLAY_TOPIC"] for message in again} == {topic.name}
    assert len(rows(spark, topic, topic.name)) == 40


def test_an_archive_is_replayed_by_key_and_tag_and_not_faster_than_asked(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    fill(topic, 48)
    to = str(tmp_path / "lake")
    archive(spark, name_server=topic.name_server, topics=[topic.name], to=to)
    plan: dict[str, Any] = {
        "name_server": topic.name_server,
        "topic": topic.name,
        "to": f"{topic.name}_again",
        "archive": to,
    }

    rehearsed = replay(spark, **plan, tags=["even"], rehearse=True)
    assert (rehearsed.messages, rehearsed.sent) == (24, False)
    done = replay(spark, **plan, tags=["even"], rate=16, order="key", replay_id="monday")

    copies = rows(spark, topic, f"{topic.name}_again")
    assert {row["tags"] for row in copies} == {"even"}
    assert len(copies) == done.messages == 24
    assert done.replay_id == "monday"
    assert done.seconds >= 24 / 16 / 2, "each of two tasks had half of the rate"
    one = replay(spark, **plan, keys=["k7"], rehearse=True)
    assert one.messages == 1


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"to": "SELF"}, "would get its own messages again, for all of its groups"),
    ({}, "Say where to: a topic, or a group"),
    ({"to": "other", "rate": 0}, "The rate 0 sends nothing"),
    ({"to": "other", "start": "someday"}, "The time cannot be read: 'someday' is no time: give ms since 1970"),
    ({"to": "other", "end": "2999-01-01"}, "lies in the future"),
    ({"to": "not a topic"}, 'The topic "not a topic" cannot be sent to'),
    ({"group": "never-online"}, "The group never-online is not known there"),
    ({"to": "other", "topic": "not-there"}, "The topic not-there is not there"),
]


def test_what_cannot_be_replayed_is_told_in_a_sentence(spark: SparkSession, topic: Topic) -> None:
    fill(topic, 4)
    for given, sentence in ERRORS:
        options = {"topic": topic.name, **given}
        if options.get("to") == "SELF":
            options["to"] = topic.name
        with pytest.raises(Exception, match=sentence) as raised:
            replay(spark, name_server=topic.name_server, **options)
        assert type(raised.value).__name__ in ("BadOption", "SourceError")
