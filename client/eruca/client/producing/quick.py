"""The short way of sends: what nearly every one of them needs, and nothing else.

Owns the sends that wait for the end of this turn of the loop. A message to a topic whose route is known and of an
ordinary size waits here for the others of its turn; then all are written in one go, with one look at clocks and
connections (``lanes``). Many answers of one read are taken by ``read_answers`` in one go, too. Whatever is not ordinary
takes the ordinary way (``sends``), at the start or, after a failure, from there on: its rules of retries hold for both.
Invariants: the two differ in time only, not in what is sent, answered, counted or raised; and what was started first
leaves first, whichever way it takes (``leave_now``).
"""

from __future__ import annotations

import math
import struct
from asyncio import Future, _get_running_loop
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eruca.client.config import seconds_of
from eruca.client.message import AFTER_ID, BEFORE_ID, Message
from eruca.client.network import identity
from eruca.client.producing.batch import encode_ordinary, wait_of
from eruca.client.producing.lanes import Lane, Lanes, MakeHeader
from eruca.client.producing.latency_faults import LatencyFaults
from eruca.client.producing.sends import Choice, Send, SendResult, SendStatus, choice_of_user
from eruca.client.selectors import RoundRobin, Selector
from eruca.protocol import api, frame
from eruca.protocol.headers.send import SendReply
from eruca.protocol.queues import MessageQueue
from eruca.protocol.templates import StoredAnswer, Template, read_stored_binary, read_stored_json
from eruca.remoting import Answer, Connection

if TYPE_CHECKING:
    from eruca.client.network.session import Session
    from eruca.client.producing.producer import Producer

_LONGEST: Final = 8 * 1024 * 1024
"""Bytes of a body that surely fit a frame, with properties of the length below."""
_LONGEST_TEXT: Final = 65_535
_NOT_HERE: Final = (KeyError, *frame.UNREADABLE)
_PLAIN: Final = {Message}
_LISTS: Final = {list, tuple}
_SEND, _SEND_BATCH, _SEND_OK = api.SEND_MESSAGE_V2, api.SEND_BATCH_MESSAGE, SendStatus.SEND_OK
_JSON, _BINARY = frame.JSON, frame.ROCKETMQ
_prefix = struct.Struct(">II").unpack_from


class QuickSend(msgspec.Struct, eq=False, gc=False):
    """One send under way (a Receiver), until something happens to it that is not ordinary."""

    sends: QuickSends
    lane: Lane
    future: Future[SendResult]
    body: bytes
    text: str
    """What follows the unique id in the properties; all of them for a batch."""
    timeout: float
    key: str = ""
    wish: MessageQueue | None = None
    """Where it has to go, if its sender said so."""
    queue: MessageQueue | None = None
    """Where it went; None before."""
    born: int = 0
    start: float = 0.0
    """When it began, by the loop's time."""
    batch: bool = False

    def done(self) -> bool:
        """As ``Send.done``."""
        return False

    def set_result(self, answer: Answer[SendReply], /) -> None:
        """An answer that ``read_answers`` left alone."""
        self.sends.ordinary(self).set_result(answer)

    def set_exception(self, exception: Exception, /) -> None:
        """This attempt failed."""
        self.sends.ordinary(self).set_exception(exception)


