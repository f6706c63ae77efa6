"""Hooks: what a program wants to see of each send, each consumption and each end of a transaction, and may refuse.

Owns the contexts, the calls of a ``Hook`` in their order, and what happens when one fails: it is logged and
changes nothing, but for ``check_forbidden``, whose errors refuse the send. A kind of call that no hook has costs
nothing. Knows nothing of what hooks do. Facts: the package client.hook in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from typing import Any

import msgspec

from eruca.client import callbacks
from eruca.client.errors import UsageError
from eruca.client.log import log
from eruca.client.message import Message, ReceivedMessage
from eruca.client.outcomes import Decision, Later, Listener, Outcome, Reject, SendResult, Suspend, TransactionState
from eruca.protocol.queues import MessageQueue

DEFAULT_REGION = "DefaultRegion"


class MessageType(enum.IntEnum):
    """What kind of message is sent; the numbers are those in message traces."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ConsumeReturnType(enum.IntEnum):
    """How a listener ended; the numbers are those in message traces."""

    SUCCESS = 0
    TIME_OUT = 1
    """It took longer than the consume_timeout."""
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4
    """It returned that the messages are to be retried."""


class SendContext(msgspec.Struct, kw_only=True):
    """A send. It goes to one queue; ``queue`` and ``broker_address`` are those of the last attempt.

    Both are None, before the send, too, where no queue was found for it. ``properties`` travel with the messages when
    a hook puts some in before the send; the caller's messages stay as they are. ``result`` or ``error`` is there after
    the send; neither after one that asks for no answer.
    """

    producer_group: str
    message: Message
    """The message, or the first of a batch."""
    message_type: MessageType
    body_size: int
    """Bytes as they travel."""
    born_host: str
    client_id: str
    batch: Sequence[Message] | None = None
    """What the sender gave, if it is a batch."""
    namespace: str | None = None
    began: float = msgspec.field(default_factory=time.perf_counter)
    """When the send was called, by ``time.perf_counter``."""
    oneway: bool = False
    queue: MessageQueue | None = None
    broker_address: str | None = None
    result: SendResult | None = None
    error: BaseException | None = None
    region_id: str = DEFAULT_REGION
    trace_on: bool = True
    """What the broker's answer contains: its region, and whether messages are to be traced."""
    added: dict[str, str] | None = None
    noted: dict[Any, Any] | None = None
    listed: list[Message] | None = None
    """``properties``, ``notes`` and ``messages``, as soon as a hook has asked for them: most sends do without."""

    @property
    def messages(self) -> list[Message]:
        """One, or those of a batch."""
        if self.listed is None:
            self.listed = [self.message] if self.batch is None else [*self.batch]
        return self.listed

    @property
    def properties(self) -> dict[str, str]:
        """What travels with the messages beside their own properties."""
        if self.added is None:
            self.added = {}
        return self.added

    @properties.setter
    def properties(self, properties: dict[str, str]) -> None:
        self.added = properties

    @property
    def notes(self) -> dict[Any, Any]:
        """For hooks: values that a hook keeps until the send has ended, under a key of its own."""
        if self.noted is None:
            self.noted = {}
        return self.noted

    @notes.setter
    def notes(self, notes: dict[Any, Any]) -> None:
        self.noted = notes


class ConsumeContext(msgspec.Struct, kw_only=True):
    """Messages that a listener gets. The fields after ``queue`` are set when the listener has ended.

    ``in_listener`` is False where messages are taken by ``async for``: then the two calls enclose the time from
    handing a message out to its settling, and do not run in one task.
    """

    consumer_group: str
    messages: list[ReceivedMessage]
    queue: MessageQueue
    client_id: str
    orderly: bool
    broadcast: bool
    in_listener: bool = True
    success: bool = False
    status: str = ""
    """In RocketMQ's words, such as CONSUME_SUCCESS or RECONSUME_LATER."""
    return_type: ConsumeReturnType = ConsumeReturnType.SUCCESS
    dead: list[ReceivedMessage] = msgspec.field(default_factory=list)
    """Those of the messages that become dead letters now; an empty list where none does."""
    error: BaseException | None = None
    reason: str | None = None
    """Of a Reject, which the listener returned; also that a handler of an App could not read a body."""
    notes: dict[Any, Any] = msgspec.field(default_factory=dict)


