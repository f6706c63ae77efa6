"""Java's .properties format: parse, write, amend.

Owns: the grammar that ``broker.conf``, ``namesrv.conf`` and the bodies of the configuration
requests (25, 26, 318, 319) are written in, as ``java.util.Properties`` defines it.
Must not know: which keys exist or what they mean (that is ``eruca.remoting.settings``), or files.
Invariant: ``parse(write(values)) == values`` for every mapping of strings, and ``write`` is plain
ASCII; ``amend`` changes the named keys and leaves every other line as it was, comments included.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from eruca.protocol.errors import ProtocolError

__all__ = ["Entry", "amend", "decode", "entries", "parse", "write"]

_BLANKS = " \t\f"
_NATURAL_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES = {char: name for name, char in _NAMED.items()}


class Entry(NamedTuple):
    """One key with its value; ``line`` is the first that it stands in, counted from 1."""

    key: str
    value: str
    line: int


class _LogicalLine(NamedTuple):
    start: int  # where it begins in the text
    end: int  # where it ends, its line terminator not included
    number: int  # of its first natural line, counted from 1
    text: str  # joined, leading blanks of every part removed, escapes still in place


def decode(data: bytes) -> str:
    """The text of a properties file: UTF-8, or Latin-1 if it is not valid UTF-8.

    Java reads Latin-1 alone; files that hold only ASCII and ``\\uXXXX`` mean the same in both.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def entries(text: str) -> Iterator[Entry]:
    """All entries in the order of the text; of a key that occurs twice both.

    Half a surrogate pair reads as U+FFFD, as in JSON; Java keeps it, and writes ``?`` wherever it goes.
    Raises ProtocolError, with the line number, for a ``\\u`` without four hex digits: the only
    error in Java's grammar.
    """
    for line in _logical_lines(text):
        key, value = _split(line)
        yield Entry(key, value, line.number)


def parse(text: str) -> dict[str, str]:
    """All keys with their values, in the order of their first appearance; the last value wins.

    Raises ProtocolError as ``entries`` does.
    """
    return {entry.key: entry.value for entry in entries(text)}


def write(values: Mapping[str, str]) -> str:
    """``key=value`` lines in the order of the mapping, each with its newline, escaped to ASCII."""
    return "".join(f"{_entry(key, value)}\n" for key, value in values.items())


def amend(text: str, changes: Mapping[str, str]) -> str:
    """``text`` with the values of ``changes`` in it.

    A present key is replaced at its last appearance, which counts; an absent one is added at the
    end. Comments, order and every other line stay as they are.
    Raises ProtocolError as ``parse`` does.
    """
    places: dict[str, _LogicalLine] = {}
    for line in _logical_lines(text):
        key, _ = _split(line)
        if key in changes:
            places[key] = line
    for key, place in sorted(places.items(), key=lambda item: item[1].start, reverse=True):
        text = text[: place.start] + _entry(key, changes[key]) + text[place.end :]
    added = {key: value for key, value in changes.items() if key not in places}
    if added and text:
        text = _closed(text)
    return text + write(added)


def _closed(text: str) -> str:
    """The text, extended so that a line can follow: ended, and without an open continuation."""
    if _ends_open(text):
        return text + "\n\n"  # two, for the first may be the second half of a CR LF
    return text if text.endswith(("\n", "\r")) else text + "\n"


def _ends_open(text: str) -> bool:
    last = text.rstrip("\r\n")
    return len(last) - len(last.rstrip("\\")) & 1 == 1


def _natural_lines(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(text):
        match = _NATURAL_LINE.match(text, at)
        assert match is not None  # the pattern matches the empty string
        yield match.start(1), match.end(1), match.group(1).lstrip(_BLANKS)
        at = match.end()


def _logical_lines(text: str) -> Iterator[_LogicalLine]:
    """Lines that hold an entry: without comments and blank lines, continuations joined."""
    joined = ""
    first = start = end = 0
    for number, (begins, ends, part) in enumerate(_natural_lines(text), 1):
        if not joined:
            if not part or part[0] in "#!":
                continue
            first, start = number, begins
        end = ends
        if _ends_open(part):
            joined += part[:-1]
            continue
        yield _LogicalLine(start, end, first, joined + part)
        joined = ""
    if joined:
        yield _LogicalLine(start, end, first, joined)


def _split(line: _LogicalLine) -> tuple[str, str]:
    key = _KEY.match(line.text)
    assert key is not None  # the pattern matches the empty string
    separator = _SEPARATOR.match(line.text, key.end())
    assert separator is not None
    try:
        return _unescaped(key.group()), _unescaped(line.text[separator.end() :])
    except ValueError:
        raise ProtocolError(f"line {line.number}: \\u must be followed by four hexadecimal digits") from None


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_meaning, text)
    # \uXXXX writes UTF-16 units: two adjacent surrogates are one character, and one alone is none.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _meaning(escape: re.Match[str]) -> str:
    after = escape.group(1)
    if after[0] != "u":
        return _NAMED.get(after, after)
    if len(after) == 1:
        raise ValueError(after)
    return chr(int(after[1:], 16))


def _entry(key: str, value: str) -> str:
    escaped = _escaped(key, " =:#!")
    if value.startswith(" "):
        return f"{escaped}=\\ {_escaped(value[1:], '')}"
    return f"{escaped}={_escaped(value, '')}"


def _escaped(text: str, special: str) -> str:
    return "".join(_written(char, special) for char in text)


def _written(char: str, special: str) -> str:
    if char in _NAMES:
        return "\\" + _NAMES[char]
    if char == "\\" or char in special:
        return "\\" + char
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
