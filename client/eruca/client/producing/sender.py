"""Sends leave for their brokers, and their answers come back: attempts, retries, results.

Owns one turn's drain of the accumulator: each send gets its queue and its unique id, is encoded, and all for one
connection leave in one write, with one look at clocks and routes. A send whose route or connection is missing waits
for it (``Gates``), and one that is tried again perhaps for its broker (``Backoff``); then they are put back into the
accumulator, before all others. Invariants: what was started first leaves first; a send ends exactly once.
Facts: DefaultMQProducerImpl.sendDefaultImpl in 4.9.7. Kafka's word for this is Sender.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Collection, Coroutine, Iterator
from time import time
from typing import Any, Final

from eruca.client.admin_calls import NEW_TOPIC_QUEUES
from eruca.client.errors import (
    BrokerNotFound,
    BrokerRefused,
    CallTimeout,
    ClientError,
    SendFailed,
    UsageError,
    translate,
)
from eruca.client.network import identity
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult, SendStatus
from eruca.client.producing.accumulator import MAX_IN_FLIGHT, MAX_IN_FLIGHT_SIZE, Accumulator
from eruca.client.producing.backoff import Backoff, stopped
from eruca.client.producing.encoder import encoder_of
from eruca.client.producing.gates import Gates
from eruca.client.producing.latency_faults import LatencyFaults
from eruca.client.producing.send import PLAIN, Begin, Send, SendKind, may_pass, should_retry
from eruca.client.producing.topic_queues import Target, TopicQueues
from eruca.client.watched_future import fail
from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.memo import Memo
from eruca.protocol.names import DEFAULT_TOPIC
from eruca.protocol.queues import MessageQueue
from eruca.protocol.templates import StoredAnswer, Writer
from eruca.remoting import Answer, Connection

_TOPICS: Final = 1024
"""Topics whose queues are remembered."""
_KINDS: Final = 64
"""Kinds of sends whose encoders are remembered for a queue."""
_ONEWAY_UNSENT: Final = 64 * 1024
"""Bytes that one-way sends leave in a connection before they wait for it."""
_SEND_OK: Final = SendStatus.SEND_OK
_HEADER_SIZE: Final = 256
"""Bytes of a request beside body and properties, about."""
_STATUS: Final = {each.value: each for each in SendStatus}

_ConnectionBatch = tuple[list[bytes], dict[int, Send], Iterator[int]]
"""What goes to one connection in this turn: pieces of frames, calls by opaque, and opaques for more."""
_QueueBatch = tuple[MessageQueue, Writer, Target, list[bytes], dict[int, Send], Iterator[int]]
"""What the sends of this turn to one queue need; the encoder is that of plain sends."""


class _Leaving:
    """What leaves in one turn, of ``count`` sends at most."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.by_connection: dict[Connection, _ConnectionBatch] = {}
        self.by_topic: dict[TopicQueues, list[_QueueBatch | None]] = {}
        self.oneway: list[Send] = []

    def to(self, connection: Connection) -> _ConnectionBatch:
        """What goes to one connection."""
        batch = self.by_connection.get(connection)
        if batch is None:
            batch = self.by_connection[connection] = [], {}, iter(connection.reserve(self._count))
        return batch


