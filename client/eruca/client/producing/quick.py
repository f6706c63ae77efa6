"""The short way of sends: what nearly every one of them needs, and nothing else.

Owns, by topic, the seats: for each queue the connection to its broker and what writes requests to it. A message to a
topic whose route is known, of an ordinary size and at nobody's special wish waits here for the others of its turn of
the loop; then all are written in one go, with one look at clocks and connections. Many answers of one read are taken by
``read_answers`` in one go, too. Whatever is not ordinary takes the ordinary way (``sends``), at the start or, after a
failure, from there on: its rules of retries hold for both. Invariant: the two differ in time only, not in what is sent,
answered, counted or raised.
"""

from __future__ import annotations

import math
import struct
from asyncio import Future, _get_running_loop
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eruca.client.message import AFTER_ID, BEFORE_ID, Message
from eruca.client.network import identity
from eruca.client.producing.batch import encode_ordinary, wait_of
from eruca.client.producing.sends import Send, SendResult, SendStatus
from eruca.client.selectors import RoundRobin
from eruca.protocol import api, frame
from eruca.protocol.forms import Fill, Write
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.queues import MessageQueue
from eruca.protocol.send_answers import StoredAnswer, read_binary, read_json
from eruca.remoting import Answer, Connection

if TYPE_CHECKING:
    from eruca.client.network.session import Session
    from eruca.client.producing.producer import Producer

_REMEMBERED: Final = 1024
"""Topics with seats; beyond that all are forgotten and made anew."""
_LONGEST: Final = 8 * 1024 * 1024
"""Bytes of a body that surely fit a frame."""
_TIMES: Final = 1e9, 1e10
"""Seconds since 1970 between which a time in ms has 13 digits, as prepared requests want it."""
_NOT_HERE: Final = (KeyError, *frame.UNREADABLE)
_PLAIN: Final = {Message}
_prefix = struct.Struct(">II").unpack_from


class Seat(msgspec.Struct, eq=False):
    """One queue to send to, with all that repeats from send to send."""

    queue: MessageQueue
    connection: Connection
    fill: Fill
    write: Write
    """Writes sends that ask for nothing else, by their unique ids."""


