"""Ranges of queues as spans that are pulled at the same time, many requests ahead, in order.

Owns what is asked for next, and what is left when an answer has come. Pure: the pullers report what they got. Used by
the fast and the slow path, which may take turns over the same ranges.

A range is cut into spans at offsets that are only hoped for: a broker grants what it likes (Apache's by default 32
messages and 256 KiB). Where an answer ends before its span, the rest of the span is pulled next; the length of later
spans follows what was granted. A filtered range is not dense, so it is one span, and nextBeginOffset says where to go
on. Invariant: spans come in the order of the ranges; every offset of the ranges is answered for once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eruca.client import MessageQueue
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options

TRY_AFTER = 64
"""Full answers in a row after which one longer span is tried, twice as many after each time that failed."""
MOST_TRY_AFTER = 1 << 12
BATCH_BYTES = 8 << 20
"""Stored bytes that end a batch before it has all its rows."""
UNDER_WAY_BYTES = 4 << 20
"""Stored bytes that the requests under way may bring, judged by the last answers."""
LEAST_PULLS = 4
"""Requests under way however large the answers are."""


@dataclass(eq=False)
class Span:
    """What one pull is to bring; ``call`` is whatever its puller needs to find the answer."""

    queue: MessageQueue
    start: int
    end: int
    call: Any = None


@dataclass(frozen=True)
class Chunk:
    """Stored records of one queue, of which those before ``end`` belong to the range."""

    queue: MessageQueue
    body: bytes | memoryview
    end: int


class Spans:
    """The ranges of one task, and how far they were read."""

    def __init__(self, options: Options, ranges: Iterable[OffsetRange]) -> None:
        self._options = options
        self._todo = deque(ranges)
        self._under_way: deque[Span] = deque()
        self._length = options.pull_batch_size
        self._full = 0
        self._try_after = TRY_AFTER
        self._trial: Span | None = None
        self._answer_bytes: float = UNDER_WAY_BYTES / 16
        self._depth = min(options.pull_pipeline, 16)

    @property
    def unfinished(self) -> bool:
        """Whether there is more to pull."""
        return bool(self._under_way or self._todo)

    @property
    def first(self) -> Span:
        """Whose answer is due."""
        return self._under_way[0]

    def count(self, start: int, end: int) -> int:
        """How many messages to ask for between these offsets."""
        most = self._options.pull_batch_size
        return most if self._options.filtered else min(end - start, most)

    def begin(self) -> list[Span]:
        """The spans to pull now. Half a pipeline at once: requests that leave together cost both ends less."""
        under_way, todo, depth = self._under_way, self._todo, self._depth
        if not todo or len(under_way) > depth // 2:
            return []
        begun: list[Span] = []
        while todo and len(under_way) + len(begun) < depth:
            each = todo.popleft()
            trial = self._full >= self._try_after and self._trial is None
            length = min(self._length * 2, self._options.pull_batch_size) if trial else self._length
            end = each.end if self._options.filtered else min(each.end, each.start + length)
            span = Span(each.queue, each.start, end)
            begun.append(span)
            if trial:
                self._trial = span
            if end < each.end:
                todo.appendleft(OffsetRange(each.queue, end, each.end))
        under_way.extend(begun)
        return begun

    def advance(self, reached: int, size: int) -> list[Span]:
        """The first span is answered for up to ``reached``, with ``size`` bytes of records; what to pull for the rest.

        That comes before all that was begun already.
        """
        span = self._under_way.popleft()
        if size:
            self._answer_bytes += (size - self._answer_bytes) / 8
            enough = int(UNDER_WAY_BYTES / self._answer_bytes)
            self._depth = min(self._options.pull_pipeline, max(LEAST_PULLS, enough))
            self._measure(span, reached)
        if reached >= span.end:
            return []
        pieces: list[Span] = []
        while reached < span.end:
            last = self._options.filtered or len(pieces) + 1 >= self._options.pull_pipeline
            stop = span.end if last else min(span.end, reached + self._length)
            pieces.append(Span(span.queue, reached, stop))
            reached = stop
        self._under_way.extendleft(reversed(pieces))
        return pieces

    def take_back(self) -> None:
        """Nothing is under way any more: what was not answered for is to be pulled again."""
        while self._under_way:
            span = self._under_way.pop()
            end = span.end
            if self._todo and self._todo[0].queue == span.queue and self._todo[0].start == end:
                end = self._todo.popleft().end
            self._todo.appendleft(OffsetRange(span.queue, span.start, end))
        self._trial = None

    def _measure(self, span: Span, reached: int) -> None:
        if self._options.filtered:
            return
        got, full = reached - span.start, reached >= span.end
        if span is self._trial:
            self._trial, self._full = None, 0
            self._try_after = TRY_AFTER if full else min(self._try_after * 2, MOST_TRY_AFTER)
            self._length = max(self._length if full else 1, got)
        elif full:
            self._full += 1
        else:
            self._length, self._full = max(1, min(self._length, got)), 0
