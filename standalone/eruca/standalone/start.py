"""Where the program ``eruca`` starts: before most imports, which take tenths of a second, signals get their answer.

Imports nothing that it need not.
"""

from __future__ import annotations

import sys

from eruca.standalone.pipeline import early


def main() -> None:
    """The command line."""
    if sys.argv[1:2] == ["pipeline"]:
        early.listen()
    from eruca.standalone.cli import main as run

    run()
