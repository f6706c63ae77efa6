"""The pipeline of pulls against brokers that grant what they like: the patient way, and what both ways share."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.client import MessageQueue, PullConsumer, PullStatus
from eruca.protocol.record import decode_records
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets.positions import OffsetRange
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.slow_path import SlowPuller
from eruca.spark_connector.read.spans import Spans
from eruca.spark_connector.runtime.replicas import ReplicaChoice
from tests.spark_connector.messages import ORDERS, stored

OTHER = MessageQueue("orders", "broker-b", 0)


class Granting:
    """Answers pulls of endless queues: ``least`` to ``grant`` messages at a time, every ``step``-th matching."""

    def __init__(self, seed: int, grant: int, step: int = 1, least: int = 1) -> None:
        self._random = random.Random(seed)
        self._least, self._grant, self._step = least, grant, step
        self.pulls = self.under_way = self.most_under_way = 0

    async def pull(self, queue: MessageQueue, offset: int, count: int, **_: Any) -> Any:
        self.pulls += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        for _turn in range(self._random.randrange(4)):
            await asyncio.sleep(0)
        self.under_way -= 1
        scanned = range(offset, offset + min(count, self._random.randint(self._least, self._grant)))
        matching = [each for each in scanned if each % self._step == 0]
        return Answer(queue, scanned.stop, b"".join(stored(each, b"", queue=queue) for each in matching))


class Answer:
    min_offset, max_offset, broker_id = 0, 1 << 40, 0

    def __init__(self, queue: MessageQueue, next_offset: int, body: bytes) -> None:
        self.queue, self.next_offset, self.body = queue, next_offset, body
        self.status = PullStatus.FOUND if body else PullStatus.NO_MATCHED_MESSAGE


async def pull_all(
    consumer: Any, options: Options, ranges: list[OffsetRange], rows: int
) -> list[tuple[MessageQueue, int]]:
    spans = Spans(options, ranges)
    puller = SlowPuller(cast(PullConsumer, consumer), options, spans, ReplicaChoice())
    found = []
    while spans.unfinished:
        for chunk in await puller.next_chunks(rows):
            found += [
                (chunk.queue, each.queue_offset) for each in decode_records(chunk.body) if each.queue_offset < chunk.end
            ]
    assert await puller.next_chunks(rows) == []
    return found


def options(**values: Any) -> Options:
    return Options(name_server="mq:9876", subscribe=("orders",), **values)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    grant=st.sampled_from([1, 3, 32, 5000]),
    batch=st.sampled_from([1, 7, 64, 1024]),
    pipeline=st.integers(1, 8),
    rows=st.sampled_from([1, 100, 4096]),
    step=st.sampled_from([0, 1, 9]),
)
async def test_every_offset_once_and_in_order(
    seed: int, grant: int, batch: int, pipeline: int, rows: int, step: int
) -> None:
    broker = Granting(seed, grant, step or 1)
    ranges = [OffsetRange(ORDERS, 3, 250), OffsetRange(OTHER, 0, 1), OffsetRange(ORDERS, 1000, 1100)]
    chosen = options(pull_batch_size=batch, pull_pipeline=pipeline, tags="A" if step else "*")

    found = await pull_all(broker, chosen, ranges, rows)

    wanted = [(each.queue, offset) for each in ranges for offset in range(each.start, each.end)]
    assert found == [(queue, offset) for queue, offset in wanted if offset % (step or 1) == 0]
    assert broker.most_under_way <= 2 * pipeline


async def test_a_broker_that_grants_32_is_asked_for_32_many_times_at_once() -> None:
    broker = Granting(1, 32, least=32)

    await pull_all(broker, options(pull_pipeline=8), [OffsetRange(ORDERS, 0, 32 * 200)], 4096)

    assert broker.pulls <= 220
    assert broker.most_under_way >= 8


def asked_of(granted: int, pulls: int) -> list[int]:
    """How many messages each pull asks a broker for that grants so many."""
    spans = Spans(options(pull_pipeline=8), [OffsetRange(ORDERS, 0, 1 << 20)])
    asked = []
    for _ in range(pulls):
        spans.begin()
        span = spans.first
        asked.append(span.end - span.start)
        spans.advance(min(span.end, span.start + granted), 1000)
    return asked


def test_longer_spans_are_tried_one_at_a_time_and_ever_less_often() -> None:
    longer = [place for place, asked in enumerate(asked_of(32, 2000)[300:]) if asked > 32]
    assert 1 <= len(longer) <= 6


def test_a_broker_that_grants_more_later_is_asked_for_more() -> None:
    spans = Spans(options(pull_pipeline=8), [OffsetRange(ORDERS, 0, 1 << 24)])
    asked = []
    for number in range(3000):
        spans.begin()
        span = spans.first
        asked.append(span.end - span.start)
        spans.advance(min(span.end, span.start + (32 if number < 100 else 500)), 1000)
    assert max(asked[:8]) == 1024 and asked[99] <= 32
    assert asked[-1] >= 250


def test_a_short_end_of_a_queue_is_no_sign_of_small_grants() -> None:
    ranges = [OffsetRange(MessageQueue("orders", "broker-a", number), 0, 100 * 32 + 5) for number in range(40)]
    spans = Spans(options(pull_pipeline=8, pull_batch_size=32), ranges)
    asked = []
    while spans.unfinished:
        spans.begin()
        span = spans.first
        asked.append(span.end - span.start)
        spans.advance(span.end, 1000)
    assert len(asked) == 40 * 101


def test_what_is_taken_back_is_pulled_again_from_where_it_was() -> None:
    spans = Spans(options(pull_pipeline=8), [OffsetRange(ORDERS, 0, 3000), OffsetRange(OTHER, 5, 50)])
    spans.begin()
    spans.advance(32, 1000)
    spans.begin()
    spans.take_back()

    left = []
    while spans.unfinished:
        spans.begin()
        span = spans.first
        left += [(span.queue, offset) for offset in range(span.start, span.end)]
        spans.advance(span.end, 1000)
    assert left == [(ORDERS, offset) for offset in range(32, 3000)] + [(OTHER, offset) for offset in range(5, 50)]


async def test_a_queue_that_begins_later_than_the_range_is_lost_data() -> None:
    class Shorter(Granting):
        async def pull(self, queue: MessageQueue, offset: int, count: int, **more: Any) -> Any:
            if offset >= 40:
                return await super().pull(queue, offset, count)
            answer = Answer(queue, 40, b"")
            answer.status, answer.min_offset = PullStatus.OFFSET_MOVED, 40
            return answer

    ranges = [OffsetRange(ORDERS, 10, 60)]
    with pytest.raises(SourceError, match=r"from 10 on of .* the queue reaches from 40 .* failOnDataLoss=false"):
        await pull_all(Shorter(1, 32), options(), ranges, 4096)
    found = await pull_all(Shorter(1, 32), options(fail_on_data_loss=False), ranges, 4096)
    assert found == [(ORDERS, offset) for offset in range(40, 60)]


class Lagging(Granting):
    """Its slave has nothing yet, and its master came back at an address that the next route says."""

    came_back = False
    end = 34

    async def fetch_queues(self, topic: str) -> None:
        assert topic == ORDERS.topic
        self.came_back = True

    async def pull(self, queue: MessageQueue, offset: int, count: int, **rest: Any) -> Any:
        if self.came_back:
            return await super().pull(queue, offset, count, **rest)
        answer = Answer(queue, min(offset, self.end), b"")
        if offset > self.end:
            answer.status = PullStatus.OFFSET_MOVED
        return answer


async def test_a_master_that_came_back_elsewhere_is_found_when_its_slave_is_behind() -> None:
    consumer = Lagging(1, 5)
    found = await pull_all(consumer, options(), [OffsetRange(ORDERS, 34, 38)], 100)
    assert found == [(ORDERS, offset) for offset in range(34, 38)]


class Headless(Lagging):
    """Its slave has nothing yet, and another master is known by the sixth route."""

    def __init__(self) -> None:
        super().__init__(1, 5)
        self.session = SimpleNamespace(directory=SimpleNamespace(masters={}))
        self.routes = 0

    async def fetch_queues(self, topic: str) -> None:
        self.routes += 1
        if self.routes == 6:
            self.session.directory.masters[ORDERS.broker_name] = "mq:10911"
            self.came_back = True


async def test_a_task_of_a_stream_waits_for_a_master_to_be_elected() -> None:
    ranges = [OffsetRange(ORDERS, start, 42) for start in (34, 38)]

    async def patient(wanted: OffsetRange) -> None:
        found = await pull_all(Headless(), options(broker_loss_timeout_ms=600_000), [wanted], 100)
        assert found == [(ORDERS, offset) for offset in range(wanted.start, 42)]

    async def hasty(wanted: OffsetRange, timeout: int | None) -> None:
        headless = Headless()
        with pytest.raises(SourceError, match="a slave is behind a master that is away"):
            await pull_all(headless, options(broker_loss_timeout_ms=timeout), [wanted], 100)
        assert headless.routes == 4

    await asyncio.gather(*map(patient, ranges), *(hasty(each, timeout) for each in ranges for timeout in (None, 0)))
