"""Prometheus for FastStream: its metrics of handlers and publishers.

``eruca.client.metrics`` has those of the client: lags, pulls and connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from faststream._internal.constants import EMPTY
from faststream.message import StreamMessage
from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider
from faststream.prometheus.middleware import PrometheusMiddleware
from prometheus_client import CollectorRegistry

from eruca.faststream.message import messages_of
from eruca.faststream.response import RocketMQPublishCommand

SYSTEM = "rocketmq"


class RocketMQPrometheusMiddleware(PrometheusMiddleware[Any, RocketMQPublishCommand]):
    """Arguments as of FastStream's PrometheusMiddleware; for ``middlewares`` of a broker."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Labels(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )


class _Labels(MetricsSettingsProvider[Any, RocketMQPublishCommand]):
    """What metrics say of messages."""

    messaging_system = SYSTEM

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> ConsumeAttrs:
        """Of messages that are handled."""
        messages = messages_of(msg)
        return {
            "destination_name": messages[0].topic,
            "message_size": sum(len(each.body) for each in messages),
            "messages_count": len(messages),
        }

    def get_publish_destination_name_from_cmd(self, cmd: RocketMQPublishCommand) -> str:
        """The topic."""
        return cmd.destination
