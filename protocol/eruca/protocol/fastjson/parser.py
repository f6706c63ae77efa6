"""Parses text of fastjson's dialect into plain Python values.

Owns the grammar fastjson's readers accept beyond JSON: bare integer keys, bare object
keys, unquoted names, single quotes, comments, stray commas, number suffixes, ``NaN`` and
``$ref``.  Must not know what the values mean.  ``plain`` loads it with the first text that
is no standard JSON.

Invariant: every map key in the result is text.  A bare integer key becomes its digits, a
bare object key becomes its JSON text; those are also the quoted forms Java accepts for
the same maps, so one rule turns either spelling back into the typed key.
"""

import re
from typing import Any

import msgspec

from eruca.protocol.errors import ProtocolError
from eruca.protocol.fastjson.references import Reference, resolve

MAX_DEPTH = 96
"""The deepest nesting of objects and lists."""

_KEY_ENCODER = msgspec.json.Encoder(order="deterministic")

_BLANK = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_COMMAS = re.compile(r"(?:[\s\ufeff,]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_NUMBER = re.compile(r"([-+]?\d++)(\.\d*+)?([eE][-+]?\d++)?([LSBFD]?)(?![\w$.])", re.A)
_NAME = re.compile(r"[\w$]++")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.S)
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.S)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([0-7])|(.))", re.S)
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_SIMPLE_ESCAPES = {
    "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "F": "\f", "r": "\r",
    '"': '"', "'": "'", "/": "/", "\\": "\\",
}  # fmt: skip
_WORDS = {"true": True, "false": False, "null": None, "NaN": None, "undefined": None}
_MAX_DIGITS = 400


def parse(text: str) -> Any:
    """Read one text of the dialect.

    Raises ProtocolError for anything that is not one complete text, or is nested deeper than MAX_DEPTH.
    """
    return _Parser(text).read()


class _Parser:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.path: list[str | int] = []
        self.references: list[Reference] = []
        self.inside_key = False

    def read(self) -> Any:
        self.skip(_BLANK)
        value = self.value()
        self.skip(_BLANK)
        if self.at != len(self.text):
            raise self.wrong("text after the end of the value")
        return resolve(value, self.references) if self.references else value

    def wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"malformed JSON text at character {self.at}: {what}")

    def skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        first = self.peek()
        if first == "{":
            return self.object()
        if first == "[":
            return self.list()
        if first == '"' or first == "'":
            return self.string(first)
        if first.isdigit() or first in ("-", "+"):
            return self.number()
        word = self.name()
        if word not in _WORDS:
            raise self.wrong(f"unknown word {word[:20]!r}")
        return _WORDS[word]

    def enter(self) -> None:
        if len(self.path) >= MAX_DEPTH:
            raise self.wrong(f"nested deeper than {MAX_DEPTH}")
        self.at += 1

    def object(self) -> dict[str, Any]:
        self.enter()
        result: dict[str, Any] = {}
        while True:
            self.skip(_COMMAS)
            if self.peek() == "}":
                self.at += 1
                self.note_reference(result)
                return result
            self.path.append("")
            key = self.key()
            self.path[-1] = key
            self.skip(_BLANK)
            if self.peek() != ":":
                raise self.wrong("a colon is missing after a key")
            self.at += 1
            self.skip(_BLANK)
            result[key] = self.value()
            self.path.pop()
            self.end_of_member("}")

    def list(self) -> list[Any]:
        self.enter()
        result: list[Any] = []
        while True:
            self.skip(_COMMAS)
            if self.peek() == "]":
                self.at += 1
                return result
            self.path.append(len(result))
            result.append(self.value())
            self.path.pop()
            self.end_of_member("]")

    def end_of_member(self, close: str) -> None:
        self.skip(_BLANK)
        if self.peek() not in (",", close):
            raise self.wrong(f"',' or '{close}' expected")

    def key(self) -> str:
        first = self.peek()
        if first == '"' or first == "'":
            return self.string(first)
        if first == "{" or first == "[":
            return self.object_key()
        if first.isdigit() or first == "-":
            return str(self.number())
        return self.name()

    def object_key(self) -> str:
        """A key's text would double its length with each level of keys inside keys, so
        there is one level, and no reference in it."""
        if self.inside_key:
            raise self.wrong("an object key inside a key")
        before = len(self.references)
        self.inside_key = True
        value = self.value()
        self.inside_key = False
        if len(self.references) != before:
            raise self.wrong("a $ref inside a key")
        return _KEY_ENCODER.encode(value).decode()

    def name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if found is None:
            what = self.peek()
            raise self.wrong(f"unexpected {what!r}" if what else "the text ends too early")
        self.at = found.end()
        return found[0]

    def number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if found is None or found.end() - self.at > _MAX_DIGITS:
            raise self.wrong("not a number")
        whole, fraction, exponent, suffix = found.groups()
        if fraction or exponent or suffix in ("F", "D"):
            value: int | float = float(whole + (fraction or "") + (exponent or ""))
            if value - value != 0:
                raise self.wrong("the number is out of range")
        else:
            value = int(whole)
        self.at = found.end()
        return value

    def string(self, quote: str) -> str:
        pattern = _DOUBLE_QUOTED if quote == '"' else _SINGLE_QUOTED
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.wrong("a string is not closed")
        text = found[1]
        if "\\" in text:
            text = _SURROGATES.sub(_join_surrogates, _ESCAPE.sub(self.unescape, text))
        self.at = found.end()
        return text

    def unescape(self, found: re.Match[str]) -> str:
        for group in (1, 2):
            if found[group] is not None:
                return chr(int(found[group], 16))
        if found[3] is not None:
            return chr(int(found[3]))
        plain = _SIMPLE_ESCAPES.get(found[4])
        if plain is None:
            raise self.wrong(f"unknown escape \\{found[4]}")
        return plain

    def note_reference(self, value: dict[str, Any]) -> None:
        if len(value) == 1 and isinstance(target := value.get("$ref"), str):
            self.references.append(Reference(value, tuple(self.path), target))


def _join_surrogates(found: re.Match[str]) -> str:
    pair = found[0]
    if len(pair) == 1:
        return "\ufffd"
    return chr(0x10000 + ((ord(pair[0]) - 0xD800) << 10) + (ord(pair[1]) - 0xDC00))
