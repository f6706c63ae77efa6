"""Where queues end now, as far as their brokers answer.

Owns which queues are left out while their broker is away, and the begin of those that a query does not know. Every
function is a coroutine on the loop of the clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import BrokerNotFound, ClientError, NameserverUnreachable
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.offsets import bounds
from eruca.spark_connector.offsets.discovery import find_queues
from eruca.spark_connector.offsets.positions import Positions
from eruca.spark_connector.options import Options
from eruca.spark_connector.runtime.retry import ask_each

T = TypeVar("T")


@dataclass(frozen=True)
class EndOffsets:
    """Where queues end."""

    offsets: dict[MessageQueue, int]
    by_slave: frozenset[MessageQueue] = frozenset()
    """Queues whose end only a slave has answered, which may be behind."""
    away: Mapping[str, BaseException] = field(default_factory=dict)
    """The brokers that do not answer, and why; a queue of which nothing is known is not in ``offsets``."""
    began: Mapping[MessageQueue, int] = field(default_factory=dict)
    """Where queues begin that the query has not read, or that end before what it has read."""
    unseen: Exception | None = None
    """Why no new queues could be looked for."""
    gone: frozenset[MessageQueue] = frozenset()
    """Known queues that no nameserver names now, or whose broker does not answer."""

    def joined(self, later: EndOffsets, brokers: Collection[str]) -> EndOffsets:
        """These ends, and those of the queues of these brokers that only ``later`` has."""
        new = {each for each in later.offsets.keys() - self.offsets.keys() if each.broker_name in brokers}
        return EndOffsets(
            {**self.offsets, **{queue: later.offsets[queue] for queue in new}},
            self.by_slave | (later.by_slave & new),
            {broker: error for broker, error in self.away.items() if broker not in brokers},
            {**self.began, **{queue: began for queue, began in later.began.items() if queue in new}},
        )


async def end_offsets(consumer: PullConsumer, options: Options) -> EndOffsets:
    """Where every queue ends now."""
    return _by_replica(await ask_each(consumer, await find_queues(consumer, options), partial(bounds.end, consumer)))


def _by_replica(answers: Mapping[MessageQueue, tuple[int, bool]]) -> EndOffsets:
    by_slave = frozenset(queue for queue, (_, slave) in answers.items() if slave)
    return EndOffsets({queue: end for queue, (end, _) in answers.items()}, by_slave)


async def reachable_end_offsets(
    consumer: PullConsumer, options: Options, known: Collection[MessageQueue], read: Positions
) -> EndOffsets:
    """Where the queues end whose brokers answer, where those begin that are new, and which brokers do not answer.

    ``known`` are the queues that were seen before: a broker that stops takes its queues out of the nameserver. While
    there are some, no error of looking for others is raised. ``read`` is how far the query is. What a slave is behind
    by says nothing of a begin.
    """
    unseen: Exception | None = None
    named: list[MessageQueue] = []
    try:
        named = await find_queues(consumer, options)
    except (NameserverUnreachable, SourceError) as error:
        if not known:
            raise
        unseen = error
    queues = {*known, *named}
    answered, away = await _reachable(queues, partial(bounds.end, consumer))
    if any(isinstance(error, BrokerNotFound) for error in away.values()) and await _learn_brokers(consumer):
        unknown = {queue for queue in queues if isinstance(away.get(queue.broker_name), BrokerNotFound)}
        answered_now, away_now = await _reachable(unknown, partial(bounds.end, consumer))
        answered.update(answered_now)
        away = {
            **{broker: error for broker, error in away.items() if not isinstance(error, BrokerNotFound)},
            **away_now,
        }
    ends = _by_replica(answered)
    fresh = {
        queue
        for queue, end in ends.offsets.items()
        if queue not in read or (end < read[queue] and queue not in ends.by_slave)
    }
    began, away_meanwhile = await _reachable(fresh, partial(bounds.min_offset, consumer))
    for queue in answered:
        away.pop(queue.broker_name, None)
    offsets = {queue: end for queue, end in ends.offsets.items() if queue in began or queue not in fresh}
    gone = frozenset(queue for queue in known if queue not in named or queue not in offsets)
    return EndOffsets(offsets, ends.by_slave, {**away, **away_meanwhile}, began, unseen, gone)


async def _learn_brokers(consumer: PullConsumer) -> bool:
    """Ask a nameserver for all brokers: the route of a topic that was deleted names none."""
    try:
        consumer.session.directory.learn(await consumer.session.cluster())
    except ClientError:
        return False
    return True


async def _reachable(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> tuple[dict[MessageQueue, T], dict[str, BaseException]]:
    """The answer for each queue, and the brokers that gave none."""
    chosen = sorted(queues)
    answers = await asyncio.gather(*map(ask, chosen), return_exceptions=True)
    found: dict[MessageQueue, T] = {}
    away: dict[str, BaseException] = {}
    for queue, answer in zip(chosen, answers, strict=True):
        if not isinstance(answer, BaseException):
            found[queue] = answer
        elif _is_away(answer):
            away[queue.broker_name] = answer
        else:
            raise answer
    return found, away


def _is_away(answer: object) -> bool:
    return isinstance(answer, ClientError) and answer.retriable
