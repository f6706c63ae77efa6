"""How many bytes went over a connection in the last second; times are arguments, in seconds. Pure."""

from __future__ import annotations


class Pace:
    """The bytes of the last second that is over."""

    __slots__ = ("_count", "_former", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._count = 0
        self._former = 0

    def add(self, count: int, now: float) -> None:
        """So many bytes more."""
        self._turn(int(now))
        self._count += count

    def per_second(self, now: float) -> int:
        """Bytes in the second before this one."""
        self._turn(int(now))
        return self._former

    def _turn(self, second: int) -> None:
        if second != self._second:
            self._former = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
