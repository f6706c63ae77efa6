"""A topic in SQL: views, tables, and what Spark hands over of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from eruca.spark_connector import BadOption, cause_of, register_view
from tests.support.spark import Topic


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """A table of the format with two columns."""
    spark.sql("CREATE TABLE letters (keys STRING, body BINARY) USING rocketmq")
    yield "letters"
    spark.sql("DROP TABLE letters")


def count(spark: SparkSession, query: str) -> int:
    (row,) = spark.sql(f"SELECT count(*) FROM {query}").collect()
    return int(row[0])


def test_a_view_of_a_topic_is_asked_in_sql(spark: SparkSession, topic: Topic) -> None:
    topic.fill(5)

    rows = register_view(spark, "seen", topic.name, name_server=topic.name_server, schema="keys string")
    assert sorted(row["keys"] for row in spark.sql("SELECT * FROM seen").collect()) == [f"key{n}" for n in range(5)]
    assert rows.columns == ["keys"]

    topic.fill(3)
    assert count(spark, "seen") == 5, "as a frame, it keeps the ends that it found"
    register_view(
        spark, "seen", topic.name, name_server=topic.name_server, startingTimestamp="2h", failOnDataLoss=False
    )
    assert count(spark, "seen") == 8

    stream = register_view(spark, "live", topic.name, name_server=topic.name_server, streaming=True)
    assert stream.isStreaming and spark.sql("SELECT body FROM live").isStreaming
    with pytest.raises(BadOption, match=r"^The rocketmq source has no option startingOfset: did you"):
        register_view(spark, "wrong", topic.name, name_server=topic.name_server, startingOfset="latest")
    with pytest.raises(BadOption, match=r"^The rocketmq source has no column bodies: did you mean body"):
        register_view(spark, "wrong", topic.name, name_server=topic.name_server, schema="bodies binary")
    for options in ({"topic": [topic.name]}, {"topic": topic.name, "startingOffsets": {}}):
        given: dict[str, Any] = {"name_server": topic.name_server, **options}
        with pytest.raises(BadOption, match=r"^The option (subscribe|startingOffsets) is of type (list|dict): give a"):
            register_view(spark, "wrong", **given)
    assert not spark.catalog.tableExists("wrong")


def test_a_table_takes_its_options_in_each_query(spark: SparkSession, topic: Topic, table: str) -> None:
    here = f"WITH (nameServer='{topic.name_server}', subscribe='{topic.name}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW now AS SELECT * FROM {table} {here}")
    for there in (4, 7):
        topic.fill(there - len(topic.rows))
        assert count(spark, f"{table} {here}") == count(spark, "now") == there
    reader: Any = spark.read.option("nameServer", topic.name_server).option("subscribe", topic.name)
    assert reader.table(table).count() == 7
    assert spark.sql(f"SELECT keys FROM STREAM {table} {here}").isStreaming

    to = f"WITH (nameServer='{topic.name_server}', topic='{topic.name}')"
    spark.sql(f"INSERT INTO {table} {to} SELECT 'k', CAST('sent by SQL' AS BINARY)")
    assert count(spark, f"{table} {here} WHERE CAST(body AS STRING) = 'sent by SQL'") == 1


def test_a_table_without_options_is_told_where_they_go(spark: SparkSession, topic: Topic, table: str) -> None:
    spark.sql(f"CREATE TABLE lost USING rocketmq OPTIONS (nameServer '{topic.name_server}', subscribe '{topic.name}')")
    try:
        with pytest.raises(AnalysisException) as failed:
            spark.sql("SELECT * FROM lost").collect()
    finally:
        spark.sql("DROP TABLE lost")
    sentence = cause_of(failed.value)
    assert sentence.startswith("The option nameServer is missing: ")
    assert "WITH (nameServer='…', subscribe='…'), or CREATE TEMPORARY VIEW … USING rocketmq OPTIONS (…)." in sentence
    with pytest.raises(AnalysisException) as failed:
        spark.sql(f"INSERT INTO {table} SELECT 'k', CAST('body' AS BINARY)")
    assert "INSERT INTO orders WITH (nameServer='…', topic='…')." in cause_of(failed.value)
