"""RocketMQRouter for FastAPI: handlers with FastAPI's dependencies, started and stopped with the application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from fastapi.datastructures import Default
from faststream._internal.fastapi.context import Context, ContextRepo, Logger
from faststream._internal.fastapi.router import StreamRouter

from eruca.faststream import broker, message
from eruca.faststream.options import PublisherOptions, SubscriberOptions

if TYPE_CHECKING:
    from fastapi.types import IncEx

    from eruca.faststream.publisher import RocketMQPublisher
    from eruca.faststream.subscriber import RocketMQSubscriber

__all__ = ["Context", "ContextRepo", "Logger", "RocketMQBroker", "RocketMQMessage", "RocketMQRouter"]

RocketMQMessage = Annotated[message.RocketMQMessage, Context("message")]
RocketMQBroker = Annotated[broker.RocketMQBroker, Context("broker")]


class RouteOptions(SubscriberOptions, total=False):
    """The options of a subscriber, and FastAPI's for what a handler returns."""

    response_model: Any
    response_model_include: IncEx | None
    response_model_exclude: IncEx | None
    response_model_by_alias: bool
    response_model_exclude_unset: bool
    response_model_exclude_defaults: bool
    response_model_exclude_none: bool


_DEFAULTS: RouteOptions = {
    "dependencies": (),
    "response_model": Default(None),
    "response_model_include": None,
    "response_model_exclude": None,
    "response_model_by_alias": True,
    "response_model_exclude_unset": False,
    "response_model_exclude_defaults": False,
    "response_model_exclude_none": False,
}


class RocketMQRouter(StreamRouter[Any]):
    """An APIRouter of FastAPI with the subscribers and publishers of a RocketMQBroker.

    Args:
        nameserver: as of RocketMQBroker.
        context: values for handlers.
        options: more arguments of RocketMQBroker (not ``apply_types`` and ``dependencies`` there) and of FastAPI's
            APIRouter; ``schema_url`` is where the AsyncAPI document is served, None: nowhere.
    """

    broker_class = broker.RocketMQBroker
    broker: broker.RocketMQBroker

    def __init__(
        self, nameserver: str | Sequence[str] | None = None, *, context: ContextRepo | None = None, **options: Any
    ) -> None:
        super().__init__(nameserver, context=context, **options)

    def subscriber(  # type: ignore[override]
        self, *topics: str, **options: Unpack[RouteOptions]
    ) -> RocketMQSubscriber:
        """As ``RocketMQBroker.subscriber``; ``dependencies`` are FastAPI's."""
        given: Any = {**_DEFAULTS, **options}
        return cast("RocketMQSubscriber", super().subscriber(*topics, **given))

    def publisher(self, topic: str, **options: Unpack[PublisherOptions]) -> RocketMQPublisher:  # type: ignore[override]
        """As ``RocketMQBroker.publisher``."""
        return self.broker.publisher(topic, **options)
