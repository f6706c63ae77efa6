"""Patterns of addresses from which requests need no signature (RemoteAddressStrategyFactory in 4.9.7).

Owns what a pattern means. Pure. Invariant: a pattern either means one set of addresses or is refused with a sentence;
a blank one matches nothing.

===================================  ======================================================
``*``                                every address (also ``*.*.*.*`` and ``*:*:*:*:*:*:*:*``)
``10.0.0.7``, ``2001:db8::7``        one address
``10.0.0.7,10.0.0.9``                a list of addresses
``10.0.0.{7,9}``, ``2001:db8::{7}``  the same, with one beginning
``10.0.0.*``, ``10.0.*.*``           every value in this part and those that follow
``10.0.0.7-9``, ``10.0.7-9.*``       a range of values; the parts that follow must be ``*``
``2001:db8:*``, ``2001:db8::7-1f``   the same; ``*`` ends the pattern
===================================  ======================================================
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterator
from typing import Final

Groups = tuple[int, ...]
"""An address as four numbers or, of IPv6, eight."""
Box = tuple[tuple[int, int], ...]
"""The least and the greatest value of each group."""

_EVERYWHERE: Final = {"*", "*.*.*.*", "*:*:*:*:*:*:*:*"}
_V4: Final = 255
_V6: Final = 0xFFFF
_V6_GROUP: Final = re.compile(r"[0-9A-Fa-f]{1,4}")
_V4_GROUP: Final = re.compile(r"0|[1-9][0-9]{0,2}")


class AddressPattern:
    """A set of addresses, by its pattern. Raises ValueError, with a sentence, for a faulty pattern."""

    __slots__ = ("_all", "_boxes", "text")

    def __init__(self, text: str | None) -> None:
        self.text = text or ""
        self._all = self.text in _EVERYWHERE
        self._boxes: tuple[Box, ...] = ()
        if self.text.strip() and not self._all:
            self._boxes = tuple(_boxes(self.text))

    def matches(self, ip: str) -> bool:
        """Whether an address belongs to the set; a text that is no address belongs to ``*`` alone."""
        if self._all or not self._boxes:
            return self._all
        groups = _groups(ip)
        return any(
            len(box) == len(groups)
            and all(low <= group <= high for (low, high), group in zip(box, groups, strict=True))
            for box in self._boxes
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddressPattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"AddressPattern({self.text!r})"


def patterns_of(text: str) -> list[AddressPattern]:
    """The patterns of a setting, which are joined by ``;``. Raises ValueError."""
    return [AddressPattern(each.strip()) for each in text.split(";") if each.strip()]


def are_patterns(text: str) -> bool:
    """Whether a text is such a setting; an empty one has none."""
    try:
        patterns_of(text)
    except ValueError:
        return False
    return True


@functools.lru_cache(4096)
def _groups(ip: str) -> Groups:
    """The groups of an address, none if it is no address; an IPv4 address inside an IPv6 one is taken out of it."""
    try:
        address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def _boxes(text: str) -> Iterator[Box]:
    if text.endswith("}"):
        start, opened, names = text.partition("{")
        if not opened or start[-1:] not in (".", ":"):
            raise _faulty(text, "write a list as the whole last part, like 10.0.0.{7,9}")
        for name in names[:-1].split(","):
            yield _one(text, start + name)
    elif "," in text:
        for name in text.split(","):
            yield _one(text, name)
    elif ":" in text and ("*" in text or "-" in text):
        yield _range_v6(text)
    elif "*" in text or "-" in text:
        yield _range_v4(text)
    else:
        yield _one(text, text)


def _one(text: str, name: str) -> Box:
    groups = _groups(name) if "%" not in name else ()
    if not groups:
        what = f"'{name}' is no address" if name else "an address is missing"
        raise _faulty(text, f"{what}; write addresses like 10.0.0.7 or 2001:db8::7, without blanks")
    return tuple((group, group) for group in groups)


def _range_v4(text: str) -> Box:
    parts = text.split(".")
    at = next((at for at, part in enumerate(parts) if not _V4_GROUP.fullmatch(part)), 0)
    if len(parts) != 4 or at == 0 or any(part != "*" for part in parts[at + 1 :]):
        raise _faulty(
            text, "write four parts, numbers first, then one * or range like 7-9, and after that only *: 10.0.0.7-9"
        )
    fixed = [(int(part), int(part)) for part in parts[:at]]
    if any(low > _V4 for low, _ in fixed):
        raise _faulty(text, f"a part is a number from 0 to {_V4}")
    return (*fixed, _range(text, parts[at], 10, _V4), *((0, _V4) for _ in parts[at + 1 :]))


def _range_v6(text: str) -> Box:
    start, _, last = text.rpartition(":")
    if last == "*" and "-" in start:
        start, _, last = start.rpartition(":")
        fixed = _fixed_v6(text, start, 6)
    else:
        fixed = _fixed_v6(text, start, 7)
    free = 8 - len(fixed) - 1
    return (*((group, group) for group in fixed), _range(text, last, 16, _V6), *((0, _V6),) * free)


def _fixed_v6(text: str, start: str, count: int) -> Groups:
    """The groups before the range; ``::`` stands for as many zeros as there is room for."""
    if start.endswith(":"):
        start += ":"  # the other half of ``::``
    before, gap, after = start.partition("::")
    groups = [each.split(":") if each else [] for each in (before, after)]
    zeros = ["0"] * (count - len(groups[0]) - len(groups[1])) if gap else []
    found = [*groups[0], *zeros, *groups[1]]
    if not found or len(found) > count or not all(_V6_GROUP.fullmatch(group) for group in found):
        raise _faulty(text, "write groups first, then one * or range like 7-1f, and after a range at most one *")
    return tuple(int(group, 16) for group in found)


def _range(text: str, part: str, base: int, most: int) -> tuple[int, int]:
    if part == "*":
        return 0, most
    low, _, high = part.partition("-")
    digit = _V4_GROUP if base == 10 else _V6_GROUP
    if not digit.fullmatch(low) or not digit.fullmatch(high):
        raise _faulty(text, f"'{part}' is no range; write it like 7-9, or * for every value")
    found = int(low, base), int(high, base)
    if not found[0] <= found[1] <= most:
        raise _faulty(text, f"the range '{part}' must go upwards, to {'255' if base == 10 else 'ffff'} at most")
    return found


def _faulty(text: str, why: str) -> ValueError:
    return ValueError(f"the address pattern '{text[:255]}' cannot be used: {why}")
