"""The short way of sends: what nearly every one of them needs, and nothing else.

Owns, by topic, the seats: for each queue the connection to its broker and what writes requests to it. A message to a
topic whose route is known, over a connection that is open, of an ordinary size and at nobody's special wish goes from
here straight into the connection; many answers of one read are taken by ``read_answers`` in one go. Whatever is not
ordinary takes the ordinary way (``sends``), at the start or, after a failure, from there on: its rules of retries hold
for both. Invariant: the two differ in time only, not in what is sent, answered, counted or raised.
"""

from __future__ import annotations

import struct
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from time import time
from typing import TYPE_CHECKING, Final

import msgspec

from eruca.client.message import Message
from eruca.client.network import identity
from eruca.client.producing.batch import encode_ordinary, wait_of
from eruca.client.producing.sends import Send, SendResult, SendStatus
from eruca.client.selectors import RoundRobin
from eruca.protocol import api
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.queues import MessageQueue
from eruca.protocol.send_answers import read
from eruca.remoting import Answer, Connection, Prepared

if TYPE_CHECKING:
    from eruca.client.network.session import Session
    from eruca.client.producing.producer import Producer

_REMEMBERED: Final = 1024
"""Topics with seats; beyond that all are forgotten and made anew."""
_TIMES: Final = 1e9, 1e10
"""Seconds since 1970 between which a time in ms has 13 digits, as prepared requests want it."""
_prefix = struct.Struct(">II").unpack_from


class Seat(msgspec.Struct, eq=False):
    """One queue to send to, with all that repeats from send to send."""

    queue: MessageQueue
    turn: RoundRobin
    connection: Connection
    prepared: Prepared[SendReply]


class Lane(msgspec.Struct, eq=False):
    """The seats of one topic, as of a version of the directory; None where there is none yet, or none any more."""

    version: int
    turn: RoundRobin
    queues: Sequence[MessageQueue]
    seats: list[Seat | None]


