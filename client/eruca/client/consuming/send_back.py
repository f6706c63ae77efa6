"""SendBack: returns messages that a listener did not consume to the broker: for a later retry, or as dead letters.

Tries three ways in turn: the broker puts the message back (36); the message is sent to the retry topic of the group;
it stays here and goes to the listener again after a pause. What fails for many messages is logged once a minute. A
message with a delay of its own, and a dead letter, whose properties say why, take the second way first: 36 carries
neither. Each dead letter is one line in the log, written when the letter is stored. Facts: sendMessageBack and
ConsumeMessageConcurrentlyService in 4.9.7; there a message sent to the retry topic becomes a dead letter when its
reconsumeTimes reach the maxReconsumeTimes of the request, and is delayed first if it has a delay level.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping

from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.last_error import LastError, last_error
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.retry_delays import RetryDelays
from eruca.client.consuming.retry_policy import RetryPolicy
from eruca.client.errors import ClientError
from eruca.client.log import Rarely, log, often
from eruca.client.message import ReceivedMessage
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.client.outcomes import Later, Reject
from eruca.client.producing.backoff import RETRY_BACKOFF
from eruca.client.producing.send import Send, returned
from eruca.client.producing.sender import Sender
from eruca.protocol import names
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.message import encode_properties
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record
from eruca.remoting.clock import now_ms

INNER_GROUP = "CLIENT_INNER_PRODUCER"
"""The group of these sends (MQClientInstance.getDefaultMQProducer in 4.9.7)."""
SEND_TIMEOUT = 3.0
"""Seconds for a send to the retry topic, all attempts together."""
ATTEMPTS = 3
FIRST_RETRY_LEVEL = 3
_NO_DELAY = {names.DELAY: "0"}
DEAD_LETTER_LEVEL = -1
"""The level of 36 that makes a dead letter."""
_OF_EARLIER_DELAYS = frozenset(
    {names.DELAY, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TIMER_OUT_MS, names.TIMER_ROLL_TIMES, names.TIMER_ORIGIN}
    | set(names.TIMER_WISHES)
)
"""Properties of a delay that is over; they would delay the message once more, or not at all."""
DEFAULT_MAX_RECONSUME_TIMES = 16


class SendBack:
    """Sends back messages of one group. ``consume_again`` passes a message to the listener once more."""

    def __init__(self, session: Session, group: str, policy: RetryPolicy, stats: ConsumerStats) -> None:
        self.consume_again: Callable[[ProcessQueue, ReceivedMessage], None] | None = None
        self._session = session
        self._pause = session.settings.waits.send_back
        self._group = group
        self._policy = policy
        self._stats = stats
        self._delays = RetryDelays(session, group)
        self._sender = Sender(session, INNER_GROUP, new_topic_queues=1, retry_backoff=RETRY_BACKOFF)
        self._in_flight: set[asyncio.Task[None]] = set()
        self._failures: defaultdict[str, Rarely] = defaultdict(Rarely)
        """By the text of the warning."""

    def _warn(self, text: str, *values: object) -> None:
        """Log a warning about a message, unless one with this text was logged in the last minute."""
        self._failures[text].warn(text % values)

    @property
    def has_backoff(self) -> bool:
        """Whether the retries have times of the consumer's own."""
        return self._policy.backoff is not None

    def start(
        self,
        process_queue: ProcessQueue,
        messages: list[ReceivedMessage],
        outcome: Later | Reject,
        error: BaseException | None = None,
    ) -> None:
        """Send messages back; each is removed from its process queue once it is safe elsewhere.

        ``error``: what failed them, if anything was raised.
        """
        task = self._session.spawn(self._return_all(process_queue, messages, outcome, error))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def finish(self, timeout: float) -> None:
        """Wait for messages on their way back, at most ``timeout`` seconds."""
        if self._in_flight:
            await asyncio.wait(tuple(self._in_flight), timeout=timeout)

    async def _return_all(
        self,
        process_queue: ProcessQueue,
        messages: list[ReceivedMessage],
        outcome: Later | Reject,
        error: BaseException | None,
    ) -> None:
        for message in messages:
            if process_queue.dropped:
                return
            if self._policy.is_dead(message, outcome):
                safe = await self.bury(message, last_error(error, outcome))
            else:
                safe = await self._retry(message, outcome)
            if safe:
                process_queue.done(message.queue_offset)
                if process_queue.made_room is not None:
                    process_queue.made_room()
            elif self.consume_again is not None:
                self._session.loop.call_later(self._pause, self.consume_again, process_queue, reconsumed(message))

    async def _retry(self, message: ReceivedMessage, outcome: Later | Reject) -> bool:
        """Let a message come again; whether it is safe elsewhere."""
        seconds = self._policy.wait(message.reconsume_times, outcome)
        level = outcome.delay_level if isinstance(outcome, Later) else 0
        if seconds is not None:
            delays = await self._delays.of(message.queue)
            level = delays.nearest(seconds)
            if delays.exact(seconds):
                header = retry_header(self._group, message.record, self._policy.most, delay=_of_its_own(seconds))
                try:
                    await self._send(header, message.record.body, message.queue.broker_name)
                except ClientError as error:
                    self._warn("%s could not be sent to the retry topic, sending it back: %s", message, error)
                else:
                    return self._retried(message)
            else:
                self._delays.tell(message.queue, seconds, delays, level)
        return await self._return(message, level) and self._retried(message)

    def _retried(self, message: ReceivedMessage) -> bool:
        self._stats[message.queue.topic].retried += 1
        return True

    async def _return(self, message: ReceivedMessage, level: int) -> bool:
        try:
            await self._put_back(message, level)
        except ClientError as error:
            self._warn("%s could not be sent back, sending it to the retry topic: %s", message, error)
        else:
            return True
        level = level if level > 0 else FIRST_RETRY_LEVEL + message.reconsume_times
        header = retry_header(self._group, message.record, self._policy.most, delay={names.DELAY: str(level)})
        try:
            await self._send(header, message.record.body)
        except ClientError as error:
            self._warn(
                "%s could not be sent to the retry topic, retrying here in %s s: %s", message, self._pause, error
            )
            return False
        return True

    async def _put_back(self, message: ReceivedMessage, level: int) -> None:
        await brokers.send_back(
            self._session,
            self._group,
            message.queue,
            message.record,
            delay_level=level,
            max_reconsume_times=self._policy.most,
        )

    async def bury(self, message: ReceivedMessage, why: LastError, *, times: int | None = None) -> bool:
        """Make a message a dead letter that says why; whether it is safe.

        ``times`` is its ``reconsume_times`` then, by default one more than now.
        """
        header = retry_header(
            self._group, message.record, self._policy.most, delay=_NO_DELAY, more=why.properties, times=times
        )
        header.max_reconsume_times = 0  # whatever they were, the retries are used up
        try:
            await self._send(header, message.record.body)
        except ClientError as error:
            self._warn("%s could not be sent to the dead letters with its reason: %s", message, error)
            try:
                await self._put_back(message, DEAD_LETTER_LEVEL)
            except ClientError as again:
                self._warn("%s is no dead letter yet, retrying it here: %s", message, again)
                return False
        self._stats[message.queue.topic].dead += 1
        log.warning(
            "message %s of %s is a dead letter of %s now (keys %s, tried %s): %s",
            message.message_id,
            message.topic,
            self._group,
            " ".join(message.keys) or "none",
            often(message.reconsume_times + 1),
            why,
        )
        return True

    async def _send(self, header: SendMessageV2, body: bytes, broker: str | None = None) -> None:
        """Send a message to the retry topic, at one broker, or at another one after a failure. Raises ClientError."""
        sender, times = self._sender, header.reconsume_times or 0
        kind = returned(header.sys_flag, header.flag, times, header.max_reconsume_times)
        topic, future = sender.topic(header.topic), sender.loop.create_future()
        send = Send(sender, topic, future, body, header.properties or "", SEND_TIMEOUT, kind, ATTEMPTS)
        if broker is not None:
            send.queue, send.fixed = MessageQueue(header.topic, broker, 0), True
        sender.append(send)
        await future


