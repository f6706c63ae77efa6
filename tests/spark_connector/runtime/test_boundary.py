"""An error leaves the connector for Spark as its sentence, with hardly a place of ours above it, wherever it arose."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from eruca.spark_connector import RocketMQDataSource, SinkError, SourceError
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.read.partitions import OffsetPartition
from eruca.spark_connector.runtime.boundary import boundary
from eruca.spark_connector.schema import default_schema
from tests.support.spark import Topic

pytestmark = pytest.mark.usefixtures("fresh_clients")
ALL = ReadAllAvailable()
BODY = StructType([StructField("body", BinaryType())])
VALUE = StructType([StructField("value", BinaryType())])


def source(cluster: Topic, /, **options: str) -> RocketMQDataSource:
    return RocketMQDataSource({"nameServer": cluster.name_server, **options})


def batch(topic: Topic, **options: str) -> Any:
    return source(topic, **{"subscribe": topic.name, **options}).reader(default_schema())


def stream(topic: Topic, **options: str) -> Any:
    return source(topic, **{"subscribe": topic.name, **options}).streamReader(default_schema())


def planned_now(reader: Any) -> Any:
    """The first batch of a query with ``availableNow``."""
    reader.prepareForTriggerAvailableNow()
    return reader.latestOffset({"initial": True}, ALL)


def beyond(topic: Topic) -> OffsetPartition:
    return OffsetPartition((OffsetRange(topic.queues[0], 5, 7),))


WRONG: dict[str, tuple[Callable[[Topic], Any], str]] = {
    "option": (lambda topic: batch(topic, startOffset="latest"), "did you mean startingOffsets"),
    "column": (lambda topic: source(topic, subscribe="a").reader(VALUE), "did you mean body"),
    "topic": (lambda topic: batch(topic, subscribe="nowhere").partitions(), "`mqadmin topicList`"),
    "topic-of-a-namespace": (
        lambda topic: batch(topic, namespace="zz").partitions(),
        "where the option namespace makes it zz%",
    ),
    "nameserver": (lambda topic: batch(topic, nameServer="127.0.0.1:1").partitions(), "Check that mqnamesrv runs"),
    "offset": (
        lambda topic: batch(topic, endingOffsets='{"*":{"*":{"*":9}}}').partitions(),
        "endingOffsets names 9 for",
    ),
    "filter": (lambda topic: batch(topic, sqlFilter="n >> 3").partitions(), "refuses sqlFilter"),
    "range-that-is-gone": (lambda topic: list(batch(topic).read(beyond(topic))), "are not there"),
    "stream-option": (lambda topic: stream(topic, startOffset="latest").initialOffset(), "did you mean startingOff"),
    "stream-offset": (
        lambda topic: stream(topic, startingOffsets='{"*":{"*":{"*":9}}}').latestOffset({"initial": True}, ALL),
        "startingOffsets names 9 for",
    ),
    "stream-checkpoint": (lambda topic: stream(topic).latestOffset({"kafka": 3}, ALL), "another checkpointLocation"),
    "stream-plan": (lambda topic: stream(topic).partitions({"initial": True}, {"kafka": 3}), "another checkpointLoc"),
    "available-now": (
        lambda topic: planned_now(stream(topic, subscribe="nowhere")),
        "`mqadmin topicList`",
    ),
    "stream-range-that-is-gone": (lambda topic: list(stream(topic).read(beyond(topic))), "are not there"),
    "sink-option": (lambda topic: source(topic, topics="a").writer(BODY, False), "did you mean topic"),
    "sink-column": (lambda topic: source(topic, topic="a").writer(VALUE, False), "did you mean body"),
    "sink-overwrite": (lambda topic: source(topic, topic="a").writer(BODY, True), "never replaced"),
    "stream-sink-option": (lambda topic: source(topic, topics="a").streamWriter(BODY, False), "did you mean topic"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_hardly_a_place_of_ours_stands_above_the_sentence(topic: Topic, wrong: str) -> None:
    use, sentence = WRONG[wrong]
    with pytest.raises(SourceError) as raised:
        use(topic)

    lines = "".join(traceback.format_exception(raised.value)).splitlines()
    assert sentence in lines[-1]
    ours = [line for line in lines if "spark_connector/eruca" in line]
    assert len(ours) <= 2, lines
    assert not any("direct cause" in line or "another exception" in line for line in lines)


@pytest.mark.parametrize("error", [SourceError("of a task"), SinkError("of a row")])
def test_the_whole_way_is_in_the_log_at_debug(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def deep() -> None:
        raise error from KeyError("cause")

    with caplog.at_level(logging.DEBUG, "eruca.spark"), pytest.raises(type(error)) as raised, boundary:
        deep()

    assert raised.value is error
    assert "in deep" in caplog.text and "KeyError: 'cause'" in caplog.text


def test_errors_of_others_keep_their_traceback() -> None:
    def deep() -> None:
        raise pa.ArrowInvalid("of arrow") from KeyError("cause")

    with pytest.raises(pa.ArrowInvalid) as raised, boundary:
        deep()
    assert "in deep" in "".join(traceback.format_exception(raised.value))
