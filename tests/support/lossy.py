"""A file system (FUSE, in memory) that loses what was not synced when its power fails; a process of its own.

Data is durable after fsync of its file, an entry of a directory after fsync of that directory: no more than POSIX
promises. Mapped files work; what the kernel writes back by itself counts as not synced. Usage: ``lossy.py FOLDER``, or
``lossy.py FOLDER journal`` for what ext4 and xfs do beyond that: an fsync of any file makes all entries durable that
came or went before it, and the lengths that files were given (by truncate and fallocate, not by writes). With
``threads`` an fsync that takes its time keeps nobody else from the disk; else it does. Commands
come line by line on standard input, each is answered by one line:

    off SEED drop|torn    the power fails: from now on nothing becomes durable; take the folder away to bring it back.
                          ``drop`` loses all that was not synced, ``torn`` keeps a random half of its 512-byte sectors
                          and a random first part of the changes to directories
    fail OP N PART        the N-th OP (write, fsync, read) from now on of a file whose path has PART fails with EIO; the
                          unsynced data of a failed fsync is gone, as on Linux
    slow SECONDS          each fsync of a file takes so long from now on; one that is under way returns
    full yes|no           there is no room: no file gets longer (ENOSPC); what has its length can be written.
                          A failure of the power makes room
    syncs PART            when the last two fsyncs of such files began (seconds, monotonic)
    end                   the last folder that is taken away does not come back
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import stat
import sys
import threading
import time
from collections import deque
from typing import Any

import mfusepy as fuse  # type: ignore[import-untyped, unused-ignore]

_SECTOR = 512
_HIDDEN = ".fuse_hidden"


class Node:
    """A file or folder: what is seen, what is durable, and the changes between."""

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self.live = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """Writes as (offset, data), new lengths as (length, None)."""
        self.changed = time.time_ns()

    def change(self, offset: int, data: bytes | None) -> None:
        _apply(self.live, offset, data)
        self.pending.append((offset, data))
        self.changed = time.time_ns()

    def sync(self) -> None:
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
        self.pending.clear()

    def sync_lengths(self) -> None:
        for offset, data in self.pending:
            if data is None:
                _apply(self.durable, offset, None)

    def forget(self) -> None:
        """The unsynced data is gone from the disk's view, while the page cache still shows it."""
        self.pending.clear()

    def tear(self, chance: random.Random) -> None:
        """Let half of the unsynced sectors become durable."""
        for offset, data in self.pending:
            if data is None:
                if chance.random() < 0.5:
                    _apply(self.durable, offset, None)
                continue
            start = 0
            while start < len(data):
                stop = min(len(data), start + _SECTOR - (offset + start) % _SECTOR)
                if chance.random() < 0.5:
                    _apply(self.durable, offset + start, data[start:stop])
                start = stop


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


Tree = dict[str, Node]
Change = dict[str, Node | None]
"""Entries that come (a node) and go (None), all or none of them."""


def _folder(path: str) -> str:
    return os.path.dirname(path)


def _enter(tree: Tree, change: Change) -> None:
    for path, node in change.items():
        if node is None:
            tree.pop(path, None)
        else:
            tree[path] = node


