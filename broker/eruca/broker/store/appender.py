"""The appender: checks a message and writes its record into the log (CommitLog.putMessage in RocketMQ).

Owns the hot path of a send. Knows the log's memory and the queue counters.
Invariant: a record is written whole or not at all, and takes its queue offset only when it is written; each
record adds one dispatch request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from eruca.broker.store import native
from eruca.broker.store.commit_log import CommitLog
from eruca.broker.store.consume_queue import ConsumeQueue
from eruca.broker.store.layout import CommitForm, HalfPlace, Request, Tip
from eruca.broker.store.queue_table import QueueTable
from eruca.broker.store.results import Put, PutBatch, PutStatus
from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import BLANK_SIZE, ENTRY_SIZE, HEADS, PROPERTIES_MAX, decode_batch, pack_into
from eruca.remoting.descriptors import is_exhausted, reason

_RECORD_EXTRA: Final = 64 << 10
_ILLEGAL: Final = Put(PutStatus.MESSAGE_ILLEGAL)
_PROPERTIES: Final = Put(PutStatus.PROPERTIES_SIZE_EXCEEDED)
_REFUSED: Final = Put(PutStatus.SERVICE_NOT_AVAILABLE)
_new_put = tuple.__new__

log = structlog.get_logger("eruca.broker.store")


class _Batch(NamedTuple):
    """A batch to write: what its messages have in common, and their entries."""

    queue: ConsumeQueue
    entries: bytes
    extra_properties: bytes
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int

    @property
    def around_size(self) -> int:
        """Bytes of a record beside its body and its properties."""
        return HEADS[(self.sys_flag >> 4) & 3].size + len(self.queue.topic_tail) + 2

    @property
    def added_size(self) -> int:
        """Bytes that ``extra_properties`` add to a message's properties at most."""
        return len(self.extra_properties) + 1 if self.extra_properties else 0

    @property
    def size(self) -> int:
        """Bytes that the records take at most, by the lengths of the entries; 0 where those do not agree."""
        at = count = 0
        entries = self.entries
        while at + 4 <= len(entries):
            size = int.from_bytes(entries[at : at + 4], "big")
            if size < ENTRY_SIZE:
                return 0
            at += size
            count += 1
        more = self.around_size + self.added_size - ENTRY_SIZE
        return at + count * more if at == len(entries) else 0


