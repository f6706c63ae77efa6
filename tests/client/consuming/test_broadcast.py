"""Members that all get everything, and remember their positions in a local file."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import subprocess
import sys
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
    PullScheduleService,
    PushConsumer,
    ReceivedMessage,
)
from eruca.client.consuming import local_offsets
from eruca.client.consuming.local_offsets import LocalFileOffsetStore
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.errors import BadConfig, CallTimeout, ClientError, StateError
from eruca.client.lifecycle import Startable
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


async def stored(session: Session, store: LocalFileOffsetStore, queue: MessageQueue) -> int | None:
    """What is in the file, for whoever has it next."""
    await store.close()
    again = LocalFileOffsetStore(store.path.parents[2], session, "g")
    try:
        return await again.load(queue)
    finally:
        await again.close()


async def test_the_file_is_javas(session: Session, tmp_path: Path) -> None:
    positions = LocalFileOffsetStore(tmp_path, session, "g")
    assert positions.path == tmp_path / f"{session.address}@DEFAULT" / "g" / "offsets.json"
    for number, offset in enumerate((5, 6)):
        positions.report(MessageQueue("T1", "lab-a", number), offset)
    assert not positions.path.exists()
    positions.flush()
    await eventually(positions.path.exists)
    assert positions.path.read_bytes() == GOLDEN.read_bytes()
    assert await stored(session, positions, MessageQueue("T1", "lab-a", 1)) == 6
    assert await stored(session, positions, MessageQueue("T1", "lab-a", 2)) is None


async def test_the_place_is_the_home_directory(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    positions = LocalFileOffsetStore(None, session, "g")
    assert positions.path.relative_to(tmp_path).parts[0] == ".rocketmq_offsets"
    assert os.listdir(positions.path.parent) == ["offsets.json.lock"]


@pytest.mark.parametrize("broken", [b"", b'{"offsetTable":{{"brok', b"\x00\x00"])
async def test_a_broken_file_has_a_backup(
    session: Session, tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    queue = MessageQueue("T1", "lab-a", 0)
    positions = LocalFileOffsetStore(tmp_path, session, "g")
    await positions.save(queue, 5)
    await positions.save(queue, 6)
    positions.path.write_bytes(broken)
    assert await stored(session, positions, queue) == 5
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
    assert await stored(session, store, queue) == 6


async def test_saves_at_once_leave_the_last_offsets(session: Session, tmp_path: Path) -> None:
    store = LocalFileOffsetStore(tmp_path, session, "g")
    queues = [MessageQueue("T1", "lab-a", number) for number in range(8)]
    await asyncio.gather(*(store.save(queue, queue.queue_id + 1) for queue in queues))
    assert [await stored(session, store, queue) for queue in queues] == list(range(1, 9))


class Disk:
    """Replaces files when it may: a disk that is slow, or full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes = 0
        self.full = False
        self.free = threading.Event()
        self.free.set()
        monkeypatch.setattr(local_offsets, "replace_file", self.replace)

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


# ---------------------------------------------------------------------- each member has a file of its own


async def idle(message: ReceivedMessage) -> None:
    pass


@pytest.mark.parametrize("kind", ["push", "lite", "pull", "schedule"])
async def test_two_members_have_not_one_file(lab: Lab, tmp_path: Path, kind: str) -> None:
    """Each would lose what the other had read: the second is refused at its start, and told what to do."""
    await lab.send("T", b"1")

    def nameless(folder: Path, name: str = "DEFAULT") -> Startable:
        options: dict[str, Any] = {
            "broadcast": True,
            "offset_folder": folder,
            "settings": ClientSettings(nameserver=lab.address, client_ip="10.0.0.1", instance_name=name),
        }
        if kind == "push":
            return PushConsumer("g", idle, **options).subscribe("T")
        if kind == "lite":
            return LitePullConsumer("g", **options).subscribe("T")
        if kind == "pull":
            return PullConsumer("g", **options)
        return PullScheduleService("g", **options).register_pull_task_callback("T", pulls)

    async def pulls(queue: MessageQueue, context: Any) -> None:
        pass

    sentence = "Another broadcasting member .* give each member an instance_name of its own .* or an offset_folder"
    async with nameless(tmp_path):
        second = nameless(tmp_path)
        for _ in range(2):  # what is refused leaves nothing behind
            with pytest.raises(StateError, match=sentence if kind != "schedule" else "."):
                await second.start()
            if kind in ("pull", "schedule"):
                break
        async with nameless(tmp_path, "two"), nameless(tmp_path / "another"):
            pass
    async with nameless(tmp_path):
        pass


async def test_two_members_of_one_name_are_told_to_take_two(lab: Lab, tmp_path: Path) -> None:
    async with member(lab, idle, tmp_path):
        with pytest.raises(StateError, match="give each member an instance_name of its own, or leave it out where"):
            await member(lab, idle, tmp_path).start()


OTHER_PROCESS = """
import asyncio, sys
from eruca.client import ClientSettings, PushConsumer
from eruca.client.errors import ClientError

async def main():
    settings = ClientSettings(nameserver=sys.argv[1], client_ip="10.0.0.1", instance_name=sys.argv[3])
    consumer = PushConsumer("g", print, broadcast=True, offset_folder=sys.argv[2], settings=settings).subscribe("T")
    try:
        await consumer.start()
    except ClientError as error:
        print(error)
    else:
        print("started")
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.processes
async def test_two_processes_have_not_one_file(lab: Lab, tmp_path: Path) -> None:
    """Also after one of them was killed, its file is free again."""
    await lab.send("T", b"1")

    async def other(name: str) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            OTHER_PROCESS,
            lab.address,
            str(tmp_path),
            name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        return process, (await process.stdout.readline()).decode()

    first, said = await other("one")
    assert said == "started\n"
    with pytest.raises(StateError, match="Another broadcasting member"):
        await member(lab, idle, tmp_path).start()
    second, said = await other("one")
    assert said.startswith("Another broadcasting member of the group g has the offsets in")
    third, said = await other("three")
    assert said == "started\n"
    for process in (first, third):
        process.kill()
    for process in (first, second, third):
        await process.communicate()
    async with member(lab, idle, tmp_path):
        pass


async def test_a_file_of_a_closed_loop_is_free(lab: Lab, tmp_path: Path) -> None:
    """A consumer that nobody stopped does not keep its file for ever."""
    settings = ClientSettings(nameserver=lab.address, client_ip="10.0.0.1", instance_name="one")
    left = PullConsumer("g", broadcast=True, offset_folder=tmp_path, settings=settings)
    await asyncio.to_thread(asyncio.run, left.start())
    async with member(lab, idle, tmp_path):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
async def test_a_forked_child_does_not_keep_the_file(session: Session, tmp_path: Path) -> None:
    store = LocalFileOffsetStore(tmp_path, session, "g")
    ready, wakes = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(ready[1], b"1")
        os.read(wakes[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        with pytest.raises(StateError, match="Another broadcasting member"):
            LocalFileOffsetStore(tmp_path, session, "g")
        await store.close()
        await LocalFileOffsetStore(tmp_path, session, "g").close()
    finally:
        os.write(wakes[1], b"1")
        os.waitpid(child, 0)  # noqa: ASYNC222
        for descriptor in (*ready, *wakes):
            os.close(descriptor)


async def test_wrong_use_is_told(lab: Lab) -> None:
    with pytest.raises(BadConfig, match="add broadcast=True"):
        PushConsumer("g", nameserver=lab.address, offset_folder="somewhere")
