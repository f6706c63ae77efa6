"""A log that cannot be written: the daemons serve on, their background work goes on, and what was lost is counted."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.daemons import registered
from tests.support.disks import SmallDisk
from tests.support.full_pipes import fill_pipe
from tests.support.load import TOPIC, pull, send
from tests.support.lone import MANY_PEERS, SMALL, LoneBroker
from tests.support.pairs import eventually
from tests.support.peers import Peer
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import NotReady, Process
from tests.support.programme import ENOUGH

pytestmark = [pytest.mark.processes, ENOUGH]
GROUP = "readers"
Spoil = Callable[[], None]
"""Makes a log unwritable, if it is not from the start."""
Log = Callable[[], AbstractContextManager[tuple[int, Spoil]]]


@contextmanager
def full_device() -> Iterator[tuple[int, Spoil]]:
    """A file without room."""
    log = os.open("/dev/full", os.O_WRONLY)
    yield log, lambda: None
    os.close(log)


@contextmanager
def closed_pipe() -> Iterator[tuple[int, Spoil]]:
    """As after ``mqbroker 2>&1 | head``."""
    reading, log = os.pipe()
    yield log, lambda: os.close(reading)
    os.close(log)


@contextmanager
def stalled_pipe() -> Iterator[tuple[int, Spoil]]:
    """A collector of logs that hangs."""
    reading, log = os.pipe()
    yield log, lambda: fill_pipe(log)
    os.close(reading)
    os.close(log)


unwritable = pytest.mark.parametrize("log", [full_device, closed_pipe, stalled_pipe], ids=lambda log: log.__name__)


def fill(file: Path, with_what: bytes) -> None:
    """Append to a file until nothing more fits on its disk."""
    with file.open("ab", buffering=0) as filled, suppress(OSError):
        while True:
            filled.write(with_what)


class Names(Process):
    """A nameserver, on a port of its own each time."""

    def __init__(self, home: Path, port: int, errors: int | None = None) -> None:
        self.address = f"127.0.0.1:{port}"
        conf = home / "namesrv.conf"
        conf.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={home / 'kvConfig.json'}\n")
        command = [str(Path(sys.executable).parent / "mqnamesrv"), "-c", str(conf)]
        super().__init__(command, home / "namesrv.out", errors=errors)
        self.wait_for_line("listening on")

    def knows(self, broker: LoneBroker) -> bool:
        with suppress(OSError):
            return registered(broker.address, self.address)
        return False


async def commit(peer: Peer, offset: int) -> None:
    """Commit the offset of a group (15)."""
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": offset}
    assert (await peer.ask(15, fields)).code == 0


def saved(store: Path, offset: int) -> bool:
    """Whether the group's offset on the disk is this one."""
    file = store / "config" / "consumerOffset.json"
    return file.exists() and re.search(rf":\s*{offset}\b", file.read_text()) is not None


async def complain(peer: Peer, lines: int) -> None:
    """Have the broker log lines, by pulls from where no message is."""
    for _ in range(lines):
        assert (await pull(peer, 0, 10**6)).code == 21


async def serves_on(tmp_path: Path, log: Log) -> None:
    """A broker that cannot write its log stores, saves, registers again, and stops in order."""
    store = tmp_path / "store"
    port = free_port()
    with log() as (errors, spoil):
        names = await asyncio.to_thread(Names, tmp_path, port)
        broker = peer = None
        try:
            broker = await LoneBroker.start(tmp_path, store, {"namesrvAddr": names.address}, errors)
            await eventually(lambda: names.knows(broker))
            spoil()
            peer = await Peer().connect(broker.address)
            assert (await send(peer, 0, b"one")).code == 0
            await complain(peer, 30)
            names.stop()
            await commit(peer, 1234567)
            await eventually(lambda: saved(store, 1234567))
            names = await asyncio.to_thread(Names, tmp_path, port)
            await eventually(lambda: names.knows(broker))
            assert (await send(peer, 0, b"two")).code == 0
            assert await asyncio.to_thread(broker.stop, 10) == 0
        finally:
            if peer is not None:
                await peer.close()
            names.kill()
            if broker is not None:
                broker.kill()


@unwritable
async def test_a_broker_serves_on(tmp_path: Path, log: Log) -> None:
    await serves_on(tmp_path, log)


WRITES_AT_ONCE = """
from eruca.remoting.log_writer import LogWriter

def put(self, line):
    self._target.write(line.encode())

LogWriter.put = put
"""


