"""Retries of calls to brokers.

Owns which errors are retried, when, and for how long. Used by plans, pulls and markers; the sink retries sends itself,
for retryTimeoutMs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TypeVar

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import (
    BrokerNotFound,
    BrokerRefused,
    BrokerUnreachable,
    CallTimeout,
    ClientError,
    NameserverUnreachable,
    TopicNotFound,
)
from eruca.protocol.codes import ResponseCode
from eruca.spark_connector.errors import SourceError

T = TypeVar("T")

AWAY = (BrokerUnreachable, CallTimeout, BrokerNotFound)
"""Errors of a broker that does not answer."""
BACKOFF_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The wait before each retry. Together they leave a broker time to restart."""
NO_THIRD_ATTEMPT_AFTER = 30.0
"""Seconds after which a call is not tried a third time: each attempt at a silent broker runs into its timeout."""


async def retry(
    consumer: PullConsumer,
    topic: str,
    work: Callable[[], Awaitable[T]],
    *,
    within: float | None = None,
    backoff: Sequence[float] | None = None,
    no_third_attempt_after: float = NO_THIRD_ATTEMPT_AFTER,
) -> T:
    """Await ``work``, and retry it with a fresh route of ``topic`` while it fails with a retriable error.

    ``backoff`` are the waits before the retries, BACKOFF_SECONDS by default; ``within`` seconds go on with the last of
    them, also while no nameserver answers or knows the topic. Raises the last ClientError.
    """
    waits = BACKOFF_SECONDS if backoff is None else backoff
    began = time.monotonic()
    for attempt in count():
        try:
            return await work()
        except ClientError as error:
            passed = time.monotonic() - began
            if not error.retriable or forbidden(error) or passed >= (math.inf if within is None else within):
                raise
            if within is None and (
                attempt >= len(waits)
                or isinstance(error, TopicNotFound | NameserverUnreachable)
                or (attempt and passed >= no_third_attempt_after)
            ):
                raise
        await asyncio.sleep(waits[min(attempt, len(waits) - 1)])
        with suppress(ClientError):
            await consumer.fetch_queues(topic)
    raise AssertionError("the loop has no end")


def forbidden(error: ClientError) -> bool:
    """Whether a broker refuses for want of a permission: a send would try another broker, here there is none."""
    return isinstance(error, BrokerRefused) and error.code == ResponseCode.NO_PERMISSION


async def retry_while_away(
    consumer: PullConsumer, queue: MessageQueue, work: Callable[[], Awaitable[T]], within: float | None
) -> T:
    """``retry`` for as long as the broker of a queue may be away (brokerLossTimeoutMs, here in seconds).

    Raises SourceError after that, and the last ClientError where there is no such time.
    """
    try:
        return await retry(consumer, queue.topic, work, within=within)
    except (*AWAY, NameserverUnreachable, TopicNotFound) as error:
        if within is None:
            raise
        raise lost(queue.broker_name, within, error) from error


async def ask_each(
    consumer: PullConsumer, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T]:
    """The answer of ``ask`` for every queue; all queues are asked at once, and each call is retried.

    Raises SourceError for a broker that does not answer, else the last ClientError.
    """

    async def answer(queue: MessageQueue) -> T:
        try:
            return await retry(consumer, queue.topic, partial(ask, queue))
        except AWAY as error:
            raise silent(queue.broker_name, error) from error

    chosen = list(queues)
    answers = await asyncio.gather(*map(answer, chosen))
    return dict(zip(chosen, answers, strict=True))


def silent(broker: str, error: BaseException) -> SourceError:
    """The error of a broker that a plan cannot do without."""
    return SourceError(
        f"{broker} does not answer, and all brokers of the topics are needed: start it, or look whether it is too busy "
        f"({error})."
    )


def lost(broker: str, seconds: float, error: BaseException) -> SourceError:
    """The error of a broker that was away for longer than brokerLossTimeoutMs."""
    return SourceError(
        f"{broker} has not answered for {seconds:g} s (brokerLossTimeoutMs), and the query reads queues of it: start "
        f"it, or give the option more time; if its topic was deleted, use another checkpointLocation ({error})."
    )
