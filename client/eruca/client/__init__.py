"""Eruca's client for RocketMQ clusters: producers and consumers, asynchronous and blocking."""

from typing import TYPE_CHECKING

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
from eruca.client.outcomes import Backoff, Decision, Later, Reject, SendResult, SendStatus, Suspend, TransactionState
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
from eruca.remoting.version import version

if TYPE_CHECKING:
    __version__: str
    """The version of this installation; "unknown" where it runs without being installed."""
else:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return version()  # asked for by few, and not free


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
