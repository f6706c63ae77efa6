"""Positions in queues, as JSON and as values: what options, checkpoints and plans are made of.

Owns the forms ``{topic: {broker: {queue: number}}}`` and the offset that Spark keeps in a query's checkpoint, and the
arithmetic on them. Asks no cluster and no clock.

Invariant of a checkpoint's offset: it says alone which messages its batch holds. Spark stores no start for a query's
first batch, and asks for one again after a crash in it; so the end of a batch carries the start of every queue that
the batch before did not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from eruca.protocol.queues import MessageQueue
from eruca.spark_connector.errors import SourceError

T = TypeVar("T")

Positions = Mapping[MessageQueue, int]
"""An offset, or a time, by queue."""


class Mark(NamedTuple):
    """What a message of a queue is known by: a queue that was made again has another message at its offset."""

    offset: int
    stored: int
    """Its store time in ms."""
    place: int
    """Its physical offset, the same at each replica."""


Marks = Mapping[MessageQueue, Mark]
"""A message by queue, at most as far as the query is."""

LATEST: Final = -1
EARLIEST: Final = -2
INITIAL: Final[dict[str, Any]] = {"initial": True}
"""The offset of a query that has not begun: it names nothing, so that nothing changes when it is asked for again."""


REST: Final = "*"
"""In an option, all topics, brokers or queues that are not named beside it."""
_REST_ID: Final = -1


def read_positions(value: Any, *, least: int = 0, rest: bool = False) -> dict[MessageQueue, int]:
    """Positions by the form ``{topic: {broker: {queue: number}}}``; with ``rest`` each of the three may be REST.

    Raises ValueError.
    """
    result: dict[MessageQueue, int] = {}
    for topic, broker, queue, number in _entries(value):
        numbered = _is_queue_id(queue) or (rest and queue == REST)
        if not numbered or type(number) is not int or number < least:
            raise ValueError(
                f'{topic}, {broker}: "{queue}": {number!r} is expected to be a queue id and a whole number '
                f"from {least} on"
            )
        place = MessageQueue(topic, broker, _REST_ID if queue == REST else int(queue))
        if place in result:
            raise ValueError(f"{topic}, {broker}: the queue {int(queue)} is named twice")
        result[place] = number
    return result


def _entries(value: Any) -> Iterable[tuple[str, str, str, Any]]:
    """What the form has, as topic, broker, queue, and what stands there. Raises ValueError."""
    for topic, brokers in _items(value, "a topic"):
        for broker, queues in _items(brokers, f"a broker of {topic}"):
            for queue, there in _items(queues, f"a queue of {topic} at {broker}"):
                yield topic, broker, queue, there


def _is_queue_id(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _read_marks(value: Any) -> dict[MessageQueue, Mark]:
    result: dict[MessageQueue, Mark] = {}
    for topic, broker, queue, there in _entries(value):
        whole = isinstance(there, list) and len(there) == len(Mark._fields)
        if not whole or not _is_queue_id(queue) or not all(type(each) is int and abs(each) < 2**63 for each in there):
            raise ValueError(f'{topic}, {broker}: "{queue}": {there!r} is no mark of a queue')
        result[MessageQueue(topic, broker, int(queue))] = Mark(*there)
    return result


def named(queue: MessageQueue) -> str:
    """How a sentence calls a queue, or what stands for queues that are not named."""
    if queue.queue_id != _REST_ID:
        return str(queue)
    return f'"{REST}" of {queue.topic} at {queue.broker_name}'


def whose(queue: MessageQueue) -> tuple[MessageQueue, ...]:
    """What may stand for a queue in an option, the closest first: it comes before the others."""
    topic, broker = queue.topic, queue.broker_name
    places = ((topic, broker), (topic, REST), (REST, broker), (REST, REST))
    return tuple(MessageQueue(*place, number) for place in places for number in (queue.queue_id, _REST_ID))


def read_assignment(value: Any) -> dict[str, dict[str, tuple[int, ...]]]:
    """Queue ids by topic and broker, of the form ``{topic: {broker: [queue, …]}}``. Raises ValueError."""
    result: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, brokers in _items(value, "a topic"):
        for broker, queues in _items(brokers, f"a broker of {topic}"):
            if (
                not isinstance(queues, list)
                or not queues
                or not all(type(each) is int and each >= 0 for each in queues)
            ):
                raise ValueError(f"{topic}, {broker}: a list of queue ids is expected, such as [0, 1]")
            result.setdefault(topic, {})[broker] = tuple(sorted(set(queues)))
    if not result:
        raise ValueError("no queue is named")
    return result


def _items(value: Any, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"an object with {what} as key is expected in place of {value!r}")
    items: Iterable[tuple[str, Any]] = value.items()
    return items


def write_positions(positions: Mapping[MessageQueue, T]) -> dict[str, dict[str, dict[str, T]]]:
    """The form ``{topic: {broker: {queue: number}}}``, in order."""
    result: dict[str, dict[str, dict[str, T]]] = {}
    for queue in sorted(positions):
        brokers = result.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = positions[queue]
    return result


@dataclass(frozen=True)
class StreamOffset:
    """Where a stream stands: the next offset of each queue, and where the queues new in this batch began.

    ``marks`` tell whether a queue is still the one that was read; checkpoints of earlier versions have none.
    """

    queues: Positions
    began: Positions = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The form that goes into the checkpoint."""
        value: dict[str, Any] = {"queues": write_positions(self.queues)}
        if self.began:
            value["began"] = write_positions(self.began)
        if self.marks:
            value["marks"] = write_positions({queue: [*mark] for queue, mark in self.marks.items()})
        return value

    @classmethod
    def from_json(cls, value: Any) -> StreamOffset | None:
        """The offset in a checkpoint; None where the query has not begun.

        Raises SourceError for a form that this connector does not write.
        """
        if value == INITIAL:
            return None
        try:
            if not isinstance(value, Mapping):
                raise ValueError("it is no JSON object")
            began, marks = value.get("began", {}), value.get("marks", {})
            return cls(read_positions(value["queues"]), read_positions(began), _read_marks(marks))
        except (KeyError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise SourceError(
                f"The checkpoint holds an offset that this source does not write ({reason}): "
                "was it made by another source? Use another checkpointLocation."
            ) from None

    def since(self, start: StreamOffset | None) -> list[OffsetRange]:
        """What lies between ``start`` (None: a query that has not begun) and this end."""
        known = start.queues if start is not None else {}
        ranges = []
        for queue in sorted(self.queues):
            begin = self.began.get(queue, known.get(queue))
            if begin is None:
                raise SourceError(
                    f"The checkpoint does not say where {queue} begins: it was changed by hand or belongs to another "
                    "query. Use another checkpointLocation."
                )
            if begin < self.queues[queue]:
                ranges.append(OffsetRange(queue, begin, self.queues[queue]))
        return ranges


@dataclass(frozen=True)
class OffsetRange:
    """The offsets from ``start`` up to, and without, ``end`` of one queue."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def first_end(began: Positions, latest: Positions, limit: int | None) -> StreamOffset:
    """The end of a query's first batch, which starts at ``began``; at most ``limit`` offsets away from it."""
    ends = {queue: max(start, latest.get(queue, start)) for queue, start in began.items()}
    return StreamOffset(ends if limit is None else share_out(began, ends, limit), dict(began))


def next_end(since: StreamOffset, began: Positions, latest: Positions, limit: int | None = None) -> StreamOffset | None:
    """The end of the batch after ``since``; None where there is nothing to read.

    Args:
        began: where the queues begin that ``since`` does not have, or that have to be read again.
        latest: where the queues end now; one that is not in it stays where it is.
        limit: how many offsets the batch may hold.
    """
    start = {**since.queues, **began}
    ends = {queue: max(begin, latest.get(queue, begin)) for queue, begin in start.items()}
    if limit is not None:
        ends = share_out(start, ends, limit)
    # A new queue is in no offset before it has a message.
    ends = {queue: end for queue, end in ends.items() if queue in since.queues or end > start[queue]}
    if ends == since.queues and not any(begin < ends[queue] for queue, begin in began.items() if queue in ends):
        return None
    return StreamOffset(ends, {queue: begin for queue, begin in began.items() if queue in ends})


def share_out(start: Positions, available: Positions, limit: int) -> dict[MessageQueue, int]:
    """The end of a batch of at most ``limit`` offsets: each queue gets by what it has, and none with some gets nothing
    while another gets more than its share.

    ``start`` holds every queue of ``available``. The sum is ``limit`` unless there is less.
    """
    lags = {queue: max(0, end - start[queue]) for queue, end in available.items()}
    total = sum(lags.values())
    if total <= limit:
        return {queue: start[queue] + lag for queue, lag in lags.items()}
    granted = {queue: limit * lag // total for queue, lag in lags.items()}
    rest = limit - sum(granted.values())
    # What the division left goes to those who lost most by it, the empty-handed first.
    waiting = sorted(lags, key=lambda queue: (granted[queue] > 0, -(limit * lags[queue] % total), queue))
    for queue in waiting:
        if rest and granted[queue] < lags[queue]:
            granted[queue] += 1
            rest -= 1
    return {queue: start[queue] + granted[queue] for queue in lags}