class Lane(msgspec.Struct, eq=False):
    """The seats of one topic, as of a version of the directory; None where there is none yet, or none any more."""

    topic: str
    turn: RoundRobin
    version: int = -1
    queues: Sequence[MessageQueue] = ()
    seats: list[Seat | None] = []
    pending: list[QuickSend] = []
    """What leaves at the end of this turn of the loop."""
    closed: bool = False
    """Whether the connections of this session change each header (accounts, namespaces): nothing goes from here."""


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
    """The short way of one producer, which has no hooks and no table of faults, in one session.

    ``header`` makes the header of a send from topic, properties, sysFlag, flag and the time in seconds since 1970;
    ``turns`` has the turns of each topic that the producer has sent to.
    """

    def __init__(
        self,
        producer: Producer,
        session: Session,
        header: Callable[[str, str, int, int, float], SendMessageV2],
        turns: Mapping[str, RoundRobin],
    ) -> None:
        self._producer = producer
        self._session = session
        self._header = header
        self._turns = turns
        self._directory, self._greeted = session.directory, session.greeted
        loop = self._loop = session.loop
        self._new_future, self._clock = loop.create_future, loop.time
        self._longest = min(producer.compress_from - 1, producer.max_message_size, _LONGEST)
        self.window = producer.window
        self._singles: dict[str, Lane] = {}
        self._batches: dict[str, Lane] = {}

    def start(self, message: Message, timeout: float | None) -> Future[SendResult] | None:
        """Send a message; None when nothing was done, as the ordinary way has to do it, or to tell what is wrong."""
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
        lane = self._singles.get(message.topic) or self._open(message.topic, self._singles)
        if lane is None or lane.closed:
            return None
        if message.tags or message.keys or message.properties or not message.wait_store:
            text = message.text_after_id()
        else:
            text = AFTER_ID
        seconds = self._producer.send_timeout if timeout is None else float(timeout)
        if not self.window.take(len(body)):
            return None
        pending, future = lane.pending, self._new_future()
        if not pending:
            self._loop.call_soon(self._leave, lane)
        pending.append(QuickSend(self, lane, future, body, text, seconds))
        return future

    def _leave(self, lane: Lane) -> None:
        """All that was sent in this turn of the loop goes to its connections."""
        pending, lane.pending = lane.pending, []
        now, start = time(), self._clock()
        born = int(now * 1000)
        digits = b"%d" % born
        self._renew(lane)
        rides: list[_Ride | None] = [None] * len(lane.seats)
        loads: dict[Connection, _Load] = {}
        turn, count, least = lane.turn.last, len(rides), math.inf
        for send, key in zip(pending, identity.unique_keys().several(now, len(pending)), strict=True):
            body, text, seconds = send.body, send.text, send.timeout
            if send.future.done():  # its caller has given it up
                self.window.leave(len(body))
                continue
            send.key, send.born, send.start = key, born, start
            turn += 1
            ride = rides[turn % count] if count else None
            if ride is None:
                ride = self._board(lane, turn % count, loads, len(pending)) if count else None
                if ride is None:
                    lane.turn.last = turn - 1
                    self.ordinary(send).attempt()
                    turn = lane.turn.last
                    continue
                rides[turn % count] = ride
            send.queue, write, fill, frames, waiting, opaques = ride
            opaque = next(opaques)
            if text is AFTER_ID:
                frames += (write(digits, key.encode(), opaque, len(body)), body)
            else:
                frames += (fill(born, BEFORE_ID + key + text, opaque, len(body)), body)
            waiting[opaque] = (send, api.SEND_MESSAGE_V2, start + seconds)
            if seconds < least:
                least = seconds
        lane.turn.last = turn
        for connection, (frames, _) in loads.items():
            connection.depart(frames, start + least)

    def _board(self, lane: Lane, index: int, loads: dict[Connection, _Load], count: int) -> _Ride | None:
        """What sends to one queue need in this turn, of ``count`` at most; None where they cannot go from here."""
        seat = self._seat_at(lane, index, batch=False)
        if seat is None:
            return None
        connection = seat.connection
        if connection not in loads:
            loads[connection] = [], iter(connection.reserve(count))
        frames, opaques = loads[connection]
        return seat.queue, seat.write, seat.fill, frames, connection.calls.waiting, opaques

    def start_batch(self, messages: Sequence[Message], timeout: float | None) -> Future[SendResult] | None:
        """The same for messages in one request."""
        if _get_running_loop() is not self._loop or not messages:
            return None
        if {*map(type, messages)} != _PLAIN:
            return None
        topic = messages[0].topic
        lane = self._batches.get(topic) or self._open(topic, self._batches)
        if lane is None or lane.closed:
            return None
        self._renew(lane)
        count = len(lane.seats)
        seat = self._seat_at(lane, (lane.turn.last + 1) % count, batch=True) if count else None
        if seat is None:
            return None
        now = time()
        ids = identity.unique_keys().stretches(now, len(messages))
        body = encode_ordinary(messages, ids, self._producer.max_message_size)
        if body is None or len(body) > _LONGEST or not self.window.take(len(body)):
            return None
        lane.turn.last += 1
        start, born, future = self._clock(), int(now * 1000), self._new_future()
        seconds = self._producer.send_timeout if timeout is None else timeout
        text, key, connection = wait_of(messages[0]), ids.joined(), seat.connection
        send = QuickSend(self, lane, future, body, text, seconds, key, seat.queue, born, start, batch=True)
        (opaque,) = connection.reserve(1)
        connection.calls.waiting[opaque] = (send, api.SEND_BATCH_MESSAGE, start + seconds)
        connection.depart([seat.fill(born, text, opaque, len(body)), body], start + seconds)
        return future

    def _open(self, topic: str, lanes: dict[str, Lane]) -> Lane | None:
        """The lane of a topic that was sent to before, the ordinary way, and so is found legal and has turns."""
        turn = self._turns.get(topic)
        if turn is None:
            return None
        if len(lanes) >= _REMEMBERED:
            lanes.clear()
        lane = lanes[topic] = Lane(topic, turn)
        return lane

    def _renew(self, lane: Lane) -> None:
        """Let a lane have the seats of today's route; none where there is no route."""
        if lane.version != self._directory.version:
            route = self._directory.routes.get(lane.topic)
            lane.version = self._directory.version
            lane.queues = () if route is None else route.to_send
            lane.seats = [None] * len(lane.queues)

    def _seat_at(self, lane: Lane, index: int, *, batch: bool) -> Seat | None:
        """The seat at a queue of this number; None where its broker is not connected."""
        seat = lane.seats[index]
        if seat is None or seat.connection.closed or seat.connection not in self._greeted:
            seat = lane.seats[index] = self._sit(lane, index, batch=batch)
        return seat

    def _sit(self, lane: Lane, index: int, *, batch: bool) -> Seat | None:
        queue, now, session = lane.queues[index], time(), self._session
        address = session.to_send_now(queue.broker_name)
        connection = None if address is None else session.ready(address)
        if connection is None or connection not in self._greeted or not _TIMES[0] < now < _TIMES[1]:
            return None
        header = self._header(queue.topic, "", 0, 0, now)
        header.queue_id, header.batch = queue.queue_id, batch
        endpoint = api.SEND_BATCH_MESSAGE if batch else api.SEND_MESSAGE_V2
        form = connection.form_of(endpoint.code, header)
        if form is None:
            lane.closed = True
            return None
        return Seat(queue, connection, form.fill, form.around(BEFORE_ID, AFTER_ID))

    def ordinary(self, send: QuickSend) -> Send:
        """A send in its ordinary form, after its first attempt or, where that was not to be made here, before it."""
        producer, queue, lane = self._producer, send.queue, send.lane
        header = self._header(lane.topic, send.text if send.batch else BEFORE_ID + send.key + send.text, 0, 0, 0.0)
        header.born_timestamp, header.batch = send.born, send.batch
        header.queue_id = 0 if queue is None else queue.queue_id
        return Send(
            producer,
            self._session,
            api.SEND_BATCH_MESSAGE if send.batch else api.SEND_MESSAGE_V2,
            header,
            send.body,
            send.key,
            lane.turn.choose_of,
            attempts=1 + producer.retries,
            timeout=send.timeout,
            faults=None,
            future=send.future,
            start=send.start,
            size=len(send.body),
            tries=0 if queue is None else 1,
            brokers=() if queue is None else (queue.broker_name,),
            queue=queue,
        )


