"""Text of values, byte for byte as fastjson 1.2.69 writes it.

Owns the three styles in which RocketMQ uses fastjson (Style).  Must not know any
particular body.

A struct is written as a bean: members in the order of their names, without those that are
None.  A map keeps its order (STANDARD sorts it), omits None values, and has bare keys if
they are numbers or structs.  A tuple is a Java array.  A set is written in the order of
its values; Java's order is arbitrary.
"""

import enum
import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec


class Style(enum.Enum):
    """The layout of a text."""

    COMPACT = "compact"
    """No blanks: the style of bodies."""

    STANDARD = "standard"
    """Standard JSON: quoted keys, sorted maps, everything beyond ASCII escaped.  The
    nameserver's answers to clients from V4_9_4 on."""

    PRETTY = "pretty"
    """Indented with tabs: the style of the state files."""


_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r",
}  # fmt: skip
_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_BEYOND_ASCII = re.compile(r"[^ !#-.0-\[\]-~]")  # so written, it compiles in a thirtieth of the time


def dumps(value: Any, style: Style = Style.COMPACT) -> bytes:
    """The text of ``value`` in UTF-8.

    Takes structs, dicts (keys: text, int or struct), lists, tuples, sets, text, numbers,
    booleans and None; infinite numbers and NaN become null.  Raises TypeError for
    anything else, which is a bug of the caller and never depends on a peer.
    """
    return text(value, style).encode()


def text(value: Any, style: Style = Style.COMPACT) -> str:
    """As ``dumps``, not encoded yet."""
    parts: list[str] = []
    _Writer(style, parts.append).value(value, 0)
    return "".join(parts)


def double_text(value: float) -> str:
    """A finite double as Java prints it: ``0.0``, ``33.5``, ``1.0E7``, ``9.99E-4``."""
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0)
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0") or "0"
    if -2 <= point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        padded = digits.ljust(point, "0")
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    short = _ESCAPES.get(character)
    if short is not None:
        return short
    code = ord(character)
    return "?" if 0xD800 <= code < 0xE000 else f"\\u{code:04X}"


def _escape_beyond_ascii(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if character == "/":
        return "\\/"
    if code < 0x10000:
        return _ESCAPES.get(character) or f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


@cache
def members(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Quoted member names with their attributes, in the order they are written."""
    fields = msgspec.structs.fields(cls)
    return tuple(sorted((f'"{field.encode_name}"', field.name) for field in fields))


class _Writer:
    """Writes one text; ``depth`` is the number of tabs before the members of a value."""

    def __init__(self, style: Style, put: Callable[[str], None]) -> None:
        self.put = put
        self.pretty = style is Style.PRETTY
        self.standard = style is Style.STANDARD

    def value(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind is int:
            self.put(str(value))
        elif isinstance(value, str):
            self.put(self.quoted(value))
        elif value is None:
            self.put("null")
        elif value is True:
            self.put("true")
        elif value is False:
            self.put("false")
        elif isinstance(value, int):
            self.put(str(int(value)))
        elif isinstance(value, float):
            self.put(double_text(value) if math.isfinite(value) else "null")
        elif isinstance(value, msgspec.Struct):
            self.bean(value, depth)
        elif isinstance(value, dict):
            self.map(value, depth)
        elif isinstance(value, list):
            self.list(value, depth)
        elif isinstance(value, tuple):
            self.line_of(value, depth)
        elif isinstance(value, set | frozenset):
            self.line_of(sorted(value), depth)
        else:
            raise TypeError(f"fastjson writes no {type(value).__name__}")

    def quoted(self, text: str) -> str:
        if self.standard:
            return f'"{_BEYOND_ASCII.sub(_escape_beyond_ascii, text)}"'
        return f'"{_SPECIAL.sub(_escape, text)}"'

    def line(self, depth: int) -> None:
        if self.pretty:
            self.put("\n" + "\t" * depth)

    def bean(self, value: msgspec.Struct, depth: int) -> None:
        put = self.put
        put("{")
        named = members(type(value))
        between = "\n" + "\t" * (depth + 1) if self.pretty else ""
        if named:
            put(between)
        between = "," + between
        first = True
        for name, attribute in named:
            member = getattr(value, attribute)
            if member is None:
                continue
            if not first:
                put(between)
            first = False
            kind = type(member)
            if kind is int:
                put(f"{name}:{member}")
            elif kind is bool:
                put(f"{name}:true" if member else f"{name}:false")
            else:
                put(f"{name}:")
                self.value(member, depth + 1)
        if named:
            self.line(depth)
        put("}")

    def map(self, value: dict[Any, Any], depth: int) -> None:
        put = self.put
        if not self.standard and set(map(type, value)) == set(map(type, value.values())) == {int}:
            put(f"{{{','.join([f'{key}:{member}' for key, member in value.items()])}")
            self.line(depth)
            put("}")
            return
        put("{")
        first = True
        for key in sorted(value) if self.standard else value:
            member = value[key]
            if member is None:
                continue
            if not first:
                put(",")
            first = False
            self.key(key, depth + 1)
            put(":")
            self.value(member, depth + 1)
        if value:
            self.line(depth)
        put("}")

    def key(self, key: Any, depth: int) -> None:
        """fastjson starts a new line before text keys only."""
        if isinstance(key, str):
            self.line(depth)
            self.put(self.quoted(key))
        elif self.standard:
            self.put(self.quoted(dumps(key).decode()))
        else:
            self.value(key, depth)

    def list(self, value: list[Any], depth: int) -> None:
        self.put("[")
        for index, member in enumerate(value):
            if index:
                self.put(",")
            self.line(depth + 1)
            self.value(member, depth + 1)
        if value:
            self.line(depth)
        self.put("]")

    def line_of(self, value: Iterable[Any], depth: int) -> None:
        """Arrays and sets stay on one line even in pretty texts."""
        self.put("[")
        for index, member in enumerate(value):
            if index:
                self.put(",")
            self.value(member, depth + 1)
        self.put("]")
