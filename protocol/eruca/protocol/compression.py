"""The three formats of compressed bodies, to and from bytes.

Owns the bits of sysFlag for each format. Facts: MessageSysFlag in 4.9.7 and 5.3.3: bit 0 alone means ZLIB, from
clients before 4.9.4. An LZ4 or ZSTD body is one frame of that format; LZ4 blocks must be independent, since Java cannot
read linked ones. LZ4 and ZSTD need packages of their own, which are imported on first use.
Invariant: unpacking stops at a bound, so a small body cannot take the memory of the process that reads it.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, get_args

from eruca.protocol import message
from eruca.protocol.errors import ProtocolError

Kind = Literal["zlib", "lz4", "zstd"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
BITS: Final[dict[Kind, int]] = {
    "zlib": message.COMPRESSED | message.COMPRESSION_ZLIB,
    "lz4": message.COMPRESSED | message.COMPRESSION_LZ4,
    "zstd": message.COMPRESSED | message.COMPRESSION_ZSTD,
}
"""The bits of sysFlag for a body in each format."""
ZLIB_LEVEL: Final = 5
ZSTD_LEVEL: Final = 3
MAX_BODY: Final = 64 * 1024 * 1024
"""Bytes up to which a body is unpacked, unless another bound is given."""
_FIRST_PIECE: Final = 64 * 1024
_ZSTD_MOST_RATIO: Final = 32 * 1024
"""A ZSTD block of 4 bytes becomes 128 KiB at most."""
_BY_TYPE: Final = {bits & message.COMPRESSION_MASK: kind for kind, bits in BITS.items()}
_PACKAGES: Final = {"lz4": "lz4.frame", "zstd": "zstandard"}
_INSTALL: Final = 'run `pip install "eruca-client[compression]"`'


def package_of(kind: Kind) -> Any:
    """The package of a format, None for zlib, which Python has. Raises ProtocolError if it is not installed."""
    name = _PACKAGES.get(kind)
    if name is None:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ProtocolError(f"{kind.upper()} needs a package that is not installed: {_INSTALL}") from None


def packer(kind: Kind, level: int | None = None) -> Callable[[bytes], bytes]:
    """The compressor of a format; ``level`` None uses the format's default. Raises ProtocolError."""
    package = package_of(kind)
    if kind == "zlib":
        return lambda body: zlib.compress(body, ZLIB_LEVEL if level is None else level)
    if kind == "lz4":
        return lambda body: package.compress(body, compression_level=level or 0, block_linked=False)
    # A zstd compressor is not thread-safe, and creating one costs little compared to the work.
    return lambda body: package.ZstdCompressor(level=ZSTD_LEVEL if level is None else level).compress(body)


def decompress(body: bytes, sys_flag: int, max_body: int = MAX_BODY) -> bytes:
    """The decompressed body. Raises ProtocolError if it cannot be read, or has more than ``max_body`` bytes."""
    if not message.is_compressed(sys_flag):
        return body
    bits = message.compression_type(sys_flag)
    kind = _BY_TYPE.get(bits)
    if kind is None:
        raise ProtocolError(f"The body is compressed with an unknown format ({bits:#x}), which cannot be read here.")
    package = package_of(kind)
    try:
        return _joined(_PIECES[kind](package, body, max_body), max_body)
    except _TooLarge:
        raise ProtocolError(f"The body has more than {max_body} bytes when it is unpacked (max_body).") from None
    except Exception as error:  # each package has its own
        raise ProtocolError(f"The body is marked as compressed, but cannot be decompressed: {error}") from None


class _TooLarge(Exception):
    """There is more than may be unpacked."""


def _joined(pieces: Iterator[bytes], most: int) -> bytes:
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise _TooLarge
        found.append(piece)
    return found[0] if len(found) == 1 else b"".join(found)


def _zlib_pieces(_: Any, body: bytes, most: int) -> Iterator[bytes]:
    reader = zlib.decompressobj()
    yield reader.decompress(body, most + 1)
    if not reader.eof:
        raise ValueError("the stream is not complete")


def _lz4_pieces(package: Any, body: bytes, most: int) -> Iterator[bytes]:
    """Each piece may be as large as all before it: the package makes room for the largest one allowed."""
    reader, size = package.LZ4FrameDecompressor(), max(_FIRST_PIECE, 4 * len(body))
    yield reader.decompress(body, max_length=min(size, most + 1))
    while not reader.eof:
        piece = reader.decompress(b"", max_length=min(size, most + 1))
        if not piece and not reader.eof:
            raise ValueError("the frame is not complete")
        yield piece
        size *= 2


def _zstd_pieces(package: Any, body: bytes, most: int) -> Iterator[bytes]:
    """Java's frames do not contain their size, so they are read as a stream, in steps that cannot exceed the bound."""
    reader, step, view = (
        package.ZstdDecompressor().decompressobj(),
        max(512, most // _ZSTD_MOST_RATIO),
        memoryview(body),
    )
    for at in range(0, len(body), step):
        yield reader.decompress(view[at : at + step])
        if reader.eof:
            return
    raise ValueError("the frame is not complete")


_PIECES: Final[dict[Kind, Callable[[Any, bytes, int], Iterator[bytes]]]] = {
    "zlib": _zlib_pieces,
    "lz4": _lz4_pieces,
    "zstd": _zstd_pieces,
}
"""How the package of a format unpacks a body, one piece after the other; no piece is far above the bound."""
