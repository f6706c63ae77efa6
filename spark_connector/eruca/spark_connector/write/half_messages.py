"""Half messages of a transactional write: where they are, lists of them as bytes, and their end.

Owns the form of the lists and the requests that commit or roll back. A half message is ended by its place in the
broker's log, which the broker accepts as long as it keeps that part of the log: also after it has put the half message
back, or given it up because nobody answered its checks (EndTransactionProcessor in 4.9.7 and 5.3.3).

Apache stores the real message again when a half message is committed twice, Eruca does not. So after an answer that did
not come, and for what an earlier run may have committed, the index of the broker is queried for the message first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

import msgspec

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import BrokerRefused, ClientError
from eruca.client.outcomes import SendResult
from eruca.protocol import api
from eruca.protocol.codes import ResponseCode
from eruca.protocol.header import Empty
from eruca.protocol.headers.pull import QueryMessage
from eruca.protocol.headers.send import EndTransaction
from eruca.protocol.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, parse_offset_message_id
from eruca.protocol.record import decode_records
from eruca.remoting import Answer
from eruca.remoting.calls import Receiver
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.sink_options import SinkOptions

ENDS_AT_ONCE: Final = 256
BACKOFF_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""The wait before each retry; the last one repeats until retryTimeoutMs is over."""
_FOREVER: Final = 2**63 - 1


class HalfMessage(NamedTuple):
    """A half message that a broker has acknowledged."""

    queue: MessageQueue
    offset: int
    """Its offset in the half queue."""
    commit_log_offset: int
    key: str
    """UNIQ_KEY, which the real message has, too."""

    @classmethod
    def of(cls, result: SendResult) -> Self:
        """The half message that was stored with this result."""
        _, commit_log_offset = parse_offset_message_id(result.offset_message_id)
        return cls(result.queue, result.offset, commit_log_offset, result.message_id)


def pack(half_messages: Iterable[HalfMessage]) -> bytes:
    """Half messages as the body of a message."""
    return msgspec.json.encode(
        [(*_names(half.queue), half.offset, half.commit_log_offset, half.key) for half in half_messages]
    )


def unpack(body: bytes) -> list[HalfMessage]:
    """What ``pack`` was given."""
    return [
        HalfMessage(MessageQueue(topic, broker, number), offset, place, key)
        for topic, broker, number, offset, place, key in msgspec.json.decode(body)
    ]


