"""Eruca's client for RocketMQ clusters: producers and consumers, asynchronous and blocking."""

from eruca.client.app.application import App
from eruca.client.app.dependencies import Depends
from eruca.client.backlog import QueueLag, lag, total_lag
from eruca.client.config import ClientSettings, Waits
from eruca.client.consuming.message_stream import Delivery
from eruca.client.consuming.push_consumer import PushConsumer
from eruca.client.dead_letter import DeadLetter, Redriven, dead_letters, redrive
from eruca.client.hooks import Hook
from eruca.client.message import Message, ReceivedMessage
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

__all__ = [
    "RPC",
    "App",
    "Backoff",
    "ClientSettings",
    "Credentials",
    "DeadLetter",
    "Decision",
    "Delivery",
    "Depends",
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
