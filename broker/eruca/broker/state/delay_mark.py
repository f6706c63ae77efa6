"""``eruca.delays``: the progress of delayed delivery at one length of the log.

Owns the format of the file and its writes. The file is in the store's folder, beside RocketMQ's files, which have no
place for it. Must not know messages. Invariant: a damaged mark reads as None. The log itself shows what was delivered
after the mark.

The format, big-endian: 8 bytes of magic, which differ for a slave; 8 commit log offset; 4 number of levels, for each
level 4 level and 8 offset; 8 first unit of the bits; 4 length of the bits compressed by zlib, and those; 4 CRC-32 of
everything before.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from eruca.broker.state.state_file import SavedState, Saver
from eruca.remoting.files import backup_of

_NAME, _COPIED = b"ERUCA\0D\1", b"ERUCA\0D\2"
_HEAD = struct.Struct(">8sqI")
_LEVEL = struct.Struct(">Iq")
_BITS = struct.Struct(">qI")


class Deliveries(NamedTuple):
    """What was delivered when the commit log ended at ``position``."""

    position: int
    levels: Mapping[int, int]
    """The offset of the first undelivered message of each delay level."""
    base: int = 0
    """The first unit of the timer queue in ``bits``; all units before it are delivered."""
    bits: bytes = b""
    """The delivered units, the lowest bit of a byte first."""
    copied: bool = False
    """Whether a slave wrote it: then the log may hold deliveries after ``position`` even after a clean stop."""


def encode_mark(mark: Deliveries) -> bytes:
    """The bytes of a mark."""
    packed = zlib.compress(mark.bits, 1)
    data = b"".join(
        (
            _HEAD.pack(_COPIED if mark.copied else _NAME, mark.position, len(mark.levels)),
            *(_LEVEL.pack(level, offset) for level, offset in sorted(mark.levels.items())),
            _BITS.pack(mark.base, len(packed)),
            packed,
        )
    )
    return data + zlib.crc32(data).to_bytes(4, "big")


def decode_mark(data: bytes) -> Deliveries | None:
    """The mark of these bytes, None if they are damaged."""
    if len(data) < _HEAD.size + 4 or zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
        return None
    name, position, count = _HEAD.unpack_from(data)
    if name not in (_NAME, _COPIED):
        return None
    at = _HEAD.size + count * _LEVEL.size
    levels = dict(_LEVEL.iter_unpack(data[_HEAD.size : at]))
    base, _ = _BITS.unpack_from(data, at)
    return Deliveries(position, levels, base, zlib.decompress(data[at + _BITS.size : -4]), name == _COPIED)


class DelayMark(SavedState):
    """The file; ``path`` is ``…/eruca.delays``."""

    def __init__(self, path: Path) -> None:
        self.current: Deliveries | None = None
        """The mark that was read or staged last."""
        self._saver = Saver(path, self._encode)

    def load(self) -> None:
        """Read the file; a missing or damaged one counts as none. Raises OSError."""
        try:
            self.current = decode_mark(self._saver.path.read_bytes())
        except FileNotFoundError:
            self.current = None

    def forget(self) -> None:
        """Delete the file and its backup. Raises OSError."""
        self.current = None
        for path in (self._saver.path, backup_of(self._saver.path)):
            path.unlink(missing_ok=True)

    def stage(self, mark: Deliveries) -> None:
        """Make ``mark`` the content of the next save."""
        if mark != self.current:
            self.current = mark
            self._saver.changed()

    def _encode(self) -> bytes:
        assert self.current is not None
        return encode_mark(self.current)
