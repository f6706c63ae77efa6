"""What the AsyncAPI document says of subscribers and publishers: a channel for each topic.

AsyncAPI has no binding for RocketMQ that FastStream could write, so there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from faststream._internal.configs import PublisherSpecificationConfig, SubscriberSpecificationConfig
from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec

from eruca.faststream.config import RocketMQBrokerConfig


@dataclass(kw_only=True)
class SubscriberDescription(SubscriberSpecificationConfig):
    """Of a subscriber."""

    topics: tuple[str, ...]


@dataclass(kw_only=True)
class PublisherDescription(PublisherSpecificationConfig):
    """Of a publisher."""

    topic: str


class RocketMQSubscriberSpecification(SubscriberSpecification[RocketMQBrokerConfig, SubscriberDescription]):
    """The channels of a subscriber."""

    @property
    def channel_labels(self) -> list[str]:
        """Its topics, with the prefix of its routers."""
        return [f"{self._outer_config.prefix}{topic}" for topic in dict.fromkeys(self.config.topics)]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """A channel for each topic."""
        payloads, topics, channels = self.get_payloads(), self.channel_labels, {}
        for topic in topics:
            name = self._channel_key(topic, split=len(topics) > 1)
            message = Message(title=f"{name}:Message", payload=resolve_payloads(payloads))
            channels[name] = SubscriberSpec(
                address=topic,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        return channels


class RocketMQPublisherSpecification(PublisherSpecification[RocketMQBrokerConfig, PublisherDescription]):
    """The channel of a publisher."""

    @property
    def topic(self) -> str:
        """Its topic, with the prefix of its routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The key of its channel."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Its channel."""
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads(), "Publisher"))
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
