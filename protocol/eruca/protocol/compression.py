"""The three formats of compressed bodies, to and from bytes.

Owns which bits of sysFlag mean which format. Facts: MessageSysFlag in 4.9.7 and 5.3.3: bit 0 alone means ZLIB, from
clients before 4.9.4. LZ4 and ZSTD bodies are one frame of those formats; the blocks of LZ4 must not refer to one
another, since Java cannot read that. LZ4 and ZSTD come from packages of their own, which are looked for when they are
first needed.
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
"""What sysFlag says of a body in each format."""
ZLIB_LEVEL: Final = 5
ZSTD_LEVEL: Final = 3
_BY_TYPE: Final = {bits & message.COMPRESSION_MASK: kind for kind, bits in BITS.items()}
_PACKAGES: Final = {"lz4": "lz4.frame", "zstd": "zstandard"}
_INSTALL: Final = 'run `pip install "eruca[compression]"`'


def package_of(kind: Kind) -> Any:
    """The package of a format, None for zlib, which Python has. Raises ProtocolError when it is not installed."""
    name = _PACKAGES.get(kind)
    if name is None:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ProtocolError(f"{kind.upper()} needs a package that is not installed: {_INSTALL}") from None


def packer(kind: Kind, level: int | None = None) -> Callable[[bytes], bytes]:
    """What compresses in this format; ``level`` None takes the format's usual one. Raises ProtocolError."""
    package = package_of(kind)
    if kind == "zlib":
        return lambda body: zlib.compress(body, ZLIB_LEVEL if level is None else level)
    if kind == "lz4":
        return lambda body: package.compress(body, compression_level=level or 0, block_linked=False)
    # A compressor of zstd is not for several threads at once, and making one costs little beside the work.
    return lambda body: package.ZstdCompressor(level=ZSTD_LEVEL if level is None else level).compress(body)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as it was before it was compressed. Raises ProtocolError when it cannot be read."""
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
    """Java's frames do not tell their size, so they are read as a stream."""
    reader = package.ZstdDecompressor().decompressobj()
    found: bytes = reader.decompress(body)
    if not reader.eof:
        raise ValueError("the frame is not complete")
    return found
