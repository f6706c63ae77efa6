"""Open connections to replicas, on which pulls go out at once and without a task for each.

Owns the shortest way of a pull: one header, changed for each request, written to a connection that is there already.
Nothing is tried again here; who gets an error goes the long way, which finds and connects, and opens the lane again.
A pull of 32 messages costs half as much this way, and small grants are what pulling in bulk suffers from.
"""

from __future__ import annotations

import asyncio

from eruca.client import MessageQueue, PullConsumer, PullResult
from eruca.protocol import api
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers import pull
from eruca.protocol.subscription import build_subscription
from eruca.remoting import Answer, Connection, RemotingError
from eruca.spark_connector.options import Options

FAILED = (Refused, RemotingError, ProtocolError)
"""What a pull on a lane ends with when it was not answered as it should be."""


class Lanes:
    """The lanes of one task."""

    def __init__(self, consumer: PullConsumer, options: Options) -> None:
        self._consumer = consumer
        self._timeout = options.pull_timeout_ms / 1000
        self._open: dict[tuple[str, int], Connection] = {}
        self._header = pull.PullMessage(
            consumer_group=consumer.group,
            topic="",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=pull.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=options.expression,
            sub_version=0,
            expression_type=options.expression_type,
        )
        self._wanted = build_subscription("", options.expression, version=0, expression_type=options.expression_type)

    def start(
        self, queue: MessageQueue, offset: int, count: int, broker_id: int
    ) -> asyncio.Future[Answer[pull.PullReply]] | None:
        """A pull that is under way now; None where there is no lane."""
        connection = self._open.get((queue.broker_name, broker_id))
        if connection is None or connection.closed:
            return None
        header = self._header
        header.topic, header.queue_id = queue.topic, queue.queue_id
        header.queue_offset, header.max_msg_nums = offset, count
        return connection.start_call(api.PULL_MESSAGE, header, timeout=self._timeout)

    def result(self, answer: Answer[pull.PullReply], queue: MessageQueue) -> PullResult:
        """What an answer says."""
        return PullResult(answer, queue, self._wanted)

    async def open(self, queue: MessageQueue, broker_id: int) -> None:
        """Keep the connection to this replica, which has just answered."""
        session = self._consumer.session
        address = await session.directory.reader(queue.broker_name, queue.topic, broker_id)
        self._open[queue.broker_name, broker_id] = await session.connection(address)
