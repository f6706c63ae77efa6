"""YAML as Java and we read it alike: every scalar a text, each with its place in the file.

Owns what YAML 1.1 would make of a plain scalar, as SnakeYAML does in Java: ``0123456`` is a number there, and ``yes``
is true. Must not know what a file is about. Invariant: no message repeats a value of the file. PyYAML is needed only
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

Value = str | None | list["Value"] | dict[str, "Value"]
"""A node without its place; None is a scalar that is empty or ``~``."""

_NULLS: Final = {"", "~", "null", "Null", "NULL"}
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_SAME_NUMBER: Final = re.compile(r"-?[1-9][0-9]*|0")
_OTHER_VALUE: Final = re.compile(
    r"""  # bool, int, float, date and special values of YAML 1.1
    (?:y(?:es)?|n(?:o)?|true|false|on|off|null)
    | [-+]?0b[01_]+ | [-+]?0x[0-9a-f_]+
    | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
    | [-+]?(?:0[0-7_]*|[1-9][0-9_]*)
    | [-+]?(?:\.[0-9]+|[0-9][0-9_]*\.[0-9_]*)(?:e[-+]?[0-9]+)? | [-+]?[0-9][0-9_]*e[-+]?[0-9]+
    | [-+]?\.(?:inf|nan)
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:t|[ \t]+)[-+0-9:.tz \t]*)?
    | <<
    | =
    | ~?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")


class BadAccessFile(ValueError):
    """An access file that cannot be used: a sentence with its place."""


def reads_otherwise(text: str) -> bool:
    """Whether Java reads this text, written without quotes, as something that has another text."""
    return _OTHER_VALUE.fullmatch(text) is not None and _SAME_NUMBER.fullmatch(text) is None


def is_typed(text: str) -> bool:
    """Whether Java reads this text, written without quotes, as something else than a text."""
    return _OTHER_VALUE.fullmatch(text) is not None


class YamlFile:
    """The nodes of one file. ``name`` stands in messages. Raises BadAccessFile for text that is no YAML."""

    def __init__(self, text: str, name: str) -> None:
        import yaml

        self.name = name
        try:
            self.root = yaml.compose(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        except yaml.MarkedYAMLError as error:
            raise self._unreadable(error.problem_mark or error.context_mark, error.problem or error.context) from None
        except yaml.reader.ReaderError as error:
            place = f"{name}: character {error.position + 1}"
            raise BadAccessFile(f"{place}: this is no character of a YAML file; write it in UTF-8") from None
        except RecursionError:
            raise BadAccessFile(f"{name}: it is nested too deeply") from None

    def _unreadable(self, mark: Any, problem: str | None) -> BadAccessFile:
        place = f"{self.name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else self.name
        what = _QUOTED.sub("…", problem or "it cannot be read")
        return BadAccessFile(f"{place}: this is no YAML ({what}); put values with special characters in single quotes")

    def place(self, node: Any) -> str:
        """``file:line:column`` of a node."""
        return f"{self.name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def fault(self, node: Any, sentence: str) -> BadAccessFile:
        """What is wrong with a node."""
        return BadAccessFile(f"{self.place(node)}: {sentence}")

    def entries(self, node: Any, what: str) -> Iterator[tuple[str, Any, Any]]:
        """Key, node of the key and node of the value of each entry of a mapping."""
        if node.id != "mapping":
            raise self.fault(node, f"{what} must have entries like key: value")
        seen = set()
        for name, value in node.value:
            key = self.text(name, "a key") or ""
            if key in seen:
                raise self.fault(name, f"{what} has this key twice; keep one of them")
            seen.add(key)
            yield key, name, value

    def items(self, node: Any, what: str) -> list[Any]:
        """The nodes of a list; none for an empty value."""
        if node.id == "scalar" and not node.style and node.value in _NULLS:
            return []
        if node.id != "sequence":
            raise self.fault(node, f"{what} must be a list: lines that begin with - and a blank")
        return list(node.value)

    def text(self, node: Any, what: str) -> str | None:
        """The text of a scalar; None if it is empty, but for quotes."""
        if node.id != "scalar":
            raise self.fault(node, f"{what} must be one value")
        if node.tag != _TEXT_TAG:
            raise self.fault(node, f"{what} has a tag of YAML, which begins with !; put the value in single quotes")
        if not node.style and node.value in _NULLS:
            return None
        return str(node.value)

    def reads_otherwise(self, node: Any) -> bool:
        """Whether Java reads another text than we do."""
        return not node.style and node.value not in _NULLS and reads_otherwise(node.value)

    def value(self, node: Any, what: str) -> Value:
        """A node without its places."""
        if node.id == "mapping":
            return {key: self.value(value, what) for key, _, value in self.entries(node, what)}
        if node.id == "sequence":
            return [self.value(each, what) for each in node.value]
        return self.text(node, what)
