"""Sends requests whose bodies and properties are ready: messages sent back, and rows of Spark's sink.

The producer for programs inside Eruca, without hooks, checks and compression. It sends like every other producer:
pipelined, in the order of the calls, with retries at other brokers. Facts: MQClientInstance.getDefaultMQProducer in
4.9.7, whose group is CLIENT_INNER_PRODUCER.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence

from eruca.client.errors import ClientError
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult
from eruca.client.producing.accumulator import MAX_IN_FLIGHT, MAX_IN_FLIGHT_SIZE
from eruca.client.producing.send import Send, kind_of, should_retry
from eruca.client.producing.sender import NEW_TOPIC_QUEUES, Sender
from eruca.protocol import api
from eruca.protocol.queues import MessageQueue

INNER_GROUP = "CLIENT_INNER_PRODUCER"


class InnerProducer:
    """Sends ready requests in a session of another client, which stops after it.

    Args:
        group: the producer group that requests name.
        timeout: seconds for a send, all attempts together.
        attempt_timeout: seconds for each attempt; default no other limit than ``timeout``.
        retries: further attempts after an error for which ``retry`` returns True.
        retry_waits: seconds before the first further attempt, the second and so on; the last value repeats. Default
            at once.
        retry: whether another attempt may follow an error.
        retry_when_not_stored: tries again, too, when a send is answered with another status than SEND_OK.
        new_topic_queues: queues of a topic that the first send creates.
        max_in_flight, max_in_flight_size: sends under way at once, and bytes of their bodies; the others wait here.
    """

    def __init__(
        self,
        session: Session,
        group: str = INNER_GROUP,
        *,
        timeout: float = 3.0,
        attempt_timeout: float | None = None,
        retries: int = 2,
        retry_waits: Sequence[float] = (),
        retry: Callable[[ClientError], bool] = should_retry,
        retry_when_not_stored: bool = False,
        new_topic_queues: int = NEW_TOPIC_QUEUES,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_in_flight_size: int = MAX_IN_FLIGHT_SIZE,
    ) -> None:
        self._timeout = timeout
        self._attempts = 1 + retries
        self._sender = Sender(
            session,
            group,
            new_topic_queues=new_topic_queues,
            max_in_flight=max_in_flight,
            max_in_flight_size=max_in_flight_size,
            attempt_timeout=attempt_timeout,
            retry_waits=retry_waits,
            retry=retry,
            retry_when_not_stored=retry_when_not_stored,
        )

    def start_send(
        self,
        topic: str,
        body: bytes,
        properties: str,
        *,
        queue: MessageQueue | None = None,
        sys_flag: int = 0,
        flag: int = 0,
        batch: bool = False,
        unique_id: bool = False,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
    ) -> Future[SendResult]:
        """Send a request; the future ends with its result or a ClientError (see ``Producer.send``).

        Args:
            body: as it travels; compressed, it wants the bits of its compression in ``sys_flag``.
            properties: as they travel, names and values between 0x01 and 0x02.
            queue: where to; every attempt goes there. Default one queue after the other, and another broker after a
                failure.
            sys_flag: such as TRANSACTION_PREPARED for a half message.
            batch: the body holds several messages (``eruca.protocol.record.encode_batch``).
            unique_id: puts a unique id before the properties, another one for each attempt; ``message_id`` of the
                result is the one that was stored. The properties then begin with 0x02. Without it ``message_id`` is
                not what travels.
            reconsume_times, max_reconsume_times: of a message that is sent to a retry topic.
        """
        endpoint = api.SEND_BATCH_MESSAGE if batch else api.SEND_MESSAGE_V2
        kind = kind_of(endpoint, sys_flag, flag, batch, False, unique_id, reconsume_times, max_reconsume_times)
        sender = self._sender
        future: Future[SendResult] = sender.loop.create_future()
        send = Send(sender, sender.topic(topic), future, body, properties, self._timeout, kind, self._attempts)
        send.new_ids = unique_id
        if queue is not None:
            send.queue, send.fixed = queue, True
        sender.append(send)
        return future

    async def finish(self, timeout: float) -> None:
        """Wait for the sends under way, ``timeout`` seconds at most."""
        await self._sender.accumulator.wait_idle(timeout)
