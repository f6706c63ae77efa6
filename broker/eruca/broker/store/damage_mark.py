"""From where on a log may not be its master's: damage was covered there, and what was lost is only in other copies.

Owns ``eruca.damage``: where the first damage begins that recoveries have covered, and where the last one ends. A log
without the file has none, or was cut off before it, or has become the truth since. Must not know what damage looks
like: the recovery says so. Invariants: the mark is on the disk before the damage is covered, since nothing in the log
shows it to a later start; damage in files that were deleted meanwhile counts no more; a file that cannot be read marks
the whole log.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from eruca.broker.store.file_system import FileSystem
from eruca.remoting.files import replace_file

NAME = "eruca.damage"
_CONTENT = re.compile(rb"(\d{1,19}) (\d{1,19})\n")
_ALL = (0, sys.maxsize)


def read_damage(root: Path, begin: int = 0) -> int | None:
    """Where damage of a log was covered first that is still there, in a log that begins at ``begin``; None if none is.

    Raises:
        OSError: it cannot be read.
    """
    found = _read(root)
    return max(found[0], begin) if found is not None and found[1] > begin else None


def mark_damage(root: Path, start: int, end: int) -> None:
    """Damage is about to be covered from ``start`` on, the last of it up to ``end``; on the disk when this returns.

    Raises:
        OSError: the disk is full or fails.
    """
    former = _read(root)
    _write(root, (start, end) if former is None else (min(start, former[0]), max(end, former[1])))


def forget_damage(root: Path, end: int, file_system: FileSystem) -> None:
    """What is behind ``end`` was cut off, or is the truth: damage there counts no more; on the disk when this returns.

    Raises:
        OSError: the disk is full or fails.
    """
    former = _read(root)
    if former is None or former[1] <= end:
        return
    if former[0] < end:
        _write(root, (former[0], end))
    else:
        (root / NAME).unlink()
        file_system.flush_folder(root)


def _read(root: Path) -> tuple[int, int] | None:
    try:
        found = _CONTENT.fullmatch((root / NAME).read_bytes())
    except FileNotFoundError:
        return None
    return (int(found[1]), int(found[2])) if found is not None else _ALL


def _write(root: Path, damage: tuple[int, int]) -> None:
    replace_file(root / NAME, b"%d %d\n" % damage, backup=False)
