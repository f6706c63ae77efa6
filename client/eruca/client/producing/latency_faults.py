"""Which brokers are slow or failed lately, and the choice of a queue that passes over them for a while.

Pure: times are arguments, in ms of a clock that never goes back. Owns the table of latencies: a broker that took long
is left out for a time that grows with the latency, one that failed for as long as for 30 s. When all brokers are left
out, one of the better half is taken. Facts: MQFaultStrategy and LatencyFaultToleranceImpl in 4.9.7.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from eruca.client.network.routes import Route
from eruca.client.selectors import RoundRobin
from eruca.protocol.queues import MessageQueue

LATENCIES = (50, 100, 550, 1000, 2000, 3000, 15_000)
"""ms from which on a broker is left out (latencyMax) ..."""
DURATIONS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
"""... for this many ms (notAvailableDuration)."""
FAILED = 30_000
"""As which latency a failure counts for the time to be left out."""


class Fault(NamedTuple):
    """The last latency of a broker in ms, and from when on it is available."""

    latency: int
    available_from: int


def time_out(latency: int) -> int:
    """For how many ms a broker with this latency is left out."""
    for least, duration in zip(reversed(LATENCIES), reversed(DURATIONS), strict=True):
        if latency >= least:
            return duration
    return 0


class LatencyFaults:
    """The brokers of one producer; ``turn`` is where the choice among the better half begins."""

    def __init__(self, turn: int | None = None) -> None:
        self._table: dict[str, Fault] = {}
        self._turn = random.randrange(1 << 30) if turn is None else turn

    def ended(self, broker: str, latency: int, now: int, *, failed: bool) -> None:
        """An attempt at a broker ended after ``latency`` ms."""
        self._table[broker] = Fault(latency, now + time_out(FAILED if failed else latency))

    def available(self, broker: str, now: int) -> bool:
        """Whether a broker is not left out."""
        fault = self._table.get(broker)
        return fault is None or now >= fault.available_from

    def in_turn(self, route: Route, now: int) -> list[int]:
        """For each step of a round robin the number of the queue: the next one of an available broker.

        Empty where there is none; then ``choose`` has to.
        """
        queues = route.to_send
        if all([now >= fault.available_from for fault in self._table.values()]):
            return list(range(len(queues)))
        available = [self.available(queue.broker_name, now) for queue in queues]
        if not any(available):
            return []
        found, number = [0] * len(queues), 0
        for step in range(2 * len(queues) - 1, -1, -1):
            if available[step % len(queues)]:
                number = step % len(queues)
            found[step % len(queues)] = number
        return found

    def choose(self, route: Route, turn: RoundRobin, now: int) -> MessageQueue:
        """The next queue of an available broker; where there is none, one of a broker of the better half."""
        queues = route.to_send
        start = turn.step()
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if self.available(queue.broker_name, now):
                return queue
        broker = self._pick_one_at_least(now)
        own = [queue for queue in queues if queue.broker_name == broker]
        if own:
            turn.step()
            return own[turn.step() % len(own)]
        self._table.pop(broker, None)
        return turn.choose(queues)

    def _pick_one_at_least(self, now: int) -> str:
        """A broker of the better half: available first, then the fast ones, then those whose time ends soon."""
        ranked = sorted(
            self._table,
            key=lambda broker: (not self.available(broker, now), *self._table[broker]),
        )
        half = len(ranked) // 2
        if not half:
            return ranked[0]
        self._turn += 1
        return ranked[self._turn % half]
