"""SIGTERM while a broker recovers a large log: it ends in order at once, and the next start recovers the store."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from eruca.broker.app import BrokerApp
from eruca.broker.store import FileSystem, PutStatus, RecoveryStopped, Store, verify
from eruca.protocol.message import encode_properties
from eruca.protocol.record import BatchEntry, encode_batch
from tests.support.desk import Desk
from tests.support.lone import LoneBroker
from tests.support.processes import Process
from tests.support.programme import ENOUGH, amount, chance, rounds
from tests.support.stopwatch import Stopwatch
from tests.support.stores import HOST, Clock, index_contents, queue_units, small_config

pytestmark = ENOUGH

QUEUES = 4
EACH = 64
BATCHES = amount(6_000, 60_000)
SIZES = {"mapped_file_size_commit_log": 16 << 20, "mapped_file_size_consume_queue": 600_000, "max_hash_slot_num": 5000}
SIZES_IN_FILE = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}


def fill(root: Path) -> None:
    """A store of many small messages that nobody has closed, without a mark: all of its log must be read."""
    store = Store(small_config(root, **SIZES, max_index_num=20_000))
    store.open()
    batch = encode_batch(BatchEntry(0, b"small", encode_properties({"KEYS": f"k{n}"})) for n in range(EACH))
    append = store.appender.put_batch
    for number in range(BATCHES):
        stored = append("T", number % QUEUES, batch, born_timestamp=1, born_host=HOST, store_host=HOST)
        assert stored.status is PutStatus.OK
        if number % 1000 == 0:
            store.drain()
    assert store.close() is None
    (root / "eruca.mark").unlink()
    (root / "checkpoint").unlink()
    (root / "abort").touch()


@pytest.mark.processes
def test_a_broker_that_recovers_stops_in_order_within_a_second(tmp_path: Path) -> None:
    random = chance("sigterm in recovery")
    root = tmp_path / "store"
    fill(root)
    command = LoneBroker.command(tmp_path, root, SIZES_IN_FILE)
    slowest = 0.0
    for _ in rounds(2, 20, seconds=15):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(f"\0{tmp_path}"[:100])
            systemd.settimeout(20)
            with Process(command, tmp_path / "out", env={"NOTIFY_SOCKET": f"@{tmp_path}"[:100]}) as broker:
                heard = systemd.recv(500).decode()
                assert re.fullmatch(r"EXTEND_TIMEOUT_USEC=30000000\nSTATUS=recovering: \d+%, file \d{20}", heard)
                time.sleep(random.uniform(0, 0.3))  # the moment of the fault
                with Stopwatch() as watch:
                    broker.signal(signal.SIGTERM)
                    assert broker.wait() == 0, broker.output
                slowest = max(slowest, watch.seconds)
                assert "store_recovering" in broker.output and "start_stopped" in broker.output
                assert "boot success" not in broker.output and "Traceback" not in broker.output
            assert systemd.recv(500).decode().startswith("STOPPING=1")
        assert (root / "abort").exists()
    print(f"slowest stop {slowest:.2f} s")
    assert slowest <= 1

    with LoneBroker(tmp_path, root, SIZES_IN_FILE):
        pass
    assert not (root / "abort").exists()
    result = verify(root, small_config(root, **SIZES, max_index_num=20_000))
    assert result.findings == [] and result.notes == []
    assert (result.records, result.units) == (BATCHES * EACH, BATCHES * EACH)


class Steps:
    """Stops a recovery at its step number ``most``."""

    def __init__(self, store: Store, most: int) -> None:
        self.count = 0
        self._check, self._most, self._progress = store.progress.check, most, store.progress

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._most:
            self._progress.stop()
        self._check()


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["in order", "by another program", "killed in another program"])
def test_a_recovery_that_ends_at_any_step_is_begun_again(tmp_path: Path, closed: str) -> None:
    """The units of a busy queue are written out early, those of a quiet one at the end: what a recovery leaves behind
    is there to mislead the next one. A damaged index makes the first one read all of the log."""
    root = tmp_path / "store"
    config = small_config(root, **{**SIZES, "mapped_file_size_commit_log": 4 << 20}, max_index_num=100_000)
    config.recover_check_bytes = 0
    clock = Clock()
    store = Store(config, clock)
    store.open()
    batch = encode_batch(BatchEntry(0, b"small", encode_properties({"KEYS": f"k{n}"})) for n in range(EACH))
    for number in range(1200):
        clock.now += 1000  # without a mark a start goes by the times of messages
        queue = 1 if number in (5, 12, 19) else 0
        store.appender.put_batch("T", queue, batch, born_timestamp=1, born_host=HOST, store_host=HOST)
        store.drain()
    assert store.close() is None
    units, keys = queue_units(root), index_contents(root)
    if "another" in closed:
        (root / "eruca.mark").unlink()
    if "killed" in closed:
        (root / "abort").touch()
    (first,) = (root / "index").iterdir()
    first.write_bytes(bytes(40) + first.read_bytes()[40:])

    stopped = 0
    while True:
        again = Store(config)
        again.progress.check = Steps(again, stopped + 1)  # type: ignore[method-assign]
        try:
            again.open()
        except RecoveryStopped:
            stopped += 1
            continue
        break
    assert stopped > 10
    assert again.close() is None
    assert queue_units(root) == units and index_contents(root) == keys
    assert verify(root, config).findings == []


class Waits(FileSystem):
    """A disk that waits until the event loop has turned."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.turned = threading.Event()

    def flush_folder(self, path: Path | str) -> None:
        self._loop.call_soon_threadsafe(self.turned.set)
        assert self.turned.wait(10), "the loop does not turn"


async def test_the_loop_turns_while_a_store_is_recovered(tmp_path: Path) -> None:
    disk = Waits(asyncio.get_running_loop())
    app = BrokerApp(Desk(tmp_path).config, file_system=disk)
    await app.start()
    await app.stop()
    assert disk.turned.is_set()
