"""Messages in transactions: stored, but seen by consumers only when a local transaction has been committed.

Owns the order of the three steps (half message, local transaction, its end) and the answers to brokers that ask what
became of one. Invariant: a message is committed only if the user's own function said so; whatever else happens leaves
it undecided or rolls it back. Facts: DefaultMQProducerImpl.sendMessageInTransaction, endTransaction and
checkTransactionState in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from eruca.client import callbacks
from eruca.client.config import check_positive
from eruca.client.environment import known_options
from eruca.client.errors import BadMessage, ClientError, UsageError
from eruca.client.hooks import EndTransactionContext, Hooks, run_calls
from eruca.client.log import log
from eruca.client.message import Message, ReceivedMessage, check_type
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult, SendStatus, TransactionState
from eruca.client.producing.options import ProducerOptions, taking
from eruca.client.producing.producer import Producer
from eruca.client.producing.send import HALF
from eruca.protocol import api, names
from eruca.protocol.headers.send import CheckTransactionState, EndTransaction
from eruca.protocol.message import parse_offset_message_id
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record
from eruca.remoting import Connection

MAX_WAITING_CHECKS = 2000
"""Checks that may wait (checkRequestHoldMax); brokers repeat those that are left out."""


LocalTransaction = Callable[[Message, str], TransactionState | Awaitable[TransactionState | None] | None]
"""Takes the message and the transaction id; runs after the half message was stored."""
Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState | None] | None]
"""Takes a half message that is undecided (its ``message_id`` is the transaction id) and returns its state."""


class TransactionResult(NamedTuple):
    """How a transaction went: where the half message is, what was decided, and what the local transaction raised.

    With an ``error`` the state is UNKNOWN, and the broker will ask.
    """

    sent: SendResult
    state: TransactionState
    error: Exception | None = None

    @property
    def transaction_id(self) -> str:
        """The id that is also passed to the local transaction and to the check."""
        return self.sent.message_id


@dataclass(frozen=True)
class TransactionOptions(ProducerOptions):
    """The arguments of ``TransactionProducer``. Raises UsageError, too."""

    group: str = field()  # brokers ask its members about undecided messages, so there is no default
    check: Check
    _: KW_ONLY
    check_concurrency: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        callbacks.check_callable(self.check, "check", "message")
        callbacks.check_no_generator(self.check, "check")
        check_positive(check_concurrency=self.check_concurrency)


@known_options
class TransactionProducer(Producer):
    """A Producer that can also send in transactions.

    Args:
        group: the producers that know the same transactions: brokers ask any of them about an undecided message.
        check: answers brokers that ask about an undecided message of this group, perhaps of a producer that is gone.
            A coroutine function runs in the event loop, another function in a thread. None and errors leave the
            message undecided; the broker asks again, 15 times, one minute apart by default.
        check_concurrency: checks at work at once (checkThreadPoolMaxSize).

    The others are those of Producer. Raises UsageError, BadName and BadConfig; ``start`` also NoNameserver.
    """

    @taking(TransactionOptions)
    def __init__(self, options: TransactionOptions) -> None:
        self._configure(options)
        self._check = options.check
        self._check_concurrency = options.check_concurrency
        self._checks: Checks | None = None
        self._under_way: set[asyncio.Future[None]] = set()
        """A future for each transaction whose end was not sent yet."""

    async def _join(self) -> None:
        """As of Producer; from now on brokers may check transactions, also those of producers that ended."""
        await super()._join()
        session = self.session
        checks = self._checks = Checks(session, self.group, self._check, self._check_concurrency, lambda: self._hooks)
        session.transactional.setdefault(self.group, []).append(checks)
        await session.meet_all()

    async def stop(self) -> None:
        """As Producer.stop, which waits for transactions, too: send_timeout at most; others stay undecided.

        Checks under way are given up, and brokers ask other members of the group.
        """
        try:
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=self.send_timeout)
        finally:
            await super().stop()

    async def _leave(self, session: Session) -> None:
        checks, self._checks = self._checks, None
        try:
            if checks is not None:
                session.transactional[self.group].remove(checks)
                await checks.stop()
        finally:
            await super()._leave(session)

    async def send_in_transaction(
        self,
        message: Message,
        local: LocalTransaction,
        *,
        queue: MessageQueue | None = None,
        ordered_by: str | int | None = None,
        timeout: float | None = None,
    ) -> TransactionResult:
        """Store a message, run the local transaction, and send its outcome to the broker.

        ``local(message, transaction_id)`` is a coroutine function, or a function that runs in a thread. Its COMMIT or
        ROLLBACK is sent to the broker without waiting for an answer: should it be lost, or the producer be stopped
        meanwhile, the broker asks ``check``. None and UNKNOWN leave the message undecided, as an exception does, which
        comes back as ``error``. When the broker could not store the message as safely as it should (any status but
        SEND_OK), it is rolled back and ``local`` does not run. When this call is cancelled, the message stays
        undecided.

        Args:
            queue: where exactly; no other queue is tried.
            ordered_by: a key; messages with equal keys get the same queue (see ``send``).
            timeout: seconds for storing the message; default send_timeout.

        Raises as ``send``; then ``local`` did not run.
        """
        check_type(message)
        callbacks.check_callable(local, "local", "message", "transaction_id")
        if message.delay_level:
            raise BadMessage("A message in a transaction cannot be delayed: leave delay_level out.")
        under_way = self.session.loop.create_future()
        self._under_way.add(under_way)
        try:
            sent = await self._send_half(message, queue, ordered_by, timeout)
            state, error = TransactionState.ROLLBACK, None
            if sent.status is SendStatus.SEND_OK:
                state, error = await decide(local, message, sent.message_id)
                if error is not None:
                    log.error("the local transaction of %r failed, it stays undecided", message, exc_info=error)
            await self._end(message, sent, state)
        finally:
            self._under_way.discard(under_way)
            under_way.set_result(None)
        return TransactionResult(sent, state, error)

    def _send_half(
        self, message: Message, queue: MessageQueue | None, ordered_by: str | int | None, timeout: float | None
    ) -> asyncio.Future[SendResult]:
        more = f"\x02{names.TRANSACTION_PREPARED}\x01true\x02{names.PRODUCER_GROUP}\x01{self.group}"
        return self._start(message, queue, None, None, timeout, more=more, kind=HALF, ordered_by=ordered_by).future

    async def _end(self, message: Message, sent: SendResult, state: TransactionState) -> None:
        _, physical_offset = parse_offset_message_id(sent.offset_message_id)
        ask = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=sent.offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=state.value,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id,
        )
        try:
            session = self.session
            address = await session.master(sent.queue.broker_name, sent.queue.topic)
            connection = await session.connection(address)
            end = EndTransactionContext(
                producer_group=self.group,
                message=message,
                broker_address=address,
                message_id=sent.message_id,
                transaction_id=sent.message_id,
                state=state,
                from_check=False,
                namespace=session.names.namespace,
            )
            tell_end(self._hooks, connection, ask, end)
        except ClientError as error:
            log.warning(
                "the end of transaction %s could not be sent, the broker will check: %s", sent.message_id, error
            )


_ANSWERS = "TransactionState.COMMIT, ROLLBACK or UNKNOWN"


async def decide(function: Any, *args: object) -> tuple[TransactionState, Exception | None]:
    """The state that a user's function returns; UNKNOWN with the error if it fails or returns anything else."""
    try:
        answer = await callbacks.call(function, *args)
    except Exception as error:
        return TransactionState.UNKNOWN, error
    if answer is None:
        name = getattr(function, "__qualname__", repr(function))
        log.warning("%s returned None, so its transaction stays undecided: return %s", name, _ANSWERS)
        return TransactionState.UNKNOWN, None
    if not isinstance(answer, TransactionState):
        return TransactionState.UNKNOWN, UsageError(
            f"A local transaction or a check returned a value of type {type(answer).__name__}: return {_ANSWERS}."
        )
    return answer, None


