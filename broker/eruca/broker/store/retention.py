"""Retention: which commit log files are deleted, and when the disk is too full (CleanCommitLogService in RocketMQ).

Decides only, from times, sizes and the clock it is given; the store deletes. Invariant: the last
file is never chosen, and files go from the oldest on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from eruca.broker.store.config import StoreConfig

FILES_PER_ROUND = 10


class Disk(NamedTuple):
    """Bytes of a file system that are used, and those that could be."""

    used: int
    total: int

    @property
    def ratio(self) -> float:
        """The used part, 0 to 1."""
        return self.used / self.total if self.total else 0.0


class LogFile(NamedTuple):
    """What retention looks at: time of the last change in ms, bytes really taken."""

    modified: int
    taken: int


def disk_of(path: Path) -> Disk:
    """How full the file system of ``path`` is (what only root may use counts as neither)."""
    stat = os.statvfs(path)
    used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    return Disk(used, used + stat.f_bavail * stat.f_frsize)


def is_hour_to_delete(delete_when: str, hour: int) -> bool:
    """Whether ``hour`` (0 to 23) is one of those in ``deleteWhen``, such as ``04`` or ``04;16``."""
    return any(part.strip().isdecimal() and int(part) == hour for part in delete_when.split(";"))


def expendable(
    files: list[LogFile], config: StoreConfig, disk: Disk, now: int, hour: int, *, by_hand: bool = False
) -> int:
    """How many of the oldest files to delete in this round (``now`` in ms, ``hour`` local)."""
    limit = min(len(files) - 1, FILES_PER_ROUND)
    forced = config.clean_file_forcibly_enable and disk.ratio > config.disk_space_clean_forcibly_ratio
    full = disk.ratio > config.disk_max_used_space_ratio / 100
    aged = by_hand or full or is_hour_to_delete(config.delete_when, hour)
    oldest = now - config.file_reserved_time * 3_600_000
    count = 0
    used = disk.used
    while count < limit:
        expired = aged and files[count].modified < oldest
        crowded = forced and used > disk.total * config.disk_space_clean_forcibly_ratio
        if not expired and not crowded:
            break
        used -= files[count].taken
        count += 1
    return count


def disk_refusal(disk: Disk, config: StoreConfig) -> str | None:
    """Why nothing may be written, None while the disk has room."""
    if disk.ratio <= config.disk_space_warning_level_ratio:
        return None
    return (
        f"the disk of the store is {disk.ratio:.0%} full (limit {config.disk_space_warning_level_ratio:.0%}): "
        "free space, or lower fileReservedTime"
    )
