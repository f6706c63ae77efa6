"""One send, from its first attempt to its result.

Owns the header of a send, what its answer means, and the rule of retries: which errors go to another broker, how often,
and within which time. A send that meets a known route and an open connection makes no task.
Facts: DefaultMQProducerImpl.sendDefaultImpl and MQClientAPIImpl.processSendResponse in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from eruca.client.callbacks import is_coroutine_function
from eruca.client.checks import check_queue
from eruca.client.errors import (
    RETRIABLE_CODES,
    BadMessage,
    BrokerNotFound,
    BrokerRefused,
    BrokerUnreachable,
    CallTimeout,
    ClientError,
    SendFailed,
    TopicNotFound,
    UsageError,
    translate,
)
from eruca.client.message import Message
from eruca.client.network.routes import Route
from eruca.client.producing.latency_faults import LatencyFaults
from eruca.client.selectors import Selector
from eruca.protocol import api
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Answer

if TYPE_CHECKING:
    from eruca.client.network.session import Session
    from eruca.client.producing.producer import Producer

SendEndpoint = api.Endpoint[SendMessageV2, SendReply]
Choice = Callable[[Route, str | None], MessageQueue]
"""Given the route and the broker that failed last: which queue."""


class SendStatus(enum.Enum):
    """How a message was stored. It is stored in each case."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    """The master stored it, but not on its disk in time (SYNC_FLUSH)."""
    SLAVE_NOT_AVAILABLE = 11
    """The master stored it, but has no slave (SYNC_MASTER)."""
    FLUSH_SLAVE_TIMEOUT = 12
    """The master stored it, but its slave not in time (SYNC_MASTER)."""


_ONEWAY_UNSENT = 64 * 1024
"""Bytes that one-way sends leave in a connection before they wait for it."""

_STATUS = {each.value: each for each in SendStatus}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message is.

    ``message_id`` is the id that travels with it (UNIQ_KEY), ``offset_message_id`` names its place in the broker's
    log; for a batch both are lists joined by commas, and ``offset`` is that of the first message.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None = None


def should_retry(error: ClientError, more_codes: Collection[int] = ()) -> bool:
    """Whether another attempt may follow this error; ``more_codes`` are answers after which one may, too."""
    if isinstance(error, BrokerRefused):
        return error.code in RETRIABLE_CODES or error.code in more_codes
    return isinstance(error, BrokerNotFound | BrokerUnreachable | CallTimeout)


async def write_oneway(session: Session, address: str, header: SendMessageV2, body: bytes, patience: float) -> None:
    """Send without asking for an answer; waits while the broker does not read what was sent before.

    Raises CallTimeout when it has read nothing for ``patience`` seconds.
    """
    connection = await session.connection(address)
    connection.oneway(api.SEND_MESSAGE_V2, header, body)
    if connection.unsent > _ONEWAY_UNSENT or connection.congested:
        try:
            async with asyncio.timeout(patience):
                await connection.drain()
        except TimeoutError:
            session.doubt(address)
            raise CallTimeout(
                f"sendOneway call timeout: the broker at {address} has not read what it was sent for {patience:g} s."
            ) from None


def choice_of_user(
    message: Message, queue: MessageQueue | None, selector: Selector | None, arg: object
) -> Choice | None:
    """The queue, or what chooses it, where the user gives one. Raises UsageError and BadMessage."""
    if queue is not None:
        if selector is not None:
            raise UsageError("Give a queue or a selector, not both.")
        check_queue(queue)
        if queue.topic != message.topic:
            raise BadMessage("message's topic not equal mq's topic")
        return lambda route, avoid: queue
    if selector is None:
        return None
    if not callable(selector) or is_coroutine_function(selector):
        kind = "coroutine function" if callable(selector) else type(selector).__name__
        raise UsageError(f"selector is of type {kind}: a function is expected.")

    def choose(route: Route, avoid: str | None) -> MessageQueue:
        chosen = selector(route.to_send, message, arg)
        if chosen is None:
            raise UsageError("select message queue return null.")
        if not isinstance(chosen, MessageQueue):
            raise UsageError(
                f"The selector gave this type: {type(chosen).__name__}. One of the queues it is given is expected."
            )
        if chosen.topic != message.topic:
            raise UsageError("message's topic not equal mq's topic")
        return chosen

    return choose


class Send(msgspec.Struct, eq=False):
    """One send under way; ``future`` ends with its SendResult or a ClientError."""

    producer: Producer
    session: Session
    endpoint: SendEndpoint
    header: SendMessageV2
    body: bytes
    key: str
    choose: Choice
    attempts: int
    timeout: float
    faults: LatencyFaults | None
    future: asyncio.Future[SendResult]
    start: float
    """When it began, by the loop's time."""
    size: int
    """As which the window counts it."""
    taken: float = 0.0
    """When the broker of this attempt was chosen; 0 before and after."""
    tries: int = 0
    brokers: tuple[str, ...] = ()
    queue: MessageQueue | None = None
    stored: SendResult | None = None
    """What an attempt before this one came to, when that is stored, but not as well as the user asked for."""

    def attempt(self) -> None:
        """Try once; without waiting where route and connection are there."""
        session = self.session
        route = session.directory.routes.get(self.header.topic)
        if route is None or not route.to_send:
            session.spawn(self._attempt_unprepared(None))
            return
        try:
            queue = self._take(route)
        except Exception as error:  # a selector of the user's may raise anything
            self.fail(error)
            return
        address = session.to_send_now(queue.broker_name)
        connection = None if address is None else session.ready(address)
        if connection is None:
            session.spawn(self._attempt_unprepared(queue))
        else:
            passed = session.loop.time() - self.start if self.tries > 1 else 0.0
            connection.call_for(self, self.endpoint, self.header, self.body, timeout=self.timeout - passed)

    def _take(self, route: Route) -> MessageQueue:
        brokers = self.brokers
        queue = self.queue = self.choose(route, brokers[-1] if brokers else None)
        self.header.queue_id = queue.queue_id
        self.brokers = (*brokers, queue.broker_name)
        self.taken = self.session.loop.time() if self.faults is not None else 0.0
        self.tries += 1
        return queue

    async def _attempt_unprepared(self, queue: MessageQueue | None) -> None:
        """Try once after asking for the route and connecting, as far as needed."""
        session = self.session
        try:
            async with asyncio.timeout_at(self.start + self.timeout):
                if queue is None:
                    route = await session.directory.route_to_send(
                        self.header.topic, self.header.default_topic_queue_nums
                    )
                    if not route.to_send:
                        raise TopicNotFound(
                            self.header.topic, "It has no queue that can be written: look at its permissions."
                        )
                    queue = self._take(route)
                address = await session.to_send(queue.broker_name, self.header.topic)
                connection = await session.connection(address)
        except TimeoutError as error:
            self._note(failed=True)
            self.fail(CallTimeout(f"sendDefaultImpl call timeout ({str(error) or 'connecting took too long'})"))
        except ClientError as error:
            self._failed(error)
        except Exception as error:  # a selector of the user's may raise anything
            self.fail(error)
        else:
            left = self.start + self.timeout - session.loop.time()
            connection.call_for(self, self.endpoint, self.header, self.body, timeout=left)

    def done(self) -> bool:
        """Whether nobody waits any more; the end of the send is seen all the same (called by the connection)."""
        return False

    def set_exception(self, exception: Exception, /) -> None:
        """This attempt failed (called by the connection)."""
        self._failed(translate(exception))

    def set_result(self, answer: Answer[SendReply], /) -> None:
        """The broker has answered (called by the connection)."""
        header = answer.header
        queue = self.queue
        assert queue is not None
        self._note(failed=False)
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        result = SendResult(
            _STATUS[answer.code], self.key, header.msg_id, queue, header.queue_offset, header.transaction_id
        )
        if answer.code and self.producer.retry_when_not_stored and self._may_retry():
            self.stored = result
            self.attempt()
            return
        self.producer.window.leave(self.size)
        if not self.future.done():
            self.future.set_result(result)

    def _may_retry(self) -> bool:
        return (
            self.tries < self.attempts
            and not self.future.done()
            and self.session.loop.time() < self.start + self.timeout
        )

    def _note(self, *, failed: bool) -> None:
        """Let the table of faults know how the attempt went."""
        taken, self.taken = self.taken, 0.0
        if self.faults is not None and taken:
            now, broker = self.session.loop.time(), self.brokers[-1]
            self.faults.ended(broker, int((now - taken) * 1000), int(now * 1000), failed=failed)

    def _failed(self, error: ClientError) -> None:
        """Try again or give up."""
        self._note(failed=True)
        if isinstance(error, CallTimeout) and self.brokers:
            self.session.doubt(self.session.to_send_now(self.brokers[-1]))
        if not should_retry(error, self.producer.retry_codes):
            self.fail(error)
        elif self._may_retry():
            self._try_again(error)
        elif isinstance(error, CallTimeout):
            self.fail(CallTimeout(f"sendDefaultImpl call timeout ({error})"))
        elif self.attempts == 1:
            self.fail(error)
        else:
            seconds = self.session.loop.time() - self.start
            self.fail(SendFailed(self.header.topic, self.tries, seconds, self.brokers, error))

    def _try_again(self, error: ClientError) -> None:
        """Try another broker; where all that are known have failed, ask first whether others are there again."""
        directory, topic = self.session.directory, self.header.topic
        route = directory.routes.get(topic)
        if isinstance(error, BrokerRefused):
            self.attempt()
        elif route is None or all(queue.broker_name in self.brokers for queue in route.to_send):
            self.session.spawn(self._attempt_after_a_look())
        else:
            directory.look_again(topic)
            self.attempt()

    async def _attempt_after_a_look(self) -> None:
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout_at(self.start + self.timeout):
                await self.session.directory.refresh(self.header.topic)
        if self.session.loop.time() < self.start + self.timeout:
            self.attempt()
        else:
            self.fail(CallTimeout("sendDefaultImpl call timeout (no nameserver told in time where to try next)"))

    def fail(self, error: Exception) -> None:
        """Give up; a message that an attempt before has stored is no failure."""
        self.producer.window.leave(self.size)
        if self.future.done():
            return
        if self.stored is not None:
            self.future.set_result(self.stored)
        else:
            self.future.set_exception(error)
