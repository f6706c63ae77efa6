"""What both sides of HA share: frames of the log, reports of an offset, and the transfer rate.

A frame is the log offset of its first byte (8 bytes), the number of bytes (4), and those bytes. A frame without bytes
is a heartbeat. A report is 8 bytes: where the slave's log ends. Pure: bytes to values, in any chunking.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from eruca.protocol.errors import ProtocolError

_HEAD: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")
LARGEST: Final = 64 << 20
"""The largest accepted length of a frame; Java's slave accepts 4 MiB."""


class Frame(NamedTuple):
    """Bytes of the master's log from ``offset`` on; a heartbeat has none."""

    offset: int
    data: bytes


def frame_head(offset: int, size: int) -> bytes:
    """The header of a frame with ``size`` bytes of the log."""
    return _HEAD.pack(offset, size)


def report(offset: int) -> bytes:
    """The report of a slave whose log ends at ``offset``."""
    return _REPORT.pack(offset)


class FrameReader:
    """Reassembles frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that ``data`` completes. Raises ProtocolError for a header that no master sends."""
        rest = self._rest
        rest += data
        frames = []
        at = 0
        while len(rest) - at >= _HEAD.size:
            offset, size = _HEAD.unpack_from(rest, at)
            if offset < 0 or not 0 <= size <= LARGEST:
                raise ProtocolError(f"no frame of a master's log has offset {offset} and size {size}")
            start = at + _HEAD.size
            if len(rest) < start + size:
                break
            at = start + size
            frames.append(Frame(offset, bytes(rest[start:at])))
        del rest[:at]
        return frames


class ReportReader:
    """Reassembles reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """Returns the newest report that ``data`` completes, None if it completes none."""
        rest = self._rest + data
        whole = len(rest) - len(rest) % _REPORT.size
        self._rest = rest[whole:]
        if not whole:
            return None
        newest: int = _REPORT.unpack_from(rest, whole - _REPORT.size)[0]
        return newest


class TransferRate:
    """The bytes transferred in the last full second; times are arguments, in seconds (FlowMonitor in 5.x)."""

    __slots__ = ("_count", "_former", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._count = 0
        self._former = 0

    def add(self, count: int, now: float) -> None:
        """Counts ``count`` bytes that passed at ``now``, in seconds."""
        self._turn(int(now))
        self._count += count

    def per_second(self, now: float) -> int:
        """Returns the bytes of the last full second."""
        self._turn(int(now))
        return self._former

    def _turn(self, second: int) -> None:
        if second != self._second:
            self._former = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
