"""The cluster that a pipeline works with: its address, the options of the connection, and requests to it.

Owns how ``name_server`` and ``access`` (accessKey, secretKey, tls, namespace, … as in docs/spark.md) become options of
Spark's readers and writers, and what pipelines ask brokers themselves: queues, their ends, and making a topic;
and ``marked``, by which messages that are sent again carry where they come from.
Offsets are by queue. Errors are BadOption and SourceError, one sentence each.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import TopicNotFound
from eruca.protocol import api
from eruca.protocol.bodies import PERM_READ, PERM_WRITE
from eruca.protocol.headers.topics import CreateTopic
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets import bounds
from eruca.spark_connector.offsets.positions import write_positions
from eruca.spark_connector.option_parsers import read_values
from eruca.spark_connector.options import READERS
from eruca.spark_connector.runtime import access as connection
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.retry import ask_each

T = TypeVar("T")

_PULLS: Final = {name: READERS[name] for name in ("pullGroup", "createPullGroup")}
_PULLED: Final = {name.lower() for name in _PULLS}
"""Options of reading alone."""


class Endpoint:
    """A cluster, by its nameservers and the options of the connection. Raises BadOption."""

    def __init__(self, name_server: str, access: Mapping[str, str] | None = None) -> None:
        self.options = {"nameServer": name_server, **(access or {})}
        values = read_values(self.options, {**connection.READERS, **_PULLS}, "pipeline")
        connection.check_access(values)
        values.pop("create_pull_group", None)
        self._access = connection.Access(**values)

    def read(self, spark: SparkSession, schema: str, **options: Any) -> DataFrame:
        """A batch of the source with these columns."""
        reader = spark.read.format("rocketmq").options(**self.options, **options)
        return reader.schema(schema).load()

    def read_interval(
        self, spark: SparkSession, schema: str, topics: Sequence[str], first: int, last: int | None
    ) -> DataFrame:
        """What was stored in topics in [first, last) (ms), or up to now: the same however often it is computed."""
        options: dict[str, Any] = {"subscribe": ",".join(topics), "startingTimestamp": first}
        if last is not None:
            options["endingTimestamp"] = last
        else:
            queues = [queue for topic in topics for queue in self.existing_queues(topic)]
            options["endingOffsets"] = json.dumps(write_positions(self.ends(queues)))
        return self.read(spark, schema, **options)

    def write(self, frame: DataFrame, topic: str | None, **options: Any) -> None:
        """Send the rows to a topic, or to those of their column topic, and wait until all are stored."""
        reached = {name: value for name, value in self.options.items() if name.lower() not in _PULLED}
        given = {**reached, **options, **({"topic": topic} if topic else {})}
        writer: DataFrameWriter = frame.write.format("rocketmq").options(**given)
        writer.mode("append").save()

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues, in order; none where there is no such topic."""

        async def find(consumer: PullConsumer) -> list[MessageQueue]:
            try:
                return sorted(await consumer.fetch_queues(topic))
            except TopicNotFound:
                return []

        return clients.this_process().call(self._access, find)

    def existing_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues, at least one. Raises SourceError."""
        queues = self.queues(topic)
        if not queues:
            raise SourceError(f"The topic {topic} is not there, or cannot be read: look with `mqadmin topicList`.")
        return queues

    def ends(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Where each queue ends now."""
        return self._ask_each(queues, PullConsumer.max_offset)

    def beginnings(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """The oldest offset of each queue."""
        return self._ask_each(queues, PullConsumer.min_offset)

    def offsets_from(self, queues: Sequence[MessageQueue], at: int) -> dict[MessageQueue, int]:
        """The first offset of each queue that was stored at ``at`` (ms) or later; its end where there is none.

        Raises SourceError where only a slave can be asked, and has nothing from then on: it may be behind.
        """

        async def find(consumer: PullConsumer, queue: MessageQueue) -> int:
            end, by_slave = await bounds.end(consumer, queue)
            found = await bounds.offset_from(consumer, queue, at)
            if found is None and by_slave:
                raise SourceError(
                    f"The master of {queue.broker_name} does not answer, and its slave may be behind: "
                    "run this again when the master is there."
                )
            return end if found is None else found

        return self._ask_each(queues, find)

    def group_offsets(self, queues: Sequence[MessageQueue], group: str) -> dict[MessageQueue, int | None]:
        """The offset of a group in each queue; None where it has none."""
        return self._ask_each(queues, partial(PullConsumer.query_offset, group=group))

    def _ask_each(
        self, queues: Sequence[MessageQueue], ask: Callable[[PullConsumer, MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        return clients.this_process().call(
            self._access, lambda consumer: ask_each(consumer, queues, partial(ask, consumer))
        )

    def ensure_topic(self, topic: str, like: Sequence[MessageQueue]) -> list[MessageQueue]:
        """The queues of a topic, which is made on the brokers of ``like``, as large there, if it is not there."""
        queues = self.queues(topic)
        if queues:
            return queues

        async def create(consumer: PullConsumer) -> None:
            for broker in sorted({each.broker_name for each in like}):
                mine = [each for each in like if each.broker_name == broker]
                size, perm = len(mine), PERM_READ | PERM_WRITE
                ask = CreateTopic(topic=topic, read_queue_nums=size, write_queue_nums=size, perm=perm)
                address = await consumer.session.master(broker, mine[0].topic)
                await consumer.session.call(address, api.UPDATE_AND_CREATE_TOPIC, ask)

        clients.this_process().call(self._access, create)
        return self.existing_queues(topic)


def marked(marks: Mapping[str, Column]) -> Column:
    """The column ``properties`` (null counts as empty) with these, in place of what has their names."""
    there = F.coalesce(F.col("properties"), F.create_map().cast("map<string,string>"))
    kept = F.map_filter(there, lambda name, _: ~name.isin(*marks))
    return F.map_concat(kept, F.create_map(*(part for name, value in marks.items() for part in (F.lit(name), value))))
