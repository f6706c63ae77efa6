"""TestRocketMQBroker: a broker without a cluster, for tests of handlers.

Owns which subscribers a published message reaches. Tags are matched as brokers do, a group gets a message once;
conditions of SQL92 match every message, and delays are none. Handlers run inside ``publish``, and what they raise is
raised there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any, cast, overload
from unittest.mock import MagicMock

import anyio
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import FeatureNotSupportedException, SubscriberNotFound

from eruca.client import ClientSettings, LitePullConsumer, Message, MessageQueue, ReceivedMessage, Record, SendResult
from eruca.client.message import check_message, text_of
from eruca.client.outcomes import SendStatus
from eruca.faststream.broker import RocketMQBroker
from eruca.faststream.config import Clients, Running, Subscription
from eruca.faststream.producer import RocketMQProducer
from eruca.faststream.response import RocketMQPublishCommand
from eruca.faststream.subscriber import RocketMQSubscriber

if TYPE_CHECKING:
    from eruca.faststream.publisher import RocketMQPublisher

_MAGIC = -626843481
_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))


class TestRocketMQBroker(TestBroker[RocketMQBroker, EnterType], broker=RocketMQBroker):
    """Runs brokers in memory; with ``with_real=True`` on their cluster, and only watches.

    ``async with TestRocketMQBroker(broker) as broker: await broker.publish(...)``
    """

    @overload
    def __init__(
        self: TestRocketMQBroker[RocketMQBroker],
        broker: RocketMQBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: TestRocketMQBroker[tuple[RocketMQBroker, ...]],
        *brokers: RocketMQBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...
    def __init__(self, *brokers: RocketMQBroker, with_real: bool = False, connect_only: bool | None = None) -> None:
        super().__init__(*brokers, with_real=with_real, connect_only=connect_only)

    def create_publisher_fake_subscriber(
        self, broker: RocketMQBroker, publisher: RocketMQPublisher
    ) -> tuple[RocketMQSubscriber, bool]:
        """The subscriber that sees what a publisher sends, and whether it is one of the application's."""
        for subscriber in _subscribers(self.brokers):
            if publisher.topic in subscriber.topics:
                return subscriber, True
        group = f"test-of-{publisher.topic}-{next(_numbers)}"
        made = broker.subscriber(publisher.topic, group=group, batch=publisher.batch, persistent=False)
        return made, False

    @contextmanager
    def _patch_producer(self, broker: RocketMQBroker) -> Generator[None]:
        config = broker.config.broker_config
        clients, config.clients = config.clients, _SilentClients(ClientSettings())
        try:
            with change_producer(config, FakeProducer(broker, self.brokers)):
                yield
        finally:
            config.clients = clients

    async def _fake_connect(self, broker: RocketMQBroker, *args: Any, **kwargs: Any) -> Any:
        return MagicMock()


class FakeProducer(RocketMQProducer):
    """Passes what is published to the handlers of the tested brokers."""

    def __init__(self, broker: RocketMQBroker, brokers: Sequence[RocketMQBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._brokers = brokers
        config = broker.config
        self._serializer = config.fd_config._serializer
        self.codec = config.broker_codec or self.codec

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult:
        """Pass on one message."""
        message = _received(await self.message(cmd))
        for subscriber in self._matching(message):
            await subscriber.process_message([message] if subscriber.batch else message)
        return _sent(message)

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> list[SendResult]:
        """Pass on messages: one by one, or together where handlers take lists."""
        messages = [_received(message) for message in await self.messages(cmd)]
        for subscriber in _once(subscriber for each in messages for subscriber in self._matching(each)):
            mine = [each for each in messages if _matches(subscriber, each)]
            for argument in [mine] if subscriber.batch else mine:
                await subscriber.process_message(argument)
        return [_sent(each) for each in messages]

    async def request(self, cmd: RocketMQPublishCommand) -> ReceivedMessage:
        """Pass on one message; the answer of the handler. Raises SubscriberNotFound, and TimeoutError."""
        message = _received(await self.message(cmd))
        for subscriber in self._matching(message):
            with anyio.fail_after(cmd.options.get("timeout")):
                answer = await subscriber.process_message([message] if subscriber.batch else message)
            answered = RocketMQPublishCommand.from_cmd(answer.as_publish_command())
            answered.destination = cmd.destination
            return _received(await self.message(answered))
        raise SubscriberNotFound

    def _matching(self, message: ReceivedMessage) -> Iterator[RocketMQSubscriber]:
        return _once(each for each in _subscribers(self._brokers) if _matches(each, message))


class _SilentConsumer:
    """A consumer that gets nothing."""

    async def stop(self) -> None:
        """Nothing runs."""


class _SilentClients(Clients):
    """Clients without a cluster."""

    async def start_push(self, subscription: Subscription, listener: Any, **options: Any) -> Running:
        """A consumer that gets nothing: messages are passed on by FakeProducer."""
        return _SilentConsumer()

    async def start_pull(self, subscription: Subscription) -> LitePullConsumer:
        """Fails: there is nothing to pull from. Raises FeatureNotSupportedException."""
        raise FeatureNotSupportedException(
            "TestRocketMQBroker keeps no messages that get_one could return: use with_real=True."
        )


_numbers = count(1)


def _subscribers(brokers: Sequence[RocketMQBroker]) -> list[RocketMQSubscriber]:
    return [cast(RocketMQSubscriber, subscriber) for broker in brokers for subscriber in broker.subscribers]


def _once(subscribers: Iterator[RocketMQSubscriber]) -> Iterator[RocketMQSubscriber]:
    """One subscriber of each group."""
    seen: set[str] = set()
    for subscriber in subscribers:
        if subscriber.group not in seen:
            seen.add(subscriber.group)
            yield subscriber


def _matches(subscriber: RocketMQSubscriber, message: ReceivedMessage) -> bool:
    """Whether a broker would give this message to the group of this subscriber."""
    wanted = subscriber.subscription
    if message.topic not in wanted.topics:
        return False
    if wanted.expression_type != "TAG" or wanted.expression in ("", "*"):
        return True
    return message.tags in {tag.strip() for tag in wanted.expression.split("||")}


def _received(message: Message) -> ReceivedMessage:
    """The message as a consumer would get it. Raises BadMessage and BadName, as a send does."""
    check_message(message, max_size=1 << 30)
    number, now = next(_numbers), round(time() * 1000)
    properties = text_of(message, f"{number:032X}").encode()
    record = Record(
        size=0,
        magic=_MAGIC,
        body_crc=0,
        queue_id=0,
        flag=message.flag,
        queue_offset=number,
        physical_offset=number,
        sys_flag=0,
        born_timestamp=now,
        born_host=_HOST,
        store_timestamp=now,
        store_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_length=len(message.body),
        body=message.body,
        topic=message.topic,
        properties_text=properties,
    )
    return ReceivedMessage(record, MessageQueue(message.topic, "test", 0))


def _sent(message: ReceivedMessage) -> SendResult:
    return SendResult(
        SendStatus.SEND_OK, message.message_id, message.offset_message_id, message.queue, message.queue_offset
    )
