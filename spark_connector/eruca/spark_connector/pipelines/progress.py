"""What a pipeline reports while it runs, and the watching of what it runs: Spark's jobs, and queues that fill.

Without a progress listener nothing is watched. Knows no terminal.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

EVERY = 0.5
"""Seconds between two looks."""
_GROUP = "spark.jobGroup.id"


@dataclass(frozen=True)
class Progress:
    """How far a pipeline is: ``done`` of ``total`` (None: not known) in the step ``step``, which says what they are."""

    step: str
    done: int
    total: int | None = None


ProgressListener = Callable[[Progress], None]
"""Called now and then while a pipeline runs."""


def ignore_progress(progress: Progress) -> None:
    """The listener of pipelines that nobody watches."""


@contextmanager
def repeated(look: Callable[[], None]) -> Iterator[None]:
    """Call ``look`` every EVERY seconds, in a thread, while the block runs."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY):
            look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


@contextmanager
def watched(spark: SparkSession, step: str, tell: ProgressListener) -> Iterator[None]:
    """Report how many tasks of the jobs that the block starts in this thread are done, as ``tasks <step>``."""
    if tell is ignore_progress:
        yield
        return
    context, group = spark.sparkContext, f"eruca-{uuid.uuid4().hex}"
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

    before = context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, group)
    try:
        with repeated(look):
            yield
    finally:
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]  # None takes it away
    look()
