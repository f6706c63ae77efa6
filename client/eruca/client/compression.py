"""Bodies that travel compressed: what sysFlag says of them, and both directions.

Owns the rule when a body is compressed and the formats that can be read. Facts: store.md's sysFlag bits 0 and 8-10
(MessageSysFlag and CompressorFactory in 4.9.7): bit 0 alone means ZLIB, from clients before 4.9.4.
"""

from __future__ import annotations

import zlib

from eruca.client.errors import BadAnswer
from eruca.protocol import message

COMPRESS_FROM = 4096
"""Bytes of a body from which on it is compressed (compressMsgBodyOverHowmuch)."""
LEVEL = 5
_FORMATS = {message.COMPRESSION_LZ4: "LZ4", message.COMPRESSION_ZSTD: "ZSTD"}


def compress(body: bytes, threshold: int = COMPRESS_FROM, level: int = LEVEL) -> tuple[bytes, int]:
    """The body as it is sent, and the bits to set in sysFlag: compressed from ``threshold`` bytes on."""
    if len(body) < threshold:
        return body, 0
    return zlib.compress(body, level), message.COMPRESSED | message.COMPRESSION_ZLIB


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as it was before ``compress``. Raises BadAnswer when it cannot be read."""
    if not sys_flag & message.COMPRESSED:
        return body
    kind = message.compression_type(sys_flag)
    if kind != message.COMPRESSION_ZLIB:
        name = _FORMATS.get(kind, f"an unknown format ({kind:#x})")
        raise BadAnswer(f"The body is compressed with {name}, which this client cannot read: send it with ZLIB.")
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise BadAnswer(f"The body is marked as compressed, but cannot be decompressed: {error}") from None
