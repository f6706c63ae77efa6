"""The calls of hooks around one send.

Owns when they are made: before the send once its first queue is chosen, after it when it has ended, however; both at
the end where no queue was found. They run in the context of the sender. What hooks add to the properties is written
into the request; the messages themselves are not changed. Facts: sendKernelImpl in 4.9.7.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future
from collections.abc import Sequence
from contextvars import Context, copy_context

import msgspec

from eruca.client.hooks import Hooks, MessageType, SendContext, run_calls
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

    def ended(self, result: SendResult | None, error: BaseException | None) -> None:
        """The send has ended."""
        if self.origin is not None:
            self.origin.run(self._end, result, error)
        else:
            self._end(result, error)

    def _end(self, result: SendResult | None, error: BaseException | None) -> None:
        context = self.context
        if not self.begun:
            if context.queue is not None:  # a hook refused it
                return
            run_calls(self.hooks.before_send, context)
        context.result, context.error = result, error
        run_calls(self.hooks.after_send, context)

    def ended_oneway(self, error: BaseException | None) -> None:
        """A one-way send has left, or failed."""
        if self.begun:
            self.context.error = error
            run_calls(self.hooks.after_send, self.context)


class ObservedFuture(Future[SendResult]):
    """The future of a send that hooks see: they are called at its end, before whoever awaits it goes on."""

    __slots__ = ("_calls",)

    def __init__(self, loop: AbstractEventLoop, calls: CallsOfHooks) -> None:
        super().__init__(loop=loop)
        self._calls = calls

    def set_result(self, result: SendResult, /) -> None:
        """The send has ended well."""
        Future.set_result(self, result)
        self._calls.ended(result, None)

    def set_exception(self, exception: type | BaseException, /) -> None:
        """The send has failed."""
        Future.set_exception(self, exception)
        self._calls.ended(None, self.exception())

    def cancel(self, msg: object = None) -> bool:
        """Nobody awaits the send any more."""
        if not self.done():
            error = CancelledError("The sender waits no more; the message may have been stored.")
            self.get_loop().call_soon(self._calls.ended, None, error)  # not at once: a hook itself may be the caller
        return Future.cancel(self, msg)


def observe(
    hooks: Hooks,
    session: Session,
    group: str,
    messages: Sequence[Message],
    more: str,
    kind: SendKind,
    size: int,
    max_message_size: int,
) -> CallsOfHooks:
    """The calls of hooks around a send of these messages, whose body travels with ``size`` bytes."""
    first = messages[0]
    if first.delay_level or first.delay is not None or first.deliver_at is not None:
        message_type = MessageType.DELAY
    else:
        message_type = _TYPES[kind.sys_flag & TRANSACTION_PREPARED]
    context = SendContext(
        producer_group=group,
        messages=list(messages),
        message_type=message_type,
        body_size=size,
        born_host=session.address,
        client_id=session.client_id,
        namespace=session.names.namespace,
        oneway=kind.oneway,
    )
    return CallsOfHooks(hooks, session.directory, messages, more, max_message_size, context)


_TYPES = {0: MessageType.NORMAL, TRANSACTION_PREPARED: MessageType.TRANSACTION_HALF}
