"""Publishers: a topic and options of sends, and the answers of handlers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack, cast

from faststream._internal.configs import PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response import PublishCommand, PublishType

from eruca.client import ReceivedMessage, SendResult
from eruca.faststream.config import RocketMQBrokerConfig
from eruca.faststream.options import SendOptions
from eruca.faststream.response import RocketMQPublishCommand
from eruca.faststream.specification import RocketMQPublisherSpecification

if TYPE_CHECKING:
    from faststream._internal.producer import ProducerProto
    from faststream._internal.types import PublisherMiddleware

    from eruca.faststream.message import RocketMQMessage


@dataclass(kw_only=True)
class RocketMQPublisherConfig(PublisherUsecaseConfig):
    """Of a publisher."""

    _outer_config: RocketMQBrokerConfig = field(default_factory=RocketMQBrokerConfig)

    topic: str
    headers: dict[str, str]
    reply_to: str
    batch: bool
    options: SendOptions


class RocketMQPublisher(PublisherUsecase):
    """Sends to one topic: what it is asked to, and what the handlers that it decorates return."""

    _outer_config: RocketMQBrokerConfig

    def __init__(self, config: RocketMQPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._config = config

    @property
    def topic(self) -> str:
        """Its topic, with the prefix of its routers."""
        return f"{self._outer_config.prefix}{self._config.topic}"

    @property
    def batch(self) -> bool:
        """Whether it sends what handlers return as a batch."""
        return self._config.batch

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> SendResult | None:
        """Send a message; arguments in place of those of the publisher. Raises ClientError."""
        cmd = self._command((message,), topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        return cast(SendResult | None, await self._publish_by(cmd, ()))

    async def publish_batch(
        self,
        *messages: Any,
        topic: str = "",
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        """Send messages in as few requests as they fit in; see ``RocketMQBroker.publish_batch``."""
        cmd = self._command(messages, topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        results = await self._basic_publish_batch(cmd, producer=self._outer_config.producer, _extra_middlewares=())
        return cast(list[SendResult], results)

    async def request(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> RocketMQMessage:
        """Send a message and wait for its answer. Raises ClientError, CallTimeout when none came."""
        cmd = self._command((message,), topic, headers, correlation_id, "", options, PublishType.REQUEST)
        answer = await self._basic_request(cmd, producer=self._outer_config.producer)
        return cast("RocketMQMessage", answer)

    def _command(
        self,
        bodies: tuple[Any, ...],
        topic: str,
        headers: dict[str, str] | None,
        correlation_id: str | None,
        reply_to: str,
        options: SendOptions,
        publish_type: PublishType,
    ) -> RocketMQPublishCommand:
        return RocketMQPublishCommand(
            *(bodies or (None,)),
            topic=topic or self.topic,
            headers=self._config.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self._config.reply_to,
            options={**self._config.options, **options},
            publish_type=publish_type,
        )

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        cmd = RocketMQPublishCommand.from_cmd(cmd, batch=self.batch)
        cmd.destination = self.topic
        cmd.add_headers(self._config.headers, override=False)
        cmd.reply_to = cmd.reply_to or self._config.reply_to
        cmd.options = {**self._config.options, **cmd.options}
        await self._publish_by(cmd, _extra_middlewares)

    async def _publish_by(self, cmd: RocketMQPublishCommand, middlewares: Iterable[PublisherMiddleware]) -> Any:
        publish = self._basic_publish_batch if self.batch else self._basic_publish
        return await publish(cmd, producer=self._outer_config.producer, _extra_middlewares=middlewares)


class RocketMQResponsePublisher(FakePublisher):
    """Sends the answer of a handler: to the one who waits for it, else to the topic that the message names."""

    def __init__(self, producer: ProducerProto[Any], topic: str, request: ReceivedMessage | None) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketMQPublishCommand:
        """The command, addressed."""
        command = RocketMQPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self._topic
        command.request = self._request
        return command


def make_publisher(config: RocketMQPublisherConfig, description: Any) -> RocketMQPublisher:
    """A publisher with its specification."""
    return RocketMQPublisher(config, RocketMQPublisherSpecification(config._outer_config, description))
