"""The audit: who is behind and by how much, what waits, what was given up."""

from __future__ import annotations

import asyncio

import pytest
from pyspark.sql import SparkSession

from eruca.client import Message
from eruca.client.sync import PullConsumer
from eruca.spark_connector import BadOption
from eruca.spark_connector.pipelines import audit
from tests.spark_connector.pipelines.letters import give_up
from tests.support.spark import Topic


def test_each_group_is_held_against_each_queue(spark: SparkSession, topic: Topic) -> None:
    for number in range(40):
        topic.send(number % 4, b"body", tags="even" if number % 8 < 4 else "odd")
    times = {}
    with PullConsumer(nameserver=topic.name_server) as consumer:
        for queue, offset in zip(topic.queues, (10, 7, 0, 3), strict=True):
            consumer.update_offset(queue, offset, group="behind")
            consumer.update_offset(queue, 10, group="done")
            for record in consumer.pull(queue, offset, 100).records if offset < 10 else ():
                times[queue.queue_id, record.queue_offset] = record.store_timestamp

    found = audit(spark, name_server=topic.name_server, topics=[topic.name], groups=["behind", "done", "never"])

    behind, done, never = found.groups
    assert [each.behind for each in behind.queues] == [0, 3, 10, 7]
    assert (behind.stored, behind.consumed, behind.behind, behind.lost) == (40, 20, 20, 0)
    assert sum(behind.tags.values()) == sum(behind.windows.values()) == len(times) == 20
    assert set(behind.tags) == {"even", "odd"}
    assert behind.oldest_waiting == min(times.values())
    assert (done.behind, done.consumed, done.windows) == (0, 40, {})
    assert (never.never, never.behind) == (True, 40)
    assert found.faults(behind=20) == [f"never on {topic.name} has never consumed 40 messages."]
    assert found.faults()[0] == f"behind on {topic.name} has not consumed 20 messages."


def test_dead_letters_are_counted_without_a_session(topic: Topic) -> None:
    group = f"{topic.name}_readers"[-100:]
    asyncio.run(give_up(topic, group, [Message(topic.name, b"bad") for _ in range(3)]))

    found = audit(None, name_server=topic.name_server, topics=[topic.name], groups=[group])

    assert (found.groups[0].dead, found.groups[0].retrying) == (3, 0)
    assert found.faults(behind=3, dead=2) == [f"{group} has 3 dead letters."]

    topics = [topic.name, f"%DLQ%{group}"]
    both = audit(None, name_server=topic.name_server, topics=topics, groups=[group])
    assert [each.dead for each in both.groups] == [3, 3]
    assert both.faults(behind=3, dead=2) == [f"{group} has 3 dead letters."], "said once, not for each topic"


def test_an_audit_of_nothing_is_refused() -> None:
    with pytest.raises(BadOption, match="one topic and one group at least"):
        audit(None, name_server="127.0.0.1:1", topics=[], groups=["a"])