class _CheckRequest(NamedTuple):
    header: CheckTransactionState
    half: Record
    connection: Connection


class Checks:
    """Answers the checks that brokers send to one producer, ``concurrency`` at a time, in their order."""

    def __init__(
        self, session: Session, group: str, check: Check, concurrency: int, hooks: Callable[[], Hooks]
    ) -> None:
        self._hooks = hooks
        self._session = session
        self._group = group
        self._check = check
        self._waiting: asyncio.Queue[_CheckRequest] = asyncio.Queue(MAX_WAITING_CHECKS)
        self._workers = [session.spawn(self._work()) for _ in range(concurrency)]

    def ask(self, header: CheckTransactionState, half: Record, connection: Connection) -> None:
        """A broker checks a half message, on this connection."""
        try:
            self._waiting.put_nowait(_CheckRequest(header, half, connection))
        except asyncio.QueueFull:
            log.warning(
                "a check of a transaction of %s is ignored, as %s others wait; the broker repeats it",
                self._group,
                len(self),
            )

    def __len__(self) -> int:
        return self._waiting.qsize()

    async def stop(self) -> None:
        """Answer no more."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            request = await self._waiting.get()
            try:
                await self._answer(request)
            except ClientError as error:  # the broker is gone; it asks again
                log.warning("a check of a transaction of %s could not be answered: %s", self._group, error)
            except Exception:  # such as a record that cannot be read; further checks are not affected
                log.exception("a check of a transaction of %s could not be answered", self._group)

    async def _answer(self, request: _CheckRequest) -> None:
        header, half, connection = request
        queue = MessageQueue(self._session.names.from_broker(half.topic), "", half.queue_id)
        message = ReceivedMessage(half, queue, self._session.settings.max_body)
        state, error = await decide(self._check, message)
        if error is not None:
            log.error("the check of transaction %s failed, it stays undecided", half.unique_key, exc_info=error)
        ask = EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=half.unique_key or half.offset_message_id,
            transaction_id=header.transaction_id,
        )
        if connection.closed:
            connection = await self._session.connection(connection.remote)
        end = EndTransactionContext(
            producer_group=self._group,
            message=message,
            broker_address=connection.remote,
            message_id=ask.msg_id,
            transaction_id=message.message_id,
            state=state,
            from_check=True,
            namespace=self._session.names.namespace,
        )
        tell_end(self._hooks(), connection, ask, end)


def tell_end(hooks: Hooks, connection: Connection, ask: EndTransaction, end: EndTransactionContext) -> None:
    """Send the end of a transaction to a broker, with the hooks around it; raises the error if it cannot be sent."""
    run_calls(hooks.before_end_transaction, end)
    try:
        connection.oneway(api.END_TRANSACTION, ask)
    except BaseException as error:
        end.error = error
        raise
    finally:
        run_calls(hooks.after_end_transaction, end)
