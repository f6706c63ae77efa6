"""The dead letters of a group: read them, and send them again.

Owns what a dead letter says (where it came from, and why it was given up), the order of sending again and passing, and
the place that is kept. Invariant: a letter is passed only after a broker answered SEND_OK for its copy; so a letter
may be sent twice after a crash, but is never lost. Letters are never deleted: their broker does that with their files.
Facts: the topic %DLQ%<group> and its properties in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from eruca.client.checks import check_least, check_time
from eruca.client.config import ClientSettings, check_group, check_positive, check_text, check_topic
from eruca.client.consuming.last_error import ERROR, TEXT, TRACEBACK, last_error_of
from eruca.client.errors import BadConfig, ClientError, TopicNotFound, UsageError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.moments import LATEST
from eruca.client.outcomes import SendStatus
from eruca.client.polling.pull_consumer import PullConsumer, PullStatus
from eruca.client.producing.backoff import RETRY_BACKOFF
from eruca.client.producing.send import Send, returned
from eruca.client.producing.sender import Sender
from eruca.protocol import names
from eruca.protocol.message import encode_properties
from eruca.protocol.queues import MessageQueue

REDRIVEN_FROM = "REDRIVEN_FROM"
"""A property of a message that was sent again: ``broker:queue:offset`` of its dead letter."""
PAGE = 32
"""Letters that are read, and sent again, at once."""
SEND_TIMEOUT = 10.0
"""Seconds for sending one letter again, all attempts together."""
ATTEMPTS = 5
SENDER_GROUP = "CLIENT_INNER_PRODUCER"
_ITS_OWN = frozenset(
    {
        *(ERROR, TEXT, TRACEBACK, REDRIVEN_FROM),
        *(names.DELAY, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES),
        *(names.TIMER_OUT_MS, names.TIMER_ROLL_TIMES, names.TIMER_ORIGIN, *names.TIMER_WISHES),
        *(names.TRANSACTION_PREPARED, names.CONSUME_START_TIME, names.MIN_OFFSET, names.MAX_OFFSET, names.RETRY_TOPIC),
    }
)
"""Properties of the letter, not of the message that is sent again."""


def properties_of_copy(properties: Mapping[str, str], place: str) -> dict[str, str]:
    """The properties of a message that is sent again, of those of its dead letter at ``broker:queue:offset``."""
    return {name: value for name, value in properties.items() if name not in _ITS_OWN} | {REDRIVEN_FROM: place}


class DeadLetter:
    """A message that a group gave up.

    ``message`` is the letter as it lies in the topic ``%DLQ%<group>``: its body, keys, tags and properties are those of
    the message that was given up. Letters of other clients than Eruca's say nothing of the error.
    """

    __slots__ = ("group", "message", "topic")

    def __init__(self, message: ReceivedMessage, group: str, topic: str) -> None:
        self.message = message
        self.group = group
        self.topic = topic
        """The topic that the message was sent to; empty if the letter does not say."""

    @property
    def message_id(self) -> str:
        """The producer's id of the message."""
        return self.message.message_id

    @property
    def died(self) -> int:
        """When it was given up, by the broker's clock (ms since 1970)."""
        return self.message.store_timestamp

    @property
    def error(self) -> str:
        """The class of the last error, such as ``ValueError``, or ``Reject``; empty if the letter does not say."""
        return last_error_of(self.message.properties).kind

    @property
    def text(self) -> str:
        """The text of the last error, or the reason of ``Reject``."""
        return last_error_of(self.message.properties).text

    @property
    def traceback(self) -> str:
        """The innermost frames of its traceback."""
        return last_error_of(self.message.properties).traceback

    @property
    def place(self) -> str:
        """``broker:queue:offset`` of the letter, which the property REDRIVEN_FROM of its copy says."""
        queue = self.message.queue
        return f"{queue.broker_name}:{queue.queue_id}:{self.message.queue_offset}"

    def __repr__(self) -> str:
        return f"<DeadLetter {self.message_id} of {self.topic}, given up by {self.group}: {self.error or 'unknown'}>"


class Redriven(NamedTuple):
    """What ``redrive`` did: letters that were sent again, and letters that it looked at and left.

    ``rest`` are those that it did not look at, as ``most`` was reached.
    """

    sent: int
    left: int
    rest: int = 0


Choice = Callable[[DeadLetter], bool]


