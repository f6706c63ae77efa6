"""Members that all get everything, and remember their positions in a local file."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from eruca.client import (
    ClientSettings,
    LitePullConsumer,
    Message,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from eruca.client.consuming import offset_store
from eruca.client.consuming.offset_store import LocalFileOffsetStore
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import BadConfig, CallTimeout, ClientError
from eruca.client.log import ranges
from eruca.client.network.session import Session
from eruca.protocol.bodies import LocalOffsets
from eruca.remoting.files import replace_file
from tests.client.conftest import Lab, Seen, eventually

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "fastjson" / "localoffsets.pretty.json"
BODIES = [b"%d" % number for number in range(12)]


def member(lab: Lab, listener: Any, folder: Path, name: str = "one", **settings: object) -> PushConsumer:
    shared = ClientSettings(nameserver=lab.address, client_ip="10.0.0.1", instance_name=name)
    given: dict[str, Any] = {
        "start_from": "first",
        "broadcast": True,
        "offset_folder": folder,
        "settings": shared,
        **settings,
    }
    return PushConsumer("g", listener, **given).subscribe("T")


def written(folder: Path, name: str = "one") -> dict[int, int]:
    """The offsets in a member's file, by queue id."""
    data = (folder / f"10.0.0.1@{name}" / "g" / "offsets.json").read_bytes()
    return {queue.queue_id: offset for queue, offset in LocalOffsets.decode(data).offset_table.items()}


async def test_every_member_gets_everything(lab: Lab, tmp_path: Path) -> None:
    await lab.send("T", *BODIES)
    one, two = Seen(), Seen()
    async with member(lab, one.coroutine, tmp_path), member(lab, two.function, tmp_path, "two") as second:
        await one.reaches(12)
        await two.reaches(12)
        assert len(second.queues) == 4
        data = engine_of(second).membership.describe()
        assert data.message_model == "BROADCASTING"
        assert [each.topic for each in data.subscription_data_set] == ["T"]
    assert sorted(one.bodies) == sorted(two.bodies) == sorted(BODIES)
    assert written(tmp_path) == written(tmp_path, "two") == {0: 3, 1: 3, 2: 3, 3: 3}
    assert await lab.offsets("g", "T") in ([None] * 4, [0] * 4)  # brokers were told nothing


async def test_a_member_goes_on_where_its_file_says(lab: Lab, seen: Seen, tmp_path: Path) -> None:
    await lab.send("T", *BODIES)
    async with member(lab, seen.coroutine, tmp_path):
        await seen.reaches(12)
    await lab.send("T", b"later")
    again = Seen()
    async with member(lab, again.coroutine, tmp_path):
        await again.reaches(1)
    assert again.bodies == [b"later"]


async def test_what_fails_is_told_and_left(lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await lab.send("T", b"bad", b"good")
    seen = Seen()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message)
        if message.body == b"bad":
            raise ValueError("never")

    async with member(lab, listener, tmp_path):
        await seen.reaches(2)
    assert "1 messages were not consumed and are not retried" in caplog.text
    assert sum(written(tmp_path).values()) == 2


async def test_orderly_members_need_no_locks(lab: Lab, tmp_path: Path) -> None:
    for body in BODIES:
        await lab.producer.send(Message("T", body), queue=MessageQueue("T", "broker-a", 0)) if body != b"0" else (
            await lab.send("T", body)
        )
    one, two = Seen(), Seen()
    async with (
        member(lab, one.coroutine, tmp_path, orderly=True),
        member(lab, two.coroutine, tmp_path, "two", orderly=True),
    ):
        await one.reaches(12)
        await two.reaches(12)
    assert [body for body in one.bodies if body != b"0"] == [body for body in two.bodies if body != b"0"] == BODIES[1:]


