"""State files: read with their copies, saved once for many changes, never half."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.state.state_file import Saver, StateUnreadable, read_state
from eruca.protocol import fastjson
from eruca.remoting.files import NoAccess


def read(path: Path) -> Any:
    return read_state(path, fastjson.loads, "n")


@pytest.mark.parametrize("broken", [None, b"", b"\0" * 64, b'{"n":', b'{"o":1}', b"\xff\xfe"])
def test_a_file_that_is_missing_or_broken_gives_way_to_its_copy(tmp_path: Path, broken: bytes | None) -> None:
    path = tmp_path / "topics.json"
    if broken is not None:
        path.write_bytes(broken)
    (tmp_path / "topics.json.bak").write_bytes(b'{"n":1}')
    assert read(path) == {"n": 1}


def test_nothing_there_is_a_young_broker(tmp_path: Path) -> None:
    assert read(tmp_path / "topics.json") is None


@pytest.mark.parametrize("copy", [None, b"", b"{"])
def test_what_is_there_but_unreadable_is_not_passed_over(tmp_path: Path, copy: bytes | None) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b"{")
    if copy is not None:
        (tmp_path / "topics.json.bak").write_bytes(copy)
    with pytest.raises(StateUnreadable, match=r"Restore .*topics\.json from a backup, or move it and its \.bak away"):
        read(path)


def test_a_file_that_may_not_be_read_is_not_damaged_and_its_copy_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.mkdir()  # a read fails, as for a lack of rights or of a sound disk
    (tmp_path / "topics.json.bak").write_bytes(b'{"n":1}')
    with pytest.raises(NoAccess, match=r"topics\.json cannot be read \(Is a directory\)"):
        read(path)


async def test_a_save_keeps_the_content_before_it_as_the_copy(tmp_path: Path) -> None:
    state = {"n": 1}
    saver = Saver(tmp_path / "config" / "x.json", lambda: fastjson.dumps(state))
    assert not saver.dirty
    await saver.saved()
    assert not saver.path.exists()  # nothing changed
    saver.changed()
    await saver.saved()
    assert read(saver.path.with_name("x.json.bak")) == {"n": 1}  # the first content is there twice
    for n in (1, 2, 3):
        state["n"] = n
        saver.changed()
        assert saver.dirty
        await saver.saved()
        assert not saver.dirty
    assert read(saver.path) == {"n": 3}
    assert read(saver.path.with_name("x.json.bak")) == {"n": 2}
    state["n"] = 4
    saver.changed()
    saver.save()
    assert read(saver.path) == {"n": 4}
    assert sorted(each.name for each in saver.path.parent.iterdir()) == ["x.json", "x.json.bak"]


async def test_changes_that_come_together_share_a_write(tmp_path: Path) -> None:
    writes: list[bytes] = []
    state = 0
    saver = Saver(tmp_path / "x.json", lambda: b"%d" % state, lambda _, data: writes.append(data))

    async def change() -> bytes:
        nonlocal state
        state += 1
        mine = state
        saver.changed()
        await saver.saved()
        assert int(writes[-1]) >= mine
        return writes[-1]

    await asyncio.gather(*(change() for _ in range(100)))
    assert len(writes) <= 2 and writes[-1] == b"100"


async def test_a_write_that_failed_is_still_to_be_done(tmp_path: Path) -> None:
    saver = Saver(tmp_path / "x.json", lambda: b'{"n":1}')
    saver.changed()
    in_the_way = tmp_path / "x.json.tmp"
    in_the_way.mkdir()
    with pytest.raises(IsADirectoryError):
        await saver.saved()
    with pytest.raises(IsADirectoryError):
        saver.save()
    assert saver.dirty
    in_the_way.rmdir()
    await saver.saved()
    assert read(saver.path) == {"n": 1}


async def test_who_waited_and_left_leaves_no_second_writer(tmp_path: Path) -> None:
    """The thread of a waiter who was cancelled still writes; the next begins after it, and newer content stays."""
    entered, may_end = threading.Event(), threading.Event()
    under_way: list[bytes] = []
    most = 0

    def replace(path: Path, data: bytes) -> None:
        nonlocal most
        under_way.append(data)
        most = max(most, len(under_way))
        entered.set()
        assert may_end.wait(10)
        path.write_bytes(data)
        under_way.remove(data)

    state = {"n": 1}
    saver = Saver(tmp_path / "x.json", lambda: fastjson.dumps(state), replace)
    saver.changed()
    leaves = asyncio.create_task(saver.saved())
    assert await asyncio.to_thread(entered.wait, 10)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    state["n"] = 2
    saver.changed()
    stays = asyncio.create_task(saver.saved())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    await stays
    assert most == 1
    assert read(saver.path) == {"n": 2} and not saver.dirty