class _Selection(NamedTuple):
    """Which letters of a group are meant; times in ms since 1970."""

    topic: str | None
    begin: int
    end: int
    where: Choice | None

    @classmethod
    def of(
        cls, topic: str | None, begin: int | datetime, end: int | datetime, where: Choice | None = None
    ) -> _Selection:
        if topic is not None:
            check_topic(topic)
        if where is not None and not callable(where):
            raise UsageError(f"where is of type {type(where).__name__}: a function of a DeadLetter is expected.")
        return cls(topic, check_time("begin", begin), check_time("end", end), where)

    @property
    def of_all(self) -> bool:
        return self == _Selection(None, 0, LATEST, None)

    def has(self, letter: DeadLetter) -> bool:
        if self.topic is not None and letter.topic != self.topic:
            return False
        return self.begin <= letter.died <= self.end and (self.where is None or bool(self.where(letter)))


async def dead_letters(
    group: str,
    *,
    topic: str | None = None,
    begin: int | datetime = 0,
    end: int | datetime = LATEST,
    nameserver: str | Sequence[str] | None = None,
    settings: ClientSettings | None = None,
) -> AsyncGenerator[DeadLetter, None]:
    """The dead letters of a consumer group that are there now, broker by broker, oldest first.

    Args:
        group: the consumer group.
        topic: only those that were sent to this topic.
        begin: given up at this time (a datetime, or ms since 1970) or later.
        end: given up at this time or earlier.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        settings: everything else that clients share.

    A group without dead letters has none: that is no error. Reading moves no offset. Raises UsageError and ClientError.
    """
    check_group(group, "consumer")
    selection = _Selection.of(topic, begin, end)
    async with PullConsumer(group, nameserver=nameserver, settings=settings) as puller:
        for queue in await _queues(puller, group):
            async for page in _pages(puller, group, queue, await _first(puller, queue, selection.begin)):
                for letter in page.letters:
                    if selection.has(letter):
                        yield letter


async def redrive(
    group: str,
    *,
    to: Literal["retry", "topic"] = "retry",
    topic: str | None = None,
    begin: int | datetime = 0,
    end: int | datetime = LATEST,
    where: Choice | None = None,
    most: int | None = None,
    rate: float | None = None,
    progress: str | None = None,
    nameserver: str | Sequence[str] | None = None,
    settings: ClientSettings | None = None,
) -> Redriven:
    """Send dead letters of a consumer group again: those that are there when it is called.

    Args:
        group: the consumer group.
        to: "retry" sends to the group's retry topic, so that only this group gets them; "topic" to the topic that they
            were first sent to, whose other groups get them, too.
        topic: only those that were first sent to this topic.
        begin: given up at this time (a datetime, or ms since 1970) or later.
        end: given up at this time or earlier.
        where: a function of a DeadLetter that returns whether to send it again.
        most: messages in all; None: no limit. The place that is kept is behind the last one.
        rate: messages a second at most; None: no limit.
        progress: the consumer group under whose name the place in each queue of letters is kept: a run that was
            interrupted, or is made again, goes on there, behind every letter that it looked at. Default: with no
            selection the group itself; with ``topic``, ``begin``, ``end`` or ``where`` no place is kept.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        settings: everything else that clients share.

    A copy has the id, body, keys, tags and properties of the message, a property REDRIVEN_FROM, and all its retries
    before it. A letter is passed only after a broker answered SEND_OK: a crash may send it twice and never loses it.
    Raises UsageError, and ClientError where a letter cannot be sent: those before it were sent, and the place is kept.
    """
    check_group(group, "consumer")
    if to not in ("retry", "topic"):
        raise UsageError(f'to={to!r}: "retry" or "topic" is expected.')
    if rate is not None:
        check_positive(rate=rate)
    if most is not None:
        check_least(1, most=most)
    check_text(progress, "progress")
    selection = _Selection.of(topic, begin, end, where)
    keeper = progress or (group if selection.of_all else None)
    sent = left = rest = 0
    async with PullConsumer(group, nameserver=nameserver, settings=settings) as puller:
        again = _Again(puller, group, to, rate)
        for queue in await _queues(puller, group):
            start = await _first(puller, queue, selection.begin)
            if keeper is not None:
                start = max(start, await puller.query_offset(queue, group=keeper) or 0)
            if sent == most:
                rest += max(await puller.max_offset(queue) - start, 0)
                continue
            async for page in _pages(puller, group, queue, start):
                part = _up_to(page, selection, None if most is None else most - sent)
                chosen = [letter for letter in part.letters if selection.has(letter)]
                await again.send(chosen)
                sent += len(chosen)
                left += len(part.letters) - len(chosen)
                if keeper is not None:
                    await puller.update_offset(queue, part.next_offset, group=keeper)
                if sent == most:
                    rest += await puller.max_offset(queue) - part.next_offset
                    break
    log.info("dead letters of %s: %s sent again, %s left, %s not looked at", group, sent, left, rest)
    return Redriven(sent, left, rest)