class Sender:
    """Sends for one group in one session.

    Args:
        new_topic_queues: queues of a topic that the first send creates.
        max_in_flight, max_in_flight_size: bounds of the sends under way (see ``Accumulator``).
        retry_codes: further response codes after which another broker is asked (see ``should_retry``).
        retry_when_not_stored: tries again, too, when a send is answered with another status than SEND_OK.
        fault_tolerance: passes over brokers that failed or answered late (see ``LatencyFaults``).
        retry_backoff: seconds until a broker is tried again where no other one is left (see ``Backoff``); None: it is
            tried again at once, and as often as the send says.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        new_topic_queues: int = NEW_TOPIC_QUEUES,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_in_flight_size: int = MAX_IN_FLIGHT_SIZE,
        retry_codes: Collection[int] = (),
        retry_when_not_stored: bool = False,
        fault_tolerance: bool = False,
        retry_backoff: float | None = None,
    ) -> None:
        self.session = session
        self.loop, self.thread, self.forks = session.loop, session.thread, session.forks
        self.accumulator = Accumulator(session.loop, self._drain, max_in_flight, max_in_flight_size)
        self.topics: Memo[str, TopicQueues] = Memo(_TOPICS)
        """The topics that were sent to, whose names are legal therefore."""
        self._group = group
        self._new_topic_queues = new_topic_queues
        self._retry_codes = frozenset(retry_codes)
        self._retry_when_not_stored = retry_when_not_stored
        self._faults = LatencyFaults() if fault_tolerance else None
        self._backoff: Backoff | None = None
        if retry_backoff is not None:
            self._backoff = Backoff(
                session,
                retry_backoff,
                again=self.accumulator.let_go,
                give_up=self._give_up,
                drop=self._fail,
            )
        self._gates = Gates(
            session,
            new_topic_queues,
            retry_backoff=retry_backoff,
            let_go=self.accumulator.let_go,
            failed=self._not_reached,
            drop=self._fail,
        )
        self._asking: set[Send] = set()
        """Those that are tried again when a task has asked for the route."""
        self._clock = session.loop.time
        self._gathered = 0
        """Bytes of the one-way sends that leave at the end of this turn."""

    def topic(self, name: str) -> TopicQueues:
        """The queues of a topic whose name is legal."""
        found = self.topics.get(name)
        return self.topics.remember(name, TopicQueues(name)) if found is None else found

    def append(self, send: Send) -> None:
        """Start a send; its future may have ended when this returns."""
        oneway = send.kind.oneway
        if send.choose is not None or oneway:
            topic = send.topic
            if topic.version != self.session.directory.version:
                topic.renew(self.session.directory)
            if topic.in_turn:
                try:
                    self._choose(send, topic)
                except (Exception, asyncio.CancelledError) as error:
                    fail(send.future, _error_of_user(error))
                    return
        if not oneway:
            if send.packing:
                self.accumulator.hold(send)
            else:
                self.accumulator.append(send)
            return
        send.attempts = 1
        if self._may_gather(send):  # one-way sends are not counted
            send.unattended = True
            self.accumulator.reenqueue(send)
        else:
            pending = self.accumulator.take_pending()  # what was started before leaves before
            pending.append(send)
            self._drain(pending, flush=False)

    def under_way(self) -> list[Send]:
        """The sends that have not ended, but for one-way sends that leave in this turn."""
        waiting = self._backoff.waiting if self._backoff is not None else ()
        asked = [call for each in self.session.channels.connections() for call in each.calls.waiting.values()]
        own = [call for call in asked if isinstance(call, Send) and call.owner is self]
        found = [*own, *self._gates.sends(), *self._asking, *waiting, *self.accumulator.not_begun()]
        return [send for send in found if not send.unattended]

    def _may_gather(self, send: Send) -> bool:
        """Whether a one-way send can leave at the end of this turn, and nobody has to wait for that.

        Not when its broker is not connected or does not read, nor when many bytes are unsent.
        """
        topic, queue = send.topic, send.queue
        target = None if queue is None else topic.targets[topic.number(queue)]
        if target is None:
            return False
        connection, size = target.connection, self._gathered + _HEADER_SIZE + len(send.body) + len(send.text)
        if connection.closed or connection.congested or size + connection.unsent > _ONEWAY_UNSENT:
            return False
        self._gathered = size
        return True

    # ------------------------------------------------------------------ leaving

    def _drain(self, pending: list[Send], *, flush: bool = True) -> None:
        """Send what was gathered in this turn of the loop, in its order."""
        self._gathered = 0
        now, start = time(), self._clock()
        begin = Begin(start, b"%d" % int(now * 1000))
        leaving = _Leaving(len(pending))
        topic: TopicQueues | None = None
        earliest = math.inf
        for send, key in zip(pending, identity.unique_keys().several(now, len(pending)), strict=True):
            if send.future.done():  # its caller has cancelled it
                self._release(send)
                continue
            if send.topic is not topic:
                topic = send.topic
                batches, steps = self._begin_topic(topic, leaving, start)
                turn, count = topic.turn, len(steps)
            begun = send.begin
            if begun is not None:
                key = send.key
                batch = self._choose_batch(send, batches, leaving)
            else:
                begun = send.begin = begin
                send.key = key = send.key or key
                if count and send.queue is None and send.choose is None:
                    turn.last = last = turn.last + 1
                    number = steps[last % count]
                    if send.hooks is not None and self._is_refused(send, topic.queues[number]):
                        continue
                    batch = batches[number] or self._begin_batch(send, number, leaving)
                else:
                    batch = self._choose_batch(send, batches, leaving)
            if batch is None:
                continue
            send.queue, encode, target, frames, calls, opaques = batch
            body, kind = send.body, send.kind
            if kind is not PLAIN:
                encode = target.others.get(kind) or self._new_encoder(target, kind)
                if kind.oneway:
                    leaving.oneway.append(send)
                    calls = {}  # nobody awaits an answer
            opaque = next(opaques)
            try:
                frames += (encode(opaque, begun.born, key, send.text, body), body)
            except ProtocolError as error:  # too long for a frame
                self._fail(send, translate(error))
                continue
            send.deadline = deadline = begun.start + send.timeout
            if deadline < earliest:
                earliest = deadline
            calls[opaque] = send
        self._leave(leaving, earliest, flush)

    def _leave(self, leaving: _Leaving, earliest: float, flush: bool) -> None:
        """Write the requests of a turn; ``earliest`` is the first deadline of their answers."""
        for connection, (frames, calls, _) in leaving.by_connection.items():
            connection.call_many(frames, calls, earliest, flush=flush)
        if leaving.by_connection:
            self.session.silence.watch()
        for send in leaving.oneway:
            if not send.unattended and not send.future.done():
                assert send.queue is not None
                send.future.set_result(SendResult(_SEND_OK, send.key, "", send.queue, -1))

    def _begin_topic(
        self, topic: TopicQueues, leaving: _Leaving, start: float
    ) -> tuple[list[_QueueBatch | None], list[int]]:
        """The batches of a topic in this turn, by number of the queue, and the numbers through which sends take turns.

        There are none of these where each send has to choose.
        """
        if topic.version != self.session.directory.version:
            topic.renew(self.session.directory)
        batches = leaving.by_topic.setdefault(topic, [])
        batches += [None] * (len(topic.queues) - len(batches))
        if topic.new or topic.name in self._gates.waiting:
            return batches, []
        if self._faults is None or topic.route is None:
            return batches, topic.in_turn
        return batches, self._faults.in_turn(topic.route, int(start * 1000))

    def _choose_batch(self, send: Send, batches: list[_QueueBatch | None], leaving: _Leaving) -> _QueueBatch | None:
        """Choose the queue of an attempt unless that was done; None for a send that failed or waits."""
        topic, queue = send.topic, send.queue
        if queue is None:
            try:
                queue = self._choose(send, topic)
            except (Exception, asyncio.CancelledError) as error:
                self._fail(send, _error_of_user(error))
                return None
            if queue is None:
                self._gates.wait(send)
                return None
        if topic.new:
            self._expect_topic(send)
        number = topic.numbers.get(queue)
        if number is None:  # a queue that the route does not name
            number = topic.number(queue)
        if number == len(batches):
            batches.append(None)
        return batches[number] or self._begin_batch(send, number, leaving)

    def _expect_topic(self, send: Send) -> None:
        """Look for a topic that this send creates, as soon as that is done: consumers may wait for it."""
        expect, topic = self.session.directory.expect, send.topic.name
        if send.kind.oneway:
            expect(topic)
        else:
            send.future.add_done_callback(lambda _: expect(topic))

    def _is_refused(self, send: Send, queue: MessageQueue) -> bool:
        """Call the hooks of a send whose queue is chosen; whether one refused it, which ends it."""
        assert send.hooks is not None
        try:
            send.hooks.chosen(send, queue)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(send, _error_of_user(error))
            return True
        return False

    def _choose(self, send: Send, topic: TopicQueues) -> MessageQueue | None:
        """Choose the queue of an attempt; None where no route is known, or others wait for it.

        Raises what selectors and hooks raise.
        """
        route = topic.route
        if route is None or not topic.in_turn or topic.name in self._gates.waiting:
            return None
        if send.choose is not None:
            queue = send.choose(route)
            send.choose = None
        elif self._faults is not None:
            queue = self._faults.choose(route, topic.turn, int(self._clock() * 1000))
            if self._backoff is not None and self._backoff.is_closed(queue.broker_name):
                queue = topic.turn.choose(route.to_send, self._backoff.avoided(topic, queue.broker_name))
        elif not send.brokers:
            queue = topic.turn.choose(route.to_send)
        elif self._backoff is None:
            queue = topic.turn.choose(route.to_send, send.brokers[-1:])
        else:
            queue = topic.turn.choose(route.to_send, self._backoff.avoided(topic, send.brokers[-1]))
        send.queue = queue
        if send.hooks is not None:
            send.hooks.chosen(send, queue)
        return queue

    def _begin_batch(self, send: Send, number: int, leaving: _Leaving) -> _QueueBatch | None:
        """What the sends of this turn to one queue need; None, and this one waits, where its broker is not connected
        or others wait for the queue."""
        topic, queue, backoff = send.topic, send.topic.queues[number], self._backoff
        target = topic.targets[number]
        if target is None or target.connection.closed or target.connection not in self.session.greeted:
            target = topic.targets[number] = self._connected(target, queue)
        if (
            backoff is not None
            and not send.kind.oneway
            and (queue in backoff.queues or (target is None and backoff.is_closed(queue.broker_name)))
        ):
            send.queue = queue
            self._end_attempt(send)
            self._wait(send, backoff)
            return None
        if target is None or queue in self._gates.waiting:
            send.queue = queue
            self._gates.wait(send)
            return None
        batch = leaving.by_topic[topic][number] = target.queue, target.plain, target, *leaving.to(target.connection)
        return batch

    def _connected(self, target: Target | None, queue: MessageQueue) -> Target | None:
        """The target of a queue by the connection that its broker has now; None where it has none."""
        address = self.session.to_send_now(queue.broker_name)
        connection = None if address is None else self.session.ready(address)
        if connection is None or (target is not None and target.connection is connection):
            return None if connection is None else target
        return Target(queue, connection, self._make_encoder(queue, connection, PLAIN), Memo(_KINDS))

    def _new_encoder(self, target: Target, kind: SendKind) -> Writer:
        return target.others.remember(kind, self._make_encoder(target.queue, target.connection, kind))

    def _make_encoder(self, queue: MessageQueue, connection: Connection, kind: SendKind) -> Writer:
        header = SendMessageV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=self._new_topic_queues,
            queue_id=queue.queue_id,
            sys_flag=kind.sys_flag,
            born_timestamp=0,
            flag=kind.flag,
            properties="",
            reconsume_times=kind.reconsume_times,
            max_reconsume_times=kind.max_reconsume_times,
            batch=kind.batch,
        )
        flag = frame.ONEWAY_FLAG if kind.oneway else 0
        return encoder_of(connection, self.session.names, kind.endpoint, header, flag, keyed=kind.keyed)

    def _work_on(self, send: Send, work: Coroutine[Any, Any, None]) -> None:
        """Do something for a send in the background. It fails when the session closes meanwhile."""

        def ended(task: asyncio.Task[None]) -> None:
            self._asking.discard(send)
            if task.cancelled():
                self._fail(send, stopped())

        self._asking.add(send)
        self.session.spawn(work).add_done_callback(ended)

    def _not_reached(self, send: Send, error: ClientError | TimeoutError) -> None:
        """A send got no route or no connection (called by the gates)."""
        if not isinstance(error, ClientError):  # its time is over; a heartbeat's may be over before
            self._note(send, failed=True)
            self._fail(send, CallTimeout(f"sendDefaultImpl call timeout ({str(error) or self._late(send)})"))
        elif isinstance(error, BrokerRefused):  # by a nameserver: there is no other broker to try
            self._fail(send, error)
        else:
            self.failed(send, error)

    def _late(self, send: Send) -> str:
        """Who let the time of a send pass."""
        if send.queue is not None:
            return f"no connection to {send.queue.broker_name} in time"
        asked = ", ".join(self.session.nameservers.addresses)
        return f"no nameserver of {asked} answered in time: check that mqnamesrv runs there and answers"

    async def wait_until_read(self, send: Send, patience: float) -> None:
        """Wait while the broker of a one-way send does not read what was sent before.

        Raises CallTimeout when it has read nothing for ``patience`` seconds.
        """
        address = None if send.queue is None else self.session.to_send_now(send.queue.broker_name)
        connection = None if address is None else self.session.ready(address)
        if connection is None or not (connection.unsent > _ONEWAY_UNSENT or connection.congested):
            return
        try:
            async with asyncio.timeout(patience):
                await connection.drain()
        except TimeoutError:
            self.session.doubt(address)
            raise CallTimeout(
                f"sendOneway call timeout: the broker at {address} has not read what it was sent for {patience:g} s."
            ) from None

    # ------------------------------------------------------------------ answers

    def answered(self, sends: list[Send], answers: list[StoredAnswer], /) -> None:
        """Sends were stored, by the answers of one read (called by Calls)."""
        size = 0
        for send, answer in zip(sends, answers, strict=True):
            stored, queue, future, hooks = answer.stored, send.queue, send.future, send.hooks
            assert queue is not None
            size += send.size
            if hooks is not None:
                hooks.context.region_id, hooks.context.trace_on = stored.region, stored.trace_on
            if stored.queue_id != queue.queue_id:
                queue = MessageQueue(queue.topic, queue.broker_name, stored.queue_id)
            if not future.done():
                future.set_result(
                    SendResult(_SEND_OK, send.key, stored.msg_id, queue, stored.queue_offset, stored.transaction_id)
                )
        self.accumulator.ended(size, len(sends))
        if self._faults is not None:
            self._note(sends[-1], failed=False)

    def stored(self, send: Send, answer: Answer[SendReply]) -> None:
        """One send was stored (called by the send)."""
        header, queue = answer.header, send.queue
        assert queue is not None
        if send.hooks is not None:
            send.hooks.context.region_id, send.hooks.context.trace_on = header.region, header.trace_on
        self._note(send, failed=False)
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        result = SendResult(
            _STATUS[answer.code], send.key, header.msg_id, queue, header.queue_offset, header.transaction_id
        )
        self._end_attempt(send)
        if answer.code and self._retry_when_not_stored and self._may_retry(send):
            send.result = result
            self.accumulator.reenqueue(send)
            return
        self._release(send)
        if not send.future.done():
            send.future.set_result(result)

    def failed(self, send: Send, error: Exception) -> None:
        """An attempt failed: try again or give up (called by the send)."""
        error = translate(error)
        self._note(send, failed=True)
        self._end_attempt(send)
        brokers, backoff = send.brokers, self._backoff
        if isinstance(error, CallTimeout) and brokers:
            self.session.doubt(self.session.to_send_now(brokers[-1]))
        if send.kind.oneway or not brokers or not may_pass(error) or self._is_unknown(error):
            backoff = None
        if backoff is not None:
            backoff.failed(brokers[-1], error, send.topic)
        if not should_retry(error, self._retry_codes):
            self._fail(send, error)
        elif self.session.closed:
            self._fail(send, stopped())
        elif send.future.done() or self._clock() >= send.end:
            self._give_up(send, error)
        elif backoff is not None and backoff.is_none_left(send):
            self._wait(send, backoff)
        elif len(brokers) - send.waited < send.attempts:
            self._retry(send, error)
        elif backoff is not None and send.waited:
            self._wait(send, backoff)
        else:
            self._give_up(send, error)

    def _is_unknown(self, error: ClientError) -> bool:
        """Whether an error says that no route has ever named the broker; else its master is away."""
        return isinstance(error, BrokerNotFound) and not self.session.directory.knows(error.broker)

    def _give_up(self, send: Send, error: ClientError) -> None:
        """End a send whose attempts or time are used up, with the error of the last attempt."""
        brokers = send.brokers
        if isinstance(error, CallTimeout):
            self._fail(send, CallTimeout(f"sendDefaultImpl call timeout ({error})"))
        elif send.attempts == 1 and not send.waited:
            self._fail(send, error)
        else:
            self._fail(send, SendFailed(send.topic.name, len(brokers), self._clock() - send.start, brokers, error))

    def _wait(self, send: Send, backoff: Backoff) -> None:
        """Try again when a broker is open; then its attempts are counted from here."""
        send.waited = len(send.brokers)
        backoff.wait(send)

    def _end_attempt(self, send: Send) -> None:
        if send.queue is not None:
            send.brokers += (send.queue.broker_name,)
            send.attempt_start = self._clock()
            if not send.fixed:
                send.queue = None

    def _may_retry(self, send: Send) -> bool:
        return len(send.brokers) < send.attempts and not send.future.done() and self._clock() < send.end

    def _note(self, send: Send, *, failed: bool) -> None:
        """Note in the table of latency faults how an attempt ended."""
        if self._faults is not None and send.queue is not None and not send.fixed:
            now = self._clock()
            latency = int((now - send.asked) * 1000)
            self._faults.ended(send.queue.broker_name, latency, int(now * 1000), failed=failed)

    def _retry(self, send: Send, error: ClientError) -> None:
        """Try another broker; after all of them have failed, ask for the route before."""
        directory, topic = self.session.directory, send.topic.name
        route = directory.known_to_send(topic)
        if isinstance(error, BrokerRefused):
            self.accumulator.reenqueue(send)
        elif route is None or all(queue.broker_name in send.brokers for queue in route.to_send):
            self._work_on(send, self._retry_with_new_route(send))
        else:
            directory.look_again(topic)
            self.accumulator.reenqueue(send)

    async def _retry_with_new_route(self, send: Send) -> None:
        deadline = send.end
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.session.directory.refresh(send.topic.name)
        if self._clock() < deadline:
            self.accumulator.reenqueue(send)
        else:
            self._fail(
                send, CallTimeout("sendDefaultImpl call timeout (no nameserver answered in time where to try next)")
            )

    def _fail(self, send: Send, error: BaseException) -> None:
        """End a send; a message that an earlier attempt has stored is no failure."""
        self._release(send)
        if send.future.done():
            return
        if send.result is not None:
            send.future.set_result(send.result)
        elif send.unattended:
            send.future.cancel()
        else:
            fail(send.future, error)

    def _release(self, send: Send) -> None:
        if not send.kind.oneway:
            self.accumulator.ended(send.size)


def _error_of_user(error: BaseException) -> BaseException:
    """What a selector or a hook of the user's has raised, which may be anything, as the error of a send.

    That something was cancelled there does not mean that the send was.
    """
    if isinstance(error, asyncio.CancelledError):
        return UsageError(f"A selector or a hook was cancelled by what it called: {error!r}")
    return error