async def test_a_reset_moves_the_file(lab: Lab, tmp_path: Path, seen: Seen) -> None:
    await lab.send("T", *BODIES)
    async with member(lab, seen.coroutine, tmp_path) as consumer:
        await seen.reaches(12)
        engine_of(consumer).membership.reset("T", {MessageQueue("T", "broker-a", 2): 1})
        await seen.reaches(14)
    assert written(tmp_path) == {0: 3, 1: 3, 2: 3, 3: 3}


# ---------------------------------------------------------------------- the file


@pytest.fixture
async def session(lab: Lab) -> Session:
    return lab.puller.session


async def test_the_file_is_javas(session: Session, tmp_path: Path) -> None:
    positions = LocalFileOffsetStore(tmp_path, session, "g")
    assert positions.path == tmp_path / f"{session.address}@DEFAULT" / "g" / "offsets.json"
    for number, offset in enumerate((5, 6)):
        positions.report(MessageQueue("T1", "lab-a", number), offset)
    assert not positions.path.exists()
    positions.flush()
    await eventually(positions.path.exists)
    assert positions.path.read_bytes() == GOLDEN.read_bytes()
    again = LocalFileOffsetStore(tmp_path, session, "g")
    assert await again.load(MessageQueue("T1", "lab-a", 1)) == 6
    assert await again.load(MessageQueue("T1", "lab-a", 2)) is None


