"""Where queues end now, as far as their brokers answer.

Owns which queues are left out while their broker is away. Every function is a coroutine on the loop of the clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import ClientError, NameserverUnreachable, TopicNotFound
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets import bounds
from eruca.spark_connector.offsets.discovery import find_queues
from eruca.spark_connector.options import Options
from eruca.spark_connector.runtime.retry import ask_each


@dataclass(frozen=True)
class EndOffsets:
    """Where queues end."""

    offsets: dict[MessageQueue, int]
    by_slave: frozenset[MessageQueue] = frozenset()
    """Queues whose end only a slave has answered, which may be behind."""
    away: Mapping[str, BaseException] = field(default_factory=dict)
    """The brokers that do not answer, and why; their queues are not in ``offsets``."""
    unseen: Exception | None = None
    """Why no new queues could be looked for."""


async def end_offsets(consumer: PullConsumer, options: Options) -> EndOffsets:
    """Where every queue ends now."""
    return _by_replica(await ask_each(consumer, await find_queues(consumer, options), partial(bounds.end, consumer)))


def _by_replica(answers: Mapping[MessageQueue, tuple[int, bool]]) -> EndOffsets:
    by_slave = frozenset(queue for queue, (_, slave) in answers.items() if slave)
    return EndOffsets({queue: end for queue, (end, _) in answers.items()}, by_slave)


async def reachable_end_offsets(
    consumer: PullConsumer, options: Options, known: Collection[MessageQueue]
) -> EndOffsets:
    """Where the queues end whose brokers answer, and which brokers do not.

    ``known`` are the queues that were read before: a broker that stops takes its queues out of the nameserver. While
    there are some, no error of looking for others is raised.
    """
    unseen: Exception | None = None
    queues: set[MessageQueue] = {*known}
    try:
        queues.update(await find_queues(consumer, options))
    except (NameserverUnreachable, TopicNotFound, SourceError) as error:
        if not known:
            raise
        unseen = error
    chosen = sorted(queues)
    answers = await asyncio.gather(*(bounds.end(consumer, queue) for queue in chosen), return_exceptions=True)
    found: dict[MessageQueue, tuple[int, bool]] = {}
    away: dict[str, BaseException] = {}
    for queue, answer in zip(chosen, answers, strict=True):
        if isinstance(answer, tuple):
            found[queue] = answer
        elif _is_away(answer):
            away[queue.broker_name] = answer
        else:
            raise answer
    for queue in found:
        away.pop(queue.broker_name, None)
    ends = _by_replica(found)
    return EndOffsets(ends.offsets, ends.by_slave, away, unseen)


def _is_away(answer: object) -> bool:
    return isinstance(answer, ClientError) and answer.retriable
