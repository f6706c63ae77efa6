"""The command line of benches: numbers by their place (`python -m tests.bench.scale 5`), and some of their rows.

Owns the reading of them; a bench's docstring is what `--help` prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import Any


def numbers(text: str | None, **defaults: float) -> list[Any]:
    """The arguments of this process, in the order of ``defaults``, each of its default's type; ``text`` is the help."""
    parse = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parse.add_argument(name, nargs="?", type=type(default), default=default, help=f"default {default:g}")
    return list(vars(parse.parse_args()).values())


def some_of(rows: Collection[str]) -> Callable[[str], list[str]]:
    """The type of an argument that names some of these rows, by commas; another name ends the bench, which says why."""

    def chosen(text: str) -> list[str]:
        for name in (names := text.split(",")):
            if name not in rows:
                raise argparse.ArgumentTypeError(f"there is no row {name!r}; the rows are {', '.join(rows)}")
        return names

    return chosen
