"""The calls of hooks around one send.

Owns when they are made: before the send once its first queue is chosen, after it when it has ended, however; both at
the end where no queue was found. They run in the context of the sender. What hooks add to the properties is written
into the request; the messages themselves are not changed. Facts: sendKernelImpl in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context

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

Rewrite = Callable[[Send, Mapping[str, str]], None]
"""Adds properties to a send. Raises BadMessage where they cannot travel."""


def rewrite_one(message: Message, more: str) -> Rewrite:
    """For one message: its properties with those of the hooks, and ``more`` that follows them."""

    def rewrite(send: Send, properties: Mapping[str, str]) -> None:
        send.text = message.with_properties(properties).text_after_id() + more

    return rewrite


def rewrite_batch(messages: Sequence[Message], keys: Sequence[str], max_size: int) -> Rewrite:
    """For a batch: each of its messages with the properties of the hooks."""

    def rewrite(send: Send, properties: Mapping[str, str]) -> None:
        if send.start:  # it is counted already
            send.size = send.size or len(send.body)
        send.body = encode_messages([each.with_properties(properties) for each in messages], keys, max_size)

    return rewrite


class CallsOfHooks(msgspec.Struct, eq=False):
    """The calls of hooks around one send (``SendHooks``)."""

    hooks: Hooks
    directory: Directory
    rewrite: Rewrite
    context: SendContext
    begun: bool = False
    origin: Context | None = None
    """The context of the sender, where the first call is made elsewhere."""

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
            self.rewrite(send, context.properties)

    def answered(self, region: str, trace_on: bool) -> None:
        """The broker has stored the message: its region, and whether it wants messages traced."""
        self.context.region_id = region
        self.context.trace_on = trace_on

    def ended(self, future: asyncio.Future[SendResult]) -> None:
        """The send has ended; called before whoever awaits it goes on."""
        context = self.context
        if not self.begun:
            if context.queue is not None:  # a hook refused it
                return
            run_calls(self.hooks.before_send, context)
        if future.cancelled():
            context.error = asyncio.CancelledError("The sender waits no more; the message may have been stored.")
        elif (error := future.exception()) is not None:
            context.error = error
        else:
            context.result = future.result()
        run_calls(self.hooks.after_send, context)

    def ended_oneway(self, error: BaseException | None) -> None:
        """A one-way send has left, or failed."""
        if self.begun:
            self.context.error = error
            run_calls(self.hooks.after_send, self.context)


def observe(
    hooks: Hooks,
    session: Session,
    group: str,
    messages: list[Message],
    kind: SendKind,
    size: int,
    rewrite: Rewrite,
) -> CallsOfHooks:
    """The calls of hooks around a send of these messages, whose body travels with ``size`` bytes."""
    first = messages[0]
    context = SendContext(
        producer_group=group,
        messages=messages,
        message_type=MessageType.DELAY if first.delay_level or first.timer else _TYPES[kind.sys_flag & _PREPARED],
        body_size=size,
        born_host=session.address,
        client_id=session.client_id,
        namespace=session.names.namespace,
        oneway=kind.oneway,
    )
    return CallsOfHooks(hooks, session.directory, rewrite, context)


_PREPARED = TRANSACTION_PREPARED
_TYPES = {0: MessageType.NORMAL, _PREPARED: MessageType.TRANSACTION_HALF}
