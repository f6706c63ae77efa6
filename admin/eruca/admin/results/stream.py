"""The messages of a topic, of all its queues by time, once each; no group takes part and no offset is stored.

``Stream`` pulls each queue (11) and merges by the time of storing: a queue whose next message is not known yet holds
the others back, one that is at its end does not. A broker that is away is asked again, at the address that the route
then has; no message comes twice and none is passed over. Must not know options or print.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from eruca.admin.client import Admin, broker_addresses, some_address
from eruca.admin.errors import AdminError, NoAnswer, Partial, PeerRefused
from eruca.admin.lookups import ask_each, readable_queues
from eruca.admin.messages import Pulled, body_of, pull
from eruca.admin.resets.survey import QueueSeen
from eruca.admin.resets.targets import Since, Target
from eruca.admin.text import counted
from eruca.protocol import api
from eruca.protocol.codes import ResponseCode
from eruca.protocol.headers import offsets
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record
from eruca.remoting.clock import now_ms

PAGE = 32
"""Messages of one pull, as a broker gives at most."""
IDLE = 0.2
"""Seconds until queues without a new message are asked again."""
PATIENCE = 30.0
"""Seconds for a broker that went away to come back, where an end is set."""
ROUTES = 5.0
"""Seconds between two looks for new queues and new addresses."""
_AWAY = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class Wish:
    """Which messages are wanted.

    ``start`` is where each queue begins; None: with the last ``count`` messages of all. ``until`` is a time in ms, and
    None the end of each queue as it is found, unless the stream ``follow``s. ``count`` is the most messages that come;
    None for no limit.
    """

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    key: str | None = None
    start: Target | None = None
    until: int | None = None
    follow: bool = False
    count: int | None = None

    def has(self, record: Record) -> bool:
        """Whether a message that the broker's filter let pass is wanted."""
        return self.key is None or self.key in record.keys


class Streamed(NamedTuple):
    """One message."""

    record: Record
    broker: str
    body: bytes


@dataclass(slots=True)
class _Cursor:
    """How far one queue is read."""

    queue: MessageQueue
    address: str
    offset: int
    """Of the next message to pull."""
    end: int | None
    """Where it ends; None: nowhere."""
    buffer: deque[Record] = field(default_factory=deque)
    at_end: bool = False
    """Whether it had no more when it was asked last."""

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.end is not None and self.offset >= self.end and not self.buffer


