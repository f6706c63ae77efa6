"""Retention: which commit log files are deleted, and when the disk is too full (CleanCommitLogService in RocketMQ).

Decides only, from times, sizes and the clocks it is given; the store deletes. Invariants: the last file is never
chosen, and files go from the oldest on; for an hour after a jump of the wall clock nothing goes for its age.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from eruca.broker.store.config import StoreConfig

FILES_PER_ROUND = 10
JUMP = 3_600_000
"""A movement of the wall clock against the monotonic clock, in ms, that is no jump yet; and the pause after a jump."""
HOUR = 3_600_000


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


class ClockWatch:
    """Whether the age of files can be believed. ``now`` is the wall clock, ``passed`` the monotonic clock, in ms.

    The pause gives an operator time to set the clock, and consumers time to read what became old while the machine
    slept. A start has nothing to compare with: what expired while the broker was stopped goes at once.
    """

    def __init__(self, now: int, passed: int) -> None:
        self.moved = 0
        """The last jump in ms; negative for one into the past."""
        self._difference = now - passed
        self._again_at = passed

    def jumped(self, now: int, passed: int) -> bool:
        """Compare the clocks; returns whether the wall clock has jumped since the last look."""
        moved = now - passed - self._difference
        self._difference += moved
        if abs(moved) <= JUMP:
            return False
        self.moved = moved
        self._again_at = passed + JUMP
        return True

    def pause(self, passed: int) -> int:
        """The ms for which no file is to be deleted for its age."""
        return max(self._again_at - passed, 0)


def disk_of(path: Path) -> Disk:
    """How full the file system of ``path`` is (what only root may use counts as neither)."""
    disk = shutil.disk_usage(path)
    return Disk(disk.used, disk.used + disk.free)


def is_hour_to_delete(delete_when: str, hour: int) -> bool:
    """Whether ``hour`` (0 to 23) is one of those in ``deleteWhen``, such as ``04`` or ``04;16``."""
    return any(part.strip().isdecimal() and int(part) == hour for part in delete_when.split(";"))


def expendable(
    files: list[LogFile],
    config: StoreConfig,
    disk: Disk,
    now: int,
    hour: int,
    *,
    by_hand: bool = False,
    by_age: bool = True,
) -> list[str]:
    """Why each of the oldest files is to be deleted in this round (``now`` in ms, ``hour`` local); none without
    ``by_age`` for its age."""
    limit = min(len(files) - 1, FILES_PER_ROUND)
    forced = config.clean_file_forcibly_enable and disk.ratio > config.disk_space_clean_forcibly_ratio
    occasion = _occasion(config, disk, hour, by_hand=by_hand) if by_age else None
    oldest = now - config.file_reserved_time * HOUR
    reasons: list[str] = []
    used = disk.used
    for file in files[: max(limit, 0)]:
        if occasion is not None and file.modified < oldest:
            reasons.append(f"older than fileReservedTime ({config.file_reserved_time} h), {occasion}")
        elif forced and used > disk.total * config.disk_space_clean_forcibly_ratio:
            mark = f"diskSpaceCleanForciblyRatio {config.disk_space_clean_forcibly_ratio:.0%}"
            reasons.append(f"the disk is {used / disk.total:.0%} full ({mark})")
        else:
            break
        used -= file.taken
    return reasons


def _occasion(config: StoreConfig, disk: Disk, hour: int, *, by_hand: bool) -> str | None:
    """What lets old files go in this round; None where nothing does."""
    if by_hand:
        return "deleted by hand"
    if is_hour_to_delete(config.delete_when, hour):
        return "in an hour of deleteWhen"
    if disk.ratio > config.disk_max_used_space_ratio / 100:
        return f"the disk is {disk.ratio:.0%} full (diskMaxUsedSpaceRatio {config.disk_max_used_space_ratio}%)"
    return None


def disk_refusal(disk: Disk, config: StoreConfig) -> str | None:
    """Why nothing may be written, None while the disk has room."""
    if disk.ratio <= config.disk_space_warning_level_ratio:
        return None
    return (
        f"the disk of the store is {disk.ratio:.0%} full (limit {config.disk_space_warning_level_ratio:.0%}): "
        "free space, or lower fileReservedTime"
    )
