"""The group as this broker knew it last, on the disk: what is left of it when etcd has lost it.

Owns ``eruca.group``: the value of the group's key (``failover.group``), and its CRC-32. Must not know who writes a
group. Invariants: it is on the disk when it counts as written; a file that is damaged counts as none, and so does one
that could not be written, as an older group may name a member that has left.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from zlib import crc32

from eruca.broker.failover import group as groups
from eruca.broker.failover.group import Group, GroupUnreadable
from eruca.remoting.files import replace_file

NAME = "eruca.group"


def read_group(root: Path) -> Group | None:
    """The group of a store's broker; None where it has known none, or the file is damaged.

    Raises:
        OSError: it cannot be read.
    """
    try:
        value, _, sum_ = (root / NAME).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if sum_ != _sum(value):
        return None
    with suppress(GroupUnreadable):
        return groups.decode(value)
    return None


def write_group(root: Path, group: Group) -> None:
    """Write the group, on the disk when this returns.

    Raises:
        OSError: the disk is full or fails; then no group is there.
    """
    value = groups.encode(group)
    try:
        replace_file(root / NAME, b"%s\n%s" % (value, _sum(value)), backup=False)
    except OSError:
        forget_group(root)
        raise


def forget_group(root: Path) -> None:
    """Know no group.

    Raises:
        OSError: the disk fails.
    """
    (root / NAME).unlink(missing_ok=True)


def _sum(value: bytes) -> bytes:
    return b"%08x\n" % crc32(value)
