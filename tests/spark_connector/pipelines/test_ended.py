"""Pipelines as programs that are ended by SIGTERM or Ctrl-C, or by kill -9: nothing is missing afterwards, nothing is
there twice that may not be, and nothing is left behind.

Here an archive is stopped and a rollup killed, once; with ERUCA_TORTURE each several times, by the one and by the
other, and replays, too. ERUCA_SEED chooses other moments.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eruca.remoting.clock import now_ms
from eruca.spark_connector import deduplicated
from eruca.spark_connector.pipelines import archive, read_archive, replay, rollup
from eruca.spark_connector.pipelines.endpoint import Endpoint
from tests.spark_connector.pipelines.windows import WINDOW, let_a_window_end, written
from tests.support.eruca import ErucaCluster
from tests.support.processes import Process, session_members
from tests.support.spark import COLUMNS, Topic, assert_rows, read, rows_of

pytestmark = pytest.mark.slow

TORTURE = bool(os.environ.get("ERUCA_TORTURE"))
ROUNDS = 6 if TORTURE else 1
CHANCE = random.Random(int(os.environ.get("ERUCA_SEED", "1")))
PATIENCE = 400
FILES, INTERVALS = "topic=*/date=*/*.parquet", "interval=*"
WINDOW_OF = f"unix_millis(storeTimestamp) DIV {WINDOW} * {WINDOW}"
GO_ON = ("--until-stopped", "--interval", "500ms")


class Program:
    """``eruca pipeline …`` as a session of processes of its own, with a folder of its own for temporary files.

    ``done`` tells how much there is of what it makes.
    """

    def __init__(self, topic: Topic, folder: Path, name: str, *options: str, done: Callable[[], int]) -> None:
        self._done, self._before = done, done()
        command = [sys.executable, "-m", "eruca.standalone.cli", "pipeline", name, "-n", topic.name_server]
        self._temporary = folder / f"{name}.tmp"
        shutil.rmtree(self._temporary, ignore_errors=True)  # one that was killed could not delete its own
        self._temporary.mkdir()
        own = {"TMPDIR": str(self._temporary), "SPARK_LOCAL_DIRS": str(self._temporary)}
        settings = [f"spark.driver.extraJavaOptions=-Djava.io.tmpdir={self._temporary}"]
        command += ["--topic", topic.name, "--master", "local[1]", "--conf", *settings, *options]
        self.process = Process(command, folder / f"{name}.log", env=own, leads=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def wait_for_more(self) -> None:
        """Until it has done something."""
        self.process.wait_until(lambda: self._done() > self._before, "progress", PATIENCE)

    def kill(self) -> None:
        """End it by kill -9: sometimes Python alone, after which Spark has to end by itself, sometimes all of it."""
        if CHANCE.random() < 0.5:
            self.process.kill()
        else:
            self.process.signal(signal.SIGKILL)
            self.process.wait()
        self._wait_for_its_end()

    def stop(self, number: signal.Signals) -> int:
        """SIGTERM, or SIGINT to all of the group as a terminal does; its exit code. Nothing of it is left behind."""
        (os.killpg if number == signal.SIGINT else os.kill)(self.process.pid, number)
        code = self.process.wait(PATIENCE)
        self._wait_for_its_end()
        assert [each.name for each in self._temporary.iterdir()] == []
        assert not re.search(r"Traceback|^\s+at [\w.$]+\(", self.told, re.MULTILINE), self.told
        assert not re.search(r"WARN|log4j|log level|incubator", self.told), "the log of Spark and Java is not ours"
        return code

    def _wait_for_its_end(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while left := list(session_members(self.process.pid)):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)

    @property
    def told(self) -> str:
        """All that it has printed."""
        return self.process.output


def count(folder: Path, pattern: str) -> int:
    return len(list(folder.glob(pattern)))


def fill(topic: Topic, count: int) -> None:
    for number in range(count):
        topic.send(number % 4, b"message %d" % len(topic.rows), tags=f"t{number % 3}", keys="k")


def fill_for_a_moment(topic: Topic) -> None:
    """A moment that is nobody's in particular, in which messages come."""
    end = time.monotonic() + CHANCE.uniform(0, 1.5)
    while time.monotonic() < end:
        fill(topic, 5)
        time.sleep(0.02)


