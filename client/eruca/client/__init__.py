"""Eruca's client for RocketMQ clusters: producers and consumers, asynchronous and blocking."""

from eruca.client.config import ClientSettings
from eruca.client.pull_consumer import PullConsumer, PullResult, PullStatus
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record

__all__ = [
    "ClientSettings",
    "MessageQueue",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "Record",
]