class Appender:
    """Appends messages to the log."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        pending: list[Request],
        clock: Callable[[], int],
        max_message_size: int,
        retry_after: float,
    ) -> None:
        self.refusal: str | None = "the store is not open"
        """Why nothing is accepted at present, None when everything is."""
        self.standing: str | None = None
        """Why nothing is ever accepted, of a store that only copies another one."""
        self.no_room: str | None = None
        """Why the log cannot grow at present; it is tried again with a later append."""
        self.exhausted = False
        """Whether it cannot because no file descriptor is left."""
        self.wake: Callable[[], object] = bool
        """Called after the first append of each round: ``woken`` is set then, until the round's dispatch."""
        self.woken = False
        self.puts = 0
        self.put_bytes = 0
        self.failed = 0
        """How many messages and batches were refused (putMessageFailedTimes), those with too long properties apart."""
        self.last_time = 0
        """Store time of the newest record; the next one's is not below it."""
        self.retry_after = retry_after
        """Seconds until a log that cannot grow is tried again."""
        self._log = log
        self._queues = queues
        self._known = queues.queues
        self._pending = pending
        self._clock = clock
        self._max_body = max_message_size
        self._most = log.segment_size - BLANK_SIZE
        self._max_record = min(max_message_size + _RECORD_EXTRA, self._most)
        self._retry_at = 0.0

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        accepted: bool = False,
        room_behind: int = 0,
    ) -> Put:
        """Append one message; it can be read after the next dispatch.

        Args:
            topic: a legal topic name.
            queue_id: 0 or more.
            body: as it shall be stored (perhaps compressed by the client).
            properties: the properties text.
            flag: the user's flag.
            sys_flag: RocketMQ's bits; those of IPv6 hosts must agree with the hosts' lengths.
            born_timestamp: ms, by the producer.
            born_host: address and 4-byte port of the producer, 8 or 20 bytes.
            store_host: the same of this broker.
            reconsume_times: how often the message was sent back.
            prepared_transaction_offset: of a committed message, where its half message lies.
            accepted: whether it is a copy of one in the log, for which ``maxMessageSize`` of today does not count.
            room_behind: bytes that what belongs to it will take; without room for both it is refused.

        Raises:
            ValueError: a topic or queue id that no queue can have.
            struct.error: a number out of the range of its field.
        """
        if self.refusal is not None:
            self.failed += 1
            return _REFUSED
        queue = self._known.get((topic, queue_id)) or self._queues.queue(topic, queue_id)
        length = len(body)
        text = len(properties)
        hosts = (sys_flag >> 4) & 3
        size = 90 + len(queue.topic_tail) + length + text + (hosts and HEADS[hosts].size - 88)
        if text > PROPERTIES_MAX:
            return _PROPERTIES
        if (length > self._max_body or size > self._max_record) and not (accepted and size <= self._most):
            self.failed += 1
            return _ILLEGAL
        log = self._log
        wanted = size + room_behind
        if log.position + wanted > log.limit and not self._make_room(min(wanted, self._most)):
            self.failed += 1
            return _REFUSED
        now = self._clock()
        if now < self.last_time:
            now = self.last_time
        else:
            self.last_time = now
        position = log.position
        queue_offset = 0 if sys_flag & 4 else queue.next_offset
        pack_into(
            log.memory,
            position - log.base,
            queue_id,
            flag,
            queue_offset,
            position,
            sys_flag,
            born_timestamp,
            born_host,
            now,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            queue.topic_tail,
            properties,
        )
        end = log.position = position + size
        if not sys_flag & 4:
            queue.next_offset = queue_offset + 1
        if not self.woken:
            self.begin_round()
        self._pending.append((queue, position, size, properties, queue_offset, now, sys_flag))
        self.puts += 1
        self.put_bytes += size
        return _new_put(Put, (PutStatus.OK, position, queue_offset, size, now, end))

    def begin_round(self) -> None:
        """Call ``wake``: something was written that its dispatch has to look at, even if it may not be seen yet."""
        self.woken = True
        self.wake()

    def tip(self) -> Tip | None:
        """Where to write, None while nothing is accepted. Call ``wrote`` after writing, before anything else."""
        if self.refusal is not None:
            return None
        log = self._log
        now = max(self._clock(), self.last_time)
        at = log.position - log.base
        return Tip(
            self._known, self._pending, log.memory, at, log.position, log.limit, now, self._max_body, self._max_record
        )

    def wrote(self, tip: Tip, end: int, count: int) -> None:
        """Take note of ``count`` records written up to ``end``, whose requests are pending and queue offsets taken."""
        self._log.position = end
        self.last_time = tip.now
        if not self.woken:
            self.begin_round()
        self.puts += count
        self.put_bytes += end - tip.position

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        entries: bytes,
        *,
        extra_properties: bytes = b"",
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int = 0,
    ) -> PutBatch:
        """Append the messages of a batch body (code 320) next to one another in one file.

        ``extra_properties`` is a properties text that is added to those of each message. ``flag``
        is not used: each entry has its own. Other arguments and errors as with ``put``.
        """
        if self.refusal is not None:
            return self._refused_batch(PutStatus.SERVICE_NOT_AVAILABLE)
        queue = self._known.get((topic, queue_id)) or self._queues.queue(topic, queue_id)
        if len(entries) > self._max_body:
            return self._refused_batch(PutStatus.MESSAGE_ILLEGAL)
        batch = _Batch(
            queue, entries, extra_properties, sys_flag, born_timestamp, born_host, store_host, reconsume_times
        )
        stored = self._write_batch(batch)
        if stored is None and self._has_made_room(batch.size):
            stored = self._write_batch(batch)
        if stored is not None:
            return stored
        fault = self._batch_fault(batch)
        if fault is not None:
            return self._refused_batch(fault)
        stored = self._write_batch(batch)
        if stored is None:
            raise ValueError("a host of a batch does not have the length that sysFlag says")
        return stored

    def put_commits(
        self,
        halves: list[HalfPlace],
        half_queue: tuple[str, int],
        op_queue: tuple[str, int],
        op_properties: bytes,
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
    ) -> list[tuple[Request, Request]]:
        """Append the real messages of half messages, and behind each one the op message that closes it.

        Stops at the first half message for which ``put`` has to be called, or that cannot be stored. Returns the
        requests of each real message and its op message.

        Args:
            halves: no half message twice.
            half_queue: topic and queue id of the half messages.
            op_queue: the same of the op messages.
            op_properties: the properties text of the op messages; the other arguments are theirs, too, as with ``put``.
        """
        tip, half, ops = self.tip(), self._known.get(half_queue), self._known.get(op_queue)
        if tip is None or half is None or ops is None:
            return []
        begin = len(tip.pending)
        form = CommitForm(half, ops, op_properties, sys_flag, born_timestamp, born_host, store_host)
        count, end = native.commits(halves, self._log.hot_from, tip, form)
        if not count:
            return []
        self.wrote(tip, end, 2 * count)
        return list(zip(tip.pending[begin::2], tip.pending[begin + 1 :: 2], strict=True))

    def _has_made_room(self, size: int) -> bool:
        """Whether there is more room now in the file that is written to, enough for ``size`` bytes."""
        if not size or self._log.position + size <= self._log.limit or not self._log.fits(size):
            return False
        return self._make_room(size)

    def _write_batch(self, batch: _Batch) -> PutBatch | None:
        """Write a batch for which there is room in this file; None for any other, and for one with a fault."""
        tip = self.tip()
        assert tip is not None
        room = max(tip.limit - tip.position, 0)
        queue = batch.queue
        written = native.batch(
            queue,
            batch.entries,
            batch.extra_properties,
            tip.memory,
            tip.at,
            tip.position,
            room,
            tip.max_record,
            batch.sys_flag,
            batch.born_timestamp,
            batch.born_host,
            batch.store_host,
            batch.reconsume_times,
            tip.now,
        )
        if written is None:
            return None
        offsets, requests = written
        queue_offset = queue.next_offset
        end = offsets[-1] + requests[-1][2]
        queue.next_offset += len(offsets)
        self._pending.extend(requests)
        self.wrote(tip, end, len(offsets))
        return PutBatch(PutStatus.OK, offsets, queue_offset, end - tip.position, tip.now, end)

    def _batch_fault(self, batch: _Batch) -> PutStatus | None:
        """Why a batch cannot be written; None when it can, with room made for it."""
        try:
            messages = decode_batch(batch.entries)
        except ProtocolError:
            return PutStatus.BATCH_ILLEGAL
        if not messages:
            return PutStatus.BATCH_ILLEGAL
        size, added, around = batch.size, batch.added_size, batch.around_size
        for _, body, properties in messages:
            if len(properties) + added > PROPERTIES_MAX:
                return PutStatus.PROPERTIES_SIZE_EXCEEDED
            if around + len(body) + len(properties) + added > self._max_record:
                return PutStatus.MESSAGE_ILLEGAL
        if size > self._log.segment_size - BLANK_SIZE:
            return PutStatus.MESSAGE_ILLEGAL
        if self._log.position + size > self._log.limit and not self._make_room(size):
            return PutStatus.SERVICE_NOT_AVAILABLE
        return None

    def _make_room(self, size: int) -> bool:
        """Whether the log has got room; a full disk is asked again a little later."""
        if self.no_room is not None and time.monotonic() < self._retry_at:
            return False
        try:
            self._log.make_room(size)
        except OSError as fault:
            if self.no_room is None:
                advice = {} if is_exhausted(fault) else {"advice": "free space, or lower fileReservedTime"}
                log.error("no_room_in_commit_log", fault=reason(fault), **advice)
            self.no_room = f"no room in the commit log: {reason(fault)}"
            self.exhausted = is_exhausted(fault)
            self._retry_at = time.monotonic() + self.retry_after
            return False
        if self.no_room is not None:
            log.info("room_in_commit_log")
        self.no_room, self.exhausted = None, False
        return True

    def _refused_batch(self, status: PutStatus) -> PutBatch:
        self.failed += status is not PutStatus.PROPERTIES_SIZE_EXCEEDED
        return PutBatch(status)
