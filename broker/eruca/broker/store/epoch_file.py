"""``epochFileCheckpoint``: the list of epochs of a log on the disk (EpochFileCache in RocketMQ 5.3.3).

Owns the text: the number of entries, the CRC-32 (31 bits) of the lines that follow, then ``epoch-start`` for each;
every line ends. RocketMQ 4.9 ignores the file. Invariant: the list is on the disk when it counts as written, and one
that is damaged is never taken for a shorter one: the log would be cut at the wrong place. So the copy beside it
(``.bak``) is never older: without the newest epoch, what that one has would count as a part of the epoch before.
"""

from __future__ import annotations

import os
import re
import zlib
from itertools import pairwise
from pathlib import Path

from eruca.broker.failover.epochs import Epoch, Epochs
from eruca.broker.store.commit_log import StoreDamaged
from eruca.broker.store.group_file import forget_group
from eruca.remoting.files import backup_of, replace_file
from eruca.remoting.operating_system import flush_folder

NAME = "epochFileCheckpoint"
_ENTRIES = re.compile(rb"(?:\d{1,10}-\d{1,19}\n)*")


def encode_epochs(epochs: Epochs) -> bytes:
    """The content of the file."""
    lines = b"".join(b"%d-%d\n" % entry for entry in epochs)
    return b"%d\n%d\n%s" % (len(epochs), _crc(lines), lines)


def decode_epochs(content: bytes) -> Epochs | None:
    """The list in the content of the file; None when it is damaged."""
    lines = content.split(b"\n", 2)[-1]
    if not _ENTRIES.fullmatch(lines):
        return None
    epochs = tuple(Epoch(*map(int, line.split(b"-"))) for line in lines.split())
    rises = all(one.epoch < next_.epoch and one.start < next_.start for one, next_ in pairwise(epochs))
    return epochs if rises and encode_epochs(epochs) == content else None


def read_epochs(root: Path) -> Epochs:
    """The list of a store's log; empty for a log without epochs. The copy counts only where the file is not there.

    Raises:
        StoreDamaged: the file is damaged.
        OSError: it cannot be read.
    """
    path = root / NAME
    for each in (path, backup_of(path)):
        if each.exists():
            epochs = decode_epochs(each.read_bytes())
            if epochs is None:
                raise StoreDamaged(f"{each} is damaged: copy it from a backup, or empty the store")
            return epochs
    return ()


def write_epochs(root: Path, epochs: Epochs) -> None:
    """Write the copy, and then the list; both are on the disk when this returns.

    Raises:
        OSError: the disk is full or fails.
    """
    path, content = root / NAME, encode_epochs(epochs)
    replace_file(backup_of(path), content, backup=False)
    replace_file(path, content, backup=False)


def leave_group(root: Path) -> bool:
    """Put the list aside, as ``epochFileCheckpoint.left``: what is stored from now on belongs to no epoch and no group.

    Returns whether there was one.

    Raises:
        OSError: the disk fails.
    """
    path, found = root / NAME, False
    for each in (backup_of(path), path):
        if each.exists():
            os.replace(each, root / f"{NAME}.left")
            found = True
    forget_group(root)
    if found:
        flush_folder(root)
    return found


def _crc(lines: bytes) -> int:
    return zlib.crc32(lines) & 0x7FFFFFFF
