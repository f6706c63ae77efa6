"""The first offset that was stored at a time or later.

A broker's search by time (SEARCH_OFFSET_BY_TIMESTAMP) returns the nearer of two neighbours. So its answer is refined
by the store times of the messages themselves, which rise within a queue as long as the broker's clock does not step
back.
"""

from __future__ import annotations

from eruca.client import MessageQueue, PullConsumer, PullStatus
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets import bounds
from eruca.spark_connector.runtime.retry import retry


async def offset_from(consumer: PullConsumer, queue: MessageQueue, timestamp: int) -> int | None:
    """The first offset that was stored at ``timestamp`` (ms) or later; None where there is none."""
    low, end = await bounds.min_offset(consumer, queue), await bounds.max_offset(consumer, queue)
    high = end
    if low >= high:
        return None
    guess = min(max(await bounds.offset_by_time(consumer, queue, timestamp), low), high - 1)
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
    result = await retry(consumer, queue.topic, lambda: bounds.pull_one(consumer, queue, offset))
    if result.status is not PullStatus.FOUND or not result.records:
        raise SourceError(
            f"No message was found at offset {offset} of {queue} ({result.status.name}), though the queue reaches from "
            f"{result.min_offset} to {result.max_offset}: it changes too quickly, or its store is damaged."
        )
    return result.records[0].store_timestamp