@pytest.mark.parametrize("log", [full_device, stalled_pipe])
async def test_a_log_that_raises_or_blocks_is_found_out(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: each line is written where it is said, without a queue."""
    (tmp_path / "sitecustomize.py").write_text(WRITES_AT_ONCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises((NotReady, TimeoutError)):
        await serves_on(tmp_path, log)


@unwritable
async def test_a_nameserver_serves_on(tmp_path: Path, log: Log) -> None:
    with log() as (errors, spoil):
        names = await asyncio.to_thread(Names, tmp_path, free_port(), errors)
        broker = None
        try:
            spoil()
            broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"namesrvAddr": names.address})
            await eventually(lambda: names.knows(broker))
            assert await asyncio.to_thread(names.stop, 10) == 0
        finally:
            names.kill()
            if broker is not None:
                broker.kill()


@pytest.mark.parametrize("streams", [">/dev/full", ">&- 2>&-"])
async def test_a_broker_without_standard_streams_serves(tmp_path: Path, streams: str) -> None:
    """Of a closed one, the number belongs to no file of the store either."""
    port = free_broker_port()
    conf = tmp_path / "broker.conf"
    settings = {**SMALL, "listenPort": str(port), "storePathRootDir": str(tmp_path / "store")}
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = f"exec {Path(sys.executable).parent / 'mqbroker'} -c {conf} {streams}"
    broker = Process(["sh", "-c", command], tmp_path / "broker.out")
    try:
        await asyncio.to_thread(broker.wait_for_port, port)
        peer = await Peer().connect(f"127.0.0.1:{port}")
        assert (await send(peer, 0, b"one")).code == 0
        await complain(peer, 30)
        await peer.close()
        assert await asyncio.to_thread(broker.stop, 10) == 0
        files = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
        assert files and not [file for file in files if b"[warning  ]" in file.read_bytes()]
    finally:
        broker.kill()


async def test_a_log_on_the_full_disk_of_the_store(tmp_path: Path) -> None:
    """When there is room again, offsets are saved, the nameserver knows the broker, and the log says what it lacks."""
    port = free_port()
    with SmallDisk(tmp_path / "disk", 16 << 20) as disk:
        store = disk.folder / "store"
        settings = {"namesrvAddr": f"127.0.0.1:{port}", "cleanResourceInterval": "100"}
        names = await asyncio.to_thread(Names, tmp_path, port)
        broker = None
        try:
            broker = await LoneBroker.start(disk.folder, store, settings)
            await eventually(lambda: names.knows(broker))
            peer = await Peer().connect(broker.address)
            assert (await send(peer, 0, b"one")).code == 0
            await commit(peer, 1111111)
            await eventually(lambda: saved(store, 1111111))

            ballast = disk.folder / "ballast"
            fill(ballast, bytes(4096))
            fill(broker.log, b"\n")  # the end of its last block
            await asyncio.to_thread(names.stop)
            await commit(peer, 2222222)
            half_written = store / "config" / "consumerOffset.json.tmp"
            await eventually(half_written.exists)
            written = half_written.stat().st_mtime_ns
            await eventually(lambda: half_written.stat().st_mtime_ns > written)  # another attempt failed
            assert not saved(store, 2222222)

            ballast.unlink()
            await eventually(lambda: saved(store, 2222222))
            names = await asyncio.to_thread(Names, tmp_path, port)
            await eventually(lambda: names.knows(broker))
            await eventually(lambda: "log_lines_lost" in broker.output)
            await peer.close()
            assert broker.stop() == 0
            assert re.search(r"(?m)^\S+Z \[warning  \] log_lines_lost +count=\d+$", broker.output)
        finally:
            names.kill()
            if broker is not None:
                broker.kill()


async def test_a_stalled_pipe_that_is_read_again_says_what_was_lost(tmp_path: Path) -> None:
    reading, errors = os.pipe()
    fill_pipe(errors)
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {}, errors)
    os.close(errors)
    try:
        peer = await Peer().connect(broker.address)
        assert (await send(peer, 0, b"one")).code == 0
        await complain(peer, 30)
        await peer.close()
        broker.signal(signal.SIGTERM)
        with os.fdopen(reading, errors="replace") as pipe:
            said = await asyncio.to_thread(pipe.read)
        assert broker.wait(10) == 0
        assert "store_opened" in said and "offset_moved" in said
    finally:
        broker.kill()


async def test_a_flood_of_bad_frames_leaves_a_bounded_log(tmp_path: Path) -> None:
    """Ten lines a second, and how many more there were: no frame is forgotten."""
    flood = 2000
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", MANY_PEERS)
    try:
        host, _, port = broker.address.rpartition(":")

        async def bad_client() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(flood // 100):
            await asyncio.gather(*(bad_client() for _ in range(100)))
        took = loop.time() - begun
        assert broker.stop() == 0
        said = broker.output
        lines = re.findall(r"\bbad_frame +error=", said)
        more = [int(count) for count in re.findall(r"\bbad_frame: and (\d+) more", said)]
        assert len(lines) + sum(more) == flood
        assert len(lines) <= 10 * (took + 1)
        assert len(said) < 20_000 + 3000 * took
    finally:
        broker.kill()