async def test_the_place_is_the_home_directory(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    positions = LocalFileOffsetStore(None, session, "g")
    assert positions.path.relative_to(tmp_path).parts[0] == ".rocketmq_offsets"
    assert ".rocketmq_offsets" not in os.listdir(tmp_path)


@pytest.mark.parametrize("broken", [b"", b'{"offsetTable":{{"brok', b"\x00\x00"])
async def test_a_broken_file_has_a_backup(
    session: Session, tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    queue = MessageQueue("T1", "lab-a", 0)
    positions = LocalFileOffsetStore(tmp_path, session, "g")
    await positions.save(queue, 5)
    await positions.save(queue, 6)
    positions.path.write_bytes(broken)
    assert await LocalFileOffsetStore(tmp_path, session, "g").load(queue) == 5
    assert ("cannot be read" in caplog.text) is bool(broken)


async def test_a_file_that_cannot_be_written_is_told(
    session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "taken").write_text("a file where a folder should be")
    positions = LocalFileOffsetStore(tmp_path / "taken", session, "g")
    positions.report(MessageQueue("T1", "lab-a", 0), 5)
    positions.flush()
    await eventually(lambda: f"the offsets cannot be written to {positions.path}" in caplog.text)
    with pytest.raises(ClientError, match="the offsets cannot be written to"):
        await positions.save(MessageQueue("T1", "lab-a", 0), 6)


async def test_the_file_is_replaced_whole_and_synced(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written aside, synced, renamed, directory synced; and at every step a complete file or its backup is there."""
    store = LocalFileOffsetStore(tmp_path, session, "g")
    queue = MessageQueue("T1", "lab-a", 0)
    await store.save(queue, 5)
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        assert store.path.exists()
        steps.append("fsync " + ("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"))
        fsync(descriptor)

    def watched_replace(source: Path, target: Path) -> None:
        replace(source, target)
        assert store.path.exists()
        steps.append(f"rename to {Path(target).name}")

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    await store.save(queue, 6)
    assert steps[0] == "fsync file" and steps[-2:] == ["rename to offsets.json", "fsync folder"]
    assert await LocalFileOffsetStore(tmp_path, session, "g").load(queue) == 6


async def test_saves_at_once_leave_the_last_offsets(session: Session, tmp_path: Path) -> None:
    store = LocalFileOffsetStore(tmp_path, session, "g")
    queues = [MessageQueue("T1", "lab-a", number) for number in range(8)]
    await asyncio.gather(*(store.save(queue, queue.queue_id + 1) for queue in queues))
    again = LocalFileOffsetStore(tmp_path, session, "g")
    assert [await again.load(queue) for queue in queues] == list(range(1, 9))


class Disk:
    """Replaces files when it may: a disk that is slow, or full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes = 0
        self.full = False
        self.free = threading.Event()
        self.free.set()
        monkeypatch.setattr(offset_store, "replace_file", self.replace)

    def replace(self, path: Path, content: bytes) -> None:
        self.writes += 1
        assert self.free.wait(10)
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(path, content)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_stop_waits_until_the_last_offsets_are_in_the_file(
    lab: Lab, tmp_path: Path, seen: Seen, disk: Disk
) -> None:
    await lab.send("T", *BODIES[:4])
    consumer = member(lab, seen.coroutine, tmp_path)
    await consumer.start()
    await seen.reaches(4)
    await eventually(lambda: written(tmp_path) == {0: 1, 1: 1, 2: 1, 3: 1} if disk.writes else False)
    disk.free.clear()
    began = disk.writes
    await lab.send("T", *BODIES[4:8])
    await seen.reaches(8)
    await eventually(lambda: disk.writes > began)  # in the background, with offsets that are old soon
    await lab.send("T", *BODIES[8:])
    await seen.reaches(12)
    stopping = asyncio.create_task(consumer.stop())
    done, _ = await asyncio.wait([stopping], timeout=0.2)
    assert not done
    disk.free.set()
    await stopping
    assert written(tmp_path) == {0: 3, 1: 3, 2: 3, 3: 3}


async def test_a_cancelled_save_is_written_before_the_consumer_has_stopped(
    lab: Lab, tmp_path: Path, disk: Disk
) -> None:
    settings = ClientSettings(nameserver=lab.address, client_ip="10.0.0.1", instance_name="one")
    await lab.send("T", b"1")
    disk.free.clear()
    async with PullConsumer("g", broadcast=True, offset_folder=tmp_path, settings=settings) as consumer:
        queue = MessageQueue("T", "broker-a", 2)
        with pytest.raises(CallTimeout):
            await consumer.update_offset(queue, 5, timeout=0.05)
        asyncio.get_running_loop().call_later(0.1, disk.free.set)
    assert written(tmp_path) == {2: 5}


async def test_a_full_disk_at_the_stop_is_one_warning(
    lab: Lab, tmp_path: Path, seen: Seen, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "eruca")
    await lab.send("T", *BODIES)
    async with member(lab, seen.coroutine, tmp_path, offset_interval=60.0) as consumer:
        disk.free.clear()
        disk.full = True
        await seen.reaches(12)
        file = tmp_path / "10.0.0.1@one" / "g" / "offsets.json"
        queues = consumer.queues
        disk.free.set()
        await eventually(lambda: "cannot be written" in caplog.text)
        writes = disk.writes
        await eventually(lambda: disk.writes > writes + 1)  # it tries again, and does not say so each time
        assert len(caplog.messages) == 1
        caplog.clear()
    reason = f"the offsets cannot be written to {file}: [Errno 28] No space left on device"
    assert caplog.messages == [f"the offsets of g could not be stored, of T at {ranges(queues)}: {reason}"]


async def test_an_explicit_commit_says_that_the_disk_is_full(lab: Lab, tmp_path: Path, disk: Disk) -> None:
    settings = ClientSettings(nameserver=lab.address, client_ip="10.0.0.1", instance_name="one")
    await lab.send("T", b"1")
    consumer = LitePullConsumer(
        "g", broadcast=True, offset_folder=tmp_path, start_from="first", auto_commit=False, settings=settings
    )
    async with consumer.subscribe("T"):
        (message,) = await consumer.poll(10.0)
        disk.full = True
        with pytest.raises(ClientError, match="No space left on device"):
            await consumer.commit_sync()
        disk.full = False
        await consumer.commit_sync()
        assert written(tmp_path)[message.queue.queue_id] == 1


async def test_wrong_use_is_told(lab: Lab) -> None:
    with pytest.raises(BadConfig, match="add broadcast=True"):
        PushConsumer("g", nameserver=lab.address, offset_folder="somewhere")
