"""The bounds of one queue, an offset by time, and one message, from whichever replica of its broker answers.

A slave may be behind its master, so ``end`` also returns whether a slave answered.
"""

from __future__ import annotations

from eruca.client import MessageQueue, PullConsumer, PullResult
from eruca.protocol import api
from eruca.protocol.headers import offsets
from eruca.spark_connector.runtime.replicas import MASTER, SLAVE, UNREACHABLE, ask, has_other_replica


async def end(consumer: PullConsumer, queue: MessageQueue) -> tuple[int, bool]:
    """The offset that the next message will get, as far as who answers knows; and whether that is a slave."""
    answer, by_slave = await ask(consumer, queue, api.GET_MAX_OFFSET, _queue_of(queue))
    return answer.header.offset, by_slave


async def max_offset(consumer: PullConsumer, queue: MessageQueue) -> int:
    """``end`` alone."""
    return (await end(consumer, queue))[0]


async def min_offset(consumer: PullConsumer, queue: MessageQueue) -> int:
    """The offset of the oldest message that is there."""
    answer, _ = await ask(consumer, queue, api.GET_MIN_OFFSET, _queue_of(queue))
    return answer.header.offset


async def offset_by_time(consumer: PullConsumer, queue: MessageQueue, timestamp: int) -> int:
    """The offset at a time (ms since 1970), by the broker's rule: of two neighbours, the nearer."""
    header = offsets.SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp)
    answer, _ = await ask(consumer, queue, api.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return answer.header.offset


async def pull_one(consumer: PullConsumer, queue: MessageQueue, offset: int) -> PullResult:
    """One message."""
    try:
        return await consumer.pull(queue, offset, 1, broker_id=MASTER)
    except UNREACHABLE:
        if not await has_other_replica(consumer, queue):
            raise
        return await consumer.pull(queue, offset, 1, broker_id=SLAVE)


def _queue_of(queue: MessageQueue) -> offsets.QueueOf:
    return offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id)
