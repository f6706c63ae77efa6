"""The cluster that a pipeline works with: its address, the options of the connection, and questions to it.

Owns how ``name_server`` and ``access`` (accessKey, secretKey, tls, namespace, … as in docs/spark.md) become a
connection, and what pipelines ask brokers: queues, their bounds, and the offsets of groups.
Offsets are by queue. Errors are BadOption and SourceError, one sentence each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import TopicNotFound
from eruca.spark_connector import access as connection
from eruca.spark_connector import cluster, link
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.values import read_values


class Endpoint:
    """A cluster, by its nameservers and the options of the connection. Raises BadOption."""

    def __init__(self, name_server: str, access: Mapping[str, str] | None = None) -> None:
        values = read_values({"nameServer": name_server, **(access or {})}, connection.READERS, "pipeline")
        connection.check_access(values)
        self._access = connection.Access(**values)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues, in order; none where there is no such topic."""

        async def find(consumer: PullConsumer) -> list[MessageQueue]:
            try:
                return sorted(await consumer.fetch_queues(topic))
            except TopicNotFound:
                return []

        return link.this_process().ask(self._access, find)

    def existing_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues, at least one. Raises SourceError."""
        queues = self.queues(topic)
        if not queues:
            raise SourceError(f"The topic {topic} is not there, or cannot be read: look with `mqadmin topicList`.")
        return queues

    def ends(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Where each queue ends now."""
        return link.this_process().ask(
            self._access, lambda consumer: cluster.each(consumer, queues, consumer.max_offset)
        )

    def beginnings(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """The oldest offset of each queue."""
        return link.this_process().ask(
            self._access, lambda consumer: cluster.each(consumer, queues, consumer.min_offset)
        )

    def group_offsets(self, queues: Sequence[MessageQueue], group: str) -> dict[MessageQueue, int | None]:
        """Where a group goes on in each queue; None where it never was."""
        return link.this_process().ask(
            self._access,
            lambda consumer: cluster.each(consumer, queues, lambda queue: consumer.query_offset(queue, group=group)),
        )
