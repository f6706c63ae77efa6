"""RocketMQBroker: what an application of FastStream is made around.

Owns the options that all subscribers and publishers share, the producer, and the start and stop of everything.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, cast

from fast_depends import Provider, dependency_provider
from faststream import AckPolicy, ContextRepo
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.di import FastDependsConfig
from faststream._internal.types import IdGenerator
from faststream.exceptions import SetupError
from faststream.message import gen_cor_id
from faststream.response import PublishType
from faststream.specification.schema import BrokerSpec

from eruca.client import ClientSettings, Hook, Producer, SendResult
from eruca.client.checks import check_seconds
from eruca.client.environment import known_options
from eruca.client.errors import ClientError, NoNameserver, TopicNotFound
from eruca.faststream.config import DEFAULT_GROUP, Clients, RocketMQBrokerConfig
from eruca.faststream.log import make_logger
from eruca.faststream.options import SendOptions, check_policy
from eruca.faststream.producer import RocketMQProducer
from eruca.faststream.registrator import RocketMQRegistrator
from eruca.faststream.response import RocketMQPublishCommand
from eruca.faststream.security import settings_of
from eruca.faststream.subscriber import RocketMQSubscriber

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.configs import UnderlyingDriverAnnotations
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.security import BaseSecurity
    from faststream.specification.schema.extra import Tag, TagDict

    from eruca.faststream.message import RocketMQMessage

TEMPLATE_TOPIC = "TBW102"
PROTOCOL_VERSION = "4.9"
NOWHERE = "localhost:9876"
"""The address in the AsyncAPI document of a broker without nameservers."""


@known_options
class RocketMQBroker(RocketMQRegistrator, BrokerUsecase[Any, Producer, RocketMQBrokerConfig]):
    """RocketMQ for FastStream.

    Args:
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings), read at the start.
        group: the name of the application: the producer group, and the first part of consumer groups without a name.
        settings: what Eruca's clients share.
        send_timeout: seconds for a send or a request with all its attempts.
        retries: attempts of a send beside the first.
        hooks: see what is sent and consumed (see Hook).
        trace: True writes the trace of each message.
        graceful_timeout: seconds for which a stop waits for running handlers; None: not at all.
        decoder, parser, codec, dependencies, middlewares, routers, id_generator: as of FastStream's brokers.
        ack_policy: what an exception of a handler means; default NACK_ON_ERROR.
        specification_url: the address in the AsyncAPI document; default the first nameserver.
        protocol, protocol_version, description, tags: of the AsyncAPI document.
        security: SASLPlaintext with access and secret key, or BaseSecurity for TLS alone.
        logger, log_level: FastStream's log; None as logger is silent.
        apply_types, serializer, provider, context, underlying_driver_annotations: as of FastStream's brokers.

    Raises BadConfig and SetupError.
    """

    def __init__(
        self,
        nameserver: str | Sequence[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        settings: ClientSettings | None = None,
        send_timeout: float = 3.0,
        retries: int = 2,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketMQRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        security: BaseSecurity | None = None,
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        underlying_driver_annotations: UnderlyingDriverAnnotations | None = None,
    ) -> None:
        check_policy(ack_policy)
        if graceful_timeout is not None:
            check_seconds(0, graceful_timeout=graceful_timeout)
        chosen = ClientSettings.choose(settings, nameserver)
        self._settings = replace(chosen, **settings_of(security))
        super().__init__(
            send_timeout=send_timeout,
            retries=retries,
            hooks=hooks,
            trace=trace,
            routers=routers,
            config=RocketMQBrokerConfig(
                group=group,
                producer=RocketMQProducer(parser, decoder),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_logger(logger=logger, log_level=log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
                underlying_driver_annotations=underlying_driver_annotations or {},
            ),
            specification=BrokerSpec(
                url=[specification_url or f"rocketmq://{_first_address(self._settings)}"],
                protocol=protocol or "rocketmq",
                protocol_version=protocol_version or PROTOCOL_VERSION,
                description=description,
                tags=tags,
                security=security,
            ),
        )

    # ------------------------------------------------------------------ starting and stopping

    async def _connect(self) -> Producer:
        config, given = self.config.broker_config, self._connection_kwargs
        settings = self._settings.found()
        producer = Producer(config.group, settings=settings, **given)
        await producer.start()
        config.clients = Clients(settings, given["hooks"], given["trace"])
        self._fast_producer.connect(producer, config.fd_config._serializer, config.broker_codec)
        return producer

    @property
    def _fast_producer(self) -> RocketMQProducer:
        return cast(RocketMQProducer, self.config.producer)

    async def start(self) -> None:
        """Connect, and let all subscribers consume. Raises SetupError, and ClientError as the clients' starts."""
        self._check_groups()
        await self.connect()
        await super().start()

    def _check_groups(self) -> None:
        subscribers = cast("list[RocketMQSubscriber]", self.subscribers)
        for group, count in Counter(each.group for each in subscribers).items():
            if count > 1:
                raise SetupError(
                    f"{count} subscribers are in the consumer group {group}, whose members must subscribe alike: give "
                    "each one its own group=..., or put the topics into one subscriber."
                )

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop all subscribers, wait for their handlers, and disconnect."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            producer, self._connection = self._connection, None
            self.config.broker_config.clients = None
            self._fast_producer.connect(None, None, None)
            if producer is not None:
                await producer.stop()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a nameserver answers within ``timeout`` seconds."""
        if self._connection is None:
            return False
        try:
            await self._connection.fetch_queues(TEMPLATE_TOPIC, timeout=timeout)
        except TopicNotFound:
            return True
        except ClientError:
            return False
        return True

    # ------------------------------------------------------------------ publishing

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
        """Send a message and wait until a broker has stored it; None with ``no_confirm``.

        Args:
            message: bytes, a text, or anything that is written as JSON.
            topic: where to.
            headers: user properties.
            correlation_id: default one by the broker's id_generator.
            reply_to: the topic for the answer of the handler.
            options: see ``SendOptions``.

        Raises ClientError.
        """
        cmd = self._command((message,), topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        return cast(SendResult | None, await self._basic_publish(cmd, producer=self._producer))

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: Any,
        topic: str = "",
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        """Send messages in as few requests as they fit in; those of one request lie in one queue, or none is stored.

        A RocketMQPublishMessage among them has headers, tags and keys of its own. RocketMQ delays no message of a
        batch. Arguments and errors as of ``publish``.
        """
        cmd = self._command(messages, topic, headers, correlation_id, reply_to, options, PublishType.PUBLISH)
        return cast("list[SendResult]", await self._basic_publish_batch(cmd, producer=self._producer))

    async def request(  # type: ignore[override]
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendOptions],
    ) -> RocketMQMessage:
        """Send a message and wait for the answer of its handler, by RocketMQ's request-reply.

        Arguments as of ``publish``. Raises ClientError, CallTimeout when no answer came in time.
        """
        cmd = self._command((message,), topic, headers, correlation_id, "", options, PublishType.REQUEST)
        return cast("RocketMQMessage", await self._basic_request(cmd, producer=self._producer))

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
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            options=options,
            publish_type=publish_type,
        )


def _first_address(settings: ClientSettings) -> str:
    """The nameserver that the AsyncAPI document names."""
    try:
        return next(iter(settings.found().nameserver_list()), NOWHERE)
    except NoNameserver:
        return NOWHERE
