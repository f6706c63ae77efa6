"""Bodies that travel compressed: what sysFlag says of them, and both directions.

Owns the rule when a body is compressed and the formats. Facts: store.md's sysFlag bits 0 and 8-10 (MessageSysFlag in
4.9.7 and 5.3.3): bit 0 alone means ZLIB, from clients before 4.9.4. LZ4 and ZSTD bodies are one frame of those formats;
the blocks of LZ4 must not refer to one another, since Java cannot read that. LZ4 and ZSTD come from packages of their
own, which are looked for when they are first needed.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Literal, get_args

from eruca.client.errors import BadAnswer, BadConfig
from eruca.protocol import message

Kind = Literal["zlib", "lz4", "zstd"]
COMPRESS_FROM = 4096
"""Bytes of a body from which on it is compressed (compressMsgBodyOverHowmuch)."""
LEVEL = 5
_ZSTD_LEVEL = 3
_KINDS: dict[int, Kind] = {
    message.COMPRESSION_ZLIB: "zlib",
    message.COMPRESSION_LZ4: "lz4",
    message.COMPRESSION_ZSTD: "zstd",
}
_BITS = {kind: bits for bits, kind in _KINDS.items()}
_PACKAGES = {"lz4": "lz4.frame", "zstd": "zstandard"}

Compress = Callable[[bytes], tuple[bytes, int]]
"""Given a body: as it is sent, and the bits to set in sysFlag."""


def check_kind(kind: str) -> None:
    """Raise BadConfig unless bodies can be compressed in this way here."""
    if kind not in get_args(Kind):
        raise BadConfig(f"compression={kind!r} is not allowed: one of {', '.join(get_args(Kind))} is expected")
    if kind in _PACKAGES and _package(kind) is None:
        raise BadConfig(f"compression={kind!r} needs a package that is not here: {_install()}")


def _package(kind: str) -> Any:
    try:
        return importlib.import_module(_PACKAGES[kind])
    except ImportError:
        return None


def _install() -> str:
    return 'run `pip install "eruca[compression]"`.'


def compressor(threshold: int = COMPRESS_FROM, kind: Kind = "zlib", level: int | None = None) -> Compress:
    """What compresses bodies from ``threshold`` bytes on. Raises BadConfig."""
    check_kind(kind)
    pack = _packer(kind, level)
    bits = message.COMPRESSED | _BITS[kind]

    def compress(body: bytes) -> tuple[bytes, int]:
        if len(body) < threshold:
            return body, 0
        return pack(body), bits

    return compress


def _packer(kind: Kind, level: int | None) -> Callable[[bytes], bytes]:
    if kind == "zlib":
        return lambda body: zlib.compress(body, LEVEL if level is None else level)
    package: Any = _package(kind)
    if kind == "lz4":
        return lambda body: package.compress(body, compression_level=level or 0, block_linked=False)
    # A compressor of zstd is not for several threads at once, and making one costs little beside the work.
    return lambda body: package.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level).compress(body)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as it was before it was compressed. Raises BadAnswer when it cannot be read."""
    if not sys_flag & message.COMPRESSED:
        return body
    bits = message.compression_type(sys_flag)
    kind = _KINDS.get(bits)
    if kind is None:
        raise BadAnswer(f"The body is compressed with an unknown format ({bits:#x}), which this client cannot read.")
    package: Any = _package(kind) if kind in _PACKAGES else None
    if kind in _PACKAGES and package is None:
        raise BadAnswer(f"The body is compressed with {kind.upper()}, and what reads it is not installed: {_install()}")
    try:
        if kind == "zlib":
            return zlib.decompress(body)
        if kind == "lz4":
            return bytes(package.decompress(body))
        return _unpack_zstd(package, body)
    except Exception as error:  # each package has its own
        raise BadAnswer(f"The body is marked as compressed, but cannot be decompressed: {error}") from None


def _unpack_zstd(package: Any, body: bytes) -> bytes:
    """Java's frames do not tell their size, so they are read as a stream."""
    reader = package.ZstdDecompressor().decompressobj()
    found: bytes = reader.decompress(body)
    if not reader.eof:
        raise ValueError("the frame is not complete")
    return found
