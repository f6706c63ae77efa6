"""The cluster as it was a moment ago: asked again and again, with the figures of the last 15 minutes.

Owns the task that asks for brokers and groups, what it saw last, and the rings of figures behind the lines. A look that
fails leaves what was seen before, with its age and the reason. Invariant: what was not known is None in a ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from eruca.admin.client import Admin
from eruca.admin.diagnosis.doctor import diagnose
from eruca.admin.diagnosis.findings import Findings
from eruca.admin.errors import AdminError
from eruca.admin.results.answer import Moment, PeerError, Result
from eruca.admin.results.brokers import Brokers, brokers
from eruca.admin.results.progress import Count, Groups, GroupSummary, Lag, groups_in_short
from eruca.protocol.errors import ProtocolError

EVERY = 2.0
"""Seconds between two looks."""
DIAGNOSIS_EVERY = 20.0
"""Seconds between two diagnoses, which ask much more."""
WINDOW = 15 * 60.0
"""Seconds that the rings go back."""
FIRST = 2.0
"""Seconds that the first page waits for the first look."""
SHARE = 4
"""Behind a look that was much work there is a pause that is longer by this factor; one that only waited has none."""
T = TypeVar("T", bound=msgspec.Struct)
P = TypeVar("P", Lag, Lag | None, Count, Count | None)


class Point(Result, frozen=True, kw_only=True, rename="camel"):
    """Figures at one moment; None where they were not known."""

    at: Moment
    received: float | None
    """Messages per second, at all masters."""
    delivered: float | None
    lag: int | None
    """Of all groups."""


@dataclass
class Seen(Generic[T]):
    """The last answer to one question, and what became of the questions since."""

    answer: T | None = None
    at: float = 0.0
    """When it came, by the monotonic clock."""
    trouble: str = ""
    """Why there is no newer one."""

    @property
    def age(self) -> float | None:
        """Seconds since the answer; None without one."""
        return None if self.answer is None else time.monotonic() - self.at


class Watch:
    """Looks at a cluster until ``stop``."""

    def __init__(self, admin: Admin, *, every: float = EVERY) -> None:
        self._admin = admin
        self._every = every
        self.brokers: Seen[Brokers] = Seen()
        self.groups: Seen[Groups] = Seen()
        self.findings: Seen[Findings] = Seen()
        self.points: deque[Point] = deque(maxlen=int(WINDOW / every))
        self.lags: dict[str, deque[tuple[float, int | None]]] = {}
        """Time (monotonic) and lag of each group."""
        self.expected: dict[tuple[str, int], str] = {}
        """The address of each broker that was ever seen, by name and id."""
        self._tasks: list[asyncio.Task[None]] = []
        self._looked = asyncio.Condition()

    def start(self) -> None:
        """Begin to look."""
        self._tasks = [
            asyncio.create_task(self._look(self.brokers, lambda: brokers(self._admin), self._saw_brokers)),
            asyncio.create_task(self._look(self.groups, lambda: groups_in_short(self._admin), self._saw_groups)),
            asyncio.create_task(self._look(self.findings, lambda: diagnose(self._admin), None, DIAGNOSIS_EVERY)),
        ]

    async def stop(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def seen(self) -> None:
        """Wait until there is a first answer or trouble to each question, at most FIRST seconds."""
        looks = (self.brokers, self.groups)
        await self.until(lambda: all(each.answer is not None or each.trouble for each in looks), FIRST)

    async def until(self, condition: Callable[[], bool], within: float) -> None:
        """Wait for what a look brings, at most ``within`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within), self._looked:
                await self._looked.wait_for(condition)

    async def _look(
        self, seen: Seen[T], ask: Callable[[], Awaitable[T]], note: Callable[[T], None] | None, every: float = 0.0
    ) -> None:
        while True:
            began, worked = time.monotonic(), time.thread_time()
            try:
                seen.answer = await ask()
                seen.at, seen.trouble = time.monotonic(), ""
                if note is not None:
                    note(seen.answer)
            except (AdminError, ProtocolError) as error:
                seen.trouble = str(error)
            async with self._looked:
                self._looked.notify_all()
            took, work = time.monotonic() - began, time.thread_time() - worked
            await asyncio.sleep(max((every or self._every) - took, work * SHARE, 0.1))

    def _saw_brokers(self, found: Brokers) -> None:
        for each in found.items:
            self.expected[each.broker, each.broker_id] = each.address
        masters = [each for each in found.items if each.broker_id == 0]
        gone: list[float | None] = [None] * len(self.gone())
        sends = [each.sends.per_second if each.sends else None for each in masters] + gone
        pulls = [each.pulls.per_second if each.pulls else None for each in masters] + gone
        lag = total_lag(self.groups.answer)
        known = lag is not None and lag.complete
        self.points.append(
            Point(at=found.at, received=_sum(sends), delivered=_sum(pulls), lag=lag.known if lag and known else None)
        )

    def gone(self) -> list[PeerError]:
        """The masters that were there since the console started, and that the nameservers do not know any more.

        What they hold is in no route now, so no figure of a group or a topic can be whole.
        """
        there = (
            {each.broker for each in self.brokers.answer.items if each.broker_id == 0} if self.brokers.answer else set()
        )
        return [
            PeerError(
                peer=f"{name} {address}",
                code=None,
                text="it is gone, the nameservers do not know it any more",
                missing="its queues are missing",
            )
            for (name, number), address in sorted(self.expected.items())
            if number == 0 and name not in there
        ]

    def whole(self) -> bool:
        """Whether no master is gone or silent; as long as one is, every figure is only a part."""
        found = self.brokers.answer
        silent = found is not None and any(each.version is None for each in found.items if each.broker_id == 0)
        return not (silent or self.gone())

    def of_known(self, figure: P) -> P:
        """A lag or a count, which is only a part as long as a master is gone or silent."""
        return figure if figure is None or self.whole() else msgspec.structs.replace(figure, complete=False)

    def _saw_groups(self, found: Groups) -> None:
        items = [msgspec.structs.replace(each, lag=self.of_known(each.lag)) for each in found.items]
        found = self.groups.answer = msgspec.structs.replace(found, items=items)
        moment = time.monotonic()
        for each in found.items:
            ring = self.lags.setdefault(each.group, deque(maxlen=int(WINDOW / self._every)))
            ring.append((moment, each.lag.known if each.lag and each.lag.complete else None))
        for group in self.lags.keys() - {each.group for each in found.items}:
            del self.lags[group]

    def trend(self, group: str, over: float = 60.0) -> float | None:
        """Messages per second by which the lag of a group grew in the last minute; None where it is not known."""
        points = list(self.lags.get(group, ()))
        ring = [point for point in points if point[1] is not None]
        if len(ring) < 2 or points[-1] != ring[-1]:
            return None
        last, lag = ring[-1]
        first, before = next(point for point in ring if last - point[0] <= over)
        if lag is None or before is None or last - first < self._every / 2:
            return None
        return (lag - before) / (last - first)


def _sum(figures: list[float | None]) -> float | None:
    known = [each for each in figures if each is not None]
    return sum(known) if known and len(known) == len(figures) else None


def total_lag(found: Groups | None) -> Lag | None:
    """The lag of all groups together; None where none is known."""
    if found is None:
        return None
    lags = [each.lag for each in found.items]
    known = [each for each in lags if each is not None]
    if lags and not known:
        return None
    complete = len(known) == len(lags) and all(each.complete for each in known)
    return Lag(known=sum(each.known for each in known), complete=complete)


def worst(found: Groups, most: int) -> list[GroupSummary]:
    """The groups with the largest lag; one whose lag is not known counts as worse than all."""
    behind = [each for each in found.items if each.lag is None or not each.lag.complete or each.lag.known > 0]

    def by_lag(each: GroupSummary) -> tuple[bool, int]:
        return each.lag is None, each.lag.known if each.lag else 0

    return sorted(behind, key=by_lag, reverse=True)[:most]
