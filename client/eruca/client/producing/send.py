"""One send, from its call to its result: what it carries, how it ended, and which errors another attempt may follow.

``Send`` is the only form of a send: single messages, batches, half messages, replies and one-way sends differ in
values. ``Sender`` carries it through its attempts. Facts: DefaultMQProducerImpl.sendDefaultImpl, SendResult and
MQClientAPIImpl.processSendResponse in 4.9.7.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from eruca.client.callbacks import is_coroutine_function
from eruca.client.checks import check_queue
from eruca.client.errors import (
    PASSING_CODES,
    RETRIABLE_CODES,
    BadMessage,
    BrokerNotFound,
    BrokerRefused,
    BrokerUnreachable,
    CallTimeout,
    ClientError,
    UsageError,
)
from eruca.client.hooks import SendContext
from eruca.client.message import Message
from eruca.client.network.routes import Route
from eruca.client.outcomes import SendResult
from eruca.client.producing.topic_queues import TopicQueues
from eruca.client.selectors import Selector, by_hash
from eruca.protocol import api
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Answer
from eruca.remoting.calls import AnswerGroup

SendEndpoint = api.Endpoint[SendMessageV2, SendReply]
Choice = Callable[[Route], MessageQueue]
"""The queue that the user wants, given the route. May raise anything."""


class SendKind(msgspec.Struct, frozen=True, eq=False):
    """What the request of a send says beside topic, queue, time, properties and body.

    Encoders are remembered by kind, and kinds are compared by identity: ``with_flags`` and ``returned`` give equal
    kinds one identity.
    """

    endpoint: SendEndpoint = api.SEND_MESSAGE_V2
    sys_flag: int = 0
    flag: int = 0
    batch: bool = False
    oneway: bool = False
    keyed: bool = True
    """Whether the properties begin with a unique id that the sender makes; else ``Send.text`` is all of them."""
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


@lru_cache(1024)
def returned(sys_flag: int, flag: int, reconsume_times: int, max_reconsume_times: int | None) -> SendKind:
    """The kind of messages that a consumer sends to its retry topic; their properties are given whole."""
    return SendKind(
        sys_flag=sys_flag,
        flag=flag,
        keyed=False,
        reconsume_times=reconsume_times,
        max_reconsume_times=max_reconsume_times,
    )


@lru_cache(1024)
def with_flags(kind: SendKind, flag: int, bits: int) -> SendKind:
    """The kind of messages with this flag and further bits of the system flag."""
    return msgspec.structs.replace(kind, flag=flag, sys_flag=kind.sys_flag | bits)


PLAIN = SendKind()
ONEWAY = SendKind(oneway=True)
HALF = SendKind(sys_flag=TRANSACTION_PREPARED)
REPLY = SendKind(api.SEND_REPLY_MESSAGE_V2)
BATCH = SendKind(api.SEND_BATCH_MESSAGE, batch=True, keyed=False)


class Begin(NamedTuple):
    """When the first attempt of a send began."""

    start: float
    """By the loop's time."""
    born: bytes
    """The digits of ms since 1970, which every attempt carries."""


class SendHooks(Protocol):
    """The calls of hooks around one send."""

    context: SendContext
    """What hooks see; the sender writes into it what the broker answers."""

    def chosen(self, send: Send, queue: MessageQueue) -> None:
        """The queue of an attempt is chosen; before the first one, hooks may refuse the send by raising."""

    def ended_oneway(self, error: BaseException | None) -> None:
        """A one-way send has left, or failed."""


class Attempts(AnswerGroup, Protocol):
    """Carries sends through their attempts (``Sender``)."""

    def stored(self, send: Send, answer: Answer[SendReply]) -> None:
        """The broker has answered an attempt with one of the codes of ``SendStatus``."""

    def failed(self, send: Send, error: Exception) -> None:
        """An attempt has failed."""


