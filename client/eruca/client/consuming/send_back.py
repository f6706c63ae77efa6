"""Messages that a listener did not consume: given back to the broker, to come again later.

Owns the three ways, each tried when the one before failed: the broker puts the message back (36); it is sent anew to
the group's retry topic; it is kept here and given to the listener again after a while. Facts: sendMessageBack and
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
from eruca.protocol import api, names
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.message import encode_properties
from eruca.protocol.record import Record
from eruca.remoting.clock import now_ms

INNER_GROUP = "CLIENT_INNER_PRODUCER"
"""The producer group of what clients send on their own."""
TRY_AGAIN_AFTER = 5.0
"""Seconds after which a message that could not be given back is consumed here again."""
FIRST_RETRY_LEVEL = 3
DEFAULT_MAX_RECONSUME_TIMES = 16
Again = Callable[[ProcessQueue, ReceivedMessage], None]


class SendBack:
    """The way back for the messages of one group; ``again`` is to give one to the listener once more."""

    def __init__(self, session: Session, group: str, max_reconsume_times: int) -> None:
        self.again: Again | None = None
        self._session = session
        self._group = group
        self._max = max_reconsume_times
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, run: ProcessQueue, messages: list[ReceivedMessage], delay_level: int) -> None:
        """Give messages back; each is done for its run as soon as it is safe elsewhere."""
        task = self._session.spawn(self._return_all(run, messages, delay_level))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def finish(self, timeout: float) -> None:
        """Wait for what is under way."""
        if self._under_way:
            await asyncio.wait(tuple(self._under_way), timeout=timeout)

    async def _return_all(self, run: ProcessQueue, messages: list[ReceivedMessage], delay_level: int) -> None:
        for message in messages:
            if run.dropped:
                return
            if await self._return(message, delay_level):
                run.done(message.queue_offset)
                if run.made_room is not None:
                    run.made_room()
            else:
                record = message.record
                again = record._replace(reconsume_times=record.reconsume_times + 1)
                kept = type(message)(again, message.queue)
                if self.again is not None:
                    self._session.loop.call_later(TRY_AGAIN_AFTER, self.again, run, kept)

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
            log.warning("%s could not be sent back, sending it anew: %s", message, error)
        else:
            return True
        try:
            await self._send_anew(
                retry_header(self._group, message.record, delay_level, self._max), message.record.body
            )
        except ClientError as error:
            log.warning("%s could not be sent anew, keeping it for %s s: %s", message, TRY_AGAIN_AFTER, error)
            return False
        return True

    async def bury(self, record: Record) -> None:
        """Send a message that came as often as it may to the retry topic; the broker makes it a dead letter.

        Raises ClientError.
        """
        await self._send_anew(
            retry_header(self._group, record, 0, self._max, times=record.reconsume_times), record.body
        )

    async def _send_anew(self, header: SendMessageV2, body: bytes) -> None:
        """Send a message to the retry topic as a new one."""
        topic = header.topic
        route = await self._session.directory.route_to_send(topic, 1)
        for queue in route.to_send:
            header.queue_id = queue.queue_id
            address = await self._session.directory.master(queue.broker_name, topic)
            await self._session.call(address, api.SEND_MESSAGE_V2, header, body, timeout=5.0)
            return
        raise ClientError(f"{topic} has no queue that can be written")


def retry_header(
    group: str, record: Record, delay_level: int, max_reconsume_times: int, *, times: int | None = None
) -> SendMessageV2:
    """How a message is sent to the retry topic: its old properties, and what the broker needs to count its returns.

    ``times`` is how often it came again, by default once more than it says.
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
