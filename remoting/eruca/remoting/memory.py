"""The memory of this process, and how much it may have: that of its control group, else that of the machine.

Owns where Linux says so (proc(5), cgroups(7), versions 1 and 2). Must not know what the memory is used for. Pages of
files, such as those of a store, are not counted: the kernel takes them back when it needs them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OWN = re.compile(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB$", re.MULTILINE)
_TOTAL = re.compile(r"^MemTotal:\s+(\d+) kB$", re.MULTILINE)
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""The files with a limit: two of version 2, one of version 1."""


def used(root: Path = Path("/")) -> int:
    """Bytes of memory of this process that are not pages of files; 0 where nobody says."""
    return sum(int(each) for each in _OWN.findall(_text(root / "proc/self/status"))) * 1024


def limit(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may have at most, with the others in its control group; 0 where nobody says."""
    found = [int(each) * 1024 for each in _TOTAL.findall(_text(root / "proc/meminfo"))]
    for folder in _groups(root):
        for name in _LIMITS:
            text = _text(folder / name).strip()
            if text.isdecimal():  # or "max"
                found.append(int(text))
    return min(found, default=0)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control group and of those above it.

    In a container the path may be one of the machine, which is not there: then the mount itself is the group.
    """
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount in [mounts / "memory"] if controllers else [mounts, mounts / "unified"]:
            group = mount / path.lstrip("/")
            while group != mount:
                yield group
                group = group.parent
            yield mount


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # another system, or no control groups
        return ""


def give_back() -> None:
    """Let the C library return what it keeps of freed memory to the system."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
