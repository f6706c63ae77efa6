"""SendBack: returns messages that a listener did not consume to the broker, for a later retry.

Tries three ways in turn: the broker puts the message back (36); the message is sent to the retry topic of the group;
it stays here and goes to the listener again after a pause. Facts: sendMessageBack and
ConsumeMessageConcurrentlyService in 4.9.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.errors import ClientError
from eruca.client.log import log
from eruca.client.message import ReceivedMessage
from eruca.client.network import brokers
from eruca.client.network.session import Session
from eruca.client.producing.send import Send, returned
from eruca.client.producing.sender import Sender
from eruca.protocol import names
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.message import encode_properties
from eruca.protocol.record import Record
from eruca.remoting.clock import now_ms

INNER_GROUP = "CLIENT_INNER_PRODUCER"
"""The group of these sends (MQClientInstance.getDefaultMQProducer in 4.9.7)."""
SEND_TIMEOUT = 3.0
"""Seconds for a send to the retry topic, all attempts together."""
ATTEMPTS = 3
FIRST_RETRY_LEVEL = 3
DEFAULT_MAX_RECONSUME_TIMES = 16


class SendBack:
    """Sends back messages of one group. ``consume_again`` passes a message to the listener once more."""

    def __init__(self, session: Session, group: str, max_reconsume_times: int) -> None:
        self.consume_again: Callable[[ProcessQueue, ReceivedMessage], None] | None = None
        self._session = session
        self._pause = session.settings.waits.send_back
        self._group = group
        self._max = max_reconsume_times
        self._sender = Sender(session, INNER_GROUP, new_topic_queues=1)
        self._in_flight: set[asyncio.Task[None]] = set()

    def start(self, process_queue: ProcessQueue, messages: list[ReceivedMessage], delay_level: int) -> None:
        """Send messages back; each is removed from its process queue once it is safe elsewhere."""
        task = self._session.spawn(self._return_all(process_queue, messages, delay_level))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def finish(self, timeout: float) -> None:
        """Wait for messages on their way back, at most ``timeout`` seconds."""
        if self._in_flight:
            await asyncio.wait(tuple(self._in_flight), timeout=timeout)

    async def _return_all(self, process_queue: ProcessQueue, messages: list[ReceivedMessage], delay_level: int) -> None:
        for message in messages:
            if process_queue.dropped:
                return
            if await self._return(message, delay_level):
                process_queue.done(message.queue_offset)
                if process_queue.made_room is not None:
                    process_queue.made_room()
            elif self.consume_again is not None:
                self._session.loop.call_later(self._pause, self.consume_again, process_queue, reconsumed(message))

    async def _return(self, message: ReceivedMessage, delay_level: int) -> bool:
        try:
            await brokers.send_back(
                self._session,
                self._group,
                message.queue,
                message.record,
                delay_level=delay_level,
                max_reconsume_times=self._max,
            )
        except ClientError as error:
            log.warning("%s could not be sent back, sending it to the retry topic: %s", message, error)
        else:
            return True
        try:
            await self._send(retry_header(self._group, message.record, delay_level, self._max), message.record.body)
        except ClientError as error:
            log.warning(
                "%s could not be sent to the retry topic, retrying here in %s s: %s", message, self._pause, error
            )
            return False
        return True

    async def send_dead_letter(self, record: Record) -> None:
        """Send a message that exhausted its retries to the retry topic; the broker turns it into a dead letter.

        Raises ClientError.
        """
        header = retry_header(self._group, record, 0, self._max, times=record.reconsume_times)
        await self._send(header, record.body)

    async def _send(self, header: SendMessageV2, body: bytes) -> None:
        """Send a message to the retry topic; after a failure another broker is tried. Raises ClientError."""
        sender, times = self._sender, header.reconsume_times or 0
        kind = returned(header.sys_flag, header.flag, times, header.max_reconsume_times)
        topic, future = sender.topic(header.topic), sender.loop.create_future()
        sender.append(Send(sender, topic, future, body, header.properties or "", SEND_TIMEOUT, kind, ATTEMPTS))
        await future


def reconsumed(message: ReceivedMessage) -> ReceivedMessage:
    """The message with its ``reconsume_times`` incremented."""
    record = message.record
    return type(message)(record._replace(reconsume_times=record.reconsume_times + 1), message.queue)


def retry_header(
    group: str, record: Record, delay_level: int, max_reconsume_times: int, *, times: int | None = None
) -> SendMessageV2:
    """The header that sends a message to the retry topic, with the properties by which the broker counts retries.

    ``times`` is the new ``reconsume_times``, by default one more than that of the record.
    """
    times = record.reconsume_times + 1 if times is None else times
    properties: dict[str, str | None] = {
        **record.properties,
        names.TRANSACTION_PREPARED: None,
        names.RETRY_TOPIC: record.properties.get(names.RETRY_TOPIC, record.topic),
        names.ORIGIN_MESSAGE_ID: record.properties.get(names.ORIGIN_MESSAGE_ID, record.offset_message_id),
        names.RECONSUME_TIME: str(times),
        names.MAX_RECONSUME_TIMES: str(max_reconsume_times),
        names.DELAY: str(delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + record.reconsume_times),
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
        max_reconsume_times=max_reconsume_times,
        default_topic_queue_nums=1,
    )
