"""Numbers in text, parsed as Java does.

Owns the syntax of ``Integer.valueOf``, ``Long.valueOf`` and ``Double.valueOf`` and the order of doubles. Must not
know what the numbers mean. Invariant: a text is a number here exactly when it is one there.
"""

from __future__ import annotations

import math
import re
import struct

__all__ = ["INTEGER", "LONG", "double_order", "read_double", "read_whole"]

INTEGER = 0x7FFFFFFF
"""The largest ``int``."""
LONG = 0x7FFFFFFFFFFFFFFF
"""The largest ``long``."""

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_NAMED = re.compile(r"[+-]?(?:NaN|Infinity)")
_HEXADECIMAL = re.compile(r"([+-]?)(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?)([0-9]+)[fFdD]?")
_LONGEST = 32
_BLANKS = "".join(map(chr, range(0x21)))
_BITS = struct.Struct(">d")
_NAN = 0x7FF8000000000000


def read_whole(text: str, largest: int) -> int:
    """The whole number in ``text``, no larger than ``largest`` (INTEGER or LONG) and no smaller than its negative - 1.

    Raises ValueError for anything else: blanks, a decimal point, an empty text.
    """
    if _WHOLE.fullmatch(text) is None or (not text.isascii() and max(text) > "\uffff"):
        raise ValueError("not a whole number")
    if len(text) > _LONGEST:
        text = _shortened(text)
    value = int(text)
    if not -largest <= value <= largest and value != -largest - 1:
        raise ValueError("a whole number out of range")
    return value


def _shortened(text: str) -> str:
    """``text`` without leading zeros, whatever script they are of; Python reads no text of thousands of digits."""
    sign = text[0] if text[0] in "+-" else ""
    digits = "".join(str(int(digit)) for digit in text[len(sign) :]).lstrip("0")
    if len(digits) > _LONGEST:
        raise ValueError("a whole number out of range")
    return sign + (digits or "0")


def read_double(text: str) -> float:
    """The double in ``text``: decimal, hexadecimal, NaN or Infinity, between blanks. Raises ValueError."""
    text = text.strip(_BLANKS)
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        return float(decimal[1])
    if _NAMED.fullmatch(text) is not None:
        return float(text)
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal is None:
        raise ValueError("not a number")
    sign, mantissa, exponent = hexadecimal.groups()
    exponent = exponent.lstrip("0")[:_LONGEST] or "0"
    try:
        return float.fromhex(sign + mantissa + exponent)
    except OverflowError:
        return -math.inf if sign == "-" else math.inf


def double_order(value: float) -> int:
    """A number by which doubles are ordered as ``Double.compareTo`` does: NaN is the largest, -0.0 is below 0.0."""
    if value != value:
        return _NAN
    bits = int.from_bytes(_BITS.pack(value), "big")
    return bits if bits < 1 << 63 else (1 << 63) - 1 - bits
