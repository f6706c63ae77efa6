"""Figures of the last minutes, as they were seen: their trend, and a line of blocks for people. Asks nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


class History:
    """The last ``length`` values of each name, with when they were seen (seconds of the monotonic clock)."""

    def __init__(self, length: int = 60) -> None:
        self._length = length
        self._seen: dict[str, deque[tuple[float, float | None]]] = {}

    def add(self, name: str, at: float, value: float | None) -> None:
        """Keep a value; None where it is not known."""
        self._seen.setdefault(name, deque(maxlen=self._length)).append((at, value))

    def values(self, name: str) -> list[float | None]:
        """What was kept, the oldest first."""
        return [value for _, value in self._seen.get(name, ())]

    def trend(self, name: str) -> float | None:
        """The change a second between the oldest and the newest known value; None where there are not two."""
        known = [(at, value) for at, value in self._seen.get(name, ()) if value is not None]
        if len(known) < 2 or known[-1][0] <= known[0][0]:
            return None
        return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


def blocks(values: Sequence[float | None]) -> str:
    """A line of blocks from 0 to the largest value; a blank for what is not known."""
    most = max((value for value in values if value is not None), default=0.0)
    return "".join(_block(value, most) for value in values)


def _block(value: float | None, most: float) -> str:
    if value is None:
        return " "
    return _BLOCKS[round(max(0.0, value) / most * (len(_BLOCKS) - 1)) if most > 0 else 0]
