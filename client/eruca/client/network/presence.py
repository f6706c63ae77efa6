"""Presence: which brokers this client cannot reach, and the two lines of the log and the two events about each.

Owns when a broker went and why, and which brokers are connected but answer nothing. One line says that it is away, with
what waits for it; one says that it is back, and after how long. Attempts in between say nothing. Asks nobody: the
session reports what it met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import NamedTuple

from eruca.client.log import log
from eruca.client.network.events import Disconnected, Reconnected
from eruca.protocol.queues import MessageQueue


class Away(NamedTuple):
    """A broker that cannot be reached; ``since`` by the monotonic clock, ``began`` by the system's."""

    address: str
    since: float
    cause: str
    began: datetime


class Presence:
    """The brokers that are away.

    Args:
        broker_at: name and id of the broker at an address.
        waiting: the queues of each group that wait for a broker of that name.
        tell: called with each event.
    """

    def __init__(
        self,
        broker_at: Callable[[str], tuple[str, int]],
        waiting: Callable[[str], Mapping[str, tuple[MessageQueue, ...]]],
        tell: Callable[[Disconnected | Reconnected], None],
    ) -> None:
        self.away: dict[tuple[str, int], Away] = {}
        """By name and id; look only."""
        self._silent: dict[tuple[str, int], float] = {}
        """Since when brokers that are connected have answered nothing."""
        self._broker_at = broker_at
        self._waiting = waiting
        self._tell = tell

    @property
    def reasons(self) -> tuple[str, ...]:
        """A sentence for each broker that is away, or silent; may be asked in any thread."""
        now, lost, quiet = monotonic(), self.away.copy(), self._silent.copy()
        away = (
            f"{_shown(broker)} is away for {now - away.since:.1f} s ({away.cause})"
            for broker, away in sorted(lost.items())
        )
        silent = (
            f"{_shown(broker)} does not answer for {now - since:.1f} s"
            for broker, since in sorted(quiet.items())
            if broker not in lost
        )
        return (*away, *silent)

    def silent(self, address: str) -> None:
        """A broker that is connected did not answer a heartbeat, and nothing else since it was asked."""
        self._silent.setdefault(self._broker_at(address), monotonic())

    def answered(self, address: str) -> None:
        """A broker answered a heartbeat."""
        if self._silent:
            self._silent.pop(self._broker_at(address), None)

    def lost(self, address: str, cause: str) -> None:
        """An attempt to reach a broker failed."""
        broker = self._broker_at(address)
        if broker in self.away:
            return
        away = self.away[broker] = Away(address, monotonic(), cause, datetime.now(UTC))
        waiting = self._waiting(broker[0])
        counts = {group: len(queues) for group, queues in waiting.items()}
        queues = ", ".join(f"{count} queues of {group}" for group, count in sorted(counts.items()))
        log.warning(
            "%s is away%s (%s)",
            _shown(broker),
            f": {queues} wait" if queues else "",
            cause,
            extra={"broker": broker[0], "address": address, "queues": counts, "cause": cause},
        )
        name, number = broker
        self._tell(
            Disconnected(broker=name, broker_id=number, address=address, queues=waiting, reason=cause, since=away.began)
        )

    def gone(self, name: str) -> None:
        """A broker has left the cluster: nobody waits for it."""
        left = [broker for broker in self.away if broker[0] == name]
        for broker in left:
            del self.away[broker]
        for broker in [each for each in self._silent if each[0] == name]:
            del self._silent[broker]
        if left:
            log.warning("%s has left the cluster: no route names it any more", name, extra={"broker": name})

    def back(self, address: str) -> None:
        """A broker was reached, perhaps at another address than before."""
        if not self.away:
            return
        broker = self._broker_at(address)
        away = self.away.pop(broker, None)
        if away is not None:
            seconds = monotonic() - away.since
            log.warning(
                "%s is back after %.1f s",
                _shown(broker),
                seconds,
                extra={"broker": broker[0], "address": address, "seconds": round(seconds, 1)},
            )
            name, number = broker
            self._tell(
                Reconnected(
                    broker=name,
                    broker_id=number,
                    address=address,
                    queues=self._waiting(name),
                    reason=away.cause,
                    since=away.began,
                    seconds=seconds,
                )
            )


def _shown(broker: tuple[str, int]) -> str:
    name, number = broker
    return f"{name} (slave {number})" if number else name
