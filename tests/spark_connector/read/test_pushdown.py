"""Filters as less to read: what they mean, and that no row is lost by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, LessThanOrEqual, Not

from eruca.client import MessageQueue
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read import batch
from eruca.spark_connector.read.pushdown import Bounds, read_filters
from eruca.spark_connector.schema import default_schema
from tests.support.spark import Topic, assert_rows, read, rows_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


def test_filters_become_bounds_that_leave_out_nothing_that_passes() -> None:
    wanted = read_filters(
        [
            GreaterThan(("queueOffset",), 10),
            LessThanOrEqual(("queueOffset",), 20),
            GreaterThan(("storeTimestamp",), NOON + timedelta(microseconds=1500)),
            LessThan(("storeTimestamp",), NOON + timedelta(seconds=1, microseconds=1)),
            In(("queueId",), (1, 2, 3)),
            In(("queueId",), (2, 3, 4)),
            EqualTo(("topic",), "orders"),
            In(("tags",), ("B", "A")),
        ]
    )

    assert wanted.offsets == Bounds(10, 21)
    assert wanted.times == Bounds(NOON_MS + 1, NOON_MS + 1001)
    assert wanted.tag_expression == "A || B"
    assert [wanted.has(MessageQueue("orders", "b", number)) for number in range(5)] == [0, 0, 1, 1, 0]
    assert not wanted.has(MessageQueue("others", "b", 2))


@pytest.mark.parametrize(
    "said",
    [
        IsNotNull(("tags",)),
        Not(EqualTo(("queueId",), 1)),
        EqualTo(("properties", "queueId"), 1),
        EqualTo(("queueOffset",), None),
        EqualTo(("storeTimestamp",), "2026"),
        EqualTo(("tags",), "A || B"),
        EqualTo(("tags",), "*"),
        EqualTo(("keys",), "k"),
    ],
)
def test_what_says_nothing_useful_narrows_nothing(said: Any) -> None:
    wanted = read_filters([said])

    assert wanted.has(MessageQueue("any", "b", 0)) and wanted.tag_expression is None
    assert wanted.offsets == wanted.times == Bounds()


def planned(topic: Topic, *filters: Any) -> int:
    """Offsets that would be read."""
    options = read_options({"nameServer": topic.name_server, "subscribe": topic.name}, streaming=False)
    reader = batch.PushingReader(options, default_schema(), 2)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark applies them again"
    return sum(len(each) for part in reader.partitions() for each in part.ranges)


@pytest.mark.usefixtures("fresh_clients")
def test_less_is_planned(topic: Topic) -> None:
    topic.fill(40)

    assert planned(topic) == 40
    assert planned(topic, EqualTo(("queueId",), 3), LessThanOrEqual(("queueOffset",), 3)) == 4
    assert planned(topic, GreaterThan(("storeTimestamp",), datetime(2100, 1, 1, tzinfo=UTC))) == 0
    assert planned(topic, LessThan(("storeTimestamp",), datetime(1960, 1, 1, tzinfo=UTC))) == 0
    assert planned(topic, EqualTo(("brokerName",), "elsewhere")) == 0


def test_spark_reads_the_same_rows(spark: SparkSession, topic: Topic) -> None:
    topic.fill(40)
    topic.send(1, b"tagged", tags="Aa")
    topic.send(2, b"not this one", tags="BB")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, topic, None, pushdown=True)
        row = frame.where("queueId = 2 AND queueOffset = 5").select("storeTimestamp").first()
        assert row is not None
        for condition in (
            "tags = 'Aa'",
            "tags IN ('Aa', 'CC') AND queueId > 0",
            "queueId IN (1, 3) AND queueOffset BETWEEN 2 AND 4",
            f"storeTimestamp >= TIMESTAMP '{row.storeTimestamp}'",
            f"storeTimestamp < TIMESTAMP '{row.storeTimestamp}' AND tags IS NULL",
            "keys = 'key7'",
        ):
            columns = ("queueId", "queueOffset", "body", "tags", "keys", "flag")
            found = rows_of(frame.where(condition).select(*columns))
            assert_rows(found, rows_of(read(spark, topic, None).where(condition).select(*columns)))
            assert found
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
