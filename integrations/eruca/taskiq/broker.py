"""RocketMQTaskiqBroker: tasks are messages of one topic, workers the members of one consumer group.

Owns how a task becomes a message, and which of its labels RocketMQ knows. A task whose worker dies, or that is not
acknowledged within ``consume_timeout``, comes again, at any worker.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from eruca.client import ClientSettings, Hook, Message, Producer, PushConsumer
from eruca.client.environment import known_options
from eruca.client.errors import BadMessage

DELAY: Final = "delay"
"""The label with the seconds until a task may begin."""
ORDERED_BY: Final = "ordered_by"
"""The label with the key whose tasks lie in one queue."""


@known_options
class RocketMQTaskiqBroker(AsyncBroker):
    """Tasks over RocketMQ.

    Args:
        nameserver: ``host:port`` addresses; default from the environment, read at the startup.
        topic: the topic of the tasks.
        group: the consumer group of the workers, and the producer group.
        consume_timeout: seconds until a task that is not acknowledged is given to another worker.
        max_reconsume_times: retries after which it goes to the dead letters of the group; default 16.
        hooks: see what is sent and consumed (see Hook).
        settings: what Eruca's clients share.

    Raises BadName and BadConfig.
    """

    def __init__(
        self,
        nameserver: str | Sequence[str] | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        consume_timeout: float = 900.0,
        max_reconsume_times: int | None = None,
        hooks: Sequence[Hook] = (),
        settings: ClientSettings | None = None,
    ) -> None:
        super().__init__()
        self.topic = topic
        self._make_producer = partial(Producer, group, nameserver=nameserver, hooks=hooks, settings=settings)
        self._make_consumer = partial(
            PushConsumer,
            group,
            nameserver=nameserver,
            start_from="first",
            consume_timeout=consume_timeout,
            max_reconsume_times=max_reconsume_times,
            hooks=hooks,
            settings=settings,
        )
        self._producer, self._consumer = self._make_producer(), self._make_consumer()

    async def startup(self) -> None:
        """Connect; in a worker join the group. Raises ClientError."""
        self._producer, self._consumer = self._make_producer(), self._make_consumer()
        await self._producer.start()
        if self.is_worker_process:
            await self._consumer.subscribe(self.topic).start()
        await super().startup()

    async def shutdown(self) -> None:
        """Leave the group and disconnect; tasks that are not acknowledged come again."""
        try:
            await super().shutdown()
        finally:
            await self._consumer.stop()
            await self._producer.stop()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task, its id as the key. Raises ClientError."""
        key = message.labels.get(ORDERED_BY)
        task = Message(self.topic, message.message, keys=message.task_id, delay=_delay(message.labels.get(DELAY)))
        await self._producer.send(task, ordered_by=None if key is None else str(key))

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks for this worker, each consumed by its ack."""
        async for delivery in self._consumer.messages(auto_ack=False):
            yield AckableMessage(data=delivery.body, ack=delivery.ack)


def _delay(label: object) -> float | None:
    """The seconds of a label, which may be a text. Raises BadMessage."""
    if label is None:
        return None
    try:
        return float(str(label))
    except ValueError:
        raise BadMessage(f"the label {DELAY}={label!r} is no number of seconds") from None