class Send(msgspec.Struct, eq=False):
    """One send under way. It is the call of its request (``PendingCall``), and receives the answer (``Receiver``)."""

    owner: Attempts
    topic: TopicQueues
    future: Future[SendResult]
    """Ends with the result or an error; its caller may cancel it."""
    body: bytes
    text: str
    """The properties behind the unique id; all of them where ``kind.keyed`` is False."""
    timeout: float
    """Seconds from ``start``, for all attempts together."""
    kind: SendKind = PLAIN
    attempts: int = 1
    """At most."""
    key: str = ""
    """The unique id; for a batch those of its messages, joined by commas."""
    queue: MessageQueue | None = None
    """Where the attempt under way goes; None before one is chosen."""
    choose: Choice | None = None
    """What chooses the queue, as long as the user's choice was not made."""
    fixed: bool = False
    """Whether every attempt goes to the queue of the user's choice, which says nothing about latency faults."""
    hooks: SendHooks | None = None
    unattended: bool = False
    """Whether nobody awaits the future: a one-way send that leaves at the end of the turn."""
    packing: bool = False
    """Whether its body is being compressed in a thread; it leaves afterwards."""
    size: int = 0
    """Bytes that the accumulator counted; hooks may have rewritten the body since."""
    begin: Begin | None = None
    """When its first attempt began; None before."""
    attempt_start: float = 0.0
    """When the attempt before ended, and so the one under way began; 0 for the first one."""
    deadline: float = 0.0
    """Until when the attempt under way has to be answered, by the loop's time."""
    brokers: tuple[str, ...] = ()
    """The brokers of the attempts that have ended."""
    waited: int = 0
    """How many of these had ended when it waited the last time; ``attempts`` counts from there."""
    result: SendResult | None = None
    """The result of an earlier attempt that stored the message, but not as safely as the user asked for."""

    @property
    def start(self) -> float:
        """When its first attempt began, by the loop's time; 0 before."""
        return 0.0 if self.begin is None else self.begin.start

    @property
    def asked(self) -> float:
        """When the attempt under way began (read by Calls)."""
        return self.attempt_start or self.start

    @property
    def end(self) -> float:
        """When its time is over, by the loop's time."""
        return self.start + self.timeout

    @property
    def receiver(self) -> Send:
        """Itself (read by Calls)."""
        return self

    @property
    def endpoint(self) -> SendEndpoint:
        """Of its request (read by Calls)."""
        return self.kind.endpoint

    def done(self) -> bool:
        """False: the sender wants the answer even when the caller has cancelled the future (called by Calls)."""
        return False

    def set_result(self, answer: Answer[SendReply], /) -> None:
        """The broker has answered (called by Calls)."""
        self.owner.stored(self, answer)

    def set_exception(self, exception: Exception, /) -> None:
        """The attempt failed (called by Calls)."""
        self.owner.failed(self, exception)


def should_retry(error: ClientError, more_codes: Collection[int] = ()) -> bool:
    """Whether another attempt may follow this error; ``more_codes`` are further response codes after which one may."""
    if isinstance(error, BrokerRefused):
        return error.code in RETRIABLE_CODES or error.code in more_codes
    return may_pass(error)


def may_pass(error: ClientError) -> bool:
    """Whether an error is one of a broker that is away or busy, so that another attempt there makes sense, too."""
    if isinstance(error, BrokerRefused):
        return error.code in PASSING_CODES
    return isinstance(error, BrokerNotFound | BrokerUnreachable | CallTimeout)


def choice_of_user(
    message: Message,
    queue: MessageQueue | None,
    selector: Selector | None,
    arg: object,
    ordered_by: str | int | None,
) -> Choice | None:
    """The queue, selector or key of the user as a Choice; None where the user gives none of them.

    Raises UsageError and BadMessage.
    """
    if ordered_by is not None:
        if queue is not None or selector is not None or arg is not None:
            raise UsageError("Give ordered_by, or a queue, or a selector with its arg: only one of them.")
        if not isinstance(ordered_by, str | int) or isinstance(ordered_by, bool):
            raise UsageError(
                f"ordered_by is of type {type(ordered_by).__name__}: a text or a whole number is expected."
            )
        return lambda route: by_hash(route.to_send, message, ordered_by)
    if arg is not None and selector is None:
        raise UsageError("arg is for a selector: add selector=selectors.by_hash, or give ordered_by in place of arg.")
    if queue is not None:
        if selector is not None:
            raise UsageError("Give a queue or a selector, not both.")
        check_queue(queue)
        if queue.topic != message.topic:
            raise BadMessage("message's topic not equal mq's topic")
        return lambda route: queue
    if selector is None:
        return None
    if not callable(selector) or is_coroutine_function(selector):
        kind = "coroutine function" if callable(selector) else type(selector).__name__
        raise UsageError(f"selector is of type {kind}: a function is expected.")

    def choose(route: Route) -> MessageQueue:
        chosen = selector(route.to_send, message, arg)
        if isinstance(chosen, MessageQueue) and chosen.topic == message.topic:
            return chosen
        if chosen is None:
            raise UsageError("select message queue return null.")
        if not isinstance(chosen, MessageQueue):
            raise UsageError(
                f"The selector returned a value of type {type(chosen).__name__}: one of the given queues is expected."
            )
        raise UsageError("message's topic not equal mq's topic")

    return choose