class EndTransactionContext(msgspec.Struct, kw_only=True):
    """The end of a transaction is sent to the broker. ``error``: it could not be sent; the broker will check."""

    producer_group: str
    message: Message | ReceivedMessage
    broker_address: str
    message_id: str
    transaction_id: str
    state: TransactionState
    from_check: bool
    """The end of a transaction answers a check by the broker."""
    namespace: str | None = None
    error: BaseException | None = None
    notes: dict[Any, Any] = msgspec.field(default_factory=dict)


class FilterContext(msgspec.Struct, kw_only=True):
    """Messages that were pulled, before listeners see them: those that a hook removes from ``messages`` are skipped."""

    consumer_group: str
    queue: MessageQueue
    messages: list[ReceivedMessage]


class Hook:
    """A base whose methods do nothing: override those that you need, and give it to producers and consumers.

    Calls are plain functions and must not block. Those of producers run in the event loop; those around a listener run
    where the listener runs, which is in several threads for a plain function.
    """

    def check_forbidden(self, context: SendContext) -> None:
        """Before a message is sent: raise to refuse it; the error reaches the sender."""

    def before_send(self, context: SendContext) -> None:
        """A message is about to be sent, or could not be; called once for a send, whatever its number of attempts."""

    def after_send(self, context: SendContext) -> None:
        """The send has ended."""

    def send_refused(self, context: SendContext) -> None:
        """A ``check_forbidden`` refused the send, by ``error``; in place of the two other calls."""

    def before_end_transaction(self, context: EndTransactionContext) -> None:
        """The end of a transaction is about to be sent."""

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """It was sent; brokers do not answer."""

    def filter_messages(self, context: FilterContext) -> None:
        """Messages were pulled: remove from the list those that this consumer must not get."""

    def before_consume(self, context: ConsumeContext) -> None:
        """A listener is about to get messages."""

    def after_consume(self, context: ConsumeContext) -> None:
        """The listener has ended."""


Calls = tuple[Callable[[Any], None], ...]
_of_all_clients: list[Hook] = []


@contextlib.contextmanager
def of_all_clients(hook: Hook) -> Iterator[None]:
    """Within ``with``, clients that are made get this hook beside their own, unless they have one of its class."""
    _of_all_clients.append(hook)
    try:
        yield
    finally:
        _of_all_clients.remove(hook)


class Hooks:
    """The calls of some hooks, by kind; a kind that none has is empty. Raises UsageError for what is no Hook."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        for hook in hooks:
            if not isinstance(hook, Hook):
                raise UsageError(
                    f"A hook of type {type(hook).__name__} is not allowed: give an instance of a class that is derived "
                    "from eruca.client.Hook."
                )
        self.all = tuple(hooks)
        self.check_forbidden = self._calls("check_forbidden")
        self.before_send = self._calls("before_send")
        self.after_send = self._calls("after_send")
        self.send_refused = self._calls("send_refused")
        self.before_end_transaction = self._calls("before_end_transaction")
        self.after_end_transaction = self._calls("after_end_transaction")
        self.filter_messages = self._calls("filter_messages")
        self.before_consume = self._calls("before_consume")
        self.after_consume = self._calls("after_consume")

    @classmethod
    def given(cls, hooks: Sequence[Hook], own: Hook | None) -> Hooks:
        """The hooks that a user gave a client, and then the client's own. Raises UsageError."""
        if not isinstance(hooks, Iterable):
            raise UsageError(f"hooks={hooks!r} is not allowed: a list of hooks is expected.")
        chosen = [*hooks, *([own] if own is not None else [])]
        kinds = {type(hook) for hook in chosen}
        return cls((*chosen, *(hook for hook in _of_all_clients if type(hook) not in kinds)))

    def _calls(self, name: str) -> Calls:
        """The methods of that name that a hook overrides."""
        return tuple(getattr(hook, name) for hook in self.all if getattr(type(hook), name) is not getattr(Hook, name))

    @property
    def of_sends(self) -> bool:
        """Whether any wants to see sends."""
        return bool(self.check_forbidden or self.before_send or self.after_send or self.send_refused)

    @property
    def of_consumption(self) -> bool:
        """Whether any wants to see what listeners get."""
        return bool(self.before_consume or self.after_consume)