class Disk(fuse.Operations):  # type: ignore[misc, unused-ignore]
    """The file system."""

    use_ns = True

    def __init__(self, journal: bool) -> None:
        root = Node(stat.S_IFDIR | 0o755)
        self.live: Tree = {"/": root}
        self.durable: Tree = {"/": root}
        self.journal: list[Change] = []
        self._together = journal
        self.ended = False
        self._off: tuple[str, str] | None = None
        self._failing: dict[tuple[str, str], int] = {}
        self._syncs: dict[str, deque[float]] = {}
        self._full = False
        self._slow = 0.0
        self._slowed = threading.Event()
        self._handles = itertools.count(1)
        self._lock = threading.RLock()

    # ---- commands

    def off(self, seed: str, how: str) -> str:
        with self._lock:
            self._off = (seed, how)
        return "off"

    def slow(self, seconds: str) -> str:
        former, self._slowed = self._slowed, threading.Event()
        self._slow = float(seconds)
        former.set()
        return "slow"

    def fail(self, operation: str, number: str, part: str) -> str:
        with self._lock:
            self._failing[operation, part] = int(number)
        return "armed"

    def full(self, said: str) -> str:
        self._full = said == "yes"
        return "full" if self._full else "room"

    def syncs(self, part: str) -> str:
        with self._lock:
            moments = sorted(moment for path, each in self._syncs.items() if part in path for moment in each)
        return " ".join(map(str, moments[-2:]))

    def end(self) -> str:
        self.ended = True
        return "ending"

    def fail_power(self) -> None:
        """After the folder was taken away: what is durable is all there is."""
        if self._off is None:
            return
        seed, how = self._off
        chance = random.Random(seed)
        if how == "torn":
            for change in self.journal[: chance.randint(0, len(self.journal))]:
                _enter(self.durable, change)
            for path in sorted(self.durable):
                self.durable[path].tear(chance)
        self.journal.clear()
        for path in sorted(self.durable):
            if (path != "/" and _folder(path) not in self.durable) or _HIDDEN in path:
                del self.durable[path]
        for node in self.durable.values():
            node.pending.clear()
            node.live = bytearray(node.durable)
        self.live = dict(self.durable)
        self._off = None
        self._full = False
        self._failing.clear()
        self._syncs.clear()

    # ---- what the kernel asks

    def init(self, path: str) -> None:
        print("mounted", flush=True)

    def _node(self, path: str) -> Node:
        node = self.live.get(path)
        if node is None:
            raise fuse.FuseOSError(errno.ENOENT)
        return node

    def _due(self, operation: str, path: str) -> bool:
        for (wanted, part), left in self._failing.items():
            if wanted == operation and part in path:
                self._failing[wanted, part] = left - 1
                return left == 1
        return False

    def _find_room(self, node: Node, end: int) -> None:
        if self._full and end > len(node.live):
            raise fuse.FuseOSError(errno.ENOSPC)

    def _change(self, change: Change) -> None:
        with self._lock:
            _enter(self.live, change)
            self.journal.append(change)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._node(path)
        times = {name: node.changed for name in ("st_atime", "st_mtime", "st_ctime")}
        return {
            "st_mode": node.mode,
            "st_nlink": 1,
            "st_size": len(node.live),
            "st_blocks": -(-len(node.live) // 512),
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
            **times,
        }

    def readdir(self, path: str, fh: int) -> list[str]:
        with self._lock:
            live = [*self.live]
        names = [os.path.basename(each) for each in live if each != "/" and _folder(each) == path]
        return [".", "..", *names]

    def mkdir(self, path: str, mode: int) -> int:
        self._change({path: Node(stat.S_IFDIR | mode)})
        return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        self._change({path: Node(stat.S_IFREG | stat.S_IMODE(mode))})
        return next(self._handles)

    def open(self, path: str, flags: int) -> int:
        self._node(path)
        return next(self._handles)

    def unlink(self, path: str) -> int:
        self._node(path)
        self._change({path: None})
        return 0

    def rmdir(self, path: str) -> int:
        with self._lock:
            live = [*self.live]
        if any(_folder(each) == path for each in live if each != "/"):
            raise fuse.FuseOSError(errno.ENOTEMPTY)
        self._change({path: None})
        return 0

    def rename(self, old: str, new: str) -> int:
        with self._lock:
            moved = [path for path in self.live if path == old or path.startswith(f"{old}/")]
            gone: Change = dict.fromkeys(moved)
            self._change(gone | {new + path[len(old) :]: self._node(path) for path in moved})
        return 0

    def link(self, target: str, source: str) -> int:
        self._change({target: self._node(source)})
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self._lock:
            if self._due("read", path):
                raise fuse.FuseOSError(errno.EIO)
            return bytes(self._node(path).live[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        with self._lock:
            if self._due("write", path):
                raise fuse.FuseOSError(errno.EIO)
            node = self._node(path)
            self._find_room(node, offset + len(data))
            node.change(offset, bytes(data))
            return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        with self._lock:
            self._node(path).change(length, None)
        return 0

    def fallocate(self, path: str, mode: int, offset: int, size: int, fh: int) -> int:
        if mode:
            raise fuse.FuseOSError(errno.EOPNOTSUPP)
        with self._lock:
            node = self._node(path)
            self._find_room(node, offset + size)
            if len(node.live) < offset + size:
                node.change(offset + size, None)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._slowed.wait(self._slow)
        with self._lock:
            node = self._node(path)
            if self._off is not None:
                raise fuse.FuseOSError(errno.EIO)
            if self._due("fsync", path):
                node.forget()
                raise fuse.FuseOSError(errno.EIO)
            self._syncs.setdefault(path, deque(maxlen=2)).append(time.monotonic())
            node.sync()
            if self._together:
                for change in self.journal:
                    _enter(self.durable, change)
                self.journal.clear()
                for each in self.live.values():
                    each.sync_lengths()
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        with self._lock:
            if self._off is not None:
                raise fuse.FuseOSError(errno.EIO)
            left = []
            for change in self.journal:
                ours = any(_folder(each) == path or each == path or path.startswith(each + "/") for each in change)
                if ours:
                    _enter(self.durable, change)
                else:
                    left.append(change)
            self.journal = left
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        free = 0 if self._full else 1 << 19
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 20, "f_bfree": free, "f_bavail": free}

    def chmod(self, path: str, mode: int) -> int:
        node = self._node(path)
        node.mode = stat.S_IFMT(node.mode) | mode
        return 0

    def utimens(self, path: str, times: Any = None) -> int:
        self._node(path).changed = time.time_ns()
        return 0


def _obey(disk: Disk) -> None:
    for line in sys.stdin:
        name, *arguments = line.split()
        print(getattr(disk, name)(*arguments), flush=True)
    os._exit(0)  # who started this is gone


def main(folder: str, *, journal: bool, threads: bool) -> None:
    """Be the file system at ``folder`` until the last end."""
    disk = Disk(journal)
    threading.Thread(target=_obey, args=(disk,), daemon=True).start()
    while not disk.ended:
        fuse.FUSE(disk, folder, foreground=True, nothreads=not threads, fsname="lossy", attr_timeout=0, entry_timeout=0)
        disk.fail_power()


if __name__ == "__main__":
    main(sys.argv[1], journal="journal" in sys.argv[2:], threads="threads" in sys.argv[2:])
