"""An access file as it is written: the comments at its head, its values, and a form that Java reads as we do.

Owns the text of a file. Must not know what its keys mean. Invariant: a text is in quotes unless YAML 1.1 reads it
without quotes as the same text, so SnakeYAML and we read back what was written. Comments other than those at the head
are lost, as 4.9 loses all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from eruca.remoting.access.yaml_nodes import YamlFile, is_typed

Value = None | str | bool | int | Sequence["Value"] | Mapping[str, "Value"]

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_%|=./@*-]*")


def head_of(text: str) -> str:
    """The comments and blank lines before everything else."""
    lines = []
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.startswith("#"):
            break
        lines.append(line)
    return "".join(lines)


def read_document(text: str, name: str) -> dict[str, Any]:
    """The values of a file, texts all, by their keys. Raises BadAccessFile."""
    file = YamlFile(text, name)
    if file.root is None:
        return {}
    return {key: file.value(value, key) for key, _, value in file.entries(file.root, "an access file")}


def write_document(values: Mapping[str, Value], head: str = "") -> str:
    """A file with these values."""
    return head + "".join(_entries(values, ""))


def _entries(values: Mapping[str, Value], indent: str) -> Iterator[str]:
    for key, value in values.items():
        yield f"{indent}{_scalar(key)}:{_after_key(value, indent)}"


def _after_key(value: Value, indent: str) -> str:
    if isinstance(value, Mapping) and value:
        return "\n" + "".join(_entries(value, f"{indent}  "))
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return "\n" + "".join(_item(each, indent) for each in value)
    return f" {_scalar(value)}".rstrip(" ") + "\n"


def _item(value: Value, indent: str) -> str:
    if isinstance(value, Mapping) and value:
        inner = "".join(_entries(value, f"{indent}  "))
        return f"{indent}- {inner[len(indent) + 2 :]}"
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        inner = "".join(_item(each, f"{indent}  ") for each in value)
        return f"{indent}- {inner[len(indent) + 2 :]}"
    return f"{indent}- {_scalar(value)}\n"


def _scalar(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        return "{}" if isinstance(value, Mapping) else "[]"
    if _PLAIN.fullmatch(value) and not is_typed(value):
        return value
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if character.isprintable() and character not in '"\\':
        return character
    return f"\\U{ord(character):08x}"
