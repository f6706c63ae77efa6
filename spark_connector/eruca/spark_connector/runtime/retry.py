"""Retries of calls to brokers.

Owns which errors are retried, when, and for how long. Used by plans, pulls and markers; the sink retries sends itself,
for retryTimeoutMs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import ClientError, NameserverUnreachable, TopicNotFound

T = TypeVar("T")

BACKOFF_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The wait before each retry. Together they leave a broker time to restart."""
NO_THIRD_ATTEMPT_AFTER = 30.0
"""Seconds after which a call is not tried a third time: each attempt at a silent broker runs into its timeout."""


async def retry(
    consumer: PullConsumer,
    topic: str,
    work: Callable[[], Awaitable[T]],
    *,
    backoff: Sequence[float] | None = None,
    no_third_attempt_after: float = NO_THIRD_ATTEMPT_AFTER,
) -> T:
    """Await ``work``, and retry it with a fresh route of ``topic`` while it fails with a retriable error.

    ``backoff`` are the waits before the retries, BACKOFF_SECONDS by default. Raises the last ClientError.
    """
    began = time.monotonic()
    for attempt, wait in enumerate(BACKOFF_SECONDS if backoff is None else backoff):
        try:
            return await work()
        except ClientError as error:
            if not error.retriable or isinstance(error, TopicNotFound | NameserverUnreachable):
                raise
            if attempt and time.monotonic() - began >= no_third_attempt_after:
                raise
        await asyncio.sleep(wait)
        with suppress(ClientError):
            await consumer.fetch_queues(topic)
    return await work()


async def ask_each(
    consumer: PullConsumer, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T]:
    """The answer of ``ask`` for every queue; all queues are asked at once, and each call is retried."""
    chosen = list(queues)
    answers = await asyncio.gather(*(retry(consumer, queue.topic, partial(ask, queue)) for queue in chosen))
    return dict(zip(chosen, answers, strict=True))
