"""Three streams that copy a topic while a producer sends 2,000 messages a second: what maintenance must not harm.

Each stream chooses the topic in another way (subscribe, subscribePattern, assign) and writes each message, with its
place, into a topic of its own, by the idempotent sink. In the end the copies are compared with the topic by content.
Owns producer and queries; brokers are the test's own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eruca.client import Message
from eruca.client.errors import ClientError
from eruca.client.sync import Producer, PullConsumer
from eruca.spark_connector import cause_of, deduplicated

RATE: Final = 2000
BATCH: Final = 50
QUEUES: Final = 2
TOPIC: Final = "Busy"
WAYS: Final = ("subscribe", "subscribePattern", "assign")
PLACE = "concat(brokerName, '/', queueId, '/', queueOffset, ' ', CAST(body AS STRING)) AS body"
PATIENCE: Final = 200.0


class Copies:
    """The producer and the three queries, as a context manager; ``names`` are nameservers."""

    def __init__(self, spark: SparkSession, names: str, folder: Path, brokers: tuple[str, ...] = ("broker-a",)) -> None:
        self._spark = spark
        self._names = names
        self._folder = folder
        self._brokers = brokers
        self._stack = ExitStack()
        self._flowing, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.acknowledged: list[str] = []
        self.failed = 0
        """Requests of the producer that failed."""
        self.queries: dict[str, StreamingQuery] = {}

    def __enter__(self) -> Self:
        self._producer = self._stack.enter_context(Producer("busy", nameserver=self._names, send_timeout=3))
        for name in (TOPIC, *WAYS):
            self._producer.create_topic(name, QUEUES)
        assigned = json.dumps({TOPIC: {broker: [*range(QUEUES)] for broker in self._brokers}})
        for way, value in zip(WAYS, (TOPIC, "Bus.", assigned), strict=True):
            rows = self._spark.readStream.format("rocketmq").options(nameServer=self._names, startingOffsets="earliest")
            writer = rows.option(way, value).load().selectExpr(PLACE).writeStream.format("rocketmq").queryName(way)
            writer = writer.options(nameServer=self._names, topic=way, retryTimeoutMs=int(PATIENCE * 1000))
            writer = writer.option("checkpointLocation", str(self._folder / way)).trigger(processingTime="1 second")
            self.queries[way] = writer.start()
            self._stack.callback(self.queries[way].stop)
        self._flowing.set()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._flowing.set()
        self._thread.join()
        self._stack.close()

    def _send(self) -> None:
        sent = 0
        while self._flowing.wait() and not self._over.wait(BATCH / RATE):
            bodies = [str(number) for number in range(sent, sent + BATCH)]
            sent += BATCH
            try:
                self._producer.send_batch([Message(TOPIC, body.encode()) for body in bodies])
                self.acknowledged += bodies
            except ClientError:
                self.failed += 1

    # ------------------------------------------------------------------ what happens meanwhile

    def send_on(self, count: int = RATE) -> None:
        """Wait until so many more messages were sent; a batch may wait for a broker that is away."""
        wanted = len(self.acknowledged) + count
        self._wait(lambda: len(self.acknowledged) >= wanted, "messages that are sent")

    def go_on(self, count: int = RATE) -> None:
        """Wait until so many more messages were sent and are read by all queries."""
        self.send_on(count)
        wanted = len(self.acknowledged)
        self._wait(
            lambda: all(self._read(query) >= wanted for query in self.queries.values()), "messages that are read"
        )

    def notice(self) -> None:
        """Wait until the producer is refused: what was done is felt."""
        wanted = self.failed + 1
        self._wait(lambda: self.failed >= wanted, "a send that fails")

    def pause(self) -> None:
        """Send no more, and wait until all is read."""
        self._flowing.clear()
        self._wait(lambda: all(self._is_at_end(query) for query in self.queries.values()), "all messages read")

    def resume(self) -> None:
        """Send again."""
        self._flowing.set()

    def check(self) -> None:
        """Send no more; all that is in the topic has been copied, and each message once but for known repeats."""
        self.pause()
        for query in self.queries.values():
            query.stop()
        stored = self._stored()
        bodies = {place.partition(" ")[2] for place in stored}
        assert not set(self.acknowledged) - bodies, "acknowledged, and not in the topic"
        for way in WAYS:
            reader = self._spark.read.format("rocketmq").options(nameServer=self._names, subscribe=way)
            rows = reader.schema("body binary, messageId string, properties map<string,string>").load()
            copies = Counter(bytes(row.body).decode() for row in deduplicated(rows).select("body").collect())
            assert not stored - copies.keys(), f"lost by {way}"
            assert not copies.keys() - stored, f"not in the topic: {way}"
            assert not [place for place, times in copies.items() if times > 1], f"twice by {way}"

    def _stored(self) -> set[str]:
        found = set()
        with PullConsumer("judges", nameserver=self._names) as consumer:
            for queue in consumer.fetch_queues(TOPIC):
                at, end = 0, consumer.max_offset(queue)
                while at < end:
                    result = consumer.pull(queue, at, 1024)
                    for each in result.records:
                        found.add(f"{queue.broker_name}/{queue.queue_id}/{each.queue_offset} {each.body.decode()}")
                    at = result.next_offset
        return found

    def _is_at_end(self, query: StreamingQuery) -> bool:
        with PullConsumer("judges", nameserver=self._names) as consumer:
            ends = {queue: consumer.max_offset(queue) for queue in consumer.fetch_queues(TOPIC)}
        brokers = _reached(query)
        return all(brokers.get(queue.broker_name, {}).get(str(queue.queue_id), 0) == end for queue, end in ends.items())

    def _read(self, query: StreamingQuery) -> int:
        return sum(offset for queues in _reached(query).values() for offset in queues.values())

    def _state(self) -> str:
        read = {way: self._read(query) for way, query in self.queries.items()}
        return f"{len(self.acknowledged)} acknowledged, {self.failed} failed, read {read}"

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not reached():
            for way, query in self.queries.items():
                error = query.exception()
                assert error is None, f"{way}: {cause_of(error)}"
                assert query.isActive, way
            assert time.monotonic() < end, f"waited in vain for {what}: {self._state()}"
            time.sleep(0.1)  # nobody tells


def _reached(query: StreamingQuery) -> dict[str, dict[str, Any]]:
    """Up to where a query has written, by broker and queue."""
    progress = query.lastProgress
    if progress is None or not progress.sources[0].endOffset:
        return {}
    found: dict[str, dict[str, Any]] = json.loads(progress.sources[0].endOffset).get("queues", {}).get(TOPIC, {})
    return found