class QuickSends:
    """The short way of one producer, which has no hooks, in one session.

    ``header`` and ``turns`` are as in ``Lanes``; ``choice`` is how the ordinary way chooses queues in turn.
    """

    def __init__(
        self,
        producer: Producer,
        session: Session,
        header: MakeHeader,
        turns: Mapping[str, RoundRobin],
        faults: LatencyFaults | None,
        choice: Callable[[RoundRobin], Choice],
    ) -> None:
        self._producer = producer
        self._session = session
        self._header = header
        self.faults = faults
        self._choice = choice
        loop = self._loop = session.loop
        self._new_future, self._clock = loop.create_future, loop.time
        self._longest = min(producer.compress_from - 1, producer.max_message_size, _LONGEST)
        self.window = producer.window
        self._singles = Lanes(session, header, turns, faults, batch=False)
        self._batches = Lanes(session, header, turns, faults, batch=True)

    def start(
        self,
        message: Message,
        timeout: float | None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> Future[SendResult] | None:
        """Send a message, to a queue of the user's choice if there is one (see ``choice_of_user``).

        None when nothing was done, as the ordinary way has to do it, or to tell what is wrong.
        """
        if type(message) is not Message or _get_running_loop() is not self._loop:
            return None
        body = message.body
        if (
            type(body) is not bytes
            or not 0 < len(body) <= self._longest
            or message.flag
            or message.delay_level
            or message.delay is not None
            or message.deliver_at is not None
        ):
            return None
        lane = self._singles.get(message.topic) or self._singles.open(message.topic)
        if lane is None or lane.closed:
            return None
        if message.tags or message.keys or message.properties or not message.wait_store:
            text = message.text_after_id()
            if len(text) > _LONGEST_TEXT:
                return None
        else:
            text = AFTER_ID
        choose: Choice | None = None
        if queue is not None or selector is not None:
            choose = choice_of_user(message, queue, selector, arg)
            lane.renew()
            if not lane.seats:
                return None
        seconds = self._producer.send_timeout if timeout is None else seconds_of(timeout, 0)
        if not self.window.take(len(body)):
            return None
        future = self._new_future()
        send = QuickSend(self, lane, future, body, text, seconds)
        if choose is not None and not self._wished(send, choose):
            return future
        if not lane.pending:
            self._loop.call_soon(self._leave, lane)
        lane.pending.append(send)
        return future

    def _wished(self, send: QuickSend, choose: Choice) -> bool:
        """Let the user choose the queue; False when that failed, and the send with it."""
        assert send.lane.route is not None
        try:
            send.wish = choose(send.lane.route, None)
        except Exception as error:  # a selector of the user's may raise anything
            self.window.leave(len(send.body))
            send.future.set_exception(error)
        return send.wish is not None

    def leave_now(self, topic: str) -> None:
        """Let go what waits for the end of this turn: what is sent next must not overtake it."""
        lane = self._singles.get(topic)
        if lane is not None and lane.pending:
            self._leave(lane)

    def _leave(self, lane: Lane) -> None:
        """All that was sent in this turn of the loop goes to its connections."""
        pending, lane.pending = lane.pending, []
        if not pending:
            return
        now, start = time(), self._clock()
        born = int(now * 1000)
        digits = b"%d" % born
        lane.renew()
        rides: list[_Ride | None] = [None] * len(lane.seats)
        loads: dict[Connection, _Load] = {}
        turn, count, least, in_turn = lane.turn.last, len(rides), math.inf, self.faults is None
        for send, key in zip(pending, identity.unique_keys().several(now, len(pending)), strict=True):
            body, text, seconds = send.body, send.text, send.timeout
            if send.future.done():  # its caller has given it up
                self.window.leave(len(body))
                continue
            send.key, send.born, send.start = key, born, start
            before = turn
            if in_turn and send.wish is None and count:
                turn += 1
                index: int | None = turn % count
            else:
                lane.turn.last = turn
                index = lane.number(send.wish, start)
                turn = lane.turn.last
            ride = None
            if index is not None:
                ride = rides[index]
                if ride is None:
                    ride = rides[index] = self._board(lane, index, loads, len(pending))
            if ride is None:
                lane.turn.last = before
                self.ordinary(send).attempt()
                turn = lane.turn.last
                continue
            send.queue, around_id, template, frames, waiting, opaques = ride
            opaque = next(opaques)
            if text is AFTER_ID:
                frames += (around_id.fill(opaque, digits, key.encode(), len(body)), body)
            else:
                properties = template.quote(BEFORE_ID + key + text)
                frames += (template.fill(opaque, digits, properties, len(body)), body)
            waiting[opaque] = (send, _SEND, start + seconds)
            if seconds < least:
                least = seconds
        lane.turn.last = turn
        for connection, (frames, _) in loads.items():
            connection.depart(frames, start + least)

    def _board(self, lane: Lane, index: int, loads: dict[Connection, _Load], count: int) -> _Ride | None:
        """What sends to one queue need in this turn, of ``count`` at most; None where they cannot go from here."""
        seat = lane.seat_at(index)
        if seat is None:
            return None
        connection = seat.connection
        if connection not in loads:
            loads[connection] = [], iter(connection.reserve(count))
        frames, opaques = loads[connection]
        return seat.queue, seat.around_id, seat.template, frames, connection.calls.waiting, opaques

    def start_batch(
        self, messages: Sequence[Message], timeout: float | None, queue: MessageQueue | None = None
    ) -> Future[SendResult] | None:
        """The same for messages in one request."""
        seconds = seconds_of(timeout, self._producer.send_timeout)
        if _get_running_loop() is not self._loop or not messages or type(messages) not in _LISTS:
            return None
        if {*map(type, messages)} != _PLAIN or (queue is not None and type(queue) is not MessageQueue):
            return None
        topic = messages[0].topic
        lane = self._batches.get(topic) or self._batches.open(topic)
        if lane is None or lane.closed:
            return None
        self.leave_now(topic)
        lane.renew()
        start, before = self._clock(), lane.turn.last
        index = lane.number(queue, start)
        seat = None if index is None else lane.seat_at(index)
        turn, lane.turn.last = lane.turn.last, before
        if seat is None:
            return None
        now = time()
        ids = identity.unique_keys().stretches(now, len(messages))
        body = encode_ordinary(messages, ids, self._producer.max_message_size)
        if body is None or len(body) > _LONGEST or not self.window.take(len(body)):
            return None
        lane.turn.last = turn
        born, future = int(now * 1000), self._new_future()
        text, key, connection = wait_of(messages[0]), ids.joined(), seat.connection
        send = QuickSend(self, lane, future, body, text, seconds, key, queue, seat.queue, born, start, batch=True)
        (opaque,) = connection.reserve(1)
        connection.calls.waiting[opaque] = (send, _SEND_BATCH, start + seconds)
        template = seat.template
        head = template.fill(opaque, b"%d" % born, template.quote(text), len(body))
        connection.depart([head, body], start + seconds)
        return future

    def ordinary(self, send: QuickSend) -> Send:
        """A send in its ordinary form, after its first attempt or, where that was not to be made here, before it."""
        producer, queue, wish, lane = self._producer, send.queue, send.wish, send.lane
        header = self._header(lane.topic, send.text if send.batch else BEFORE_ID + send.key + send.text, 0, 0, 0.0)
        header.born_timestamp, header.batch = send.born, send.batch
        header.queue_id = 0 if queue is None else queue.queue_id
        return Send(
            producer,
            self._session,
            _SEND_BATCH if send.batch else _SEND,
            header,
            send.body,
            send.key,
            self._choice(lane.turn) if wish is None else lambda route, avoid: wish,
            attempts=1 + producer.retries if wish is None else 1,
            timeout=send.timeout,
            faults=self.faults if wish is None else None,
            future=send.future,
            start=send.start,
            size=len(send.body),
            taken=0.0 if queue is None else send.start,
            tries=0 if queue is None else 1,
            brokers=() if queue is None else (queue.broker_name,),
            queue=queue,
        )

    def ended(self, count: int, size: int, last: QuickSend) -> None:
        """So many sends of one broker, of so many bytes, were answered, this one last."""
        self.window.leave(size, count)
        if self.faults is not None and last.wish is None and last.queue is not None:
            now = self._clock()
            broker = last.queue.broker_name
            self.faults.ended(broker, int((now - last.start) * 1000), int(now * 1000), failed=False)


_Load = tuple[list[bytes], Iterator[int]]
"""What goes to one connection: pieces of frames, and opaques for more."""
_Ride = tuple[MessageQueue, Template, Template, list[bytes], dict[int, Any], Iterator[int]]
"""A queue, the templates of its sends, the pieces of its connection, the calls of that, and opaques."""


def read_answers(connection: Connection, data: bytes, at: int) -> int:
    """Give the answers that begin here to their sends, as far as they are ordinary; where the others begin."""
    waiting = connection.calls.waiting
    size = len(data)
    sends, send, count, freed = None, None, 0, 0
    while size - at > 8:
        length, word = _prefix(data, at)
        end, body_at = at + 4 + length, at + 8 + (word & 0xFFFFFF)
        if end > size or body_at > end:
            break
        header = data[at + 8 : body_at]
        try:
            if word >> 24 == _JSON:
                answer: StoredAnswer | None = read_stored_json(header)
            else:
                answer = read_stored_binary(header) if word >> 24 == _BINARY else None
            if answer is None:
                break
            found = waiting[answer.opaque][0]
        except _NOT_HERE:
            break
        if type(found) is not QuickSend or (queue := found.queue) is None:
            break
        del waiting[answer.opaque]
        at = end
        if found.sends is not sends:
            if sends is not None and send is not None:
                sends.ended(count, freed, send)
            sends, count, freed = found.sends, 0, 0
        send = found
        stored, future = answer.stored, send.future
        if stored.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, stored.queue_id)
        count += 1
        freed += len(send.body)
        if not future.done():
            what = _SEND_OK, send.key, stored.msg_id, queue, stored.queue_offset, stored.transaction_id
            future.set_result(SendResult(*what))
    if sends is not None and send is not None:
        sends.ended(count, freed, send)
    return at
