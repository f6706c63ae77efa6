"""RetryDelays: which delays a broker knows, asked once of each: any (Eruca, RocketMQ 5), or those of its levels.

Owns the answers, for a while, the one question that is under way at a broker, and the one line in the log for a broker
that knows levels only. For a broker that does not answer its last answer counts, at first RocketMQ's levels, and it is
asked again soon. Facts: messageDelayLevel, timerMaxDelaySec and timerWheelEnable in the configurations (26) of 4.9.7
and 5.3.3.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import NamedTuple

from eruca.client.errors import ClientError
from eruca.client.log import log
from eruca.client.network.session import Session
from eruca.protocol import api, properties
from eruca.protocol.queues import MessageQueue
from eruca.remoting.shared_tasks import SharedTasks

KNOWN_FOR = 600.0
"""Seconds until a broker is asked again: it may have been replaced."""
ASKED_AGAIN = 5.0
"""Seconds until one is asked again that did not answer."""
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Delays(NamedTuple):
    """What one broker knows: the seconds of its levels, and up to how many seconds any delay; 0: levels only."""

    levels: tuple[float, ...]
    longest: float = 0.0

    def exact(self, seconds: float) -> bool:
        """Whether the broker can delay by this time."""
        return seconds <= self.longest

    def nearest(self, seconds: float) -> int:
        """The level whose delay is nearest; the shorter one of two."""
        return min(range(1, len(self.levels) + 1), key=lambda level: abs(self.levels[level - 1] - seconds))


def delays_of(configuration: dict[str, str]) -> Delays:
    """What a broker with this configuration knows."""
    levels = _levels(configuration.get("messageDelayLevel", LEVELS)) or _levels(LEVELS)
    longest = configuration.get("timerMaxDelaySec", "")
    if not longest.isdecimal() or configuration.get("timerWheelEnable", "true") != "true":
        return Delays(levels)
    return Delays(levels, float(longest))


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each[:-1]) * _UNITS[each[-1]] for each in text.split())
    except (KeyError, ValueError):
        return ()


class RetryDelays:
    """The delays of the brokers of one group's messages.

    Args:
        known_for: seconds until a broker is asked again.
        asked_again: the same for one that did not answer.
    """

    def __init__(
        self, session: Session, group: str, *, known_for: float = KNOWN_FOR, asked_again: float = ASKED_AGAIN
    ) -> None:
        self._session = session
        self._group = group
        self._known_for, self._asked_again = known_for, asked_again
        self._known: dict[str, tuple[float, Delays]] = {}
        self._asking: SharedTasks[str, Delays] = SharedTasks()
        self._told: set[str] = set()

    async def of(self, queue: MessageQueue) -> Delays:
        """The delays that the broker of a queue knows."""
        until, delays = self._known.get(queue.broker_name, (0.0, Delays(())))
        if until < monotonic():
            return await self._asking.result(queue.broker_name, partial(self._ask, queue))
        return delays

    async def _ask(self, queue: MessageQueue) -> Delays:
        broker = queue.broker_name
        try:
            address = await self._session.directory.master(broker, queue.topic)
            answer = await self._session.call(address, api.GET_BROKER_CONFIG)
        except ClientError as error:
            _, delays = self._known.get(broker, (0.0, delays_of({})))
            self._session.warn(
                (self._group, broker, "delays"),
                f"{broker} does not say which delays it knows; its last answer counts, else RocketMQ's levels: {error}",
                error,
                group=self._group,
                broker=broker,
            )
            self._known[broker] = monotonic() + self._asked_again, delays
            return delays
        delays = delays_of(properties.parse(properties.decode(answer.body)))
        self._known[broker] = monotonic() + self._known_for, delays
        return delays

    def tell(self, queue: MessageQueue, seconds: float, delays: Delays, level: int) -> None:
        """Say once for each broker that a delay is not the one that was asked for."""
        given = delays.levels[level - 1]
        others = f"those of more than {delays.longest:g} s" if delays.longest else "others"
        if given != seconds and queue.broker_name not in self._told:
            self._told.add(queue.broker_name)
            log.info(
                "%s has no delay of %.12g s for retries of %s: they come after %.12g s (level %s), %s after the "
                "nearest level, too",
                queue.broker_name,
                seconds,
                self._group,
                given,
                level,
                others,
            )
