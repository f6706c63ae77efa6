"""The archive: everything once, in files by topic and day, and what is new in the next run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eruca.remoting.clock import now_ms
from eruca.spark_connector import BadOption
from eruca.spark_connector.pipelines import Progress, archive, read_archive
from eruca.spark_connector.pipelines.archives import STAGING
from eruca.spark_connector.pipelines.folders import Folders
from tests.support.eruca import ErucaCluster
from tests.support.spark import COLUMNS, Topic, assert_rows, rows_of

NAMES = [each.split()[0] for each in COLUMNS.split(", ")]


def test_each_run_adds_what_is_new_and_nothing_twice(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    to = str(tmp_path / "lake")
    topic.fill(90)

    first = archive(spark, name_server=topic.name_server, topics=[topic.name], to=to, rows_per_file=40)
    assert (first.messages, first.batches, first.topics) == (90, 3, {topic.name: 90})
    assert_rows(rows_of(read_archive(spark, to).select(*NAMES)), topic.rows)

    topic.fill(10)
    told: list[Progress] = []
    second = archive(spark, name_server=topic.name_server, topics=[topic.name], to=to, tell=told.append)
    assert (second.messages, second.files, told[-1]) == (10, 1, Progress("archived", 10, 10))
    third = archive(spark, name_server=topic.name_server, topics=[topic.name], to=to)
    assert (third.messages, third.files) == (0, 0)
    assert_rows(rows_of(read_archive(spark, to).select(*NAMES)), topic.rows)

    days = {row["date"] for row in read_archive(spark, to).select("date").distinct().collect()}
    files = sorted(path.relative_to(to) for path in Path(to).glob("topic=*/date=*/*.parquet"))
    assert {path.parts[:2] for path in files} == {(f"topic={topic.name}", f"date={day}") for day in days}
    assert len(files) == first.files + 1
    rows_a_file = spark.read.parquet(to).groupBy(F.input_file_name()).count().agg(F.max("count")).collect()[0][0]
    assert rows_a_file <= 40, "no file has more rows than rows_per_file"


def test_a_batch_that_died_while_its_files_were_moved_is_there_once(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = str(tmp_path / "lake")
    topic.fill(50)
    delete = Folders.delete

    def die(folders: Folders, path: str) -> None:
        if f"/{STAGING}/" in path:
            raise OSError("the power is gone")
        delete(folders, path)

    with monkeypatch.context() as patched, pytest.raises(PySparkException, match="the power is gone"):
        patched.setattr(Folders, "delete", die)
        archive(spark, name_server=topic.name_server, topics=[topic.name], to=to)
    assert list(Path(to).glob("topic=*/date=*/*.parquet")), "the files of the batch that died are in place"

    assert archive(spark, name_server=topic.name_server, topics=[topic.name], to=to).messages == 50
    assert_rows(rows_of(read_archive(spark, to).select(*NAMES)), topic.rows)


def test_topics_of_a_pattern_are_archived_until_stopped(
    cluster: ErucaCluster, spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    to, stop = str(tmp_path / "lake"), threading.Event()
    other = Topic(cluster, f"{topic.name}_other"[-100:], 2)
    topic.fill(12)
    other.fill(5)

    def tell(progress: Progress) -> None:
        if progress.done >= 17:
            stop.set()

    done = archive(
        spark,
        name_server=topic.name_server,
        pattern=f"{topic.name}.*",
        to=to,
        until_stopped=stop,
        interval="100 milliseconds",
        tell=tell,
    )

    assert done.topics == {topic.name: 12, other.name: 5}
    assert read_archive(spark, to, topics=[other.name]).count() == 5
    other.close()


def test_an_archive_that_is_stopped_says_of_how_many_it_has_added_some(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(90)
    told: list[Progress] = []
    stop = threading.Event()

    def tell(progress: Progress) -> None:
        told.append(progress)
        if progress.done:
            stop.set()

    given = {"name_server": topic.name_server, "topics": [topic.name], "to": str(tmp_path / "lake")}
    done = archive(spark, **given, rows_per_batch=1, until_stopped=stop, interval="1 ms", tell=tell)  # type: ignore[arg-type]
    assert 0 < done.messages < 90
    assert told[-1] == Progress("archived", done.messages, 90)


def test_an_interval_of_an_archive_is_exact(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    to = str(tmp_path / "lake")
    for _ in range(4):
        topic.fill(5)
        sent = now_ms()
        while now_ms() == sent:  # until the next millisecond
            pass
    archive(spark, name_server=topic.name_server, topics=[topic.name], to=to)
    times = sorted(row[0] for row in read_archive(spark, to).select(F.unix_millis("storeTimestamp")).collect())
    start, end = times[5], times[15]

    found = read_archive(spark, to, start=start, end=end).count()

    assert found == sum(start <= each < end for each in times) > 0


def test_what_cannot_be_archived_is_told_in_a_sentence(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="Say what to archive"):
        archive(spark, name_server=topic.name_server, to=str(tmp_path))
    with pytest.raises(BadOption, match="There is no archive at"):
        read_archive(spark, str(tmp_path))
    with pytest.raises(BadOption, match="no option acessKey: did you mean accessKey"):
        archive(spark, name_server="x:1", topics=["a"], to=str(tmp_path), access={"acessKey": "a"})