class QuickSend(msgspec.Struct, eq=False, gc=False):
    """One send under way (a Receiver), until something happens to it that is not ordinary."""

    sends: QuickSends
    seat: Seat
    future: Future[SendResult]
    key: str
    born: int
    properties: str
    body: bytes
    start: float
    """When it began, by the loop's time."""
    timeout: float

    def done(self) -> bool:
        """As ``Send.done``."""
        return False

    def set_result(self, answer: Answer[SendReply], /) -> None:
        """An answer that ``read_answers`` left alone."""
        self._ordinary().set_result(answer)

    def set_exception(self, exception: Exception, /) -> None:
        """This attempt failed."""
        self._ordinary().set_exception(exception)

    def _ordinary(self) -> Send:
        """The same send after its first attempt, in its ordinary form."""
        return self.sends.ordinary(self)


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
        self._thread, self._forks = session.thread, session.forks
        self._directory, self._greeted = session.directory, session.greeted
        loop = session.loop
        self._loop_runs, self._new_future, self._clock = loop.is_running, loop.create_future, loop.time
        self.window = producer.window
        self._singles: dict[str, Lane] = {}
        self._batches: dict[str, Lane] = {}

    def start(self, message: Message, timeout: float | None) -> Future[SendResult] | None:
        """Send a message; None when nothing was done, as the ordinary way has to do it, or to tell what is wrong."""
        if type(message) is not Message:
            return None
        body = message.body
        if type(body) is not bytes or message.flag or message.delay_level or message.timer:
            return None
        size, producer = len(body), self._producer
        seat = self._seat(message.topic, self._singles)
        if seat is None or not 0 < size < producer.compress_from or size > producer.max_message_size:
            return None
        now = time()
        key = identity.unique_keys().next(now)
        properties = message.properties_text(key)
        if not self.window.take(size):
            return None
        return self._go(seat, key, now, properties, body, timeout)

    def start_batch(self, messages: Sequence[Message], timeout: float | None) -> Future[SendResult] | None:
        """The same for messages in one request."""
        if not messages or any([type(message) is not Message for message in messages]):
            return None
        seat = self._seat(messages[0].topic, self._batches)
        if seat is None:
            return None
        now = time()
        keys = identity.unique_keys().several(now, len(messages))
        body = encode_ordinary(messages, keys, self._producer.max_message_size)
        if body is None or not self.window.take(len(body)):
            return None
        return self._go(seat, ",".join(keys), now, wait_of(messages[0]), body, timeout)

    def _go(
        self, seat: Seat, key: str, now: float, properties: str, body: bytes, timeout: float | None
    ) -> Future[SendResult]:
        seat.turn.last += 1
        future: Future[SendResult] = self._new_future()
        start, born = self._clock(), int(now * 1000)
        seconds = self._producer.send_timeout if timeout is None else timeout
        send = QuickSend(self, seat, future, key, born, properties, body, start, seconds)
        seat.connection.call_prepared(send, seat.prepared, born, properties, body, start + seconds)
        return future

    def _seat(self, topic: str, lanes: dict[str, Lane]) -> Seat | None:
        """The seat whose turn it is; None where there is none, or when this is not the place to send from."""
        if get_ident() != self._thread or not self._loop_runs() or self._forks != identity.fork_count():
            return None
        lane = lanes.get(topic)
        if lane is None or lane.version != self._directory.version:
            lane = self._open(topic, lanes)
            if lane is None:
                return None
        seats = lane.seats
        index = (lane.turn.last + 1) % len(seats)
        seat = seats[index]
        if seat is None or seat.connection.closed or seat.connection not in self._greeted:
            seat = seats[index] = self._sit(lane, index, batch=lanes is self._batches)
        return seat

    def _open(self, topic: str, lanes: dict[str, Lane]) -> Lane | None:
        """The lane of a topic that was sent to before, the ordinary way, and so is found legal and has turns."""
        turn, route = self._turns.get(topic), self._directory.routes.get(topic)
        if turn is None or route is None or not route.to_send:
            return None
        if len(lanes) >= _REMEMBERED:
            lanes.clear()
        lane = lanes[topic] = Lane(self._directory.version, turn, route.to_send, [None] * len(route.to_send))
        return lane

    def _sit(self, lane: Lane, index: int, *, batch: bool) -> Seat | None:
        queue, now, session = lane.queues[index], time(), self._session
        address = session.to_send_now(queue.broker_name)
        connection = None if address is None else session.ready(address)
        if connection is None or connection not in self._greeted or not _TIMES[0] < now < _TIMES[1]:
            return None
        header = self._header(queue.topic, "", 0, 0, now)
        header.queue_id, header.batch = queue.queue_id, batch
        prepared = connection.prepare(api.SEND_BATCH_MESSAGE if batch else api.SEND_MESSAGE_V2, header)
        return None if prepared is None else Seat(queue, lane.turn, connection, prepared)

    def ordinary(self, send: QuickSend) -> Send:
        """A send after its first attempt, in its ordinary form."""
        producer, seat = self._producer, send.seat
        header = self._header(seat.queue.topic, send.properties, 0, 0, 0.0)
        header.queue_id, header.born_timestamp = seat.queue.queue_id, send.born
        header.batch = seat.prepared.endpoint is api.SEND_BATCH_MESSAGE
        return Send(
            producer,
            self._session,
            seat.prepared.endpoint,
            header,
            send.body,
            send.key,
            seat.turn.choose_of,
            attempts=1 + producer.retries,
            timeout=send.timeout,
            faults=None,
            future=send.future,
            start=send.start,
            size=len(send.body),
            tries=1,
            brokers=(seat.queue.broker_name,),
            queue=seat.queue,
        )


def read_answers(connection: Connection, data: bytes, at: int) -> int:
    """Give the answers that begin here to their sends, as far as they are ordinary; where the others begin."""
    waiting = connection.calls.waiting
    size = len(data)
    while size - at > 8:
        length, word = _prefix(data, at)
        end, body_at = at + 4 + length, at + 8 + (word & 0xFFFFFF)
        if end > size or body_at > end:
            break
        answer = read(word >> 24, data[at + 8 : body_at])
        if answer is None:
            break
        call = waiting.get(answer.opaque)
        if call is None:
            break
        send = call[0]
        if type(send) is not QuickSend:
            break
        del waiting[answer.opaque]
        at = end
        stored, queue, future = answer.stored, send.seat.queue, send.future
        if stored.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, stored.queue_id)
        send.sends.window.leave(len(send.body))
        if not future.done():
            future.set_result(
                SendResult(
                    SendStatus.SEND_OK, send.key, stored.msg_id, queue, stored.queue_offset, stored.transaction_id
                )
            )
    return at
