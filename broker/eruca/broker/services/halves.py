"""Half messages on disk: stored, decided, put back, given up, and recovered at the start.

Owns what is written to RocketMQ's half and op queues and to its topic of half messages that were given up
(TransactionalMessageBridge, TransactionalMessageServiceImpl in 4.9.7). Undecided half messages are in memory
(``state.undecided``) and are read again from the two queues at the start. Knows no requests and no connections.
Invariants: a half message whose op message is in the log is not decided again; a real message comes before the op
message that closes its half; progress is published only when all it rests on is on disk, and readers may see it;
of a transaction that a former broker may have given up nothing is decided before what it had begun is ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import TypedDict

import structlog

from eruca.broker.services.admission import Destination
from eruca.broker.services.given_up import GIVEN_UP, OP, REOPENED, GivenUp, in_steps
from eruca.broker.services.half_records import (
    checks_of,
    closed_by,
    given_up_as,
    half_of,
    half_sent,
    identity_of,
    prepared_of,
)
from eruca.broker.services.lost_units import whole_queue
from eruca.broker.services.redelivery import record_at
from eruca.broker.services.registration import Registration
from eruca.broker.services.unfinished import Unfinished
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.statistics import Statistics
from eruca.broker.state.undecided import Half, Identity, Undecided
from eruca.broker.store import Store
from eruca.broker.store.layout import HalfSent, Request
from eruca.broker.store.results import Put, PutStatus
from eruca.protocol import names
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.message import STORE_HOST_V6, TRANSACTION_COMMIT, TRANSACTION_MASK, encode_properties
from eruca.protocol.record import Record
from eruca.remoting.shared_tasks import SharedTasks

HALF = names.TRANS_HALF_TOPIC
LAG = 20_000
"""The most half messages that the next start may have to read; an undecided one further back is put back."""
_LAGGARDS_AT_ONCE = 256
_CLOSING = 1024
"""Bytes, more than two op messages have: a copy of a half message is stored where there is room to close that, too."""
OP_PROPERTIES = b"WAIT\x01true\x02TAGS\x01d"
_DONE = Put(PutStatus.OK)

log = structlog.get_logger("eruca.broker")

Postponed = Callable[[dict[str, str], Destination, int, int], Destination | None]
"""Where a message with these properties waits (``Delays.route``)."""
Host = Callable[[], tuple[bytes, int]]
"""This broker's address as records keep it, and the bit of sysFlag that goes with it."""


class OpFields(TypedDict):
    """Arguments of ``Store.put``."""

    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes


