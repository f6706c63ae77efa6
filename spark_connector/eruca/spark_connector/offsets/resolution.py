"""What the options startingOffsets, endingOffsets and their relatives by time mean as offsets of the queues.

Owns the order in which the options count, and the checks that they name every queue and offsets that are there. Every
function is a coroutine on the loop of the clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from eruca.client import MessageQueue, PullConsumer
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets import bounds, group_offsets
from eruca.spark_connector.offsets.positions import EARLIEST, LATEST, Positions, named, whose
from eruca.spark_connector.options import Options
from eruca.spark_connector.runtime.retry import ask_each

log = logging.getLogger("eruca.spark")


async def starts(
    consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue], now: int
) -> dict[MessageQueue, int]:
    """Where a new query begins in each queue; ``now`` is the time in ms.

    startingTimestamp comes before startingOffsetsByTimestamp, and that before startingOffsets. Raises SourceError.
    """
    chosen = list(queues)
    times = _times(
        options.starting_timestamp, options.starting_offsets_by_timestamp, chosen, "startingOffsetsByTimestamp"
    )
    if times is None:
        return await _named(consumer, options, chosen, options.starting_offsets, "startingOffsets")

    async def start(queue: MessageQueue) -> int:
        found = await bounds.offset_from(consumer, queue, times[queue])
        if found is not None:
            return found
        if times[queue] > now and options.starting_offsets_by_timestamp_strategy == "error":
            raise SourceError(
                f"The starting time {times[queue]} lies in the future and {queue} holds no message from then on: give "
                'an earlier time in ms since 1970, or startingOffsetsByTimestampStrategy="latest".'
            )
        return await bounds.max_offset(consumer, queue)

    return await ask_each(consumer, chosen, start)


async def ends(consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Where a batch ends in each queue, without the offset itself. Raises SourceError."""
    chosen = list(queues)
    times = _times(options.ending_timestamp, options.ending_offsets_by_timestamp, chosen, "endingOffsetsByTimestamp")
    if times is None:
        return await _named(consumer, options, chosen, options.ending_offsets, "endingOffsets")

    async def end(queue: MessageQueue) -> int:
        found = await bounds.offset_from(consumer, queue, times[queue])
        return await bounds.max_offset(consumer, queue) if found is None else found

    return await ask_each(consumer, chosen, end)


def check_order(options: Options, starts: Positions, ends: Positions) -> None:
    """Raise SourceError for a queue that starts after its end, if both are offsets that the options name.

    A group may be anywhere, and a time and an offset do not compare.
    """
    times = ("starting_timestamp", "starting_offsets_by_timestamp", "ending_timestamp", "ending_offsets_by_timestamp")
    if options.starting_offsets == "group" or any(getattr(options, each) is not None for each in times):
        return
    marks = _marks(options.ending_offsets, list(ends), "endingOffsets")
    for queue in sorted(ends):
        if ends[queue] < starts[queue] and marks[queue] != LATEST:
            raise SourceError(
                f"startingOffsets means {starts[queue]} for {queue}, which is above {ends[queue]} by endingOffsets: "
                "exchange or correct them."
            )


def _times(
    everywhere: int | None, by_queue: Positions | None, queues: list[MessageQueue], option: str
) -> Positions | None:
    if everywhere is not None:
        return dict.fromkeys(queues, everywhere)
    return None if by_queue is None else _by_each(by_queue, queues, option, "")


def _by_each(wanted: Positions, queues: list[MessageQueue], option: str, hint: str) -> dict[MessageQueue, int]:
    """What an option says of each queue. Raises SourceError for one that it leaves out, and for what is none."""
    standing = {each for queue in queues for each in whose(queue)}
    for queue in sorted(wanted.keys() - standing):
        raise SourceError(f"{option} names {named(queue)}, which this query does not read.")
    found: dict[MessageQueue, int] = {}
    for queue in queues:
        number = next((wanted[each] for each in whose(queue) if each in wanted), None)
        if number is None:
            raise SourceError(
                f'{option} leaves {queue} out: name every queue that is read{hint}; "*" stands for all others.'
            )
        found[queue] = number
    return found


def _marks(wanted: str | Positions, queues: list[MessageQueue], option: str) -> Positions:
    """The offset that an option names for each queue; a group's are asked for elsewhere, and its end counts else."""
    if isinstance(wanted, str):
        return dict.fromkeys(queues, EARLIEST if wanted == "earliest" else LATEST)
    return _by_each(wanted, queues, option, ", with -2 for its beginning and -1 for its end")


async def _named(
    consumer: PullConsumer, options: Options, queues: list[MessageQueue], wanted: str | Positions, option: str
) -> dict[MessageQueue, int]:
    marks = _marks(wanted, queues, option)
    stored: dict[MessageQueue, int | None] = {}
    if wanted == "group" and options.commit_group is not None:
        stored = await group_offsets.stored(consumer, options.commit_group, queues)

    async def position(queue: MessageQueue) -> int:
        found = stored.get(queue)
        if found is not None:
            means = f'{option}="group" means {found} by the group {options.commit_group}'
            return await _there(consumer, options, queue, found, means)
        if marks[queue] == EARLIEST:
            return await bounds.min_offset(consumer, queue)
        if marks[queue] == LATEST:
            return await bounds.max_offset(consumer, queue)
        return await _there(consumer, options, queue, marks[queue], f"{option} names {marks[queue]}")

    return await ask_each(consumer, queues, position)


async def _there(consumer: PullConsumer, options: Options, queue: MessageQueue, offset: int, means: str) -> int:
    """An offset that the user named, or a group has, if the queue has it; ``means`` begins the sentence.

    A slave that may be behind says nothing of the end of a queue. Raises SourceError unless failOnDataLoss is false:
    then the nearest one that there is counts.
    """
    first, (end, by_slave) = await asyncio.gather(bounds.min_offset(consumer, queue), bounds.end(consumer, queue))
    if first <= offset and (offset <= end or by_slave):
        return offset
    nearest, there = (end, f"ends at {end}") if offset > end else (first, f"begins at {first}")
    wrong = f"{means} for {queue}, which {there}"
    if options.fail_on_data_loss:
        raise SourceError(f"{wrong}: correct it, or set failOnDataLoss=false to take {nearest} in its place.")
    log.warning("%s: %s counts in its place", wrong, nearest)
    return nearest
