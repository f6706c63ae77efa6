"""The audit: who is behind and by how much, what waits, what was given up, what traces say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.client import Later, Message, Producer, PushConsumer, ReceivedMessage, TransactionProducer, TransactionState
from eruca.client.sync import PullConsumer
from eruca.spark_connector import BadOption
from eruca.spark_connector.pipelines import audit
from tests.spark_connector.pipelines.dead_letters import give_up
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


def test_a_group_past_the_end_of_a_topic_that_was_made_again_is_a_fault(topic: Topic) -> None:
    topic.fill(40)
    with PullConsumer(nameserver=topic.name_server) as consumer:
        for queue in topic.queues:
            consumer.update_offset(queue, 10, group="ahead")
        assert audit(None, name_server=topic.name_server, topics=[topic.name], groups=["ahead"]).faults() == []
        consumer.update_offset(topic.queues[2], 17, group="ahead")

    found = audit(None, name_server=topic.name_server, topics=[topic.name], groups=["ahead"])

    assert (found.groups[0].beyond, found.groups[0].behind) == (7, 0)
    assert found.faults() == [
        f"ahead on {topic.name} is 7 messages past the end: the topic was created again, or its broker lost data. "
        "Set the offsets of the group with `mqadmin resetOffsetByTime`."
    ]


def test_an_audit_of_nothing_is_refused() -> None:
    with pytest.raises(BadOption, match="one topic and one group at least"):
        audit(None, name_server="127.0.0.1:1", topics=[], groups=["a"])


async def work_with_traces(topic: Topic, traces: str) -> dict[str, list[str]]:
    """Send with and without traces, and let two groups consume what was sent; the ids of what was sent with traces."""
    ids: dict[str, list[str]] = {"good": [], "bad": []}
    expected = 10 + 2 + 1 + 1
    seen: dict[str, int] = {"all": 0, "some": 0}
    news = asyncio.Condition()

    async def commit_or_not(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    def listener(group: str) -> Any:
        async def listen(message: ReceivedMessage) -> Later | None:
            async with news:
                seen[group] += 1
                news.notify_all()
            return Later(delay_level=18) if group == "some" and message.body == b"bad" else None

        return listen

    async with Producer("audited", nameserver=topic.name_server, trace=traces) as producer:
        for number in range(10):
            body = b"bad" if number in (3, 4) else b"good"
            sent = await producer.send(Message(topic.name, body, tags="new" if number < 8 else None))
            ids[body.decode()].append(sent.message_id)
        batch = await producer.send_batch([Message(topic.name, b"1"), Message(topic.name, b"2")])
        ids["good"].extend(batch.message_id.split(","))
    async with TransactionProducer("deals", commit_or_not, nameserver=topic.name_server, trace=traces) as dealer:
        for state in (TransactionState.COMMIT, TransactionState.ROLLBACK):
            await dealer.send_in_transaction(Message(topic.name, b"deal"), lambda *_, state=state: state)
    await asyncio.to_thread(topic.send, 0, b"nobody traced this")
    for group in seen:
        consumer = PushConsumer(
            f"{group}_{topic.name}"[:100],
            listener(group),
            nameserver=topic.name_server,
            start_from="first",
            trace=traces,
        )
        async with consumer.subscribe(topic.name), news:
            while seen[group] < expected:
                await asyncio.wait_for(news.wait(), 120)
    return ids


def test_what_producers_traced_is_held_against_what_groups_traced(spark: SparkSession, topic: Topic) -> None:
    traces = f"{topic.name}_traces"[-100:]
    ids = asyncio.run(work_with_traces(topic, traces))
    everyone, some, silent = (f"{group}_{topic.name}"[:100] for group in ("all", "some", "silent"))

    found = audit(
        spark,
        name_server=topic.name_server,
        topics=[topic.name],
        groups=[everyone, some, silent],
        window="1h",
        traces=True,
        trace_topic=traces,
    )

    assert found.traces is not None and found.traces.there
    (sent,) = found.traces.topics
    assert (sent.sent, sent.refused, sent.untraced, sent.absent) == (13, 0, 1, 0), "the rolled back one was not sent"
    done, failing, quiet = found.traces.groups
    assert (done.sent, done.consumed, done.failing, done.missing, done.repeated) == (13, 13, 0, 0, 0)
    assert (failing.consumed, failing.failing, failing.missing) == (11, 2, 0)
    assert (quiet.silent, quiet.consumed, quiet.missing) == (True, 0, 13)
    assert sum(count for count, _ in done.windows.values()) == sum(count for _, count in done.windows.values()) == 13
    assert set(quiet.examples) <= {*ids["good"], *ids["bad"]} and len(quiet.examples) == 3
    sentences = list(found.traces.faults())
    assert sentences[0] == f"1 messages of {topic.name} have no trace of a send: not all producers trace."
    assert sentences[1] == f"{some} on {topic.name} has failed on 2 messages and not consumed them since."
    assert sentences[2].startswith(f"There are no traces of what {silent} consumes: producers and consumers write them")
    assert set(sentences) <= set(found.faults(behind=100))


def test_without_traces_that_is_said(spark: SparkSession, topic: Topic) -> None:
    topic.send(0, b"one")
    plan: dict[str, Any] = {"name_server": topic.name_server, "topics": [topic.name], "groups": ["g"], "traces": True}
    found = audit(spark, **plan, trace_topic="nobody-traces-here")
    (sentence,) = found.faults(behind=1)
    assert sentence.startswith(
        "There are no traces in nobody-traces-here: producers and consumers write them with trace="
    )
    with pytest.raises(BadOption, match="Traces are read with Spark"):
        audit(None, **plan)
    with pytest.raises(BadOption, match="choose among traces"):
        audit(spark, **{**plan, "traces": False}, start="1h")
