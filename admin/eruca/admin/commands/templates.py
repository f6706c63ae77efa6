"""The form of a message in ``tail -f``: a text with kcat's letters, made once and filled for each message."""

from __future__ import annotations

import re
from collections.abc import Callable

from eruca.admin.errors import BadValue
from eruca.admin.messages import message_id
from eruca.admin.results.stream import Streamed
from eruca.admin.text import millis_text
from eruca.protocol.names import KEYS

Part = Callable[[Streamed], str]
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0"}
_TOKEN = re.compile(r"%(?P<letter>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)", re.DOTALL)


def body_text(body: bytes) -> str:
    r"""A body as text; bytes that are none as ``\x00``."""
    return body.decode("utf-8", "backslashreplace")


def _keys(each: Streamed) -> str:
    return each.record.properties.get(KEYS, "")


def _properties(each: Streamed) -> str:
    return ",".join(f"{name}={value}" for name, value in each.record.properties.items())


LETTERS: dict[str, tuple[str, Part]] = {
    "t": ("topic", lambda each: each.record.topic),
    "b": ("broker", lambda each: each.broker),
    "q": ("queue id; also p", lambda each: str(each.record.queue_id)),
    "o": ("offset", lambda each: str(each.record.queue_offset)),
    "k": ("keys", _keys),
    "K": ("length of the keys in bytes", lambda each: str(len(_keys(each).encode()))),
    "g": ("tag", lambda each: each.record.tags or ""),
    "v": ("body; also s", lambda each: body_text(each.body)),
    "V": ("length of the body in bytes; also S", lambda each: str(len(each.body))),
    "T": ("time of storing in ms", lambda each: str(each.record.store_timestamp)),
    "d": ("time of storing", lambda each: millis_text(each.record.store_timestamp)),
    "B": ("time of sending in ms", lambda each: str(each.record.born_timestamp)),
    "i": ("message id", lambda each: message_id(each.record)),
    "h": ("properties, as name=value,name=value", _properties),
}
"""What each letter stands for; ``%%`` is a percent sign."""
_ALIASES = {"p": "q", "s": "v", "S": "V"}


def template(text: str) -> Part:
    """What fills a text. Raises BadValue for a letter that stands for nothing."""
    parts: list[str | Part] = []
    at = 0
    for found in _TOKEN.finditer(text):
        parts += [text[at : found.start()], _part(found)]
        at = found.end()
    parts.append(text[at:])
    return lambda each: "".join(part if isinstance(part, str) else part(each) for part in parts)


def _part(found: re.Match[str]) -> str | Part:
    letter, digits, escape = found["letter"], found["hex"], found["escape"]
    if digits is not None:
        return chr(int(digits, 16))
    if escape is not None:
        return _ESCAPES.get(escape, found[0])
    if letter == "%":
        return "%"
    known = LETTERS.get(_ALIASES.get(letter, letter))
    if known is None:
        raise BadValue(
            f"option -f: %{letter} stands for nothing; there are {', '.join(f'%{each}' for each in LETTERS)}"
        )
    return known[1]
