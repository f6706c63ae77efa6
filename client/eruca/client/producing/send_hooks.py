"""The calls of hooks around one send.

Owns when they are made: before the send once its first queue is chosen, after it when it has ended, however; both at
the end where no queue was found. They run in the context of the sender. What hooks add to the properties is written
into the request; the messages themselves are not changed. Facts: sendKernelImpl in 4.9.7.
"""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Sequence
from contextvars import Context, copy_context

from eruca.client.hooks import Calls, Hooks, MessageType, SendContext, run_calls
from eruca.client.message import Message
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult
from eruca.client.producing.batch import encode_messages
from eruca.client.producing.send import Send, SendKind
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.protocol.queues import MessageQueue


class ObservedFuture(Future[SendResult]):
    """The future of a send that hooks see, and their calls around the send (``SendHooks``).

    The hooks are called at its end, before whoever awaits it goes on; not so for a one-way send, whose end is when it
    has left.
    """

    __slots__ = ("begun", "context", "messages", "more", "observer", "origin")
    observer: Observer
    messages: Sequence[Message]
    more: str
    """What follows the properties of a single message."""
    context: SendContext
    begun: bool
    origin: Context | None
    """The context of the sender, as soon as its call may have returned."""

    def chosen(self, send: Send, queue: MessageQueue) -> None:
        """The queue of an attempt is chosen; before the first one, hooks may refuse the send by raising."""
        context = self.context
        context.queue = queue
        context.broker_address = self.observer.directory.master_now(queue.broker_name)
        if not self.begun:
            if self.origin is not None:
                self.origin.run(_begin, self, send)
            else:
                _begin(self, send)
                self.origin = copy_context()

    def called(self) -> None:
        """The call of the sender returns: from now on hooks are called elsewhere, in a copy of its context."""
        self.origin = copy_context()

    def answered(self, region: str, trace_on: bool) -> None:
        """The broker has stored the message: its region, and whether it wants messages traced."""
        self.context.region_id = region
        self.context.trace_on = trace_on

    def set_result(self, result: SendResult, /) -> None:
        """The send has ended well."""
        _set_result(self, result)
        _end(self, result, None)

    def set_exception(self, exception: type | BaseException, /) -> None:
        """The send has failed."""
        super().set_exception(exception)
        _end(self, None, self.exception())

    def cancel(self, msg: object = None) -> bool:
        """Nobody awaits the send any more."""
        if not self.done():
            error = CancelledError("The sender waits no more; the message may have been stored.")
            self.get_loop().call_soon(_end, self, None, error)  # not at once: a hook itself may be the caller
        return super().cancel(msg)

    def ended_oneway(self, error: BaseException | None) -> None:
        """A one-way send has left, or failed."""
        if self.begun:
            self.context.error = error
            run_calls(self.observer.hooks.after_send, self.context)


class Observer:
    """Lets hooks see the sends of one producer in one session."""

    def __init__(self, hooks: Hooks, session: Session, group: str, max_message_size: int) -> None:
        self.hooks = hooks
        self.directory = session.directory
        self.max_message_size = max_message_size
        self._loop = session.loop
        self._group = group
        self._address = session.address
        self._client_id = session.client_id
        self._namespace = session.names.namespace

    def observe(self, messages: Sequence[Message], more: str, kind: SendKind, size: int) -> ObservedFuture:
        """The future of a send of these messages, with the calls around it; the body travels with ``size`` bytes."""
        first = messages[0]
        if first.delay_level or first.delay is not None or first.deliver_at is not None:
            message_type = _DELAY
        else:
            message_type = _HALF if kind.sys_flag & TRANSACTION_PREPARED else _NORMAL
        future = ObservedFuture(loop=self._loop)
        future.observer, future.messages, future.more = self, messages, more
        future.begun, future.origin = False, None
        future.context = SendContext(
            producer_group=self._group,
            messages=[*messages],
            message_type=message_type,
            body_size=size,
            born_host=self._address,
            client_id=self._client_id,
            namespace=self._namespace,
            oneway=kind.oneway,
        )
        return future


# Functions, since Python finds methods of a kind of Future slowly.


def _begin(future: ObservedFuture, send: Send) -> None:
    context, hooks = future.context, future.observer.hooks
    for call in hooks.check_forbidden:
        call(context)
    future.begun = True
    run_calls(hooks.before_send, context)
    if context.added:
        _rewrite(future, send)


def _rewrite(future: ObservedFuture, send: Send) -> None:
    """Add the properties of the hooks to what is sent. Raises BadMessage where they cannot travel."""
    messages = [each.with_properties(future.context.properties) for each in future.messages]
    if send.kind.batch:
        send.body = encode_messages(messages, send.key.split(","), future.observer.max_message_size)
    else:
        send.text = messages[0].text_after_id() + future.more


def _end(future: ObservedFuture, result: SendResult | None, error: BaseException | None) -> None:
    context, hooks, origin = future.context, future.observer.hooks, future.origin
    if context.oneway:
        return
    if error is None:
        context.result = result
    else:
        context.error = error
    if not future.begun:
        if context.queue is not None:  # a hook refused it
            return
        _run(origin, hooks.before_send, context)
    _run(origin, hooks.after_send, context)


def _run(origin: Context | None, calls: Calls, context: SendContext) -> None:
    if origin is None:
        run_calls(calls, context)
    else:
        origin.run(run_calls, calls, context)


_set_result = Future.set_result
_NORMAL, _HALF, _DELAY = MessageType.NORMAL, MessageType.TRANSACTION_HALF, MessageType.DELAY
