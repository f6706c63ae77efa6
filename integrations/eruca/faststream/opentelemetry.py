"""OpenTelemetry for FastStream: spans and metrics of handlers and publishers, by FastStream's conventions.

``eruca.client.telemetry`` does the same for the client, by the newest ones: take one of both.
"""

from __future__ import annotations

from typing import Any

from faststream.message import StreamMessage
from faststream.opentelemetry import TelemetrySettingsProvider
from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
from faststream.opentelemetry.middleware import TelemetryMiddleware
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.semconv.trace import SpanAttributes
from opentelemetry.trace import TracerProvider

from eruca.client import ReceivedMessage
from eruca.faststream.message import messages_of
from eruca.faststream.response import RocketMQPublishCommand

SYSTEM = "rocketmq"


class RocketMQTelemetryMiddleware(TelemetryMiddleware[RocketMQPublishCommand]):
    """Arguments as of FastStream's TelemetryMiddleware; for ``middlewares`` of a broker."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Attributes(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )


class _Attributes(TelemetrySettingsProvider[Any, RocketMQPublishCommand]):
    """What spans say of messages; of a batch that of the first."""

    messaging_system = SYSTEM

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> dict[str, Any]:
        """Of messages that are handled."""
        messages = messages_of(msg)
        attributes: dict[str, Any] = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_MESSAGE_ID: msg.message_id,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: msg.correlation_id,
            SpanAttributes.MESSAGING_MESSAGE_PAYLOAD_SIZE_BYTES: sum(len(each.body) for each in messages),
            MESSAGING_DESTINATION_PUBLISH_NAME: messages[0].topic,
        }
        if len(messages) > 1:
            attributes[SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT] = len(messages)
        return attributes | _of_message(messages[0])

    def get_consume_destination_name(self, msg: StreamMessage[Any]) -> str:
        """The topic, for the name of the span."""
        return messages_of(msg)[0].topic

    def get_publish_attrs_from_cmd(self, cmd: RocketMQPublishCommand) -> dict[str, Any]:
        """Of a message that is sent."""
        return {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_DESTINATION_NAME: cmd.destination,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: cmd.correlation_id,
        }

    def get_publish_destination_name(self, cmd: RocketMQPublishCommand) -> str:
        """The topic, for the name of the span."""
        return cmd.destination


def _of_message(message: ReceivedMessage) -> dict[str, Any]:
    """RocketMQ's own attributes."""
    attributes: dict[str, Any] = {}
    if message.tags:
        attributes[SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_TAG] = message.tags
    if message.keys:
        attributes[SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_KEYS] = message.keys
    return attributes