_Load = tuple[list[bytes], Iterator[int]]
"""What goes to one connection: pieces of frames, and opaques for more."""
_Ride = tuple[MessageQueue, Write, Fill, list[bytes], dict[int, Any], Iterator[int]]
"""A queue, what writes its sends, the pieces of its connection, the calls of that, and opaques."""


def read_answers(connection: Connection, data: bytes, at: int) -> int:
    """Give the answers that begin here to their sends, as far as they are ordinary; where the others begin."""
    waiting = connection.calls.waiting
    size = len(data)
    window, count, freed = None, 0, 0
    while size - at > 8:
        length, word = _prefix(data, at)
        end, body_at = at + 4 + length, at + 8 + (word & 0xFFFFFF)
        if end > size or body_at > end:
            break
        header = data[at + 8 : body_at]
        try:
            if word >> 24 == frame.JSON:
                answer: StoredAnswer | None = read_json(header)
            else:
                answer = read_binary(header) if word >> 24 == frame.ROCKETMQ else None
            if answer is None:
                break
            send = waiting[answer.opaque][0]
        except _NOT_HERE:
            break
        if type(send) is not QuickSend or (queue := send.queue) is None:
            break
        del waiting[answer.opaque]
        at = end
        stored, future = answer.stored, send.future
        if stored.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, stored.queue_id)
        if send.sends.window is not window:
            if window is not None:
                window.leave(freed, count)
            window, count, freed = send.sends.window, 0, 0
        count += 1
        freed += len(send.body)
        if not future.done():
            future.set_result(
                SendResult(
                    SendStatus.SEND_OK, send.key, stored.msg_id, queue, stored.queue_offset, stored.transaction_id
                )
            )
    if window is not None:
        window.leave(freed, count)
    return at
