"""RocketMQ as a broker of FastStream: ``RocketMQBroker`` with its routers, publishers, subscribers and test broker.

Built on Eruca's client and on the base classes with which FastStream's own brokers are built. Needs
``pip install "eruca[faststream]"``.
"""

from eruca.faststream.annotations import RocketMQMessage
from eruca.faststream.broker import RocketMQBroker
from eruca.faststream.memory import TestRocketMQBroker
from eruca.faststream.response import RocketMQPublishMessage, RocketMQResponse
from eruca.faststream.router import RocketMQPublisher, RocketMQRoute, RocketMQRouter

__all__ = [
    "RocketMQBroker",
    "RocketMQMessage",
    "RocketMQPublishMessage",
    "RocketMQPublisher",
    "RocketMQResponse",
    "RocketMQRoute",
    "RocketMQRouter",
    "TestRocketMQBroker",
]
