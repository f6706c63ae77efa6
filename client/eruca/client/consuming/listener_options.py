"""How a push consumer calls its listener: those of its options that are about the calls, with their bounds.

What they mean stands at ``PushConsumer``.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from eruca.client import callbacks
from eruca.client.checks import check_flags, check_least, check_seconds
from eruca.client.config import check_positive
from eruca.client.consuming.ordered_queue import KeyOf
from eruca.client.consuming.orderly import MAX_RECONSUME_TIMES
from eruca.client.consuming.retry_policy import RetryPolicy
from eruca.client.consuming.send_back import DEFAULT_MAX_RECONSUME_TIMES
from eruca.client.errors import BadConfig, UsageError
from eruca.client.outcomes import LONGEST_SUSPENSION, Backoff

SUSPEND_TIME = 1.0
"""The default of ``suspend_time``."""


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``PushConsumer`` by their names there. Raises BadConfig."""

    concurrency: int
    consume_message_batch_max_size: int | None
    max_reconsume_times: int | None
    retry: Backoff | None
    orderly: bool
    ordered_by: KeyOf | None
    suspend_time: float
    auto_commit: bool
    stop_timeout: float
    consume_timeout: float

    def __post_init__(self) -> None:
        check_positive(suspend_time=self.suspend_time, consume_timeout=self.consume_timeout)
        if self.suspend_time > LONGEST_SUSPENSION:
            given = f"suspend_time={self.suspend_time!r}"
            raise BadConfig(f"{given} is not allowed: {LONGEST_SUSPENSION:g} seconds at most are expected")
        check_seconds(0, stop_timeout=self.stop_timeout)
        check_least(1, concurrency=self.concurrency)
        if self.consume_message_batch_max_size is not None:
            check_least(1, consume_message_batch_max_size=self.consume_message_batch_max_size)
        check_flags(orderly=self.orderly, auto_commit=self.auto_commit)
        if self.ordered_by is not None:
            if not callable(self.ordered_by):
                kind = type(self.ordered_by).__name__
                raise UsageError(
                    f"ordered_by is of type {kind}: a function of the message that returns its key is expected."
                )
            callbacks.check_callable(self.ordered_by, "ordered_by", "message")
            callbacks.check_no_generator(self.ordered_by, "ordered_by")
            if callbacks.is_coroutine_function(self.ordered_by):
                raise UsageError("ordered_by is a coroutine function: a plain function of the message is expected.")
            if self.orderly:
                raise BadConfig("orderly=True keeps the order of whole queues: leave it out with ordered_by=")
        if self.suspend_time != SUSPEND_TIME and not self.in_order:
            raise BadConfig("suspend_time is for consumers in order: add orderly=True or ordered_by=, or give retry=")
        if not self.auto_commit and not self.orderly:
            raise BadConfig("auto_commit=False is for orderly consumers: add orderly=True")
        if self.max_reconsume_times == -1:
            raise BadConfig(
                f"max_reconsume_times={self.max_reconsume_times!r} is not allowed: 0 or more is expected; leave it out "
                "for RocketMQ's default, which is -1 there"
            )
        if self.max_reconsume_times is not None:
            check_least(0, max_reconsume_times=self.max_reconsume_times)
        if self.retry is not None and not isinstance(self.retry, Backoff):
            raise BadConfig(f"retry is of type {type(self.retry).__name__}: Backoff(...) is expected")

    @property
    def in_order(self) -> bool:
        """Whether queues are locked and failures retried in their place: of whole queues, or of keys."""
        return self.orderly or self.ordered_by is not None

    @property
    def policy(self) -> RetryPolicy:
        """``max_reconsume_times`` or its default, and ``retry``."""
        most = self.max_reconsume_times
        if most is None:
            most = MAX_RECONSUME_TIMES if self.in_order else DEFAULT_MAX_RECONSUME_TIMES
        return RetryPolicy(most, self.retry)

    def check(self, listener: object) -> None:
        """Raise UsageError for a listener that cannot take what it is called with, as far as it says what it takes."""
        batch = self.consume_message_batch_max_size is not None
        callbacks.check_callable(listener, "The listener", "messages" if batch else "message")
        callbacks.check_no_generator(listener, "The listener")
        annotation = _annotation(listener)
        if not batch and _LISTS.match(annotation):
            raise UsageError(
                f"The listener takes {annotation}, but is called with one message: give "
                "consume_message_batch_max_size=, the most messages of a list."
            )
        if batch and _MESSAGES.match(annotation):
            raise UsageError(
                f"The listener takes {annotation}, but is called with lists: leave consume_message_batch_max_size= out."
            )


_LISTS = re.compile(r"([\w.]+\.)?(list|List)\b")
_MESSAGES = re.compile(r"([\w.]+\.)?(ReceivedMessage|Delivery)$")


def _annotation(listener: Any) -> str:
    """How a function annotates its first argument; empty if it does not."""
    try:
        parameters = [*inspect.signature(listener, follow_wrapped=False).parameters.values()]
    except (TypeError, ValueError):  # it is written in C
        return ""
    annotation = parameters[0].annotation if parameters else inspect.Parameter.empty
    if isinstance(annotation, str):
        return annotation
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation.__name__ if type(annotation) is type else str(annotation)