class _Page(NamedTuple):
    letters: list[DeadLetter]
    next_offset: int


def _up_to(page: _Page, selection: _Selection, most: int | None) -> _Page:
    """The page up to the last letter of which ``most`` are wanted; all of it where there are no more."""
    wanted = [at for at, letter in enumerate(page.letters) if selection.has(letter)]
    if most is None or len(wanted) <= most:
        return page
    letters = page.letters[: wanted[most - 1] + 1]
    return _Page(letters, letters[-1].message.queue_offset + 1)


async def _queues(puller: PullConsumer, group: str) -> list[MessageQueue]:
    """The queues of the letters; none where the group never had one."""
    try:
        return sorted(await puller.fetch_queues(names.dead_letter_topic(group)))
    except TopicNotFound:
        return []


async def _first(puller: PullConsumer, queue: MessageQueue, begin: int) -> int:
    """The offset of the first letter that is there, or of one shortly before ``begin``."""
    first = await puller.min_offset(queue)
    if begin <= 0:
        return first
    return max(first, await puller.offset_for_timestamp(queue, begin) - 1)


async def _pages(puller: PullConsumer, group: str, queue: MessageQueue, offset: int) -> AsyncIterator[_Page]:
    """The letters of a queue from an offset up to its end as it is now."""
    end, session = await puller.max_offset(queue), puller.session
    while offset < end:
        result = await puller.pull(queue, offset, min(PAGE, end - offset))
        if result.status is PullStatus.FOUND:
            letters = [
                DeadLetter(
                    ReceivedMessage(record, queue, session.settings.max_body),
                    group,
                    session.names.from_broker(record.properties.get(names.RETRY_TOPIC, "")),
                )
                for record in result.records
                if record.queue_offset < end
            ]
            yield _Page(letters, min(result.next_offset, end))
        elif result.status is PullStatus.NO_NEW_MESSAGE or result.next_offset <= offset:
            return
        offset = result.next_offset


class _Again:
    """Sends letters again, ``rate`` a second at most."""

    def __init__(self, puller: PullConsumer, group: str, to: str, rate: float | None) -> None:
        self._sender = Sender(puller.session, SENDER_GROUP, new_topic_queues=1, retry_backoff=RETRY_BACKOFF)
        self._loop = puller.session.loop
        self._retry = names.retry_topic(group) if to == "retry" else None
        self._pause = 0.0 if rate is None else 1 / rate
        self._next = self._loop.time()

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """Returns when all are stored. Raises ClientError, after all have ended."""
        under_way = []
        for letter in letters:
            if self._pause:
                self._next = max(self._next, self._loop.time()) + self._pause
                await asyncio.sleep(self._next - self._loop.time())
            under_way.append(self._loop.create_task(self._send(letter)))
        results = await asyncio.gather(*under_way, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def _send(self, letter: DeadLetter) -> None:
        record = letter.message.record
        if not letter.topic:
            raise BadConfig(f"{letter} does not say which topic it came from: it cannot be sent again")
        properties: dict[str, str | None] = {
            **properties_of_copy(record.properties, letter.place),
            **({} if self._retry is None else {names.RETRY_TOPIC: letter.topic}),
        }
        sender = self._sender
        topic, future = sender.topic(self._retry or letter.topic), sender.loop.create_future()
        kind = returned(record.sys_flag & 0x703, record.flag, 0, None)
        text = encode_properties(properties).decode()
        sender.append(Send(sender, topic, future, record.body, text, SEND_TIMEOUT, kind, ATTEMPTS))
        result = await future
        if result.status is not SendStatus.SEND_OK:
            raise ClientError(f"{letter} was stored again, but not as safely as its broker is to: {result.status.name}")
