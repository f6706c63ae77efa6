"""Topics that were deleted and made again: their queues begin at 0 again, while a slave still has the former ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from eruca.broker.store import FileSystem, Store, verify
from eruca.broker.store.cut import intend_cut
from tests.support.stores import bodies, open_store, put, small_config

NEW = [b"new%d" % number for number in range(30)]


def with_messages(root: Path, count: int, **sizes: Any) -> Store:
    store = open_store(root, **sizes)
    for number in range(count):
        put(store, "T", 0, b"old%d" % number)
    store.drain()
    return store


def made_again(store: Store) -> None:
    """The topic is deleted, and gets new messages."""
    store.drop_topic("T")
    for body in NEW:
        put(store, "T", 0, body)
    store.drain()
    store.flush()


def lose_first_file(root: Path) -> None:
    """The oldest file of a store's log has expired."""
    sorted((root / "commitlog").iterdir())[0].unlink()


def copied(master: Store, root: Path, **sizes: Any) -> Store:
    """A slave at this root, which copies what it lacks."""
    slave = open_store(root, follows=True, **sizes)
    at, end = slave.replicator.end_offset, master.replicator.end_offset
    while at < end:
        data = master.replicator.take(at, end - at)
        assert data is not None
        slave.replicator.append(at, data)
        at = slave.replicator.end_offset
    slave.drain()
    return slave


@pytest.mark.parametrize("file_size", [400, 20_000], ids=["files of the queue are gone", "its first file is there"])
def test_a_slave_whose_old_messages_expired_has_the_new_ones(tmp_path: Path, file_size: int) -> None:
    sizes: dict[str, Any] = {"mapped_file_size_consume_queue": file_size}
    master = with_messages(tmp_path / "master", 150, **sizes)
    master.flush()
    master.close()
    shutil.copytree(tmp_path / "master", tmp_path / "slave")
    lose_first_file(tmp_path / "slave")
    master = open_store(tmp_path / "master", **sizes)
    made_again(master)
    slave = copied(master, tmp_path / "slave", **sizes)
    assert slave.min_offset("T", 0) == 0
    assert bodies(slave, "T", 0) == NEW == bodies(master, "T", 0)
    assert slave.recovery.lost_units == []
    slave.close()
    master.close()
    assert verify(tmp_path / "slave", small_config(tmp_path / "slave", **sizes)).findings == []
    slave = open_store(tmp_path / "slave", **sizes)
    assert bodies(slave, "T", 0) == NEW
    slave.close()


def test_a_slave_whose_queue_has_no_message_left_has_the_new_ones(tmp_path: Path) -> None:
    """Its oldest messages have expired, and the only other one, with which a file of the queue begins, was cut off."""
    master = with_messages(tmp_path / "master", 40)
    for _ in range(60):
        put(master, "U", 0, b"other")
    master.close()
    shutil.copytree(tmp_path / "master", tmp_path / "slave")
    slave = open_store(tmp_path / "slave")
    end = put(slave, "T", 0, b"not confirmed")
    slave.close()
    lose_first_file(tmp_path / "slave")
    open_store(tmp_path / "slave").close()
    assert intend_cut(small_config(tmp_path / "slave"), end, FileSystem(), as_master=True) is not None
    master = open_store(tmp_path / "master")
    made_again(master)
    slave = copied(master, tmp_path / "slave")
    assert bodies(slave, "T", 0) == NEW
    slave.close()
    master.close()
    assert verify(tmp_path / "slave", small_config(tmp_path / "slave")).findings == []


def test_queues_that_are_built_again_have_the_new_messages_when_old_ones_expired(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 150)
    made_again(store)
    store.close()
    lose_first_file(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "abort").touch()
    store = open_store(tmp_path)
    assert bodies(store, "T", 0) == NEW
    store.close()


def test_a_queue_that_cannot_begin_again_yet_costs_other_queues_nothing(tmp_path: Path) -> None:
    master = with_messages(tmp_path / "master", 3)
    slave = copied(master, tmp_path / "slave")
    master.drop_topic("T")
    for topic, body in (("U", b"before"), ("T", b"new0"), ("U", b"after")):
        put(master, topic, 0, body)
    master.drain()
    folder = tmp_path / "slave" / "consumequeue" / "T"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("no folder")
    at = slave.replicator.end_offset
    slave.replicator.append(at, master.replicator.take(at, master.replicator.end_offset - at) or b"")
    with pytest.raises(OSError):
        slave.drain()
    assert (bodies(slave, "U", 0), bodies(slave, "T", 0)) == ([b"before"], [b"old0", b"old1", b"old2"])
    folder.unlink()
    slave.drain()
    assert (bodies(slave, "U", 0), bodies(slave, "T", 0)) == ([b"before", b"after"], [b"new0"])
    slave.close()
    master.close()
    assert verify(tmp_path / "slave", small_config(tmp_path / "slave")).findings == []
