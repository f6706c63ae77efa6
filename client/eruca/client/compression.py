"""Bodies that travel compressed: the rule when a body is, and the client's errors about it.

The formats are those of ``eruca.protocol.compression``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from eruca.client.errors import BadAnswer, BadConfig
from eruca.protocol import compression
from eruca.protocol.compression import BITS, KINDS, MAX_BODY, Kind
from eruca.protocol.errors import ProtocolError
from eruca.remoting.loop_thread import PerProcess

R = TypeVar("R")

COMPRESS_FROM = 4096
"""Bytes of a body from which on it is compressed (compressMsgBodyOverHowmuch)."""

LARGE = 256 * 1024
"""Bytes of a body from which on it is compressed and unpacked in a thread: that takes milliseconds."""
_THREADS = 2

Compress = Callable[[bytes], tuple[bytes, int]]
"""Given a body: as it is sent, and the bits to set in sysFlag."""
_threads = PerProcess(lambda: ThreadPoolExecutor(_THREADS, "eruca-compression"))


async def in_thread(work: Callable[..., R], *args: Any) -> R:
    """Compress or unpack a large body while the event loop goes on; two at a time, the others wait."""
    return await asyncio.get_running_loop().run_in_executor(_threads.get(), work, *args)


def check_kind(kind: Kind) -> None:
    """Raise BadConfig unless bodies can be compressed in this way here."""
    if kind not in KINDS:
        raise BadConfig(f"compression={kind!r} is not allowed: one of {', '.join(KINDS)} is expected")
    try:
        compression.package_of(kind)
    except ProtocolError as error:
        raise BadConfig(f"compression={kind!r} cannot be used: {error}.") from None


def compressor(threshold: int = COMPRESS_FROM, kind: Kind = "zlib", level: int | None = None) -> Compress:
    """What compresses bodies from ``threshold`` bytes on, unless that makes them larger. Raises BadConfig."""
    check_kind(kind)
    pack = compression.packer(kind, level)
    bits = BITS[kind]

    def compress(body: bytes) -> tuple[bytes, int]:
        if len(body) < threshold:
            return body, 0
        packed = pack(body)
        return (packed, bits) if len(packed) < len(body) else (body, 0)

    return compress


def decompress(body: bytes, sys_flag: int, max_body: int = MAX_BODY) -> bytes:
    """The body as it was before it was compressed. Raises BadAnswer when it cannot be read or exceeds ``max_body``."""
    try:
        return compression.decompress(body, sys_flag, max_body)
    except ProtocolError as error:
        raise BadAnswer(str(error)) from None
