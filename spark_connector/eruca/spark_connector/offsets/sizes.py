"""How many bytes the messages between two offsets have, without reading one of them.

Owns the limit of a batch by bytes. A broker returns the stored size of each message from its consume queue (321). Of a
long range a few pieces are looked at, evenly apart from its first message to its last, so the size is an estimate.
Every function is a coroutine on the loop of the clients.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from eruca.client import PullConsumer
from eruca.protocol import api
from eruca.protocol.bodies import QueryConsumeQueueResponseBody
from eruca.protocol.headers.pull import QueryConsumeQueue
from eruca.protocol.queues import MessageQueue
from eruca.spark_connector.offsets.positions import OffsetRange, Positions, share_out
from eruca.spark_connector.runtime import replicas
from eruca.spark_connector.runtime.retry import retry_while_away

PIECES: Final = 8
PIECE: Final = 128
"""Messages of a piece. A range that is not longer than all pieces is measured whole."""
LONGER: Final = 4
"""Ranges that are tried after one that fits."""


async def fit_into(
    consumer: PullConsumer, starts: Positions, ends: Positions, most: int, within: float | None
) -> dict[MessageQueue, int]:
    """``ends``, or nearer ones, so that about ``most`` bytes are stored in between; never fewer than one message.

    Where a large message made the others look large, too, longer ranges are tried until they have half of ``most``. A
    broker that is away is asked again for ``within`` seconds, as the tasks of the batch would do. Raises SourceError.
    """
    tried, fitting, longest = dict(ends), dict(starts), 0
    too_long = sum(end - starts[queue] for queue, end in ends.items()) + 1
    attempts = 0
    while True:
        ranges = [OffsetRange(queue, starts[queue], end) for queue, end in tried.items() if starts[queue] < end]
        count = sum(len(each) for each in ranges)
        if count <= 1:
            return tried
        size = sum(await asyncio.gather(*(_size(consumer, each, within) for each in ranges)))
        if size <= most:
            fitting, longest = tried, count
        else:
            too_long = count
        if longest:
            attempts += 1
            if too_long - longest <= 1 or most / 2 <= size <= most or attempts > LONGER:
                return fitting
        wanted = int(count * most / max(size, 1))
        tried = share_out(starts, ends, max(longest + 1, min(wanted, too_long - 1)))


async def _size(consumer: PullConsumer, whole: OffsetRange, within: float | None) -> float:
    """The bytes that the messages of a range have in the store, compressed and with their properties."""
    last = whole.end - PIECE
    spread = [whole.start + (last - whole.start) * place // (PIECES - 1) for place in range(PIECES)]
    parts = [whole] if len(whole) <= PIECE * PIECES else [OffsetRange(whole.queue, at, at + PIECE) for at in spread]
    found = await asyncio.gather(*(_sizes(consumer, each, within) for each in parts))
    sizes = [size for each in found for size in each]
    return sum(sizes) * len(whole) / len(sizes) if sizes else 0.0


async def _sizes(consumer: PullConsumer, part: OffsetRange, within: float | None) -> list[int]:
    """Of each message; fewer where the broker has fewer, or stops at the end of a file as Apache's does."""
    queue = part.queue
    header = QueryConsumeQueue(topic=queue.topic, queue_id=queue.queue_id, index=part.start, count=len(part))
    asking = partial(replicas.ask, consumer, queue, api.QUERY_CONSUME_QUEUE, header)
    answer, _ = await retry_while_away(consumer, queue, asking, within)
    if not answer.body:
        return []
    return [unit.physic_size for unit in QueryConsumeQueueResponseBody.decode(answer.body).queue_data]
