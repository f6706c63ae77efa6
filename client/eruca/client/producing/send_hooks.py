"""The calls of hooks around one send.

Owns when they are made: before the send once its first queue is chosen, after it when it has ended, however; both at
the end where no queue was found. They run in the context of the sender. What hooks add to the properties is written
into the request; the messages themselves are not changed. Facts: sendKernelImpl in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context

from eruca.client.hooks import Hooks, MessageType, SendContext, run_calls
from eruca.client.message import Message
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult
from eruca.client.producing.batch import encode_messages
from eruca.client.producing.send import Send, SendKind
from eruca.protocol.headers.send import SendReply
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


class CallsOfHooks:
    """The calls of hooks around one send (``SendHooks``)."""

    __slots__ = ("_hooks", "_rewrite", "_session", "begun", "context", "origin")

    def __init__(
        self,
        hooks: Hooks,
        session: Session,
        group: str,
        messages: list[Message],
        kind: SendKind,
        size: int,
        rewrite: Rewrite,
    ) -> None:
        self._hooks = hooks
        self._session = session
        self._rewrite = rewrite
        self.begun = False
        self.origin: Context | None = None
        """The context of the sender, where the first call is made elsewhere."""
        first = messages[0]
        self.context = SendContext(
            producer_group=group,
            messages=messages,
            message_type=MessageType.DELAY if first.delay_level or first.timer else _TYPES[kind.sys_flag & _PREPARED],
            body_size=size,
            born_host=session.address,
            client_id=session.client_id,
            namespace=session.names.namespace,
            oneway=kind.oneway,
        )

    def chosen(self, send: Send, queue: MessageQueue) -> None:
        """The queue of an attempt is chosen; before the first one, hooks may refuse the send by raising."""
        context = self.context
        context.queue = queue
        context.broker_address = self._session.directory.master_now(queue.broker_name)
        if not self.begun:
            if self.origin is not None:
                self.origin.run(self._begin, send)
            else:
                self._begin(send)

    def _begin(self, send: Send) -> None:
        for call in self._hooks.check_forbidden:
            call(self.context)
        self.begun = True
        run_calls(self._hooks.before_send, self.context)
        if self.context.properties:
            self._rewrite(send, self.context.properties)

    def answered(self, header: SendReply) -> None:
        """The broker has stored the message."""
        self.context.region_id = header.region
        self.context.trace_on = header.trace_on

    def ended(self, future: asyncio.Future[SendResult]) -> None:
        """The send has ended; called before whoever awaits it goes on."""
        context = self.context
        if not self.begun:
            if context.queue is not None:  # a hook refused it
                return
            run_calls(self._hooks.before_send, context)
        if future.cancelled():
            context.error = asyncio.CancelledError("The sender waits no more; the message may have been stored.")
        elif (error := future.exception()) is not None:
            context.error = error
        else:
            context.result = future.result()
        run_calls(self._hooks.after_send, context)

    def ended_oneway(self, error: BaseException | None) -> None:
        """A one-way send has left, or failed."""
        if self.begun:
            self.context.error = error
            run_calls(self._hooks.after_send, self.context)


_PREPARED = TRANSACTION_PREPARED
_TYPES = {0: MessageType.NORMAL, _PREPARED: MessageType.TRANSACTION_HALF}
