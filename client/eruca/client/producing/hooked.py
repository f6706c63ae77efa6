"""Sends that hooks see.

Owns when the calls are made: once the first queue is chosen, and when the send has come to its end, whichever that is;
both at the end where no queue was found. They run in the context of the sender, whatever lets the send go. What hooks
add to the properties is written into the request; the messages themselves are not touched. Sends of producers without
hooks never come here. Facts: sendKernelImpl in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import NamedTuple

from eruca.client.hooks import Hooks, MessageType, SendContext, run_calls
from eruca.client.message import Message
from eruca.client.network.routes import Route
from eruca.client.network.session import Session
from eruca.client.producing.batch import encode_messages
from eruca.client.producing.sends import Send, SendResult, write_oneway
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Answer

Rewrite = Callable[[SendMessageV2, Mapping[str, str]], bytes | None]
"""Writes more properties into a request; returns the body when that is another one now."""


class Watched(NamedTuple):
    """What a send that hooks see needs beside others: the messages, and how more properties are written."""

    hooks: Hooks
    messages: list[Message]
    rewrite: Rewrite


def rewrite_one(message: Message, key: str, more: str) -> Rewrite:
    """For one message: its properties with some of the hooks', and ``more`` that was there already."""

    def rewrite(header: SendMessageV2, properties: Mapping[str, str]) -> None:
        header.properties = message.with_properties(properties).properties_text(key) + more

    return rewrite


def rewrite_batch(messages: Sequence[Message], keys: Sequence[str], max_size: int) -> Rewrite:
    """For a batch: its messages with some of the hooks' properties each. Raises BadMessage."""
    return lambda header, more: encode_messages([each.with_properties(more) for each in messages], keys, max_size)


def describe_send(watched: Watched, session: Session, header: SendMessageV2, body: bytes) -> SendContext:
    """What hooks learn of a send before it."""
    kind = MessageType.NORMAL
    if watched.messages[0].delay_level or watched.messages[0].timer:
        kind = MessageType.DELAY
    elif header.sys_flag & TRANSACTION_PREPARED:
        kind = MessageType.TRANSACTION_HALF
    return SendContext(
        producer_group=header.producer_group,
        messages=watched.messages,
        message_type=kind,
        body_size=len(body),
        born_host=session.address,
        client_id=session.client_id,
        namespace=session.names.namespace,
    )


def _check_forbidden(watched: Watched, context: SendContext) -> None:
    """Raises what a hook raises that refuses the send."""
    for call in watched.hooks.check_forbidden:
        call(context)


def _begin(watched: Watched, context: SendContext, header: SendMessageV2, body: bytes) -> bytes:
    """The calls before a send; the body to send. Raises BadMessage where what they add cannot travel."""
    run_calls(watched.hooks.before_send, context)
    if context.properties:
        written = watched.rewrite(header, context.properties)
        body = body if written is None else written
    return body


async def oneway_watched(
    watched: Watched,
    session: Session,
    header: SendMessageV2,
    body: bytes,
    queue: MessageQueue,
    address: str,
    patience: float,
) -> None:
    """A send that asks for no answer, as ``write_oneway``, with the calls around it."""
    context = describe_send(watched, session, header, body)
    context.oneway, context.queue, context.broker_address = True, queue, address
    _check_forbidden(watched, context)
    try:
        body = _begin(watched, context, header, body)
        await write_oneway(session, address, header, body, patience)
    except BaseException as error:
        context.error = error
        raise
    finally:
        run_calls(watched.hooks.after_send, context)


class WatchedSend(Send, eq=False, kw_only=True):
    """One send under way, with hooks."""

    watched: Watched
    context: SendContext
    begun: bool = False
    origin: Context | None = None
    """The context variables of the sender."""

    def __post_init__(self) -> None:
        self.origin = copy_context()
        self.future.add_done_callback(self._end)  # called before whoever awaits the send goes on

    def _take(self, route: Route) -> MessageQueue:
        queue = super()._take(route)
        context = self.context
        context.queue = queue
        context.broker_address = self.session.directory.master_now(queue.broker_name)
        if not self.begun:
            assert self.origin is not None
            self.origin.run(_check_forbidden, self.watched, context)
            self.begun = True
            self.body = self.origin.run(_begin, self.watched, context, self.header, self.body)
        return queue

    def set_result(self, answer: Answer[SendReply], /) -> None:
        """The broker has answered (called by the connection)."""
        self.context.region_id = answer.header.region
        self.context.trace_on = answer.header.trace_on
        super().set_result(answer)

    def _end(self, future: asyncio.Future[SendResult]) -> None:
        context = self.context
        if not self.begun:
            if context.queue is not None:  # a hook refused it
                return
            run_calls(self.watched.hooks.before_send, context)
        if future.cancelled():
            context.error = asyncio.CancelledError("The sender waits no more; the message may have been stored.")
        elif (error := future.exception()) is not None:
            context.error = error
        else:
            context.result = future.result()
        run_calls(self.watched.hooks.after_send, context)