def reconsumed(message: ReceivedMessage) -> ReceivedMessage:
    """The message with its ``reconsume_times`` incremented."""
    record = message.record
    return type(message)(record._replace(reconsume_times=record.reconsume_times + 1), message.queue)


def _of_its_own(seconds: float) -> dict[str, str]:
    return {names.TIMER_DELAY_MS: str(round(seconds * 1000))}


def retry_header(
    group: str,
    record: Record,
    max_reconsume_times: int,
    *,
    delay: Mapping[str, str],
    more: Mapping[str, str] | None = None,
    times: int | None = None,
) -> SendMessageV2:
    """The header that sends a message to the retry topic, with the properties by which the broker counts retries.

    ``delay`` are the properties that delay it, ``more`` further ones; ``times`` is the new ``reconsume_times``, by
    default one more than that of the record.

    The limit in the header is above ``times``, so that the broker lets the last retry pass: brokers of 4.9 make a dead
    letter of a send whose count has reached its limit, and this client counts the retry before it is made.
    """
    times = record.reconsume_times + 1 if times is None else times
    kept = {name: value for name, value in record.properties.items() if name not in _OF_EARLIER_DELAYS}
    properties: dict[str, str | None] = {
        **kept,
        **(more or {}),
        names.TRANSACTION_PREPARED: None,
        names.RETRY_TOPIC: record.properties.get(names.RETRY_TOPIC, record.topic),
        names.ORIGIN_MESSAGE_ID: record.properties.get(names.ORIGIN_MESSAGE_ID, record.offset_message_id),
        names.RECONSUME_TIME: str(times),
        names.MAX_RECONSUME_TIMES: str(max_reconsume_times),
        **delay,
    }
    return SendMessageV2(
        producer_group=INNER_GROUP,
        topic=names.retry_topic(group),
        queue_id=0,
        sys_flag=record.sys_flag & 0x703,
        born_timestamp=now_ms(),
        flag=record.flag,
        properties=encode_properties(properties).decode(),
        reconsume_times=times,
        max_reconsume_times=max(max_reconsume_times, times + 1),
        default_topic_queue_nums=1,
    )
