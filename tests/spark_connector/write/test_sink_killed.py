"""All of Spark is killed while a stream copies a topic to another, and started again.

Here once in each test; with ERUCA_TORTURE 20 times, and ERUCA_SEED chooses other moments.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eruca.spark_connector import deduplicated
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic, read
from tests.support.spark_copy import Copying, Way, start_copy
from tests.support.spark_writes import visible

pytestmark = pytest.mark.slow

TORTURE = bool(os.environ.get("ERUCA_TORTURE"))
ROUNDS = 20 if TORTURE else 1
CHANCE = random.Random(int(os.environ.get("ERUCA_SEED", "1")))
READ = "body binary, messageId string, properties map<string,string>"


@pytest.fixture
def target(cluster: ErucaCluster, topic: Topic) -> Iterator[Topic]:
    made = Topic(cluster, f"{topic.name[:90]}_to", 3)
    yield made
    made.close()


@pytest.fixture
def markers(cluster: ErucaCluster, topic: Topic) -> Iterator[Topic]:
    made = Topic(cluster, f"{topic.name[:90]}_m", 1)
    yield made
    made.close()


@pytest.fixture
def way(topic: Topic, target: Topic) -> Way:
    return topic.name_server, topic.name, target.name


def once(topic: Topic) -> dict[str, int]:
    """Each message of a topic, once."""
    return {row["body"].decode(): 1 for row in topic.rows.values()}


def kill_again_and_again(way: Way, folder: Path, topic: Topic, *markers: str) -> None:
    """Start the copy and kill it, ROUNDS times; each time messages arrive, and a batch has begun that is new."""
    within = 0
    for _ in range(ROUNDS):
        topic.fill(300)
        copying = Copying(way, folder, *markers)
        copying.wait_for_batch()
        end = time.monotonic() + CHANCE.uniform(0, 2.5)
        while time.monotonic() < end:
            topic.fill(5)
            time.sleep(0.05)
        assert copying.process.running, copying.process.output
        copying.process.kill()
        within += copying.batches("offsets") != copying.batches("commits")
    print(f"killed {ROUNDS} times, {within} within a batch; {len(topic.rows)} messages")
    assert within > 0 or ROUNDS == 1


@pytest.mark.timeout(300 * (ROUNDS + 1))
def test_killed_at_any_moment_each_message_is_there_and_repeats_are_known(
    spark: SparkSession, topic: Topic, target: Topic, way: Way, tmp_path: Path
) -> None:
    kill_again_and_again(way, tmp_path, topic)
    assert start_copy(spark, way, tmp_path).awaitTermination(200)

    stored = Counter(body for body, _ in visible(target.name_server, target.queues))
    print(f"{stored.total() - len(stored)} stored twice")
    assert stored.keys() == once(topic).keys()
    kept = deduplicated(read(spark, target, READ)).collect()
    assert Counter(bytes(row.body).decode() for row in kept) == once(topic)


@pytest.mark.skipif(not TORTURE, reason="takes minutes: set ERUCA_TORTURE=1")
@pytest.mark.timeout(300 * (ROUNDS + 1))
def test_killed_at_any_moment_transactions_show_each_message_once(
    spark: SparkSession, topic: Topic, target: Topic, markers: Topic, way: Way, tmp_path: Path
) -> None:
    kill_again_and_again(way, tmp_path, topic, markers.name)
    assert start_copy(spark, way, tmp_path, markers.name).awaitTermination(200)

    assert Counter(body for body, _ in visible(target.name_server, target.queues)) == once(topic)


@pytest.mark.timeout(1000 * ROUNDS)
def test_killed_in_a_commit_transactions_show_each_message_once(
    spark: SparkSession, topic: Topic, target: Topic, markers: Topic, way: Way, tmp_path: Path
) -> None:
    for _ in range(ROUNDS):
        topic.fill(60)
        before = len(visible(target.name_server, target.queues))
        copying = Copying(way, tmp_path, markers.name, str(CHANCE.randint(1, 40)))
        assert copying.process.wait(400) == -signal.SIGKILL, copying.process.output
        assert before < len(visible(target.name_server, target.queues)) < before + 60
    assert start_copy(spark, way, tmp_path, markers.name).awaitTermination(200)

    assert Counter(body for body, _ in visible(target.name_server, target.queues)) == once(topic)
