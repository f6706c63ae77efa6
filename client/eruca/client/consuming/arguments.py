"""The arguments of PushConsumer as type checkers know them: what a listener takes and returns, and the options by name.

Owns no values and no checks: defaults and meanings stand at ``PushConsumer``, bounds in ``listener_options``. The
overloads of its constructors tell listeners of one message from those of lists, and what each kind may return.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from os import PathLike
from typing import Literal, Required, TypedDict

from eruca.client.assign import Strategy
from eruca.client.config import ClientSettings, StartFrom
from eruca.client.consuming.ordered_queue import KeyOf
from eruca.client.consuming.rebalance_listener import QueuesListener
from eruca.client.hooks import Hook
from eruca.client.message import ReceivedMessage
from eruca.client.middleware import Middleware
from eruca.client.network.events import DisconnectedListener, ErrorListener, ReconnectedListener
from eruca.client.outcomes import Backoff, Decision, Later, Reject, Suspend

ConcurrentOutcome = Later | Reject | None
MessageListener = Callable[[ReceivedMessage], ConcurrentOutcome | Awaitable[ConcurrentOutcome]]
"""A listener of one message."""
BatchListener = Callable[[list[ReceivedMessage]], ConcurrentOutcome | Awaitable[ConcurrentOutcome]]
"""A listener of lists, with ``consume_message_batch_max_size``."""
OrderlyOutcome = Suspend | Decision | Reject | None
OrderlyMessageListener = Callable[[ReceivedMessage], OrderlyOutcome | Awaitable[OrderlyOutcome]]
"""A listener of one message, with ``orderly=True``."""
OrderlyBatchListener = Callable[[list[ReceivedMessage]], OrderlyOutcome | Awaitable[OrderlyOutcome]]
"""A listener of lists, with ``orderly=True``."""
KeyedOutcome = Suspend | Reject | None
KeyedMessageListener = Callable[[ReceivedMessage], KeyedOutcome | Awaitable[KeyedOutcome]]
"""A listener of one message, with ``ordered_by``."""
KeyedBatchListener = Callable[[list[ReceivedMessage]], KeyedOutcome | Awaitable[KeyedOutcome]]
"""A listener of lists, each of one key, with ``ordered_by``."""
PlainListener = Callable[[ReceivedMessage], Awaitable[None] | None]
"""A listener of one message that is right in every order of consumption."""


class MemberKeywords(TypedDict, total=False):
    """The options of PushConsumer that change neither what a listener takes nor what it returns."""

    start_from: StartFrom
    strategy: Strategy
    concurrency: int
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    pull_threshold_for_topic: int | None
    pull_threshold_size_for_topic: int | None
    pull_interval: float
    pull_time_delay_when_exception: float
    max_reconsume_times: int | None
    retry: Backoff | None
    broadcast: bool
    offset_folder: str | PathLike[str] | None
    offset_interval: float
    rebalance_interval: float
    on_assigned: QueuesListener | None
    on_revoked: QueuesListener | None
    on_disconnected: DisconnectedListener | None
    on_reconnected: ReconnectedListener | None
    on_error: ErrorListener | None
    stop_timeout: float
    consume_timeout: float
    executor: Executor | Callable[[], Executor] | None
    hooks: Sequence[Hook]
    middleware: Sequence[Middleware]
    trace: bool | str


class ConsumerKeywords(MemberKeywords, total=False):
    """All options of PushConsumer but those that an App gives: for whoever passes them on."""

    consume_message_batch_max_size: int | None
    orderly: bool
    ordered_by: KeyOf | None
    suspend_time: float
    auto_commit: bool


class _Constructor(MemberKeywords, total=False):
    nameserver: str | Sequence[str] | None
    settings: ClientSettings | None


class ConcurrentKeywords(_Constructor, total=False):
    """Options of a consumer whose messages are consumed in no particular order."""

    orderly: Literal[False]
    ordered_by: None
    auto_commit: Literal[True]


class OrderlyKeywords(_Constructor, total=False):
    """Options of a consumer in the order of the queues."""

    orderly: Required[Literal[True]]
    ordered_by: None
    suspend_time: float
    auto_commit: bool


class KeyedKeywords(_Constructor, total=False):
    """Options of a consumer in the order of the messages of each key."""

    ordered_by: Required[KeyOf]
    orderly: Literal[False]
    suspend_time: float
    auto_commit: Literal[True]


class EitherKeywords(_Constructor, total=False):
    """Options of a consumer whose order is chosen at run time."""

    orderly: bool
    suspend_time: float