class Stream:
    """The messages of a topic. ``say`` gets a sentence for what a person should know meanwhile."""

    def __init__(self, admin: Admin, wish: Wish, say: Callable[[str], None]) -> None:
        self._admin = admin
        self._wish = wish
        self._say = say
        self._cursors: dict[MessageQueue, _Cursor] = {}
        self._away: dict[str, AdminError] = {}
        """Brokers that do not answer now."""
        self._moved = monotonic()
        """When a queue was read further last."""
        self._looked = 0.0
        self._late = wish.start
        """Where queues begin that are found later."""

    async def messages(self) -> AsyncIterator[list[Streamed]]:
        """The messages, as many at once as are there. Raises AdminError, and Partial where a broker stayed away."""
        wish, began = self._wish, now_ms()
        follows = wish.follow or (wish.until is not None and wish.until > began)
        last = await self._open(follows)
        left = wish.count
        if wish.start is None:
            if last:
                yield last
            left = None if follows else 0
            self._late = Since(began, "the start")
        while left is None or left > 0:
            over = wish.until is not None and now_ms() > wish.until
            batch = await self._batch()
            wanted = [each for each in batch if wish.until is None or each[0].store_timestamp <= wish.until][:left]
            if wanted:
                yield [self._streamed(record, broker) for record, broker in wanted]
                left = None if left is None else left - len(wanted)
            if len(wanted) < len(batch) or self._ended(follows=follows, over=over):
                return
            if not batch and (self._quiet() or self._away):
                await asyncio.sleep(IDLE)
            await self._look_again(follows)
        if self._away:
            raise Partial(self._missing())

    def _ended(self, *, follows: bool, over: bool) -> bool:
        """Whether nothing more comes. Raises Partial where that is not known for too long, but an end is set."""
        ended = over and self._quiet() if follows else all(each.done for each in self._cursors.values())
        if ended and not self._away:
            return True
        if (over or not follows) and monotonic() - self._moved > PATIENCE:
            raise Partial(self._missing() or "queues end before they ended at the start: the rest is missing")
        return False

    def _quiet(self) -> bool:
        """Whether no queue had more when it was asked last."""
        return all(not each.buffer and (each.at_end or each.done) for each in self._cursors.values())

    def _missing(self) -> str:
        return "; ".join(f"{broker}: {error}: its messages are missing" for broker, error in sorted(self._away.items()))

    def _streamed(self, record: Record, broker: str) -> Streamed:
        try:
            return Streamed(record, broker, body_of(record))
        except AdminError as error:
            self._say(str(error))
            return Streamed(record, broker, record.body)

    # ------------------------------------------------------------------ queues

    async def _open(self, follows: bool) -> list[Streamed]:
        """Find the queues and where they begin; the last messages, where these are wanted."""
        last: list[tuple[Record, str]] = []
        start = self._wish.start
        found = await self._found(start, follows)
        if not found and not self._away:
            raise AdminError(f"topic {self._wish.topic} has no queue to read: look at its permission with topicRoute")
        if not found and not follows:
            raise next(iter(self._away.values()))  # nobody is there, so that a part would be nothing
        for cursor, records in found:
            self._cursors[cursor.queue] = cursor
            last += [(record, cursor.queue.broker_name) for record in records]
        last.sort(key=_order)
        return [self._streamed(record, broker) for record, broker in last[-(self._wish.count or len(last) or 1) :]]

    async def _found(self, start: Target | None, follows: bool) -> list[tuple[_Cursor, list[Record]]]:
        """A cursor for each queue that has none, with its last messages where no ``start`` is given."""
        route = await self._admin.route(self._wish.topic)
        addresses = dict(broker_addresses(route))
        for cursor in self._cursors.values():
            cursor.address = addresses.get(cursor.queue.broker_name, cursor.address)
        queues = [each for each in readable_queues(self._wish.topic, route) if each.broker_name in addresses]
        new = [queue for queue in queues if queue not in self._cursors]
        asked = await ask_each(
            {str(queue): self._begun(queue, addresses[queue.broker_name], start, follows) for queue in new}
        )
        for queue in new:
            if (error := asked.errors.get(str(queue))) is not None:
                self._lost(queue.broker_name, error)
        return list(asked.answers.values())

    async def _begun(
        self, queue: MessageQueue, address: str, start: Target | None, follows: bool
    ) -> tuple[_Cursor, list[Record]]:
        request = offsets.QueueOf(topic=queue.topic, queue_id=queue.queue_id)
        low = (await self._admin.call(address, api.GET_MIN_OFFSET, request)).header.offset
        high = (await self._admin.call(address, api.GET_MAX_OFFSET, request)).header.offset
        low = max(low, 0)
        end = None if follows else high
        if start is None:
            return _Cursor(queue, address, high, end), await self._last_of(queue, address, low, high)
        offset = await start.offset(self._admin, address, QueueSeen(queue, low, high, None))
        return _Cursor(queue, address, high if offset is None else offset, end), []

    async def _last_of(self, queue: MessageQueue, address: str, low: int, high: int) -> list[Record]:
        """The last messages of a queue that are wanted, from its end backwards."""
        wanted = self._wish.count or 0
        found: list[Record] = []
        while len(found) < wanted and high > low:
            offset = begin = max(low, high - max(PAGE, wanted))
            part: list[Record] = []
            while offset < high:
                pulled = await self._pull(queue, address, offset)
                part += [each for each in pulled.records if each.queue_offset < high and self._wish.has(each)]
                if pulled.next_offset <= offset:
                    break
                offset = pulled.next_offset
            found, high = part + found, begin
        return found[-wanted:] if wanted else []

    async def _look_again(self, follows: bool) -> None:
        """Look for new queues and addresses, now and then, and at once for a broker that is away."""
        if not self._away and (not follows or monotonic() - self._looked < ROUTES):
            return
        if self._away:
            await asyncio.sleep(IDLE)
        self._looked = monotonic()
        try:
            for cursor, _ in await self._found(self._late, follows):
                self._cursors[cursor.queue] = cursor
        except (NoAnswer, PeerRefused):
            return  # the nameserver is away, or no broker has the topic now

    # ------------------------------------------------------------------ pulls

    async def _batch(self) -> list[tuple[Record, str]]:
        """The messages that come next, in the order of time."""
        empty = [each for each in self._cursors.values() if not each.buffer and not each.done]
        asked = await ask_each({str(each.queue): self._fill(each) for each in empty})
        silent = {each.queue.broker_name: error for each in empty if (error := asked.errors.get(str(each.queue)))}
        for broker, error in silent.items():
            self._lost(broker, error)
        for broker in {each.queue.broker_name for each in empty if str(each.queue) in asked.answers} - {*silent}:
            if self._away.pop(broker, None) is not None:
                self._say(f"{broker} answers again")
        if any(not (each.buffer or each.at_end or each.done or self._is_away(each)) for each in empty):
            return []  # there is more of a queue, whose next message may be the oldest of all
        return self._merged()

    def _is_away(self, cursor: _Cursor) -> bool:
        return cursor.queue.broker_name in self._away

    def _merged(self) -> list[tuple[Record, str]]:
        heads = [
            (*_order((each.buffer[0], each.queue.broker_name)), each) for each in self._cursors.values() if each.buffer
        ]
        heapq.heapify(heads)
        batch = []
        while heads:
            cursor = heads[0][-1]
            batch.append((cursor.buffer.popleft(), cursor.queue.broker_name))
            if cursor.buffer:
                heapq.heapreplace(heads, (*_order((cursor.buffer[0], cursor.queue.broker_name)), cursor))
                continue
            heapq.heappop(heads)
            if not cursor.at_end and not cursor.done:
                break
        return batch

    def _lost(self, broker: str, error: AdminError) -> None:
        """Keep that a broker is away. Raises the error where waiting does not help."""
        if isinstance(error, PeerRefused) and error.code not in _AWAY:
            raise error
        if not isinstance(error, NoAnswer | PeerRefused):
            raise error
        if broker not in self._away:
            self._say(f"{broker}: {error}; it is asked again")
        self._away[broker] = error

    async def _fill(self, cursor: _Cursor) -> None:
        """Pull what comes next in a queue."""
        pulled = await self._pull(cursor.queue, cursor.address, cursor.offset)
        if pulled.status == "OFFSET_ILLEGAL":
            await self._correct(cursor, pulled)
            return
        end = cursor.end
        cursor.buffer.extend(
            each
            for each in pulled.records
            if each.queue_offset >= cursor.offset and (end is None or each.queue_offset < end) and self._wish.has(each)
        )
        if pulled.next_offset > cursor.offset:
            cursor.offset, self._moved = pulled.next_offset, monotonic()
        cursor.at_end = pulled.status == "NO_NEW_MSG" or cursor.offset >= pulled.max_offset

    async def _correct(self, cursor: _Cursor, pulled: Pulled) -> None:
        """The offset is not in the queue: messages were deleted, or the broker has lost those that it had last."""
        cursor.at_end = True
        if pulled.max_offset > cursor.offset:
            gone = pulled.min_offset - cursor.offset
            self._say(f"{_shown(cursor.queue)}: {counted(gone, 'message')} deleted before anybody read")
            cursor.offset, cursor.at_end = pulled.min_offset, False
        elif pulled.max_offset < cursor.offset and await self._is_master(cursor):
            self._say(f"{_shown(cursor.queue)}: the broker lost its last messages, and goes on at {pulled.max_offset}")
            cursor.offset = pulled.max_offset
            cursor.end = None if cursor.end is None else min(cursor.end, cursor.offset)

    async def _is_master(self, cursor: _Cursor) -> bool:
        """Whether the address is the master's: a slave may lack the last messages, and gets them later."""
        for broker in (await self._admin.route(cursor.queue.topic)).broker_datas:
            if broker.broker_name == cursor.queue.broker_name:
                return some_address(broker) == broker.master() == cursor.address
        return False

    async def _pull(self, queue: MessageQueue, address: str, offset: int) -> Pulled:
        wish = self._wish
        return await pull(
            self._admin,
            address,
            queue,
            offset,
            PAGE,
            expression=wish.expression,
            expression_type=wish.expression_type,
        )


def _order(item: tuple[Record, str]) -> tuple[int, str, int, int]:
    record, broker = item
    return record.store_timestamp, broker, record.queue_id, record.queue_offset


def _shown(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"
