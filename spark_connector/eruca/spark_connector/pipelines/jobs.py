"""The progress of the Spark jobs of a pipeline: finished tasks, reported while they run.

Owns the watching of jobs by their group. Without a progress listener nothing is watched.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from eruca.spark_connector.pipelines.progress import Progress, ProgressListener, ignore_progress

EVERY = 0.5
"""Seconds between two looks."""
_GROUP = "spark.jobGroup.id"


@contextmanager
def watched(spark: SparkSession, step: str, tell: ProgressListener) -> Iterator[None]:
    """Report how many tasks of the jobs that the block starts in this thread are done, as ``tasks <step>``."""
    if tell is ignore_progress:
        yield
        return
    context, group, ended = spark.sparkContext, f"eruca-{uuid.uuid4().hex}", threading.Event()
    tracker = context.statusTracker()

    def look() -> None:
        done = total = 0
        for job in tracker.getJobIdsForGroup(group):
            known = tracker.getJobInfo(job)
            for stage in known.stageIds if known is not None else ():
                # A stage that has not begun, or was not needed, is not known.
                if (found := tracker.getStageInfo(stage)) is not None:
                    done, total = done + found.numCompletedTasks, total + found.numTasks
        if total:
            tell(Progress(f"tasks {step}", done, total))

    def watch() -> None:
        while not ended.wait(EVERY):
            look()

    before = context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, group)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]  # None takes it away
        ended.set()
        watching.join()
    look()
