"""A master and its slave in this process, and what their disks hold."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

from eruca.broker.config import BrokerRole, FlushDiskType
from eruca.broker.store import FileSystem
from eruca.broker.store.cut import intend_cut
from tests.support.desk import Desk

FILE = 16 << 10


def master_of(folder: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER, *, file_size: int = FILE) -> Desk:
    """A master with small files, not started."""
    desk = Desk(folder)
    _make_small(desk, file_size)
    desk.config.store.broker_role = role
    return desk


def slave_of(folder: Path, ha_address: str, *, file_size: int = FILE, sync_flush: bool = False) -> Desk:
    """A slave that follows ``ha_address``, not started."""
    desk = Desk(folder)
    _make_small(desk, file_size)
    desk.config.broker_id = 1
    desk.config.store.broker_role = BrokerRole.SLAVE
    desk.config.store.ha_master_address = ha_address
    if sync_flush:
        desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
    return desk


def _make_small(desk: Desk, file_size: int) -> None:
    settings = desk.config.store
    settings.mapped_file_size_commit_log = file_size
    settings.mapped_file_size_consume_queue = 100 * 20
    settings.ha_send_heartbeat_interval = 200
    settings.ha_transfer_batch_size = 1000
    settings.disk_space_warning_level_ratio = settings.disk_space_clean_forcibly_ratio = 0.999


async def until(true: Callable[[], bool], *, within: float = 8.0) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # the condition has no event of its own


def end(desk: Desk) -> int:
    """Where a broker's log ends."""
    return desk.broker.store.replicator.end_offset


async def followed(master: Desk) -> None:
    """Wait until a slave has reported to the master where its log ends."""
    await until(lambda: any(slave.next >= 0 for slave in master.broker.slaves.connected))


async def cut_off(desk: Desk, at: int) -> None:
    """Wait until a broker is to be cut off there, stop it, and cut it off, as ``mqbroker`` does between two starts."""
    await until(lambda: desk.app.cut_to == at)
    await desk.stop()
    assert intend_cut(desk.broker.store.config, at, FileSystem(), as_master=True) is not None


async def caught_up(master: Desk, slave: Desk) -> None:
    """Wait until the slave has all of the master's log, and serves it."""
    await until(lambda: end(slave) == end(master) and not slave.broker.store.figures().dispatch_behind_bytes)


def log_bytes(desk: Desk) -> dict[str, bytes]:
    """The commit log files."""
    return {path.name: path.read_bytes() for path in sorted((desk.folder / "store" / "commitlog").iterdir())}


def filled(desk: Desk, count: int, *, first: int = 0, topic: str = "T", queues: int = 2) -> None:
    """Messages of many sizes, with tags and keys."""
    for number in range(first, first + count):
        desk.store(
            topic,
            number % queues,
            number,
            body=b"%d;" % number * (1 + number * 37 % 200),
            properties=b"KEYS\x01k%d\x02TAGS\x01%s" % (number, b"odd" if number % 2 else b"even"),
        )


def make_cold(desk: Desk) -> None:
    """Let the log count as not in memory."""
    desk.broker.store.commit_log.hot_bytes = 0


class HandSlave:
    """A slave by hand: it reports what the test says, and keeps what comes."""

    async def connect(self, ha_address: str) -> HandSlave:
        host, _, port = ha_address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        return self

    def pause_reading(self) -> None:
        self._transport().pause_reading()

    def resume_reading(self) -> None:
        self._transport().resume_reading()

    def _transport(self) -> asyncio.Transport:
        assert isinstance(self.writer.transport, asyncio.Transport)
        return self.writer.transport

    def report(self, offset: int) -> None:
        self.writer.write(struct.pack(">q", offset))

    async def frame(self) -> tuple[int, bytes]:
        """The next frame that is no heartbeat."""
        while True:
            offset, data = await self.any_frame()
            if data:
                return offset, data

    async def any_frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(5):
            offset, size = struct.unpack(">qi", await self.reader.readexactly(12))
            return offset, await self.reader.readexactly(size)

    async def log_to(self, end: int) -> bytes:
        """What comes until the log ends at ``end``."""
        parts = []
        while True:
            offset, data = await self.frame()
            parts.append(data)
            if offset + len(data) == end:
                return b"".join(parts)

    async def closed(self) -> bool:
        """Wait until the master has closed the connection."""
        async with asyncio.timeout(5):
            try:
                while await self.reader.read(4096):
                    pass
            except ConnectionError:
                pass
        return True

    async def close(self) -> None:
        self.writer.transport.abort()


def send_fields(number: int, *, topic: str = "T", properties: str = "") -> dict[str, str]:
    """The header of a 310."""
    return {
        "a": "PG",
        "b": topic,
        "c": "TBW102",
        "d": "1",
        "e": "0",
        "f": "0",
        "g": str(1_700_000_000_000 + number),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }
