"""Eruca's client for RocketMQ clusters: producers and consumers, asynchronous and blocking.

Each name is loaded when it is used first, so that a program which only sends does not wait for consumers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eruca.client.app.application import App
    from eruca.client.app.dependencies import Depends
    from eruca.client.backlog import QueueLag, lag, total_lag
    from eruca.client.config import ClientSettings, Waits
    from eruca.client.consuming.message_stream import Delivery
    from eruca.client.consuming.push_consumer import PushConsumer
    from eruca.client.dead_letter import DeadLetter, Redriven, dead_letters, redrive
    from eruca.client.hooks import Hook
    from eruca.client.message import Message, ReceivedMessage
    from eruca.client.network.events import BackgroundError, Disconnected, Reconnected
    from eruca.client.outcomes import (
        Backoff,
        Decision,
        Later,
        Reject,
        SendResult,
        SendStatus,
        Suspend,
        TransactionState,
    )
    from eruca.client.polling.lite_pull_consumer import LitePullConsumer
    from eruca.client.polling.pull_consumer import PullConsumer, PullResult, PullStatus
    from eruca.client.polling.pull_schedule import PullScheduleService, PullTaskContext
    from eruca.client.producing.batch import split_batch
    from eruca.client.producing.producer import Producer
    from eruca.client.producing.transactions import TransactionProducer, TransactionResult
    from eruca.client.rpc import RPC
    from eruca.protocol.queues import MessageQueue
    from eruca.protocol.record import Record
    from eruca.protocol.signature import Credentials
    from eruca.remoting import Tls

    __version__: str
    """The version of this installation; "unknown" where it runs without being installed."""
else:
    _PLACES = {
        "eruca.client.app.application": "App",
        "eruca.client.app.dependencies": "Depends",
        "eruca.client.backlog": "QueueLag lag total_lag",
        "eruca.client.config": "ClientSettings Waits",
        "eruca.client.consuming.message_stream": "Delivery",
        "eruca.client.consuming.push_consumer": "PushConsumer",
        "eruca.client.dead_letter": "DeadLetter Redriven dead_letters redrive",
        "eruca.client.hooks": "Hook",
        "eruca.client.message": "Message ReceivedMessage",
        "eruca.client.network.events": "BackgroundError Disconnected Reconnected",
        "eruca.client.outcomes": "Backoff Decision Later Reject SendResult SendStatus Suspend TransactionState",
        "eruca.client.polling.lite_pull_consumer": "LitePullConsumer",
        "eruca.client.polling.pull_consumer": "PullConsumer PullResult PullStatus",
        "eruca.client.polling.pull_schedule": "PullScheduleService PullTaskContext",
        "eruca.client.producing.batch": "split_batch",
        "eruca.client.producing.producer": "Producer",
        "eruca.client.producing.transactions": "TransactionProducer TransactionResult",
        "eruca.client.rpc": "RPC",
        "eruca.protocol.queues": "MessageQueue",
        "eruca.protocol.record": "Record",
        "eruca.protocol.signature": "Credentials",
        "eruca.remoting": "Tls",
    }
    _MODULES = {"assign", "errors", "hooks", "metrics", "selectors", "serializers", "sync", "telemetry"}
    _MODULE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return import_module("eruca.remoting.version").version()
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULE_OF, *_MODULES, "__version__"})


__all__ = [
    "RPC",
    "App",
    "BackgroundError",
    "Backoff",
    "ClientSettings",
    "Credentials",
    "DeadLetter",
    "Decision",
    "Delivery",
    "Depends",
    "Disconnected",
    "Hook",
    "Later",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullScheduleService",
    "PullStatus",
    "PullTaskContext",
    "PushConsumer",
    "QueueLag",
    "ReceivedMessage",
    "Reconnected",
    "Record",
    "Redriven",
    "Reject",
    "SendResult",
    "SendStatus",
    "Suspend",
    "Tls",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "Waits",
    "dead_letters",
    "lag",
    "redrive",
    "split_batch",
    "total_lag",
]