@pytest.mark.timeout(3 * PATIENCE * (ROUNDS + 1))
def test_what_was_ended_goes_on_where_it_was(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    lake, rolled = tmp_path / "lake", tmp_path / "rolled"
    archives = ("--to", str(lake), "--rows-per-batch", "200", *GO_ON)
    rollups = ("--to", str(rolled), "--window", f"{WINDOW}ms", "--by", "tag", "--grace", "0s", *GO_ON)

    for turn in range(ROUNDS):
        fill(topic, 70)
        with (
            Program(topic, tmp_path, "archive", *archives, done=lambda: count(lake, FILES)) as archiving,
            Program(topic, tmp_path, "rollup", *rollups, done=lambda: count(rolled, INTERVALS)) as rolling,
        ):
            archiving.wait_for_more()
            rolling.wait_for_more()
            fill_for_a_moment(topic)
            ended, killed = (rolling, archiving) if turn % 2 else (archiving, rolling)
            killed.kill()
            assert ended.stop(CHANCE.choice([signal.SIGTERM, signal.SIGINT])) == 0, ended.told
            assert re.search(r"\d messages of (windows from|1 topic were added to) ", ended.told), ended.told

    fill(topic, 10)
    let_a_window_end()
    archive(spark, name_server=topic.name_server, topics=[topic.name], to=str(lake))
    rollup(
        spark, name_server=topic.name_server, topics=[topic.name], to=str(rolled), resume=True, window=f"{WINDOW}ms",
        by=["tag"], grace="0s", end=now_ms(),
    )  # fmt: skip
    names = [each.split()[0] for each in COLUMNS.split(", ")]
    kept = rows_of(read_archive(spark, str(lake)).select(*names, F.expr(WINDOW_OF).alias("window")))
    windows = Counter((row.pop("window"), row["tags"]) for row in kept.values())
    assert_rows(kept, topic.rows)
    assert written(spark, tmp_path) == windows


@pytest.mark.skipif(not TORTURE, reason="takes minutes: set ERUCA_TORTURE=1")
@pytest.mark.timeout(3 * PATIENCE * (ROUNDS + 1))
def test_a_replay_that_was_ended_begins_anew_and_its_repeats_are_known(
    cluster: ErucaCluster, spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    again = Topic(cluster, f"{topic.name}_again"[-100:], 4)
    fill(topic, 400)
    end, to = now_ms() + 1, Endpoint(topic.name_server)
    given = ("--to", again.name, "--replay-id", "once", "--until", str(end), "--rate", "20", "--master", "local[2]")
    for turn in range(ROUNDS):
        with Program(topic, tmp_path, "replay", *given, done=lambda: sum(to.ends(again.queues).values())) as replaying:
            replaying.wait_for_more()
            time.sleep(CHANCE.uniform(0, 1.5))
            if turn % 2:
                replaying.kill()
                continue
            number = CHANCE.choice([signal.SIGTERM, signal.SIGINT])
            assert replaying.stop(number) == 128 + number, replaying.told
            assert re.search(
                rf"^eruca pipeline: stopped by {number.name}, .*A new run starts .* --replay-id once .* SPARK_ID\.$",
                replaying.told.splitlines()[-1],
            ), replaying.told
    replay(spark, name_server=topic.name_server, topic=topic.name, to=again.name, replay_id="once", end=end)

    known = deduplicated(read(spark, again, "body binary, messageId string, properties map<string,string>")).collect()
    assert sum(to.ends(again.queues).values()) > 400, "what was sent before it was ended is there twice"
    assert Counter(bytes(row.body) for row in known) == Counter(row["body"] for row in topic.rows.values())
    assert len({(row.properties["REPLAY_QUEUE"], row.properties["REPLAY_OFFSET"]) for row in known}) == 400
    again.close()
