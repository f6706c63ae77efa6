"""Stores that released versions wrote are opened by this one, whole."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from eruca.broker.store import verify
from eruca.broker.store.marks import FORMAT
from eruca.protocol.record import Record, decode_records
from tests.support.desk import START, Desk
from tests.support.released import COUNT, DELAYED, GROUP, QUEUES, STORES, TOPIC, body, small_desk, write

ARCHIVES = sorted(STORES.glob("*.tar.xz"))


def read(desk: Desk, queue: int) -> list[Record]:
    store, found = desk.broker.store, list[Record]()
    while len(found) < store.max_offset(TOPIC, queue):
        got = store.get(TOPIC, queue, len(found), 32)
        found += [record for buffer in got.buffers for record in decode_records(buffer, check=True)]
    return found


async def check(folder: Path) -> None:
    """A broker serves all of the store, and delivers what waits in it."""
    desk = small_desk(folder)
    desk.now = START + 5_000
    async with desk:
        report = desk.broker.store.recovery
        assert (report.damages, report.lost_units) == ([], [])
        for queue in range(QUEUES):
            found = read(desk, queue)
            assert [record.body for record in found] == [body(queue, number) for number in range(COUNT)]
            for number in range(COUNT):
                answer = desk.broker.store.query(TOPIC, f"k{queue}-{number}", 9, 0, 1 << 62)
                assert len(answer.records) == 1
        assert desk.broker.offsets.query(GROUP, TOPIC, 1) == 7
        topic = desk.broker.topics.get(TOPIC)
        assert topic is not None and topic.write_queue_nums == QUEUES
        desk.now = START + 20_000
        desk.broker.delays.deliver(desk.now, desk.passed())
        desk.broker.store.drain()
        assert [record.body for record in read(desk, 0)][COUNT:] == [DELAYED]
    config = desk.broker.store.config
    assert verify(folder / "store", config).findings == []


def test_there_is_a_store_of_this_format() -> None:
    assert ARCHIVES and FORMAT == 2, "with a new format, write a store: python -m tests.support.released"


@pytest.mark.parametrize("stopped", ["in order", "killed"])
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
async def test_a_store_of_a_release_is_opened(archive: Path, stopped: str, tmp_path: Path) -> None:
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    if stopped == "killed":
        (tmp_path / "store" / "abort").touch()
    await check(tmp_path)


async def test_the_store_of_this_version_is_one_of_them(tmp_path: Path) -> None:
    await write(tmp_path)
    await check(tmp_path)
