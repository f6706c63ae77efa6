"""Routers: subscribers and publishers that a broker includes later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from faststream import AckPolicy
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY

from eruca.faststream.config import RocketMQBrokerConfig
from eruca.faststream.options import PublisherOptions, SubscriberOptions, check_policy
from eruca.faststream.registrator import RocketMQRegistrator

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.configs import UnderlyingDriverAnnotations
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class RocketMQPublisher(ArgsContainer):
    """The arguments of ``publisher``, for a RocketMQRoute."""

    def __init__(self, topic: str, **options: Unpack[PublisherOptions]) -> None:
        super().__init__(topic, **options)


class RocketMQRoute(SubscriberRoute):
    """A handler with the arguments of its ``subscriber`` and publishers, for a RocketMQRouter."""

    def __init__(
        self,
        call: Callable[..., Any] | Callable[..., Awaitable[Any]],
        *topics: str,
        publishers: Iterable[RocketMQPublisher] = (),
        **options: Unpack[SubscriberOptions],
    ) -> None:
        super().__init__(call, *topics, publishers=publishers, **options)


class RocketMQRouter(RocketMQRegistrator, BrokerRouter[Any, RocketMQBrokerConfig]):
    """Subscribers and publishers for ``broker.include_router``.

    Args:
        prefix: before the names of their topics.
        handlers: handlers that are declared elsewhere.
        dependencies: run before each handler.
        middlewares: around the handlers and publishers, inside the broker's.
        routers: routers to include.
        parser: makes message objects.
        decoder: makes values of bodies.
        codec: the same as an object, which encodes too.
        ack_policy: what an exception of a handler means.
        include_in_schema: False leaves them out of the AsyncAPI document.
        underlying_driver_annotations: as of FastStream's brokers.
    """

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketMQRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketMQRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
        underlying_driver_annotations: UnderlyingDriverAnnotations | None = None,
    ) -> None:
        check_policy(ack_policy)
        super().__init__(
            handlers=handlers,
            config=RocketMQBrokerConfig(
                prefix=prefix,
                broker_middlewares=middlewares,
                broker_dependencies=dependencies,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                ack_policy=ack_policy,
                include_in_schema=include_in_schema,
                underlying_driver_annotations=underlying_driver_annotations or {},
            ),
            routers=routers,
        )
