"""The calls of hooks around one send.

Owns when they are made: before the send once its first queue is chosen, after it when it has ended, however; both at
the end where no queue was found. They run in the context of the sender. What hooks add to the properties is written
into the request; the messages themselves are not changed. Facts: sendKernelImpl in 4.9.7.
"""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Sequence
from contextvars import Context, copy_context

from eruca.client.hooks import Hooks, MessageType, SendContext, run_calls
from eruca.client.message import Message, text_after_id
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult
from eruca.client.producing.batch import encode_messages
from eruca.client.producing.send import Send, SendKind
from eruca.protocol.message import TRANSACTION_PREPARED
from eruca.protocol.queues import MessageQueue


class ObservedFuture(Future[SendResult]):
    """The future of a send that hooks see, and their calls around the send (``SendHooks``).

    The hooks are called at its end, before whoever awaits it goes on; not so for a one-way send, whose end is when it
    has left. All run in one copy of the context of the sender.
    """

    __slots__ = ("begun", "context", "more", "observer", "origin")
    observer: Observer
    more: str
    """What follows the properties of a single message."""
    context: SendContext
    begun: bool
    """Whether no hook has refused the send."""
    origin: Context

    def chosen(self, send: Send, queue: MessageQueue) -> None:
        """The queue of an attempt is chosen; before the first one, hooks may refuse the send by raising."""
        context, observer = self.context, self.observer
        context.queue = queue
        context.broker_address = observer.masters.get(queue.broker_name)
        if self.begun:
            return
        try:
            for call in observer.hooks.check_forbidden:
                self.origin.run(call, context)
        except BaseException as error:
            context.error = error
            run_calls(observer.hooks.send_refused, context, self.origin)
            raise
        self.begun = True
        run_calls(observer.hooks.before_send, context, self.origin)
        if context.added:
            self._rewrite(send)

    def _rewrite(self, send: Send) -> None:
        """Add the properties of the hooks to what is sent. Raises BadMessage where they cannot travel."""
        context = self.context
        messages = [each.with_properties(context.properties) for each in context.batch or (context.message,)]
        if send.kind.batch:
            send.body = encode_messages(messages, send.key.split(","), self.observer.max_message_size)
        else:
            send.text = text_after_id(messages[0]) + self.more

    def set_result(self, result: SendResult, /) -> None:
        """The send has ended well."""
        _set_result(self, result)
        context = self.context
        if not context.oneway:
            context.result = result
            run_calls(self.observer.hooks.after_send, context, self.origin)

    def set_exception(self, exception: type | BaseException, /) -> None:
        """The send has failed."""
        super().set_exception(exception)
        self._failed(exception if isinstance(exception, BaseException) else exception())

    def cancel(self, msg: object = None) -> bool:
        """Nobody awaits the send any more."""
        if not self.done():
            error = CancelledError("The sender waits no more; the message may have been stored.")
            self.get_loop().call_soon(self._failed, error)  # not at once: a hook itself may be the caller
        return super().cancel(msg)

    def _failed(self, error: BaseException) -> None:
        context, hooks = self.context, self.observer.hooks
        if context.oneway:
            return
        context.error = error
        if not self.begun:
            if context.queue is not None:  # a hook refused it
                return
            run_calls(hooks.before_send, context, self.origin)
        run_calls(hooks.after_send, context, self.origin)

    def ended_oneway(self, error: BaseException | None) -> None:
        """A one-way send has left, or failed."""
        if self.begun:
            self.context.error = error
            run_calls(self.observer.hooks.after_send, self.context, self.origin)


class Observer:
    """Lets hooks see the sends of one producer in one session."""

    def __init__(self, hooks: Hooks, session: Session, group: str, max_message_size: int) -> None:
        self.hooks = hooks
        self.masters = session.directory.masters
        self.max_message_size = max_message_size
        self._loop = session.loop
        self._group = group
        self._address = session.address
        self._client_id = session.client_id
        self._namespace = session.names.namespace

    def observe(
        self, message: Message, batch: Sequence[Message] | None, more: str, kind: SendKind, size: int
    ) -> ObservedFuture:
        """The future of a send of this message, or of a batch that begins with it; ``size`` bytes of body travel."""
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            message_type = _DELAY
        else:
            message_type = _HALF if kind.sys_flag & TRANSACTION_PREPARED else _NORMAL
        future = ObservedFuture(loop=self._loop)
        future.observer = self
        future.more = more
        future.begun = False
        future.origin = copy_context()
        future.context = SendContext(
            producer_group=self._group,
            message=message,
            batch=batch,
            message_type=message_type,
            body_size=size,
            born_host=self._address,
            client_id=self._client_id,
            namespace=self._namespace,
            oneway=kind.oneway,
        )
        return future


_set_result = Future.set_result
_NORMAL, _HALF, _DELAY = MessageType.NORMAL, MessageType.TRANSACTION_HALF, MessageType.DELAY
