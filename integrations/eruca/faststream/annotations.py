"""Types of a handler's parameters that FastStream fills from its context."""

from __future__ import annotations

from typing import Annotated

from faststream import Context
from faststream.annotations import ContextRepo, Logger
from faststream.params import NoCast

from eruca.client import Producer as ErucaProducer
from eruca.faststream import broker, message

__all__ = ["ContextRepo", "Logger", "NoCast", "Producer", "RocketMQBatchMessage", "RocketMQBroker", "RocketMQMessage"]

RocketMQBroker = Annotated[broker.RocketMQBroker, Context("broker")]
"""The broker whose subscriber runs."""
RocketMQMessage = Annotated[message.RocketMQMessage, Context("message")]
"""The message that is handled."""
RocketMQBatchMessage = Annotated[message.RocketMQBatchMessage, Context("message")]
"""The messages that are handled, of a subscriber with ``batch=True``."""
Producer = Annotated[ErucaProducer, Context("broker._connection")]
"""Eruca's producer, for what FastStream has no word for."""
