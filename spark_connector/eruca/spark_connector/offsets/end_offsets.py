"""Where queues end now, as far as their brokers answer.

Owns which queues are left out while their broker is away. Every function is a coroutine on the loop of the clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import ClientError, NameserverUnreachable, TopicNotFound
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets import bounds
from eruca.spark_connector.offsets.discovery import find_queues
from eruca.spark_connector.options import Options
from eruca.spark_connector.runtime.retry import BACKOFF_SECONDS, ask_each

log = logging.getLogger("eruca.spark")


@dataclass(frozen=True)
class EndOffsets:
    """Where queues end. ``by_slave``: queues whose end only a slave has answered, which may be behind."""

    offsets: dict[MessageQueue, int]
    by_slave: frozenset[MessageQueue] = frozenset()


async def end_offsets(consumer: PullConsumer, options: Options) -> EndOffsets:
    """Where every queue ends now."""
    return _by_replica(await ask_each(consumer, await find_queues(consumer, options), partial(bounds.end, consumer)))


def _by_replica(answers: Mapping[MessageQueue, tuple[int, bool]]) -> EndOffsets:
    by_slave = frozenset(queue for queue, (_, slave) in answers.items() if slave)
    return EndOffsets({queue: end for queue, (end, _) in answers.items()}, by_slave)


async def reachable_end_offsets(
    consumer: PullConsumer, options: Options, known: Collection[MessageQueue]
) -> EndOffsets:
    """Where the queues end whose brokers answer; the others are left out.

    While no broker answers, all are asked again, for as long as the restart of a broker may take. Raises what the first
    of them failed with after that.
    """
    for wait in (*BACKOFF_SECONDS, None):
        queues = await _queues_there(consumer, options, known)
        answers = await asyncio.gather(*(bounds.end(consumer, queue) for queue in queues), return_exceptions=True)
        if wait is None or not all(map(_is_away, answers)):
            break
        log.warning("no broker of the query answers, asking again in %s s: %s", wait, answers[0])
        await asyncio.sleep(wait)
    found = {}
    for queue, answer in zip(queues, answers, strict=True):
        if isinstance(answer, tuple):
            found[queue] = answer
        elif not _is_away(answer) or all(map(_is_away, answers)):
            raise answer
        else:
            log.warning("%s stays where it is, since its broker does not answer: %s", queue, answer)
    return _by_replica(found)


async def _queues_there(
    consumer: PullConsumer, options: Options, known: Collection[MessageQueue]
) -> Collection[MessageQueue]:
    """The queues of the query; the known ones while they cannot be looked up.

    A nameserver has no route of a topic whose only broker restarts, so that is no reason to end a query.
    """
    try:
        return await find_queues(consumer, options)
    except (NameserverUnreachable, TopicNotFound, SourceError) as error:
        if not known:
            raise
        log.warning("no new queues are looked for: %s", error)
        return known


def _is_away(answer: object) -> bool:
    return isinstance(answer, ClientError) and answer.retriable
