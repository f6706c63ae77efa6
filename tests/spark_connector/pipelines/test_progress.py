"""Progress of Spark's own work: the tasks of the jobs that a block starts, and of no others."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from eruca.spark_connector.pipelines import Progress
from eruca.spark_connector.pipelines.progress import watched


def test_finished_tasks_are_told_while_a_block_runs(spark: SparkSession) -> None:
    told: list[Progress] = []
    news = threading.Condition()

    def tell(progress: Progress) -> None:
        with news:
            told.append(progress)
            news.notify_all()

    spark.range(10, numPartitions=5).foreach(lambda row: None)
    with watched(spark, "of the test", tell):
        spark.range(10, numPartitions=3).foreach(lambda row: None)
        with news:
            done = Progress("tasks of the test", 3, 3)
            assert news.wait_for(lambda: done in told, timeout=60), told
    assert all(each.total == 3 for each in told)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
