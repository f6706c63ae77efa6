"""Rollups that go on: each run adds the windows that are over, each of them once and whole, whatever died before."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eruca.admin.cli import run as mqadmin
from eruca.client import MessageQueue
from eruca.client.sync import PullConsumer
from eruca.remoting.clock import now_ms
from eruca.spark_connector import BadOption, SourceError
from eruca.spark_connector.pipelines import Progress, RollupSummary, rollup
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.pipelines.folders import Folders
from eruca.spark_connector.pipelines.rounds import Round, Rounds, _go_on
from tests.spark_connector.pipelines.windows import WINDOW, fill, let_a_window_end, written
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic

Run = Callable[..., RollupSummary]


@pytest.fixture
def run(spark: SparkSession, topic: Topic, tmp_path: Path) -> Run:
    """Counts what is new by windows of 20 ms and by tag; a window waits for nothing after its end."""

    def go(**given: Any) -> RollupSummary:
        options = {
            "window": f"{WINDOW}ms",
            "by": ["tag"],
            "to": str(tmp_path / "rolled"),
            "resume": True,
            "grace": "0s",
        }
        return rollup(spark, name_server=topic.name_server, topics=[topic.name], **{**options, **given})

    return go


def truth(topic: Topic, clock: str = "store_timestamp") -> Counter[tuple[int, str]]:
    """All messages by window and tag."""
    with PullConsumer(nameserver=topic.name_server) as consumer:
        found = [each for queue in topic.queues for each in consumer.pull(queue, 0, 1000).records]
    return Counter((getattr(each, clock) // WINDOW * WINDOW, each.properties["TAGS"]) for each in found)


def test_each_run_adds_the_windows_that_are_over(spark: SparkSession, run: Run, topic: Topic, tmp_path: Path) -> None:
    fill(topic, 30)
    let_a_window_end()
    first = run()
    assert (first.messages, first.left_out, sum(first.windows.values())) == (30, 0, 30)
    fill(topic, 20)
    open_window = now_ms() // WINDOW * WINDOW
    second = run(end=open_window)
    let_a_window_end()
    third = run()

    assert second.end == third.start or second.end == second.start == 0
    assert second.messages + third.messages == 20
    assert written(spark, tmp_path) == truth(topic)
    assert run(end=third.end).rows == [], "nothing is over since"
    places = sorted(path.name for path in (tmp_path / "rolled").iterdir() if path.name.startswith("interval="))
    ends = [tuple(map(int, name.partition("=")[2].split("_"))) for name in places]
    assert [start for start, _ in ends] == [0, *(end for _, end in ends[:-1])], "one begins where the other ends"


def test_a_round_that_died_is_done_again_as_it_was_planned(
    spark: SparkSession, run: Run, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled = f"{topic.name}_rolled"[-100:]
    fill(topic, 24)
    let_a_window_end()
    for step, place in (("move", "/interval="), ("write", "/done-"), ("delete", "/plan-")):
        work = getattr(Folders, step)

        def die(files: Folders, *paths: str, work: Any = work, place: str = place) -> None:
            if place in paths[-1] or place in paths[0]:
                raise OSError("the power is gone")
            work(files, *paths)

        with monkeypatch.context() as patched:
            patched.setattr(Folders, step, die)
            with pytest.raises(OSError, match="the power is gone"):
                run(to_topic=rolled)
        fill(topic, 2)
        let_a_window_end()
    assert sum(written(spark, tmp_path).values()) == 24, "what was planned at first, whatever has come since"

    done = run(to_topic=rolled)

    assert done.messages == 6
    assert written(spark, tmp_path) == truth(topic)
    with PullConsumer(nameserver=topic.name_server) as consumer:
        found = [each for queue in consumer.fetch_queues(rolled) for each in consumer.pull(queue, 0, 1000).records]
    rows = {each.properties["SPARK_ID"]: json.loads(each.body) for each in found}
    assert len(found) > len(rows) == len({(row["windowStart"], row["tag"]) for row in rows.values()})
    assert sum(row["messages"] for row in rows.values()) == 30, "a row that was sent again has its SPARK_ID again"


def test_it_goes_on_until_it_is_stopped(spark: SparkSession, run: Run, topic: Topic, tmp_path: Path) -> None:
    fill(topic, 10)
    stop, news = threading.Event(), iter((10, 10))

    def tell(progress: Progress) -> None:
        if progress.step != "counted":
            return
        if (more := next(news, None)) is not None:
            fill(topic, more)
        elif progress.done >= 30:
            stop.set()

    done = run(until_stopped=stop, interval="10ms", tell=tell)

    assert done.messages == sum(done.windows.values()) == 30
    assert sum(row.messages for row in done.rows) <= 10, "rows of the last round"
    assert written(spark, tmp_path) == truth(topic)


def test_by_the_producers_clock_a_message_counts_that_is_stored_in_time(
    spark: SparkSession, run: Run, topic: Topic, tmp_path: Path
) -> None:
    fill(topic, 12)
    let_a_window_end()
    given = {"clock": "born", "grace": "6s"}
    early = run(**given)
    assert early.messages == 0, "their windows still wait"
    fill(topic, 12)
    over = max(start for start, _ in truth(topic, "born_timestamp")) + WINDOW + 6000
    time.sleep((over - now_ms() + 1) / 1000)  # a window waits by the clock
    done = run(**given)
    assert (done.messages, done.left_out) == (24, 0)
    assert written(spark, tmp_path) == truth(topic, "born_timestamp")


def test_what_was_deleted_before_it_was_counted_is_told() -> None:
    a, b = (MessageQueue("orders", "broker-a", number) for number in range(2))
    assert _go_on({a: 5}, {a: 3, b: 2}, {a: 9, b: 9}, skip_lost=False) == {a: 5, b: 2}
    with pytest.raises(SourceError, match=r"2 messages of .*queueId=0\] were deleted before .*--skip-lost"):
        _go_on({a: 5}, {a: 7}, {a: 9}, skip_lost=False)
    with pytest.raises(SourceError, match=r"was read up to 5, but now it ends at 2: the topic was created again"):
        _go_on({a: 5}, {a: 0}, {a: 2}, skip_lost=False)
    assert _go_on({a: 5, b: 5}, {a: 7, b: 0}, {a: 9, b: 2}, skip_lost=True) == {a: 7, b: 0}


def test_a_folder_is_one_rollups(spark: SparkSession, run: Run, topic: Topic, tmp_path: Path) -> None:
    fill(topic, 4)
    let_a_window_end()
    run(resume=False, to=str(tmp_path / "whole"))
    run(end=1000)
    for given, sentence in (
        ({"by": ["topic"]}, "was begun with by tag, not topic: choose another folder"),
        ({"window": "30ms"}, "was begun with window 20 ms, not 30 ms"),
        ({"resume": False}, "is the folder of a rollup that goes on: add resume"),
        ({"to": str(tmp_path / "whole")}, "holds rollups that were not begun with resume"),
        ({"to": None}, "a folder for its rows"),
        ({"archive": str(tmp_path)}, "takes topics, not an archive"),
        ({"grace": "soon"}, 'The grace "soon" cannot be read'),
    ):
        with pytest.raises(BadOption, match=sentence):
            run(**given)


def test_a_plan_survives_its_text(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    places = dict(zip(topic.queues, range(4), strict=True))
    planned = Round(0, 40, places, places, places)
    assert Round.from_json(planned.to_json()) == planned
    folders = Folders(spark, str(tmp_path))
    rounds = Rounds(
        folders, Endpoint(topic.name_server), {"topics": [topic.name]}, start=60, length=20, margin=0
    )  # fmt: skip
    assert rounds.next(79, skip_lost=False) is None, "no window is over"
    found = rounds.next(99, skip_lost=False)
    assert found is not None and (found.start, found.end) == (60, 80)
    assert rounds.next(500, skip_lost=False) == found, "what was planned is done first"


def test_a_topic_that_was_made_again_is_noticed_however_long_it_is(
    cluster: ErucaCluster, spark: SparkSession, run: Run, topic: Topic, tmp_path: Path
) -> None:
    fill(topic, 20)
    let_a_window_end()
    assert run().messages == 20
    out = io.StringIO()
    asyncio.run(mqadmin(("deleteTopic", "-n", cluster.address, "-c", "JudgeCluster", "-t", topic.name), {}, out, out))
    topic.grow(cluster, 4)
    fill(topic, 40)
    let_a_window_end()

    with pytest.raises(SourceError, match=r"was read up to 5, but what was stored since begins at 0: .*--skip-lost"):
        run()
    assert run(skip_lost=True).messages == 40
    assert run().messages == 0
