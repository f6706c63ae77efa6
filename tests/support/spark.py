"""Spark for tests: a small session, topics with known contents, and what was read from them.

A topic remembers each message that it sent as the row that it must become.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from eruca.client import Message, MessageQueue, PullConsumer
from eruca.client.sync import Producer
from eruca.protocol import api
from eruca.protocol.headers.topics import CreateTopic
from eruca.remoting import run
from eruca.spark_connector import java, register
from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster

Cluster = ErucaCluster | ApacheCluster
Rows = dict[tuple[int, int], dict[str, Any]]
"""Rows by queue id and offset."""
COLUMNS = "queueId int, queueOffset bigint, body binary, tags string, keys string, flag int"
PRODUCER_GROUP = "spark_tests"
ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("protocol", "remoting", "client", "spark_connector")


@contextmanager
def spark_session(
    folder: Path,
    *,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator[SparkSession]:
    """A session that knows the format, on two threads of this machine; Spark's own files go to `folder`.

    `python` runs Spark's processes.
    """
    java.prepare()
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS)
    builder = (
        SparkSession.builder.master(master)
        .appName("eruca-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        # Few rows are worth no Java that Spark would write and compile for each query.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.memory", "768m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )
    for name, value in (config or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    try:
        yield session
    finally:
        session.stop()


class Topic:
    """A topic of one broker, and all that was sent to it: rows by queue and offset."""

    def __init__(self, cluster: Cluster, name: str, queues: int) -> None:
        self.name_server = cluster.address
        self.name = name
        self.rows: Rows = {}
        self._producer = Producer(PRODUCER_GROUP, nameserver=cluster.address)
        self._producer.start()
        self.grow(cluster, queues)

    def grow(self, cluster: Cluster, queues: int, *, perm: int = 6) -> None:
        """Make the topic with so many queues, or give it more, or another permission."""
        ask = CreateTopic(topic=self.name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

        async def create() -> None:
            async with PullConsumer(nameserver=cluster.address) as admin:
                await admin.session.call(cluster.broker.address, api.UPDATE_AND_CREATE_TOPIC, ask)

        run(create())
        self.queues = [MessageQueue(self.name, "broker-a", number) for number in range(queues)]

    def send(self, queue: int, body: bytes, **fields: Any) -> None:
        """One message, and the row it must become."""
        message = Message(self.name, body, **fields)
        self._keep(queue, message, self._producer.send(message, queue=self.queues[queue]))

    def send_batch(self, queue: int, *bodies: bytes) -> None:
        """Several messages in one request."""
        messages = [Message(self.name, body, tags="batch") for body in bodies]
        first = self._producer.send_batch(messages, queue=self.queues[queue])
        for place, message in enumerate(messages):
            self.rows[queue, first.offset + place] = _row(message)

    def _keep(self, queue: int, message: Message, result: Any) -> None:
        self.rows[queue, result.offset] = {**_row(message), "messageId": result.message_id}

    def fill(self, count: int, *, queues: int | None = None, size: int = 20) -> None:
        """``count`` messages, in turn over the queues."""
        turns = itertools.cycle(range(queues or len(self.queues)))
        for number in range(count):
            self.send(next(turns), f"message {len(self.rows)} ".encode().ljust(size, b"."), keys=f"key{number}")

    def close(self) -> None:
        self._producer.stop()


def _row(message: Message) -> dict[str, Any]:
    return {"body": message.body, "tags": message.tags, "keys": message.keys, "flag": message.flag}


def rows_of(frame: DataFrame) -> Rows:
    """What was read, by queue and offset; nothing may be there twice."""
    found: Rows = {}
    for row in frame.collect():
        values = row.asDict()
        place = (values.pop("queueId"), values.pop("queueOffset"))
        assert place not in found
        found[place] = {key: bytes(value) if isinstance(value, bytearray) else value for key, value in values.items()}
    return found


def read(spark: SparkSession, topic: Topic, schema: str | None = COLUMNS, **options: Any) -> DataFrame:
    """A batch of the topic; an option given as a dict becomes JSON."""
    return _load(spark.read, topic, schema, options)


def read_stream(spark: SparkSession, topic: Topic, **options: Any) -> DataFrame:
    """A stream of the topic that sees new messages at once."""
    return _load(spark.readStream, topic, COLUMNS, {"latestOffsetCacheMs": 0, **options})


def _load(reader: Any, topic: Topic, schema: str | None, options: dict[str, Any]) -> DataFrame:
    reader = reader.format("rocketmq").option("nameServer", topic.name_server)
    if not {"subscribePattern", "assign"} & set(options):
        reader = reader.option("subscribe", topic.name)
    for name, value in options.items():
        reader = reader.option(name, json.dumps(value) if isinstance(value, dict) else value)
    frame: DataFrame = (reader.schema(schema) if schema else reader).load()
    return frame


def assert_rows(found: Rows, wanted: Rows) -> None:
    """Each message is there once, and each column as it was sent."""
    assert sorted(found) == sorted(wanted)
    for place, row in found.items():
        assert row == {name: value for name, value in wanted[place].items() if name in row}, place
