"""The writers that Spark is given: what a task does, and what the driver does when all tasks are done.

Owns the two deliveries. At least once: a task returns when its messages are stored, and nothing is left to do.
Transactional: a task stores half messages and a list of them; the driver decides by a marker which attempt of the epoch
counts (see ``markers``) and commits what it lists. All that a restarted query needs is at the broker: it finds the
marker and finishes what was decided, or finds none and sends the epoch again.
Invariant: nothing is rolled back that a marker may name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from eruca.client import PullConsumer
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.boundary import boundary
from eruca.spark_connector.sink_options import SinkOptions, own_name
from eruca.spark_connector.write.encoder import Encoder, MessageBatch, SingleMessage
from eruca.spark_connector.write.half_messages import HalfMessage, TransactionEnder
from eruca.spark_connector.write.markers import Marker, Markers
from eruca.spark_connector.write.rate_limit import paced
from eruca.spark_connector.write.row_ids import Origin
from eruca.spark_connector.write.writer import MESSAGES_AT_ONCE, MessageWriter, PendingSends

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task returns to the driver: which rows it wrote, and where the lists of its half messages are.

    ``decided``: the epoch had a marker already, so nothing was sent.
    """

    origin: Origin
    lists: tuple[int, ...] = ()
    ordered: bool = False
    decided: bool = False


