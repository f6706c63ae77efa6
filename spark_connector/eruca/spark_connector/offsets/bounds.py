"""The bounds of one queue, an offset by time, and one message, from whichever replica of its broker answers.

A slave may be behind its master, so ``end`` also returns whether a slave answered. A broker's search by time
(SEARCH_OFFSET_BY_TIMESTAMP) returns the nearer of two neighbours. ``offset_from`` refines that by the store times of
the messages themselves, which rise within a queue as long as the broker's clock does not step back.
"""

from __future__ import annotations

from eruca.client import MessageQueue, PullConsumer, PullResult, PullStatus
from eruca.protocol import api
from eruca.protocol.headers import offsets
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.runtime.replicas import MASTER, SLAVE, UNREACHABLE, ask, has_other_replica
from eruca.spark_connector.runtime.retry import retry


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


async def offset_from(consumer: PullConsumer, queue: MessageQueue, timestamp: int) -> int | None:
    """The first offset that was stored at ``timestamp`` (ms) or later; None where there is none."""
    low, end = await min_offset(consumer, queue), await max_offset(consumer, queue)
    high = end
    if low >= high:
        return None
    guess = min(max(await offset_by_time(consumer, queue, timestamp), low), high - 1)
    # The offset sought is in low … high. The search's answer is a neighbour nearly always: so steps away from it that
    # begin with one and double, and halves once the offset is between two that were looked at.
    step, first, stepping = 1, None, True
    while low < high:
        late = await _store_time(consumer, queue, guess) >= timestamp
        low, high = (low, guess) if late else (guess + 1, high)
        first = late if first is None else first
        stepping = stepping and late is first
        if stepping:
            guess = max(low, guess - step) if late else min(high - 1, guess + step)
            step *= 2
        else:
            guess = (low + high) // 2
    return low if low < end else None


async def _store_time(consumer: PullConsumer, queue: MessageQueue, offset: int) -> int:
    result = await retry(consumer, queue.topic, lambda: pull_one(consumer, queue, offset))
    if result.status is not PullStatus.FOUND or not result.records:
        raise SourceError(
            f"No message was found at offset {offset} of {queue} ({result.status.name}), though the queue reaches from "
            f"{result.min_offset} to {result.max_offset}: it changes too quickly, or its store is damaged."
        )
    return result.records[0].store_timestamp


def _queue_of(queue: MessageQueue) -> offsets.QueueOf:
    return offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id)
