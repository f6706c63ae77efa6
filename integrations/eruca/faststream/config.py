"""The configuration that a broker shares with its endpoints, and the clients that it makes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, cast

from faststream._internal.configs import BrokerConfig, UnderlyingDriverAnnotation, UnderlyingDriverAnnotations
from faststream.exceptions import IncorrectState

from eruca.client import ClientSettings, Hook, LitePullConsumer, Producer, PushConsumer
from eruca.client.config import check_topic
from eruca.faststream.options import ConsumerOptions, PullOptions

DEFAULT_GROUP = "faststream"


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """What a subscriber consumes."""

    group: str
    topics: tuple[str, ...]
    expression: str
    expression_type: str
    options: ConsumerOptions

    def check(self) -> None:
        """Raise what a consumer raises for options and an expression that it does not take."""
        for topic in self.topics:  # first, as a group without a name has the topics in its own
            check_topic(topic)
        make: Any = PushConsumer  # whose overloads want each kind of consumption in a call of its own
        self.subscribe(make(self.group, print, **self.options))

    def subscribe(self, consumer: PushConsumer | LitePullConsumer) -> None:
        """Let this consumer subscribe it."""
        for topic in self.topics:
            consumer.subscribe(topic, self.expression, expression_type=self.expression_type)


class Running(Protocol):
    """A consumer that runs."""

    async def stop(self) -> None:
        """Stop it, and wait for the calls that run."""


@dataclass(frozen=True)
class Clients:
    """Starts the consumers of one broker."""

    settings: ClientSettings
    hooks: Sequence[Hook] = ()
    trace: bool | str = False

    async def start_push(self, subscription: Subscription, listener: Callable[[Any], Any], **options: Any) -> Running:
        """A consumer that passes messages to ``listener``; ``options`` beside those of the subscription."""
        make: Any = PushConsumer  # whose overloads want each kind of consumption in a call of its own
        consumer: PushConsumer = make(
            subscription.group,
            listener,
            settings=self.settings,
            hooks=self.hooks,
            trace=self.trace,
            **subscription.options,
            **options,
        )
        subscription.subscribe(consumer)
        await consumer.start()
        return consumer

    async def start_pull(self, subscription: Subscription) -> LitePullConsumer:
        """A consumer that is polled."""
        known = PullOptions.__annotations__
        options: dict[str, Any] = {name: value for name, value in subscription.options.items() if name in known}
        consumer = LitePullConsumer(
            subscription.group, settings=self.settings, hooks=self.hooks, trace=self.trace, **options
        )
        subscription.subscribe(consumer)
        await consumer.start()
        return consumer


def _driver_annotations() -> UnderlyingDriverAnnotations:
    """What a parameter of a handler should be annotated with, in place of a class of Eruca's or of this package."""
    from eruca.faststream import annotations, broker, message  # they need this module

    module = annotations.__name__
    hints: Mapping[Any, tuple[Any, str]] = {
        broker.RocketMQBroker: (annotations.RocketMQBroker, "RocketMQBroker"),
        message.RocketMQMessage: (annotations.RocketMQMessage, "RocketMQMessage"),
        message.RocketMQBatchMessage: (annotations.RocketMQBatchMessage, "RocketMQBatchMessage"),
        Producer: (annotations.Producer, "Producer"),
    }
    rows = {
        kind: UnderlyingDriverAnnotation(type_hint=hint, module=module, name=name)
        for kind, (hint, name) in hints.items()
    }
    return MappingProxyType(cast(dict[Any, Any], rows))


@dataclass(kw_only=True)
class RocketMQBrokerConfig(BrokerConfig):
    """What endpoints ask their broker for."""

    group: str = DEFAULT_GROUP
    clients: Clients | None = field(default=None, repr=False)
    """Set while the broker is connected."""
    default_driver_annotations: UnderlyingDriverAnnotations = field(default_factory=_driver_annotations)

    @property
    def connected_clients(self) -> Clients:
        """The clients. Raises IncorrectState before the broker is connected."""
        if self.clients is None:
            raise IncorrectState("The broker is not connected: call `await broker.connect()` or start it first.")
        return self.clients
