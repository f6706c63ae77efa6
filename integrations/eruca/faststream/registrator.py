"""Registrator: how brokers and routers make subscribers and publishers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY

from eruca.client.checks import check_least
from eruca.client.config import check_topic
from eruca.client.environment import check_names
from eruca.faststream.config import RocketMQBrokerConfig
from eruca.faststream.options import (
    ConsumerOptions,
    PublisherOptions,
    SendOptions,
    SubscriberOptions,
    check_policy,
    check_topics,
)
from eruca.faststream.publisher import RocketMQPublisher, RocketMQPublisherConfig, make_publisher
from eruca.faststream.specification import PublisherDescription, SubscriberDescription
from eruca.faststream.subscriber import RocketMQSubscriber, RocketMQSubscriberConfig, make_subscriber

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.types import BrokerMiddleware

_OF_CONSUMER = frozenset((*ConsumerOptions.__annotations__,))
_OF_SEND = frozenset((*SendOptions.__annotations__,))
_OF_SUBSCRIBER = ("group", "expression", "expression_type", "max_workers", "batch", "max_records", "no_reply")


class RocketMQRegistrator(Registrator[Any, RocketMQBrokerConfig]):
    """What can be declared at a broker and at a router."""

    def subscriber(  # type: ignore[override]
        self, *topics: str, **options: Unpack[SubscriberOptions]
    ) -> RocketMQSubscriber:
        """Subscribe handlers to topics, in one consumer group; see ``SubscriberOptions``.

        Raises SetupError, and what ``PushConsumer`` raises for its options and its expression.
        """
        check_names(options, SubscriberOptions.__annotations__)
        check_topics(topics)
        check_policy(options.get("ack_policy", EMPTY))
        check_least(1, max_workers=options.get("max_workers", 1), max_records=options.get("max_records", 1))
        config = cast(RocketMQBrokerConfig, self.config)
        subscriber = make_subscriber(
            RocketMQSubscriberConfig(
                _outer_config=config,
                _ack_policy=options.get("ack_policy", EMPTY),
                topics=topics,
                options=cast(ConsumerOptions, _chosen(options, _OF_CONSUMER)),
                **_chosen(options, _OF_SUBSCRIBER),
            ),
            SubscriberDescription(
                topics=topics,
                title_=options.get("title"),
                description_=options.get("description"),
                include_in_schema=options.get("include_in_schema", True),
            ),
        )
        subscriber.subscription.check()
        super().subscriber(subscriber, persistent=options.get("persistent", True))
        return subscriber.add_call(
            parser_=options.get("parser") or self._parser,
            decoder_=options.get("decoder") or self._decoder,
            codec_=options.get("codec"),
            dependencies_=options.get("dependencies", ()),
        )

    def publisher(self, topic: str, **options: Unpack[PublisherOptions]) -> RocketMQPublisher:  # type: ignore[override]
        """A publisher to a topic; see ``PublisherOptions``. Raises BadName, and BadConfig for an unknown option."""
        check_names(options, PublisherOptions.__annotations__)
        check_topic(topic)
        config = cast(RocketMQBrokerConfig, self.config)
        publisher = make_publisher(
            RocketMQPublisherConfig(
                _outer_config=config,
                topic=topic,
                headers=options.get("headers") or {},
                reply_to=options.get("reply_to", ""),
                batch=options.get("batch", False),
                options=cast(SendOptions, _chosen(options, _OF_SEND)),
            ),
            PublisherDescription(
                topic=topic,
                title_=options.get("title"),
                description_=options.get("description"),
                schema_=options.get("schema"),
                include_in_schema=options.get("include_in_schema", True),
            ),
        )
        super().publisher(publisher, persistent=options.get("persistent", True))
        return publisher

    def include_router(
        self,
        router: Registrator[Any, Any],
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Take over what was declared at a router. Raises SetupError for the router of another kind of broker."""
        if not isinstance(router, RocketMQRegistrator):
            raise TypeError(f"Router must be an instance of RocketMQRegistrator, got {type(router).__name__} instead.")
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )


def _chosen(options: Any, names: Any) -> dict[str, Any]:
    """Those options that were given."""
    return {name: options[name] for name in options if name in names}
