"""The three formats of compressed bodies, to and from bytes.

Owns the bits of sysFlag for each format. Facts: MessageSysFlag in 4.9.7 and 5.3.3: bit 0 alone means ZLIB, from
clients before 4.9.4. An LZ4 or ZSTD body is one frame of that format; LZ4 blocks must be independent, since Java cannot
read linked ones. LZ4 and ZSTD need packages of their own, which are imported on first use.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
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
_BY_TYPE: Final = {bits & message.COMPRESSION_MASK: kind for kind, bits in BITS.items()}
_PACKAGES: Final = {"lz4": "lz4.frame", "zstd": "zstandard"}
_INSTALL: Final = 'run `pip install "eruca[compression]"`'


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


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The decompressed body. Raises ProtocolError if it cannot be read."""
    if not message.is_compressed(sys_flag):
        return body
    bits = message.compression_type(sys_flag)
    kind = _BY_TYPE.get(bits)
    if kind is None:
        raise ProtocolError(f"The body is compressed with an unknown format ({bits:#x}), which cannot be read here.")
    package = package_of(kind)
    try:
        if kind == "zlib":
            return zlib.decompress(body)
        if kind == "lz4":
            return bytes(package.decompress(body))
        return _unpack_zstd(package, body)
    except Exception as error:  # each package has its own
        raise ProtocolError(f"The body is marked as compressed, but cannot be decompressed: {error}") from None


def _unpack_zstd(package: Any, body: bytes) -> bytes:
    """Java's frames do not contain their size, so they are read as a stream."""
    reader = package.ZstdDecompressor().decompressobj()
    found: bytes = reader.decompress(body)
    if not reader.eof:
        raise ValueError("the frame is not complete")
    return found
