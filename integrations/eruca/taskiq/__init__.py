"""RocketMQ as a broker of Taskiq: ``RocketMQTaskiqBroker``. Needs ``pip install "eruca[taskiq]"``."""

from eruca.taskiq.broker import RocketMQTaskiqBroker

__all__ = ["RocketMQTaskiqBroker"]
