"""Subscriber: a consumer group of Eruca's client whose listener is a FastStream handler.

Owns how messages reach handlers and how a handler's end becomes the outcome of a call; ``message`` owns ack, nack and
reject. With handlers it is a PushConsumer; without, ``get_one`` and ``async for`` take from a LitePullConsumer.
Invariant: no call begins after ``stop`` began, so that no message is retried because its consumer stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faststream import AckPolicy, StreamMessage
from faststream._internal.configs import SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg

from eruca.client import Later, LitePullConsumer, Reject, Suspend
from eruca.faststream.config import RocketMQBrokerConfig, Running, Subscription
from eruca.faststream.message import PulledSettlement, Settlement, settlement_of, settling
from eruca.faststream.options import ConsumerOptions
from eruca.faststream.parser import RocketMQParser, is_request
from eruca.faststream.publisher import RocketMQResponsePublisher
from eruca.faststream.specification import RocketMQSubscriberSpecification

if TYPE_CHECKING:
    from faststream import Response
    from faststream._internal.endpoint.publisher import PublisherProto


@dataclass(kw_only=True)
class RocketMQSubscriberConfig(SubscriberUsecaseConfig):
    """Of a subscriber."""

    _outer_config: RocketMQBrokerConfig = field(default_factory=RocketMQBrokerConfig)

    topics: tuple[str, ...]
    group: str | None = None
    expression: str = "*"
    expression_type: str = "TAG"
    max_workers: int = 1
    batch: bool = False
    max_records: int = 32
    options: ConsumerOptions = field(default_factory=ConsumerOptions)

    @property
    def ack_policy(self) -> AckPolicy:
        """What was given here, or to the broker."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


class RocketMQSubscriber(SubscriberUsecase[Any]):
    """The handlers of some topics, in one consumer group."""

    _outer_config: RocketMQBrokerConfig

    def __init__(
        self,
        config: RocketMQSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Any],
    ) -> None:
        parser = RocketMQParser()
        config.parser = parser.parse_batch if config.batch else parser.parse_message
        config.decoder = parser.decode_batch if config.batch else parser.decode_message
        super().__init__(config, specification, calls)
        self._config = config
        self._in_order = bool(config.options.get("orderly") or config.options.get("ordered_by"))
        self._consumer: Running | None = None
        self._reader: LitePullConsumer | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """Its topics, with the prefix of its routers."""
        return tuple(f"{self._outer_config.prefix}{topic}" for topic in self._config.topics)

    @property
    def group(self) -> str:
        """Its consumer group."""
        return self._config.group or "-".join((self._outer_config.group, *self.topics))

    @property
    def batch(self) -> bool:
        """Whether its handlers get lists."""
        return self._config.batch

    @property
    def subscription(self) -> Subscription:
        """What it consumes."""
        config = self._config
        return Subscription(
            group=self.group,
            topics=self.topics,
            expression=config.expression,
            expression_type=config.expression_type,
            options=config.options,
        )

    async def start(self) -> None:
        """Join the group, if there are handlers. Raises as ``PushConsumer.start``."""
        await super().start()
        self._post_start()  # messages may come before the consumer says that it runs
        if not self.calls or self._consumer is not None:
            return
        config = self._config
        try:
            self._consumer = await self._outer_config.connected_clients.start_push(
                self.subscription,
                self._listen,
                concurrency=config.max_workers,
                consume_message_batch_max_size=config.max_records if config.batch else None,
                stop_timeout=self._outer_config.graceful_timeout or 0,
            )
        except BaseException:
            self.running = False
            raise

    async def stop(self) -> None:
        """Stop consuming, and wait for running handlers up to the broker's graceful_timeout."""
        consumer, self._consumer = self._consumer, None
        reader, self._reader = self._reader, None
        if consumer is not None:
            await consumer.stop()
        if reader is not None:
            await reader.stop()
        await super().stop()

    async def _listen(self, raw: Any) -> Later | Suspend | Reject | None:
        settlement = Settlement(raw, in_order=self._in_order)
        with settling(settlement):
            await self.consume(raw)
        return settlement.outcome

    async def process_message(self, msg: Any) -> Response:
        """Pass a message to its handler. Raises what that raises, which becomes the cause of the outcome."""
        try:
            return await super().process_message(msg)
        except Exception as error:
            settlement_of(msg).error = error
            raise

    # ------------------------------------------------------------------ without handlers

    async def get_one(self, *, timeout: float = 5.0) -> StreamMessage[Any] | None:
        """The next message, or list of a subscriber with ``batch=True``; None if none came in ``timeout`` seconds.

        It counts as consumed by its ``ack()``, or when the next one is asked for.
        """
        reader = await self._started_reader()
        if self.batch:
            return await self._process(await reader.poll(timeout) or None, reader)
        raw = None
        try:
            async with asyncio.timeout(timeout):
                raw = await anext(reader.messages(), None)
        except TimeoutError:
            pass
        return await self._process(raw, reader)

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Any]]:
        reader = await self._started_reader()
        raws: AsyncIterator[Any] = reader.batches() if self.batch else reader.messages()
        async for raw in raws:
            message = await self._process(raw, reader)
            if message is not None:
                yield message

    async def _started_reader(self) -> LitePullConsumer:
        assert not self.calls, "A subscriber with handlers passes its messages to them: use another for get_one."
        if self._reader is None:
            self._reader = await self._outer_config.connected_clients.start_pull(self.subscription)
        return self._reader

    async def _process(self, raw: Any, reader: LitePullConsumer) -> StreamMessage[Any] | None:
        if raw is None:
            return None
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        with settling(PulledSettlement(raw, reader)):
            return await process_msg(
                msg=raw,
                middlewares=(middleware(raw, context=context) for middleware in self._broker_middlewares),
                parser=parser,
                decoder=decoder,
            )

    # ------------------------------------------------------------------ what FastStream asks

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        raw = message.raw_message
        request = raw if not self.batch and is_request(raw) else None
        return (RocketMQResponsePublisher(self._outer_config.producer, message.reply_to, request),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """What log lines say of a message."""
        return {
            "topic": ",".join(self.topics),
            "group": self.group,
            "message_id": getattr(message, "message_id", ""),
        }


def make_subscriber(config: RocketMQSubscriberConfig, description: Any) -> RocketMQSubscriber:
    """A subscriber with its specification."""
    calls = CallsCollection[Any]()
    specification = RocketMQSubscriberSpecification(config._outer_config, description, calls)
    return RocketMQSubscriber(config, specification, calls)
