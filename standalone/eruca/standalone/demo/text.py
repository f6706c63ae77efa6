"""Sample text that every machine has: the sources of Python's standard library, line by line."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One line with its line ending (so no body is empty), and the name of its file."""

    file: str
    body: bytes


def lines() -> Iterator[Line]:
    """All lines of the top-level modules of the standard library, by module name."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for body in path.read_bytes().splitlines(keepends=True):
            yield Line(path.name, body)


def first_lines(count: int) -> list[Line]:
    """The first ``count`` lines."""
    return [line for line, _ in zip(lines(), range(count), strict=False)]
