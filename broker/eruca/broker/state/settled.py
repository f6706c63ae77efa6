"""The settled units of a queue whose units are not settled in order.

Owns a set of numbers that is compact if it contains most of the low ones: one bit for each number from the first
missing one on. Pure. Invariant: ``first`` is the least number that is not in the set.
"""

from __future__ import annotations

_TRIM = 4096


class Settled:
    """All numbers below ``first``, and those above it that were added."""

    def __init__(self, base: int = 0, bits: bytes = b"") -> None:
        """``bits``: which numbers from ``base`` on are in the set, the lowest bit of a byte first."""
        self.first = base
        self._base = base
        self._bits = bytearray(bits)
        self._advance()

    def __contains__(self, number: int) -> bool:
        at = number - self._base
        if at < 0:
            return True
        return at >> 3 < len(self._bits) and bool(self._bits[at >> 3] >> (at & 7) & 1)

    def add(self, number: int) -> None:
        """Add a number."""
        at = number - self._base
        if at < 0:
            return
        if at >> 3 >= len(self._bits):
            self._bits.extend(bytes((at >> 3) + 1 - len(self._bits)))
        self._bits[at >> 3] |= 1 << (at & 7)
        if number == self.first:
            self._advance()

    def add_below(self, number: int) -> None:
        """Add every number below this one."""
        while self.first < number:
            self.add(self.first)

    def cut(self, end: int) -> None:
        """Remove every number from ``end`` on."""
        self._base = min(self._base, end)
        kept = max(end - self._base, 0)
        del self._bits[(kept + 7) >> 3 :]
        if kept & 7 and len(self._bits) == (kept + 7) >> 3:
            self._bits[-1] &= (1 << (kept & 7)) - 1
        self.first = min(self.first, end)

    def contents(self) -> tuple[int, bytes]:
        """Base and bits, as the constructor takes them."""
        return self._base, bytes(self._bits)

    def _advance(self) -> None:
        bits, at = self._bits, self.first - self._base
        while at >> 3 < len(bits):
            if not at & 7 and bits[at >> 3] == 0xFF:
                at += 8
            elif bits[at >> 3] >> (at & 7) & 1:
                at += 1
            else:
                break
        self.first = self._base + at
        whole = at >> 3
        if whole >= _TRIM:
            del bits[:whole]
            self._base += whole << 3