def _names(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


class TransactionEnder:
    """Commits or rolls back half messages of one write."""

    def __init__(self, consumer: PullConsumer, options: SinkOptions) -> None:
        self._session = consumer.session
        self._options = options

    async def commit(self, half_messages: Sequence[HalfMessage], *, ordered: bool, again: bool) -> None:
        """Make the messages real; all at once, or queue by queue in their order when ``ordered``.

        With ``again`` some of them may have been committed before. Raises SinkError.
        """
        lines = [iter(half_messages)] * min(ENDS_AT_ONCE, len(half_messages))
        if ordered:
            queues: dict[MessageQueue, list[HalfMessage]] = {}
            for half in half_messages:
                queues.setdefault(half.queue, []).append(half)
            lines = [iter(each) for each in queues.values()]
        chains = [_CommitChain(self, line, again=again) for line in lines]
        try:
            await asyncio.gather(*(each.ended for each in chains))
        finally:
            for each in chains:
                each.stop()

    def start(self, half: HalfMessage, receiver: Receiver[Answer[Empty]]) -> bool:
        """Send the request that commits; False where the connection has to be made first."""
        address = self._session.directory.masters.get(half.queue.broker_name)
        connection = None if address is None else self._session.ready(address)
        if connection is None:
            return False
        timeout = self._options.send_timeout_ms / 1000
        connection.call_for(receiver, api.END_TRANSACTION, self._ask(half, TRANSACTION_COMMIT), timeout=timeout)
        return True

    async def finish(self, half: HalfMessage, *, again: bool) -> None:
        """Commit one, as long as it takes; with ``again`` the index is queried first. Raises SinkError."""
        deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
        waits = iter(BACKOFF_SECONDS)
        while True:
            try:
                if not again or not await self._is_there(half):
                    await self._end(half, TRANSACTION_COMMIT)
                return
            except ClientError as error:
                if isinstance(error, BrokerRefused) and error.remark.startswith("Find prepared"):
                    raise _gone(half) from error
                wait = next(waits, BACKOFF_SECONDS[-1])
                if not error.retriable or time.monotonic() + wait > deadline:
                    raise SinkError(
                        f"A decided message to {half.queue.topic} could not be committed: {error}; "
                        "start the query, or the write with its writeId, again to go on."
                    ) from error
            again = True
            await asyncio.sleep(wait)

    async def roll_back(self, half_messages: Sequence[HalfMessage]) -> None:
        """Let half messages go; what fails is left to the broker, which gives up what is never decided."""
        await asyncio.gather(*(self._end(half, TRANSACTION_ROLLBACK) for half in half_messages), return_exceptions=True)

    async def _end(self, half: HalfMessage, decision: int) -> None:
        timeout = self._options.send_timeout_ms / 1000
        address = await self._session.master(half.queue.broker_name, half.queue.topic)
        await self._session.call(address, api.END_TRANSACTION, self._ask(half, decision), timeout=timeout)

    def _ask(self, half: HalfMessage, decision: int) -> EndTransaction:
        return EndTransaction(
            producer_group=self._options.producer_group,
            tran_state_table_offset=half.offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=decision,
            msg_id=half.key,
            transaction_id=half.key,
        )

    async def _is_there(self, half: HalfMessage) -> bool:
        """Whether the real message is in the broker's index."""
        topic = half.queue.topic
        stored = self._session.names.to_broker(topic)
        ask = QueryMessage(
            topic=topic,
            key=half.key,
            max_num=32,
            begin_timestamp=0,
            end_timestamp=_FOREVER,
            unique_key_query=True,
        )
        address = await self._session.master(half.queue.broker_name, topic)
        try:
            answer = await self._session.call(address, api.QUERY_MESSAGE, ask)
        except BrokerRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return False
            raise
        # Apache compares the hash of the key alone.
        return any((each.topic, each.unique_key) == (stored, half.key) for each in decode_records(answer.body))


class _CommitChain:
    """Commits half messages one after the other: the next request leaves when the one before is answered (a Receiver).

    Several chains may share an iterator. A task for each message would cost more than its request: there is one only
    for the slow path, such as a connection to be made, or an answer that did not come.
    """

    def __init__(self, ender: TransactionEnder, half_messages: Iterator[HalfMessage], *, again: bool) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ender = ender
        self._half_messages = half_messages
        self._again = again
        self._task: asyncio.Task[None] | None = None
        self._next()

    def stop(self) -> None:
        """Begin no more."""
        self._half_messages = iter(())
        if self._task is not None:
            self._task.cancel()

    def done(self) -> bool:
        """Whether nobody waits for the answer."""
        return self.ended.done()

    def set_result(self, answer: Answer[Empty], /) -> None:
        """It is committed."""
        self._next()

    def set_exception(self, exception: Exception, /) -> None:
        """What became of it is not known, or it was refused."""
        self._begin(BACKOFF_SECONDS[0], again=True)

    def _next(self) -> None:
        half = next(self._half_messages, None)
        if half is None:
            if not self.ended.done():
                self.ended.set_result(None)
            return
        self._half = half
        if self._again or not self._ender.start(half, self):
            self._begin(0, again=self._again)

    def _begin(self, wait: float, *, again: bool) -> None:
        self._task = asyncio.create_task(self._finish(wait, again=again))

    async def _finish(self, wait: float, *, again: bool) -> None:
        try:
            await asyncio.sleep(wait)
            await self._ender.finish(self._half, again=again)
        except Exception as error:
            if not self.ended.done():
                self.ended.set_exception(error)
        else:
            self._next()


def _gone(half: HalfMessage) -> SinkError:
    return SinkError(
        f"A decided message to {half.queue.topic} cannot be committed: {half.queue.broker_name} has deleted its half "
        "message by retention before the write could be finished. To send the whole batch again, some of it for the "
        "second time, give a new markerTopic."
    )