def run_calls(calls: Calls, context: object, origin: Context | None = None) -> None:
    """Make the calls, in the context ``origin`` if it is given; one that fails is logged."""
    for call in calls:
        try:
            if origin is None:
                call(context)
            else:
                origin.run(call, context)
        except (Exception, asyncio.CancelledError):  # what is cancelled there is not the caller
            log.exception("a hook failed: %s", getattr(call, "__qualname__", call))


def filter_messages(
    hooks: Hooks, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
) -> list[ReceivedMessage]:
    """The pulled messages without those that hooks removed."""
    context = FilterContext(consumer_group=group, queue=queue, messages=messages)
    run_calls(hooks.filter_messages, context)
    return context.messages


class ConsumeHooks:
    """The calls around what one consumer's listener gets; ``timeout`` is its consume_timeout in seconds.

    ``dead`` returns those of the messages of a call that its outcome makes dead letters.
    """

    def __init__(
        self,
        hooks: Hooks,
        group: str,
        client_id: str,
        *,
        orderly: bool,
        broadcast: bool,
        timeout: float,
        dead: Callable[[Sequence[ReceivedMessage], Outcome], list[ReceivedMessage]] | None = None,
    ) -> None:
        self._hooks = hooks
        self._group = group
        self._client_id = client_id
        self._orderly = orderly
        self._broadcast = broadcast
        self._timeout = timeout
        self._dead = dead

    def begin(self, messages: list[ReceivedMessage], *, in_listener: bool = True) -> ConsumeContext:
        """The listener is about to get these."""
        context = ConsumeContext(
            consumer_group=self._group,
            messages=messages,
            queue=messages[0].queue,
            client_id=self._client_id,
            orderly=self._orderly,
            broadcast=self._broadcast,
            in_listener=in_listener,
        )
        run_calls(self._hooks.before_consume, context)
        return context

    def end(self, context: ConsumeContext, outcome: Outcome, error: BaseException | None, seconds: float) -> None:
        """The listener returned or raised."""
        context.error = error
        context.reason = outcome.reason if isinstance(outcome, Reject) else None
        context.success = error is None and (outcome is None or outcome is Decision.COMMIT)
        context.status = self._status(outcome, error)
        context.return_type = ConsumeReturnType.SUCCESS
        if error is not None:
            context.return_type = ConsumeReturnType.EXCEPTION
        elif seconds >= self._timeout:
            context.return_type = ConsumeReturnType.TIME_OUT
        elif not context.success:
            context.return_type = ConsumeReturnType.FAILED
        if self._dead is not None and (error is not None or isinstance(outcome, Later | Reject | Suspend)):
            context.dead = self._dead(context.messages, outcome)
        run_calls(self._hooks.after_consume, context)

    def _status(self, outcome: Outcome, error: BaseException | None) -> str:
        if isinstance(outcome, Decision):
            return outcome.name
        if error is not None or isinstance(outcome, Later | Reject | Suspend):
            return "SUSPEND_CURRENT_QUEUE_A_MOMENT" if self._orderly else "RECONSUME_LATER"
        return "SUCCESS" if self._orderly else "CONSUME_SUCCESS"

    def around(self, listener: Listener, clock: Callable[[], float]) -> Listener:
        """The listener, of the same kind, with the calls around it."""
        given: Any = listener

        def listed(messages: Any) -> list[ReceivedMessage]:
            return messages if isinstance(messages, list) else [messages]

        async def coroutine(messages: Any) -> Any:
            context, began = self.begin(listed(messages)), clock()
            try:
                outcome = await given(messages)
            except BaseException as error:
                self.end(context, None, error, clock() - began)
                raise
            self.end(context, outcome, None, clock() - began)
            return outcome

        def function(messages: Any) -> Any:
            context, began = self.begin(listed(messages)), clock()
            try:
                outcome = given(messages)
            except BaseException as error:
                self.end(context, None, error, clock() - began)
                raise
            self.end(context, outcome, None, clock() - began)
            return outcome

        return coroutine if callbacks.is_coroutine_function(listener) else function
