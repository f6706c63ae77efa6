"""A copy of a file, with holes where it has zeros, and the CRC-32 of what was copied.

Owns nothing. Knows bytes, no formats; the source may be written to meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

_PIECE = 4 << 20
_ZEROS = bytes(_PIECE)


def crc_of(path: Path, length: int) -> int:
    """The CRC-32 of the first bytes of a file. Raises OSError."""
    crc = 0
    with path.open("rb") as file:
        while length and (data := file.read(min(_PIECE, length))):
            crc = crc32(data, crc)
            length -= len(data)
    return crc


def copy(source: Path, target: Path, size: int, length: int) -> tuple[int, int]:
    """Copy the first ``length`` bytes of a file into a new one of ``size`` bytes, zeros as holes.

    Returns how many there were, and their CRC-32. Raises OSError.
    """
    done = crc = 0
    with source.open("rb") as from_file, target.open("xb") as to_file:
        while done < length and (data := from_file.read(min(_PIECE, length - done))):
            crc = crc32(data, crc)
            if data != _ZEROS[: len(data)]:
                to_file.seek(done)
                to_file.write(data)
            done += len(data)
        to_file.truncate(size)
    return done, crc
