"""Rollups: every message in its window and group, exact percentiles, to Parquet and to a topic."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.client.sync import PullConsumer
from eruca.remoting.clock import now_ms
from eruca.spark_connector import BadOption
from eruca.spark_connector.pipelines import Progress, archive, rollup
from eruca.spark_connector.pipelines.units import read_interval, read_time
from tests.spark_connector.pipelines.windows import fill
from tests.support.spark import Topic


def records(topic: Topic) -> list[Any]:
    """What is stored, after a new window of 1 ms has begun."""
    with PullConsumer(nameserver=topic.name_server) as consumer:
        found = [each for queue in topic.queues for each in consumer.pull(queue, 0, 1000).records]
    while now_ms() <= max(each.store_timestamp for each in found):
        pass
    return found


def bodies(consumer: PullConsumer, topic: str) -> Iterator[bytes]:
    """All that a topic holds; one pull brings 32 messages at most."""
    for queue in consumer.fetch_queues(topic):
        offset, end = 0, consumer.max_offset(queue)
        while offset < end:
            pulled = consumer.pull(queue, offset)
            yield from (each.body for each in pulled.records)
            offset = pulled.next_offset


def percentile(values: list[int], share: float) -> float:
    place = (len(values) - 1) * share / 100
    low, high = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def test_each_window_and_tag_has_its_figures(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    fill(topic, 60)
    expected: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for each in records(topic):
        expected[each.store_timestamp // 5 * 5, each.properties["TAGS"]].append(each)
    end = max(each.store_timestamp for each in records(topic)) // 5 * 5
    told: list[Progress] = []

    done = rollup(
        spark,
        name_server=topic.name_server,
        topics=[topic.name],
        window="5ms",
        by=["tag"],
        percentiles=[50, 90],
        end=end,
        to=str(tmp_path / "rolled"),
        to_topic=f"{topic.name}_rolled",
        tell=told.append,
    )

    assert told[-1] == Progress("counted", done.messages, done.messages)
    whole = {place: found for place, found in expected.items() if place[0] < end}
    assert {(row.start, row.of[0]) for row in done.rows} == set(whole)
    for row in done.rows:
        found = whole[row.start, str(row.of[0])]
        latencies = [each.store_timestamp - each.born_timestamp for each in found]
        assert (row.end, row.messages) == (row.start + 5, len(found))
        assert (row.size, row.slowest) == (sum(len(each.body) for each in found), max(latencies))
        assert row.percentiles == pytest.approx([percentile(latencies, 50), percentile(latencies, 90)])
    assert done.messages == sum(map(len, whole.values())) == sum(done.windows.values())
    kept = spark.read.parquet(str(tmp_path / "rolled"))
    assert kept.count() == len(done.rows)
    assert {"windowStart", "tag", "messages", "bytes", "latencyP50", "latencyP90", "interval"} <= set(kept.columns)
    with PullConsumer(nameserver=topic.name_server) as consumer:
        sent = [json.loads(body) for body in bodies(consumer, f"{topic.name}_rolled")]
    assert Counter(each["tag"] for each in sent) == Counter(row.of[0] for row in done.rows)
    assert sum(each["messages"] for each in sent) == done.messages


def test_an_archive_is_counted_like_its_topic_and_keys_one_by_one(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    fill(topic, 20)
    end = max(each.store_timestamp for each in records(topic)) + 1
    to = str(tmp_path / "lake")
    archive(spark, name_server=topic.name_server, topics=[topic.name], to=to)

    done = rollup(
        spark, name_server=topic.name_server, topics=[topic.name], archive=to, window="1ms", by=["key"], end=end
    )

    assert done.groups == {"all": 20, "k0": 10, "k1": 10}
    assert done.messages == 20


def test_what_cannot_be_counted_is_told_in_a_sentence(spark: SparkSession) -> None:
    for given, sentence in (
        ({"window": "soon"}, 'The window "soon" cannot be read: a number with ms, s, m, h or d'),
        ({"window": "0s"}, "A window is 1 ms at least"),
        ({"percentiles": [101]}, "Percentiles are numbers from 0 to 100"),
        ({"window": "1h", "start": 7_200_000, "end": 7_200_001}, "holds no whole window of 1h"),
        ({"topics": []}, "Say which topics are counted"),
    ):
        options: dict[str, Any] = {"topics": ["a"], **given}
        with pytest.raises(BadOption, match=sentence):
            rollup(spark, name_server="127.0.0.1:1", **options)


def test_times_are_read_in_each_form() -> None:
    assert read_time("1700000000000", 5) == 1_700_000_000_000
    assert read_time("2h", 10_000_000) == read_time("-2h", 10_000_000) == read_time("2h ago", 10_000_000) == 2_800_000
    assert read_time("yesterday 17:30", 1_714_564_800_000) == read_time("2024-04-30 17:30Z", 0)
    assert read_time("2024-05-01T12:00", 0) == read_time("2024-05-01T14:00+02:00", 0) == 1_714_564_800_000
    assert read_interval(None, None) == (0, None)
    with pytest.raises(BadOption, match="is not before the end"):
        read_interval(20, 10)
