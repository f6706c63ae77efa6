"""Bodies that travel compressed, in each of the three formats."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from eruca.client import ClientSettings, Message, Producer, PullConsumer, PushConsumer, ReceivedMessage
from eruca.client.compression import compressor, decompress
from eruca.client.errors import BadAnswer, BadConfig
from eruca.protocol.compression import Kind, packer
from tests.client.conftest import Lab
from tests.support.scripted import Scripted

TEXT = b"the quick brown fox jumps over the lazy dog " * 5000
MIB = 1 << 20
BITS = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
async def test_a_large_body_travels_small_and_is_read_as_it_was(lab: Lab, kind: Kind) -> None:
    settings = ClientSettings(nameserver=lab.address, compression=kind)
    async with Producer("p", settings=settings) as producer, PullConsumer(settings=settings) as puller:
        sent = await producer.send(Message("Large", TEXT))
        (record,) = (await puller.pull(sent.queue, sent.offset)).records

    assert record.sys_flag == BITS[kind]
    assert len(record.body) < len(TEXT) // 10
    assert decompress(record.body, record.sys_flag) == TEXT


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("size", [4096, MIB, 4 * MIB], ids=["4 KiB", "1 MiB", "4 MiB"])
async def test_a_body_that_does_not_get_smaller_travels_as_it_is(server: Scripted, kind: Kind, size: int) -> None:
    """The largest body that clients and brokers allow among them, whose compressed form is larger than that."""
    settings, body = ClientSettings(nameserver=server.address, compression=kind), os.urandom(size)
    async with Producer("p", settings=settings) as producer:
        await producer.send(Message("T", body))
    assert server.sends[0].sys_flag == 0 and server.bodies == [body]


def test_compression_begins_at_4096_bytes_and_says_zlib() -> None:
    compress = compressor()
    assert compress(b"x" * 4095) == (b"x" * 4095, 0)
    assert compress(b"x" * 4096) == (zlib.compress(b"x" * 4096, 5), 0x301)


@pytest.mark.parametrize("kind", ["zlib", "zstd"])
def test_a_level_makes_a_difference(kind: Kind) -> None:
    assert compressor(1, kind, 1)(TEXT)[0] != compressor(1, kind, 9)(TEXT)[0]


def test_bodies_of_old_clients_are_zlib_without_a_type() -> None:
    assert decompress(zlib.compress(b"old"), 0x1) == b"old"


def test_frames_as_java_writes_them() -> None:
    """Without their size in the head, and LZ4 in blocks that stand alone."""
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert decompress(packer.compress(TEXT) + packer.flush(), 0x201) == TEXT
    assert decompress(lz4.frame.compress(TEXT, block_linked=False, store_size=False), 0x101) == TEXT
    made, _ = compressor(1, "lz4")(TEXT)
    assert not lz4.frame.get_frame_info(made)["block_linked"], "Java's reader refuses blocks that need others"


@pytest.mark.parametrize("bits", BITS.values())
def test_what_cannot_be_decompressed(bits: int) -> None:
    with pytest.raises(BadAnswer, match="marked as compressed, but cannot be decompressed"):
        decompress(b"nothing of that kind", bits)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_body_that_was_cut_off(kind: Kind) -> None:
    whole, bits = compressor(1, kind)(TEXT)
    with pytest.raises(BadAnswer, match="cannot be decompressed"):
        decompress(whole[:-9], bits)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_body_is_unpacked_up_to_a_bound_and_takes_no_memory_beyond_it(kind: Kind) -> None:
    bomb, bits = compressor(1, kind)(bytes(128 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(BadAnswer, match="more than 8388608 bytes when it is unpacked"):
            decompress(bomb, bits, 8 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * MIB


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("body", [b"", b"x", TEXT, os.urandom(300_000)], ids=["empty", "one", "text", "random"])
def test_a_body_of_exactly_the_bound_is_unpacked(kind: Kind, body: bytes) -> None:
    packed, bits = packer(kind)(body), BITS[kind]
    assert decompress(packed, bits, len(body)) == body
    if body:
        with pytest.raises(BadAnswer, match="max_body"):
            decompress(packed, bits, len(body) - 1)


async def test_the_bound_of_a_client_holds_for_what_it_receives(lab: Lab) -> None:
    small = ClientSettings(nameserver=lab.address, max_body=len(TEXT) - 1)
    refused: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def read(message: ReceivedMessage) -> None:
        with pytest.raises(BadAnswer, match="max_body"):
            _ = message.body
        refused.put_nowait(message)

    await lab.send("Large", TEXT)
    async with PushConsumer("g", read, settings=small, start_from="first").subscribe("Large"), asyncio.timeout(20):
        message = await refused.get()

    with pytest.raises(BadAnswer, match="max_body"):
        _ = pickle.loads(pickle.dumps(message)).body
    assert ReceivedMessage(message.record, message.queue).body == TEXT


@pytest.mark.parametrize("value", [0, -1, 1.5, "64"])
def test_a_bound_that_makes_no_sense(value: object) -> None:
    with pytest.raises(BadConfig, match="max_body"):
        ClientSettings(max_body=value)  # type: ignore[arg-type]


def test_a_format_that_nobody_knows() -> None:
    with pytest.raises(BadAnswer, match=r"unknown format \(0x500\)"):
        decompress(b"x", 0x501)


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if lz4 and zstandard were not installed."""
    for name in ("lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("kind", ["lz4", "zstd"])
def test_without_the_package_the_sentence_says_what_to_install(no_packages: None, kind: Kind) -> None:
    with pytest.raises(BadConfig, match=r'pip install "eruca-client\[compression\]"'):
        ClientSettings(compression=kind)
    with pytest.raises(BadAnswer, match=rf'{kind.upper()} needs a package .*pip install "eruca-client\[compression\]"'):
        decompress(b"x", BITS[kind])


def test_a_format_that_is_none() -> None:
    with pytest.raises(BadConfig, match="compression='gzip' is not allowed: one of zlib, lz4, zstd is expected"):
        ClientSettings(compression="gzip")  # type: ignore[arg-type]
