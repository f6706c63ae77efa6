"""The command line of the benches whose arguments are a few numbers by their place: `python -m tests.bench.scale 5`.

Owns the reading of them; a bench's docstring is what `--help` prints.
"""

from __future__ import annotations

import argparse
from typing import Any


def numbers(text: str | None, **defaults: float) -> list[Any]:
    """The arguments of this process, in the order of ``defaults``, each of its default's type; ``text`` is the help."""
    parse = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parse.add_argument(name, nargs="?", type=type(default), default=default, help=f"default {default:g}")
    return list(vars(parse.parse_args()).values())
