"""Reads text of fastjson's dialect into plain Python values.

Owns the ways past the grammar: standard JSON, and maps with bare integer keys, are msgspec's work.  ``parser`` has the
grammar of all else.  Must not know what the values mean.
"""

import re
from typing import Any

import msgspec

from eruca.protocol.errors import ProtocolError

MAX_SIZE = 16 * 1024 * 1024
"""The longest accepted text, in bytes: the largest remoting frame."""

_DECODER = msgspec.json.Decoder()
_BARE_INTEGER_KEYS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([{,]\s*+)(-?\d++)(?=\s*+:)', re.S)


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Read one text of fastjson's dialect.

    Standard JSON takes a fast path.  Null, ``NaN`` and ``undefined`` read as None; a
    ``$ref`` to an earlier value reads as that value, one to an enclosing object as None.

    Raises ProtocolError for anything that is not one complete text, is longer than
    MAX_SIZE bytes or, outside standard JSON, nested too deep (see ``parser``).
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    if len(raw) > MAX_SIZE:
        raise ProtocolError(f"JSON text of {len(raw)} bytes is longer than {MAX_SIZE}")
    if b'"$ref"' not in raw:
        try:
            return _DECODER.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
            pass
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON text is not UTF-8: {error.reason}") from None
    from eruca.protocol.fastjson.parser import parse  # dear to import, and most programs never meet such a text

    return parse(text)


def quote_integer_keys(raw: bytes) -> bytes:
    """Put quotes around the bare integer keys of a text, outside of its strings.

    Turns fastjson's text of a map with integer keys into standard JSON.  A text that uses
    more of the dialect stays nonstandard.
    """
    return _BARE_INTEGER_KEYS.sub(lambda found: b'%b"%b"' % found.groups() if found[2] is not None else found[0], raw)
