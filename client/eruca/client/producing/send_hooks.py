"""The calls of hooks around one send.

Owns when they are made: before the send once its first queue is chosen, after it when it has ended, however; both at
the end where no queue was found. They run in the context of the sender. What hooks add to the properties is written
into the request; the messages themselves are not changed. Facts: sendKernelImpl in 4.9.7.
"""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context

import msgspec

from eruca.client.hooks import Calls, Hooks, MessageType, SendContext, run_calls
from eruca.client.message import Message
from eruca.client.network.directory import Directory
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult
from eruca.client.producing.batch import encode_messages
from eruca.client.producing.send import Send, SendKind
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.protocol.queues import MessageQueue


class CallsOfHooks(msgspec.Struct, eq=False):
    """The calls of hooks around one send (``SendHooks``); ``more`` follows the properties of a single message."""

    hooks: Hooks
    directory: Directory
    messages: Sequence[Message]
    more: str
    max_message_size: int
    context: SendContext
    begun: bool = False
    origin: Context | None = None
    """The context of the sender, as soon as its call may have returned."""

    def chosen(self, send: Send, queue: MessageQueue) -> None:
        """The queue of an attempt is chosen; before the first one, hooks may refuse the send by raising."""
        context = self.context
        context.queue = queue
        context.broker_address = self.directory.master_now(queue.broker_name)
        if not self.begun:
            if self.origin is not None:
                self.origin.run(self._begin, send)
            else:
                self._begin(send)
                self.origin = copy_context()

    def _begin(self, send: Send) -> None:
        context, hooks = self.context, self.hooks
        for call in hooks.check_forbidden:
            call(context)
        self.begun = True
        run_calls(hooks.before_send, context)
        if context.properties:
            self._rewrite(send)

    def _rewrite(self, send: Send) -> None:
        """Add the properties of the hooks to what is sent. Raises BadMessage where they cannot travel."""
        messages = [each.with_properties(self.context.properties) for each in self.messages]
        if send.kind.batch:
            send.body = encode_messages(messages, send.key.split(","), self.max_message_size)
        else:
            send.text = messages[0].text_after_id() + self.more

    def called(self) -> None:
        """The call of the sender returns: from now on hooks are called elsewhere, in a copy of its context."""
        self.origin = copy_context()

    def answered(self, region: str, trace_on: bool) -> None:
        """The broker has stored the message: its region, and whether it wants messages traced."""
        self.context.region_id = region
        self.context.trace_on = trace_on

    def ended(self) -> None:
        """The send has ended, as the context says."""
        run = self.origin.run if self.origin is not None else _run
        if not self.begun:
            if self.context.queue is not None:  # a hook refused it
                return
            run(run_calls, self.hooks.before_send, self.context)
        run(run_calls, self.hooks.after_send, self.context)

    def ended_oneway(self, error: BaseException | None) -> None:
        """A one-way send has left, or failed."""
        if self.begun:
            self.context.error = error
            run_calls(self.hooks.after_send, self.context)


class ObservedFuture(Future[SendResult]):
    """The future of a send that hooks see: they are called at its end, before whoever awaits it goes on."""

    __slots__ = ("calls",)
    calls: CallsOfHooks

    def set_result(self, result: SendResult, /) -> None:
        """The send has ended well."""
        _set_result(self, result)
        self.calls.context.result = result
        self.calls.ended()

    def set_exception(self, exception: type | BaseException, /) -> None:
        """The send has failed."""
        super().set_exception(exception)
        self.calls.context.error = self.exception()
        self.calls.ended()

    def cancel(self, msg: object = None) -> bool:
        """Nobody awaits the send any more."""
        if not self.done():
            self.calls.context.error = CancelledError("The sender waits no more; the message may have been stored.")
            self.get_loop().call_soon(self.calls.ended)  # not at once: a hook itself may be the caller
        return super().cancel(msg)


class Observer:
    """Lets hooks see the sends of one producer in one session."""

    def __init__(self, hooks: Hooks, session: Session, group: str, max_message_size: int) -> None:
        self._hooks = hooks
        self._directory = session.directory
        self._loop = session.loop
        self._group = group
        self._max_message_size = max_message_size
        self._address = session.address
        self._client_id = session.client_id
        self._namespace = session.names.namespace

    def observe(
        self, messages: Sequence[Message], more: str, kind: SendKind, size: int
    ) -> tuple[Future[SendResult], CallsOfHooks]:
        """The future of a send of these messages, and the calls around it; the body travels with ``size`` bytes."""
        first = messages[0]
        if first.delay_level or first.delay is not None or first.deliver_at is not None:
            message_type = _DELAY
        else:
            message_type = _HALF if kind.sys_flag & TRANSACTION_PREPARED else _NORMAL
        context = SendContext(
            producer_group=self._group,
            messages=[*messages],
            message_type=message_type,
            body_size=size,
            born_host=self._address,
            client_id=self._client_id,
        )
        if self._namespace is not None:
            context.namespace = self._namespace
        calls = CallsOfHooks(self._hooks, self._directory, messages, more, self._max_message_size, context)
        if kind.oneway:  # its end is when it has left
            context.oneway = True
            return Future(loop=self._loop), calls
        future = ObservedFuture(loop=self._loop)
        future.calls = calls
        return future, calls


def _run(call: Callable[[Calls, SendContext], None], calls: Calls, context: SendContext) -> None:
    call(calls, context)


_set_result = Future.set_result
_NORMAL, _HALF, _DELAY = MessageType.NORMAL, MessageType.TRANSACTION_HALF, MessageType.DELAY
