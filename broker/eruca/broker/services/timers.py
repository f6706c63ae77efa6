"""Delivery of messages with a delay of their own (TimerMessageStore in 5.x).

Owns which message is due next. The messages wait in one queue (``rmq_sys_wheel_timer``, queue 0) in order of arrival;
the tag code of a unit is the time when its message is due. Each takes 8 bytes of memory: the next minutes are a heap,
the others are lists by minute. A message that waits longer than the log retains files moves to the end of the queue
before its file is deleted. Must not know the event loop. Invariant: a unit is settled only after its message was
appended again, to its topic or to the end of the queue; the copy names the unit, so the log is the proof.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from eruca.broker.services.delay_levels import AGAIN_AFTER, NEVER
from eruca.broker.services.redelivery import Redelivery, waiting_at
from eruca.broker.state.settled import Settled
from eruca.broker.store import Store
from eruca.protocol import names, properties_text
from eruca.protocol.message import PROPERTIES_MAX_LENGTH
from eruca.protocol.names import TIMER_TOPIC
from eruca.protocol.record import Record

WAITING_ONLY: Final = (names.REAL_TOPIC, names.REAL_QUEUE_ID)
"""Properties that a waiting message loses when it is delivered."""
AT_ONCE = 32
"""Messages that one turn delivers, or moves to the end of the queue, at most."""
READ_AT_ONCE = 4096
"""Units that one turn reads at most."""
ROLL_EVERY = 1000
"""Milliseconds between two searches for messages whose part of the log is about to be deleted."""
_MINUTE: Final = 60_000
_AHEAD: Final = 2_000
_INDEX_BITS: Final = 40
_INDEX: Final = (1 << _INDEX_BITS) - 1


def origin_of(record: Record) -> str:
    """The value of TIMER_ORIGIN, by which a copy names its waiting record: unit, commit log offset, store time."""
    return f"{record.queue_offset}@{record.physical_offset}@{record.store_timestamp}"


def changed(text: bytes, without: tuple[str, ...], **added: str) -> bytes:
    """A properties text without some properties and, if there is room, with others."""
    gone = {name.encode() for name in (*without, *added)}
    pairs = [pair for pair in text.split(b"\x02") if pair and pair.partition(b"\x01")[0] not in gone]
    whole = b"\x02".join((*pairs, *(f"{name}\x01{value}".encode() for name, value in added.items())))
    return whole if len(whole) <= PROPERTIES_MAX_LENGTH else b"\x02".join(pairs)


class Timers:
    """The queue of messages with a delay of their own.

    ``settled`` are the units that need no delivery. ``keep_for`` returns the ms that a message may stay in one part of
    the log.
    """

    def __init__(self, store: Store, redelivery: Redelivery, keep_for: Callable[[], int]) -> None:
        self.settled = Settled()
        self.waiting = 0
        """The number of waiting messages."""
        self._store = store
        self._redelivery = redelivery
        self._keep_for = keep_for
        self._seen = 0
        self._soon: list[int] = []
        self._later: dict[int, array[int]] = {}
        self._loaded = 0
        self._roll_at = 0

    def begin(self, settled: Settled) -> None:
        """Start from these units. Call it after the store was opened."""
        self.settled = settled
        settled.add_below(self._store.min_offset(TIMER_TOPIC, 0))
        self._seen = settled.first
        self._soon, self._later = [], {}
        self._loaded = self.waiting = self._roll_at = 0

    # ------------------------------------------------------------------ what waits

    def _read(self) -> bool:
        """Read new units; returns whether there are more."""
        end = self._store.max_offset(TIMER_TOPIC, 0)
        if self._seen >= end:
            return False
        units = self._store.units(TIMER_TOPIC, 0, self._seen, min(end - self._seen, READ_AT_ONCE))
        for index, (_, _, due) in enumerate(units, self._seen):
            if index not in self.settled:
                self.waiting += 1
                self._wait(index, due)
        self._seen += len(units)
        return self._seen < end and bool(units)

    def _wait(self, index: int, due: int) -> None:
        due = max(due, 0)
        minute = due // _MINUTE
        if minute <= self._loaded:
            heappush(self._soon, due << _INDEX_BITS | index)
            return
        rest = (due - minute * _MINUTE) << _INDEX_BITS | index
        kept = self._later.get(minute)
        if kept is None:
            self._later[minute] = array("Q", (rest,))
        else:
            kept.append(rest)

    def _load(self, now: int) -> None:
        """Move the messages of the minutes up to now, and of the next minute when it is near, into the heap."""
        target = (now + _AHEAD) // _MINUTE
        if target <= self._loaded:
            return
        self._loaded = target
        come = [minute for minute in self._later if minute <= target]
        for minute in come:
            start = (minute * _MINUTE) << _INDEX_BITS
            self._soon += [start + rest for rest in self._later.pop(minute)]
        if come:
            heapify(self._soon)

    # ------------------------------------------------------------------ delivering

    def deliver(self, now: int) -> int:
        """Deliver what is due at ``now`` (ms), one turn. Returns when to continue, NEVER if nothing waits."""
        more = self._read()
        self._load(now)
        soon = self._soon
        for _ in range(AT_ONCE):
            if not soon or soon[0] >> _INDEX_BITS > now:
                break
            index = soon[0] & _INDEX
            if index not in self.settled and not self._deliver_one(index, now):
                return now + AGAIN_AFTER
            heappop(soon)
        else:
            more = True
        if now >= self._roll_at or self._roll_at - now > ROLL_EVERY:
            again = self._roll(now)
            self._roll_at = again if again > now else 0
        return now if more or not self._roll_at else self._next_due()

    def _next_due(self) -> int:
        if self._soon:
            return self._soon[0] >> _INDEX_BITS
        return min(self._later) * _MINUTE - _AHEAD if self._later else NEVER

    def _settle(self, index: int) -> None:
        self.settled.add(index)
        self.waiting -= 1

    def _deliver_one(self, index: int, now: int) -> bool:
        """Deliver the message of a unit; False if the store refuses it for now."""
        unit = self._store.unit(TIMER_TOPIC, 0, index)
        waiting = waiting_at(self._store, TIMER_TOPIC, 0, index, unit[0]) if unit is not None else None
        if waiting is None:
            self._settle(index)
            return True
        record = waiting.record
        due = properties_text.get(record.properties_text, "TIMER_OUT_MS")
        if due.isdigit() and len(due) < 16 and int(due) > now:  # written by RocketMQ: its code is a tag's hash
            self._wait(index, int(due))
            return True
        text = changed(record.properties_text, WAITING_ONLY, TIMER_ORIGIN=origin_of(record))
        if not self._redelivery.put(record, waiting.topic, waiting.queue_id, text):
            return False
        self._settle(index)
        return True

    # ------------------------------------------------------------------ outliving the log

    def held(self) -> int:
        """The commit log offset of the first waiting message, NEVER if none waits."""
        self._pass_over()
        unit = self._store.unit(TIMER_TOPIC, 0, self.settled.first)
        return unit[0] if unit is not None else NEVER

    def _pass_over(self) -> None:
        """Settle the units whose part of the log was deleted."""
        self.settled.add_below(self._store.min_offset(TIMER_TOPIC, 0))

    def _roll(self, now: int) -> int:
        """Move old messages to the end of the queue before their files are deleted; returns when to check again."""
        for _ in range(AT_ONCE):
            index = self.settled.first
            if index >= self._seen:
                return now + ROLL_EVERY
            unit = self._store.unit(TIMER_TOPIC, 0, index)
            since = self._store.store_time(TIMER_TOPIC, 0, index)
            wanted = unit is not None and unit[0] < self._store.held_back
            if not wanted and since >= 0 and now - since < self._keep_for():
                return now + ROLL_EVERY
            waiting = waiting_at(self._store, TIMER_TOPIC, 0, index, unit[0]) if unit is not None else None
            if waiting is not None:
                record = waiting.record
                before = properties_text.get(record.properties_text, "TIMER_ROLL_TIMES")
                times = int(before) + 1 if before.isdigit() and len(before) < 9 else 1
                text = changed(record.properties_text, (), TIMER_ROLL_TIMES=str(times), TIMER_ORIGIN=origin_of(record))
                if not self._redelivery.put(record, TIMER_TOPIC, 0, text):
                    return now + AGAIN_AFTER
            self._settle(index)
        return now

    def figures(self) -> dict[str, str]:
        """The number of waiting messages under the name of 5.x."""
        return {"timerCongestNum": str(self.waiting)} if self._seen else {}
