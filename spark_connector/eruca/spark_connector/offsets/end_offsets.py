"""Where queues end now, as far as their brokers answer.

Owns which queues are left out while their broker is away. Every function is a coroutine on the loop of the clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import ClientError, NameserverUnreachable
from eruca.spark_connector.offsets import bounds
from eruca.spark_connector.offsets.discovery import find_queues
from eruca.spark_connector.options import Options
from eruca.spark_connector.runtime.retry import ask_each

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


async def reachable_end_offsets(consumer: PullConsumer, options: Options, known: Iterable[MessageQueue]) -> EndOffsets:
    """Where the queues end whose brokers answer; the others are left out, unless no broker answers.

    While no nameserver answers, these are the end offsets of the ``known`` queues.
    """
    queues = list(known)
    try:
        queues = await find_queues(consumer, options)
    except NameserverUnreachable as error:
        if not queues:
            raise
        log.warning("no new queues are looked for: %s", error)
    answers = await asyncio.gather(*(bounds.end(consumer, queue) for queue in queues), return_exceptions=True)
    found = {}
    for queue, answer in zip(queues, answers, strict=True):
        if isinstance(answer, tuple):
            found[queue] = answer
        elif (
            not isinstance(answer, ClientError)
            or not answer.retriable
            or not any(isinstance(each, tuple) for each in answers)
        ):
            raise answer
        else:
            log.warning("%s stays where it is, since its broker does not answer: %s", queue, answer)
    return _by_replica(found)