class Halves:
    """The half messages of one broker; ``undecided`` has those without a decision."""

    def __init__(
        self,
        offsets: Offsets,
        registration: Registration,
        statistics: Statistics,
        store: Store,
        host: Host,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        postponed: Postponed,
    ) -> None:
        self.undecided = Undecided()
        self._offsets = offsets
        self._registration = registration
        self._statistics = statistics
        self._store = store
        self._host = host
        self._clock = clock
        self._monotonic = monotonic
        self._postponed = postponed
        self._given_up = GivenUp(store)
        self._unfinished = Unfinished()
        self._settling: SharedTasks[Unfinished, bool] = SharedTasks()
        self._next_progress: tuple[int, int, int] | None = None

    # ------------------------------------------------------------------ sent

    def prepare(self, values: dict[str, str], topic: str, queue_id: int) -> bytes:
        """Make the properties of a message those of a half message for ``topic``; returns their stored text.

        Properties that the broker writes are not taken from the sender, and a half message has no delay level: RocketMQ
        loses one that has, and its Java client removes the level. A delay in ms counts from the commit (as in 5.3.3).
        Raises ProtocolError when they are too long, Refused(13) for a delay that cannot be.
        """
        for name in (names.DELAY, names.TRANSACTION_CHECK_TIMES, names.TRAN_PREPARED_QUEUE_OFFSET):
            values.pop(name, None)
        self._postponed(dict(values), Destination(topic, queue_id, 0), 0, self._clock())
        values[names.REAL_TOPIC] = topic
        values[names.REAL_QUEUE_ID] = str(queue_id)
        text = encode_properties(values)
        self._registration.have_topic(HALF)
        return text

    def sent(self, half: HalfSent, now: int) -> None:
        """A producer's half message was stored; ``now`` is in ms of the monotonic clock."""
        self.undecided.add(half[0], half_sent(half, now))

    # ------------------------------------------------------------------ decided

    def find(self, physical_offset: int) -> Record | None:
        """The half message at an offset of the commit log, None where there is none."""
        return self._of(physical_offset, HALF)

    def find_any(self, physical_offset: int) -> Record | None:
        """The half message at an offset of the commit log, whether it was given up or not; None where there is none."""
        return self._of(physical_offset, HALF) or self._of(physical_offset, GIVEN_UP)

    def _of(self, physical_offset: int, topic: str) -> Record | None:
        """A record of this topic that its queue has there: a body may hold the bytes of a record, too.

        What is undecided here was stored here, and its queue may not have it before slaves have.
        """
        record = record_at(self._store, physical_offset)
        if record is None or record.topic != topic or record.queue_id:
            return None
        half = self.undecided.get(record.queue_offset)
        if half is not None and half.physical_offset == physical_offset:
            return record
        unit = self._store.unit(topic, 0, record.queue_offset)
        return record if unit is not None and unit[0] == physical_offset else None

    def decide(self, half: Record, *, commit: bool) -> Put:
        """Commit or roll back a transaction, whichever copy of its half message ``half`` is.

        The last thing that was stored; of what had been decided before, and is not stored again, only the status
        counts. The half message was looked for (``looked_for``).
        """
        identity = given_up_as(half)
        offset = self._open_at(half)
        if offset is None and identity not in self._given_up:
            return _DONE
        delivered = self._deliver(half) if commit else _DONE
        if delivered.status:
            return delivered
        topic = half.properties.get(names.REAL_TOPIC, "")
        ended = self._statistics.commits if commit else self._statistics.rollbacks
        ended[topic] = ended.get(topic, 0) + 1
        return self._close(offset, identity)

    def looked_for(self, half: Record) -> Awaitable[bool] | None:
        """Be sure whether a transaction is decided; None for a copy of what is surely undecided, or once all are known
        that were given up. False as long as the store refuses what that needs, else to be asked again when it was
        waited for: the broker may have changed its role."""
        offset = self._open_at(half)
        known = self._given_up.complete if offset is None else not self._is_doubtful(offset)
        return None if known else self.settled()

    def _is_doubtful(self, offset: int) -> bool:
        """Whether an undecided half message may have been given up, or stands in the place of one that is not closed
        yet: decided before that, it could be decided again."""
        half, unfinished = self.undecided.get(offset), self._unfinished
        return offset in unfinished.doubtful or (bool(unfinished) and half is not None and half.copied)

    def _open_at(self, half: Record) -> int | None:
        """The offset of the undecided half message of which this is a copy."""
        return self.undecided.find(half.queue_offset if half.topic == HALF else -1, identity_of(half))

    def committed(self, offset: int, real: Request, op: Request) -> None:
        """The real message of an undecided half message was stored, and its op message."""
        (queue, _, size, *_), (_, _, _, _, op_offset, _, _) = real, op
        self._statistics.put(queue.topic, queue.queue_id, 1, size)
        commits = self._statistics.commits
        commits[queue.topic] = commits.get(queue.topic, 0) + 1
        half = self.undecided.get(offset)
        self.undecided.op(op_offset, offset)
        if half is not None and half.identity is not None:
            self._reopened(half.identity)

    def is_decided(self, half: Record) -> bool:
        """Whether a transaction is decided, whichever copy of its half message ``half`` is, also one that was given up.

        The half message was looked for (``looked_for``).
        """
        return self._open_at(half) is None and given_up_as(half) not in self._given_up

    def _close(self, offset: int | None, identity: Identity) -> Put:
        """Store that a transaction is decided; ``offset`` is that of its undecided half message, None if given up."""
        op = _DONE if offset is None else self._write_op(offset)
        return op if op.status else self._reopened(identity) or op

    def _reopened(self, identity: Identity) -> Put | None:
        """Store that a half message is not given up any more; None where it was not, as far as that is known."""
        given_up = self._given_up.offset(identity)
        if given_up is None:
            return None
        put = self._store.appender.put(OP, REOPENED, b"%d" % given_up, OP_PROPERTIES, **self.op_fields())
        if not put.status:
            self._given_up.remove(identity)
        return put

    def _deliver(self, half: Record) -> Put:
        topic, queue_id = half.properties.get(names.REAL_TOPIC, ""), half.properties.get(names.REAL_QUEUE_ID, "")
        if names.topic_fault(topic) is not None or not queue_id.isdecimal() or len(queue_id) > 9:
            return Put(PutStatus.MESSAGE_ILLEGAL)
        to, text = self._later(half, Destination(topic, int(queue_id), 0))
        put = self._copy(
            half,
            to.topic,
            to.queue_id,
            text,
            sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            prepared_transaction_offset=half.physical_offset,
        )
        if not put.status:
            self._statistics.put(to.topic, to.queue_id, 1, put.size)
        return put

    def _later(self, half: Record, to: Destination) -> tuple[Destination, bytes]:
        """Where a committed message goes at first, and its properties there: one with a delay of its own waits."""
        if b"TIMER_D" not in half.properties_text:
            return to, half.properties_text
        values = dict(half.properties)
        try:
            later = self._postponed(values, to, 0, self._clock())
            return (to, half.properties_text) if later is None else (later, encode_properties(values))
        except (Refused, ProtocolError) as fault:  # the limit was lowered, or it is a half of RocketMQ
            log.error("committed_message_not_delayed", topic=to.topic, unique_key=half.unique_key, reason=str(fault))
            return to, half.properties_text

    def _write_op(self, offset: int) -> Put:
        put = self._store.appender.put(OP, 0, b"%d" % offset, OP_PROPERTIES, **self.op_fields())
        if not put.status:
            self.undecided.op(put.queue_offset, offset)
        return put

    def op_fields(self) -> OpFields:
        """What op messages have beside body and properties."""
        host, bits = self._host()
        return {
            "sys_flag": bits | bits >> 1,
            "born_timestamp": self._clock(),
            "born_host": host,
            "store_host": host,
        }

    # ------------------------------------------------------------------ undecided

    def read(self, offset: int) -> Record | None:
        """An undecided half message; one that is not in the log any more is forgotten."""
        half = self.undecided.get(offset)
        record = None if half is None else self.find(half.physical_offset)
        if half is not None and record is None:
            log.error("half_message_lost", half_offset=offset, physical_offset=half.physical_offset)
            self.undecided.close(offset)
        return record

    def put_back(self, offset: int, record: Record, checks: int) -> Record | None:
        """Store an undecided half message again at the end of the half queue; None when nothing can be stored.

        ``checks`` is how often it was checked. Unlike in 4.9.7 the copy keeps the sender's flag, and an op message
        closes the former place.
        """
        copy = self._copy_back(record, checks)
        if copy is not None:
            half, former = self._half_of(copy), self.undecided.get(offset)
            if former is not None:
                half = half._replace(begun=former.begun, identity=former.identity)
            self.undecided.add(copy.queue_offset, half)
            self._write_op(offset)
        return copy

    def give_up(self, offset: int, record: Record) -> Put:
        """Move a half message that stays undecided to the topic of those that were given up."""
        self._registration.have_topic(GIVEN_UP)
        put = self._copy(record, GIVEN_UP, 0, record.properties_text, sys_flag=record.sys_flag)
        if not put.status:
            self._given_up.add(given_up_as(record), put.queue_offset)
            self._write_op(offset)
        return put

    def resume(self, record: Record) -> Record | None:
        """Ask about a half message again as if for the first time; None when nothing can be stored."""
        offset = self._open_at(record)
        if offset is not None:
            return self.put_back(offset, record, 0)
        copy = self._copy_back(record, 0)
        if copy is not None:
            self.undecided.add(copy.queue_offset, self._half_of(copy))
            self._reopened(given_up_as(record))
        return copy

    def _half_of(self, record: Record) -> Half:
        return half_of(record, self._clock(), self._monotonic())

    def _copy_back(self, record: Record, checks: int) -> Record | None:
        try:
            values = {**record.properties, names.TRANSACTION_CHECK_TIMES: str(checks)}
            values.pop(names.TRAN_PREPARED_QUEUE_OFFSET, None)  # what it names gets an op message here
            text = encode_properties(values)
        except ProtocolError:  # no room to count its checks in; its age ends them
            text = record.properties_text
        put = self._copy(record, HALF, 0, text, sys_flag=record.sys_flag)
        return None if put.status else record_at(self._store, put.physical_offset)

    def _copy(
        self,
        record: Record,
        topic: str,
        queue_id: int,
        properties: bytes,
        *,
        sys_flag: int,
        prepared_transaction_offset: int = 0,
    ) -> Put:
        host, bits = self._host()
        return self._store.appender.put(
            topic,
            queue_id,
            record.body,
            properties,
            flag=record.flag,
            sys_flag=sys_flag & ~STORE_HOST_V6 | bits,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
            accepted=True,
            room_behind=_CLOSING,
        )

    # ------------------------------------------------------------------ progress

    def keep(self) -> None:
        """To be called each second: put back what lies too far behind, and publish how far the queues are done with.

        Offsets that the log on disk, or what readers may see of it, does not bear out yet are published with a later
        call: the next master may lack the rest.
        """
        store, undecided = self._store, self.undecided
        if not store.max_offset(HALF, 0):
            return
        self._put_back_laggards()
        figures = store.figures()
        borne_out = min(figures.flushed_offset, figures.max_offset - figures.dispatch_behind_bytes)
        if self._next_progress is not None and self._next_progress[2] <= borne_out:
            half, op, _ = self._next_progress
            self._commit(HALF, half)
            self._commit(OP, op)
            self._next_progress = None
        if self._next_progress is None:
            ends = store.max_offset(HALF, 0), store.max_offset(OP, 0)
            self._next_progress = (*undecided.progress(*ends), figures.max_offset)

    def _put_back_laggards(self) -> None:
        for _ in range(_LAGGARDS_AT_ONCE):
            first = self.undecided.first()
            if first is None or self._store.max_offset(HALF, 0) - first <= LAG + 2 * len(self.undecided):
                return
            record = self.read(first)
            if record is not None and self.put_back(first, record, checks_of(record)) is None:
                return

    def _commit(self, topic: str, offset: int) -> None:
        if self._offsets.query(names.TRANSACTION_GROUP, topic, 0) != offset:
            self._offsets.commit(names.TRANSACTION_GROUP, topic, 0, offset)

    # ------------------------------------------------------------------ the start

    def forget(self) -> None:
        """Know of no half message any more: another broker decides them from now on."""
        self.undecided = Undecided()
        self._given_up = GivenUp(self._store)
        self._unfinished = Unfinished()
        self._next_progress = None

    async def close(self) -> None:
        """End the reading of what was given up."""
        await self._settling.close()

    def rebuild(self) -> None:
        """Find what is undecided in the half queue, from where its progress stands; the store is open.

        Raises RecoveryStopped.
        """
        for _ in self._rebuilt():
            self._store.progress.check()

    async def rebuild_in_steps(self) -> None:
        """As ``rebuild``, while the event loop serves others; nobody else writes to the log meanwhile."""
        await in_steps(self._rebuilt())

    def _rebuilt(self) -> Iterator[None]:
        """Read one record after the other; the table is there at the end, not before."""
        store, undecided = self._store, Undecided()
        self.forget()
        store.drain()
        begin, op_begin = (self._progress(topic) for topic in (HALF, OP))
        if begin is None or op_begin is None:  # one queue was truncated or made again: neither offset means anything
            begin, op_begin = store.min_offset(HALF, 0), store.min_offset(OP, 0)
        done: set[int] = set()
        for op in whole_queue(store, OP, 0, op_begin):
            if op is not None:
                for offset in closed_by(op):
                    done.add(offset)
                    undecided.op(op.queue_offset, offset)
            yield
        unfinished = Unfinished()
        for record in whole_queue(store, HALF, 0, begin, without=done):
            if record is None:
                yield
                continue
            offset, prepared = record.queue_offset, prepared_of(record)
            if prepared in done:
                unfinished.replaced.append(offset)  # a copy that RocketMQ made of what was decided since
            else:
                half = self._half_of(record)
                former = undecided.add(offset, half)
                if former is not None:
                    unfinished.replaced.append(former)
                if prepared is not None and half.copied:
                    unfinished.prepared.append(offset)
            yield
        self._take_over(undecided, unfinished)
        if not unfinished.doubtful:
            yield from self._finished(unfinished)
        if len(undecided):
            log.info("transactions_undecided", count=len(undecided), doubtful=len(unfinished.doubtful))

    def _take_over(self, undecided: Undecided, unfinished: Unfinished) -> None:
        """Answer for these half messages from now on; those that may have been given up are doubtful."""
        identities = set()
        last = self._last_given_up()
        for offset, half in undecided.items() if last >= 0 else ():
            if half.identity is not None and (half.copied or half.physical_offset < last):
                unfinished.doubtful[offset] = None
                identities.add(half.identity)
        self.undecided, self._unfinished = undecided, unfinished
        self._given_up = GivenUp(self._store, identities)

    def _last_given_up(self) -> float:
        """Where in the log the last half message lies that was given up; -1 without any."""
        least, end = self._store.min_offset(GIVEN_UP, 0), self._store.max_offset(GIVEN_UP, 0)
        last = self._store.unit(GIVEN_UP, 0, end - 1)
        return -1 if least >= end else inf if last is None else last[0]

    @property
    def settling(self) -> bool:
        """Whether there is something left that a former broker had begun."""
        return bool(self._unfinished)

    async def settled(self) -> bool:
        """Know all that were given up, and end what a former broker had begun; others get their turn meanwhile.

        False if the store refuses what that needs, as on a full disk: to be tried again. Who does not wait for the end
        of it any more leaves the work to others.
        """
        return await self._settling.result(self._unfinished, self._settle)

    async def _settle(self) -> bool:
        unfinished = self._unfinished
        await self._given_up.read()
        await in_steps(self._finished(unfinished))
        return unfinished is not self._unfinished or not unfinished

    def _finished(self, unfinished: Unfinished) -> Iterator[None]:
        """End one thing after the other, as long as this broker answers for them, and the store takes them."""
        while unfinished is self._unfinished and unfinished and self._finish_first(unfinished):
            yield

    def _finish_first(self, unfinished: Unfinished) -> bool:
        """End what comes first; False if the store has refused it, then it is left."""
        if unfinished.doubtful:
            offset = next(iter(unfinished.doubtful))
            put = self._finish_giving_up(offset)
            if put is None or not put.status:
                del unfinished.doubtful[offset]
                return True
        elif unfinished.prepared:
            offset = unfinished.prepared[0]
            record = self.read(offset)
            if record is None or self.put_back(offset, record, checks_of(record)) is not None:
                unfinished.prepared.popleft()
                return True
        elif not self._write_op(unfinished.replaced[0]).status:
            unfinished.replaced.popleft()
            return True
        return False

    def _finish_giving_up(self, offset: int) -> Put | None:
        """Of a half message that is undecided and given up, what came later in the log counts; None if it is not.

        The former broker ended between two of its records, or it was RocketMQ, which writes one alone, and the progress
        is lost; it may be decided since.
        """
        half = self.undecided.get(offset)
        given_up = None if half is None or half.identity is None else self._given_up.newest.get(half.identity)
        if half is None or half.identity is None or given_up is None:
            return None
        return self._write_op(offset) if given_up[1] > half.physical_offset else self._reopened(half.identity)

    def _progress(self, topic: str) -> int | None:
        """The published offset of a queue, its first where there is none; None for one that it cannot have."""
        least, end = self._store.min_offset(topic, 0), self._store.max_offset(topic, 0)
        offset = self._offsets.query(names.TRANSACTION_GROUP, topic, 0)
        return None if offset > end else max(offset, least)
