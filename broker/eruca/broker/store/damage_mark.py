"""From where on a log may not be its master's: damage was covered there, and what was lost is only in other copies.

Owns ``eruca.damage``: the offset of the first damage that a recovery has covered. A log without the file has none, or
was cut off before it, or has become the truth since. Must not know what damage looks like: the recovery says so.
Invariants: the mark is on the disk before the damage is covered, since nothing in the log shows it to a later start;
of two damages the first counts; a file that cannot be read marks the whole log.
"""

from __future__ import annotations

from pathlib import Path

from eruca.broker.store.file_system import FileSystem
from eruca.remoting.files import replace_file

NAME = "eruca.damage"


def read_damage(root: Path) -> int | None:
    """Where the first damage of a store's log was covered; None where there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return int((root / NAME).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return 0


def mark_damage(root: Path, offset: int) -> None:
    """Damage is about to be covered at ``offset``; on the disk when this returns.

    Raises:
        OSError: the disk is full or fails.
    """
    former = read_damage(root)
    if former is None or offset < former:
        replace_file(root / NAME, b"%d\n" % offset, backup=False)


def forget_damage(root: Path, end: int, file_system: FileSystem) -> None:
    """What is behind ``end`` was cut off, or is the truth: damage there counts no more; on the disk when this returns.

    Raises:
        OSError: the disk fails.
    """
    former = read_damage(root)
    if former is not None and former >= end:
        (root / NAME).unlink()
        file_system.flush_folder(root)