def write_rows(options: SinkOptions, origin: Origin, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
    """What a task does with its rows. Raises SinkError."""
    task = _Task(options, origin)
    batches = (batch.rename_columns([own_name(each) for each in batch.schema.names]) for batch in batches)
    if options.max_rows_per_second is not None:
        batches = paced(batches, options.max_rows_per_second)
    if options.transactional:
        return task.write_half_messages(batches)
    task.write(batches)
    return TaskCommit(origin)


class _Task:
    def __init__(self, options: SinkOptions, origin: Origin) -> None:
        self._options = options
        self._origin = origin
        self._clients = clients.this_process()
        self._writer = self._clients.call(options.access, self._open)
        self._encoder = Encoder(options, origin, self._choose)

    async def _open(self, consumer: PullConsumer) -> MessageWriter:
        return MessageWriter(consumer, self._options, self._origin.epoch)

    def _choose(self, topic: str, key: Any, queue_id: int | None, broker: str | None) -> Any:
        if key is None and queue_id is None:
            return None
        return self._clients.call(self._options.access, lambda _: self._writer.choose(topic, key, queue_id, broker))

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Store all rows."""
        pending: PendingSends[None] = PendingSends(self._options)
        messages: list[SingleMessage] = []
        for batch in batches:
            for each in self._encoder.encode(batch):
                if isinstance(each, MessageBatch):
                    pending.add(_with(self._writer.send_batch, each))
                    continue
                messages.append(each)
                if len(messages) == MESSAGES_AT_ONCE:
                    pending.add(_with(self._writer.send_messages, messages))
                    messages = []
            if self._options.max_rows_per_second is not None:  # the next rows may be long in coming
                pending.add(_with(self._writer.send_messages, messages))
                messages = []
        pending.add(_with(self._writer.send_messages, messages))
        pending.finish()

    def write_half_messages(self, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Store all rows as half messages, and the list of them."""
        origin, server = self._origin, self._options.access
        markers = self._clients.call(server, self._markers)
        if self._clients.call(server, lambda _: markers.find(origin.epoch)) is not None:
            for _ in batches:  # Spark wants them to be read
                pass
            return TaskCommit(origin, decided=True)
        pending: PendingSends[list[HalfMessage]] = PendingSends(self._options)
        ordered = False
        try:
            messages: list[SingleMessage] = []
            for batch in batches:
                ordered = "shardingKey" in batch.schema.names
                for each in self._encoder.encode(batch):
                    assert isinstance(each, SingleMessage)
                    messages.append(each)
                    if len(messages) == MESSAGES_AT_ONCE:
                        pending.add(_with(self._writer.send_half_messages, messages))
                        messages = []
            pending.add(_with(self._writer.send_half_messages, messages))
            half_messages = [half for some in pending.finish() for half in some]
            lists = self._clients.call(server, lambda _: markers.write_list(self._writer, half_messages))
        except BaseException:
            lost = [half for some in pending.settle() for half in some]
            self._clients.submit(server, lambda consumer: TransactionEnder(consumer, self._options).roll_back(lost))
            raise
        return TaskCommit(origin, tuple(lists), ordered)

    async def _markers(self, consumer: PullConsumer) -> Markers:
        return Markers(consumer, self._options, self._origin)


def _with(send: Callable[[S], Coroutine[Any, Any, T]], what: S) -> Callable[[PullConsumer], Coroutine[Any, Any, T]]:
    return lambda _: send(what)


# ---------------------------------------------------------------------- the driver's part


def commit_write(options: SinkOptions, receipts: Sequence[Any]) -> None:
    """Decide an epoch all of whose tasks are done, and commit it. Raises SinkError."""
    commits = [each for each in receipts if isinstance(each, TaskCommit)]
    lists = [offset for each in commits for offset in each.lists]
    if not options.transactional or not (lists or any(each.decided for each in commits)):
        return
    origin = commits[0].origin
    ordered = any(each.ordered for each in commits)

    async def commit(consumer: PullConsumer) -> None:
        markers, ender = Markers(consumer, options, origin), TransactionEnder(consumer, options)
        marker, again = await markers.find(origin.epoch), True
        if marker is None:
            _check_undecided(commits)
            attempt = uuid.uuid4().hex
            writer = MessageWriter(consumer, options, origin.epoch)
            marker = await markers.decide(writer, origin.epoch, attempt, lists, ordered=ordered)
            again = marker.attempt != attempt
        if again:
            await _drop(markers, ender, [offset for offset in lists if offset not in marker.lists])
        await _finish(markers, ender, marker, again=again)

    clients.this_process().call(options.access, commit)


def _check_undecided(commits: Sequence[TaskCommit]) -> None:
    for each in commits:
        if each.decided:
            raise SinkError(f"The marker of epoch {each.origin.epoch} was there when the tasks ran, and is gone.")


async def _finish(markers: Markers, ender: TransactionEnder, marker: Marker, *, again: bool) -> None:
    if again and await markers.is_finished(marker):
        return
    for offset in marker.lists:
        await ender.commit(await markers.read_list(offset), ordered=marker.ordered, again=again)
    await markers.remember(marker)


async def _drop(markers: Markers, ender: TransactionEnder, lists: Sequence[int]) -> None:
    for offset in lists:
        await ender.roll_back(await markers.read_list(offset))


def abort_write(options: SinkOptions, receipts: Sequence[Any]) -> None:
    """Let the half messages of an epoch go that failed in a task.

    When every task is done, it was the commit that failed: then a marker may be on its way, and nothing is touched.
    """
    commits = [each for each in receipts if isinstance(each, TaskCommit)]
    if not options.transactional or len(commits) == len(receipts) or not commits:
        return
    lists = [offset for each in commits for offset in each.lists]

    async def drop(consumer: PullConsumer) -> None:
        await _drop(Markers(consumer, options, commits[0].origin), TransactionEnder(consumer, options), lists)

    clients.this_process().call(options.access, drop)


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("rocketmq")``."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write = options.write_id or uuid.uuid4().hex

    @boundary
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """In a task."""
        context = TaskContext.get()
        assert context is not None
        return write_rows(self._options, Origin(self._write, 0, context.partitionId()), iterator)

    @boundary
    def commit(self, messages: Sequence[Any]) -> None:
        """At the driver."""
        commit_write(self._options, messages)

    @boundary
    def abort(self, messages: Sequence[Any]) -> None:
        """At the driver."""
        abort_write(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """``writeStream.format("rocketmq")``. Spark gives a task neither query nor epoch, but its context has them."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @boundary
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """In a task."""
        context = TaskContext.get()
        assert context is not None
        query, epoch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if query is None or epoch is None:
            raise SinkError("This trigger has no batches: use processingTime or availableNow.")
        return write_rows(self._options, Origin(query, int(epoch), context.partitionId()), iterator)

    @boundary
    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """At the driver."""
        commit_write(self._options, messages)

    @boundary
    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """At the driver."""
        abort_write(self._options, messages)
