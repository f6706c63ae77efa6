"""Backups of a store: what is linked, copied and shared, what they hold, and what no broker may change in them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from eruca.broker.store import RecoveryReport, Store, StoreConfig, StoreTooNew, verify
from eruca.broker.store.backup import back_up, restore
from eruca.broker.store.backup_files import BackupFault, BackupFiles, Manifest, names_in, read_manifest
from tests.support.stores import Clock, bodies, open_store, put, small_config

NOW = 4_000_000_000_000
"""Long after every change of a file."""


class Kept:
    """A store, and the folder of its backups."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder, self.made = folder / "store", folder / "backups", 0
        self.store = open_store(self.root)
        self.expected: dict[int, list[bytes]] = {0: [], 1: []}

    def fill(self, count: int) -> None:
        for _ in range(count):
            queue = 1 if len(self.expected[0]) % 3 == 2 and len(self.expected[1]) < len(self.expected[0]) // 3 else 0
            body = b"%d/%d" % (queue, len(self.expected[queue]))
            put(self.store, "T", queue, body, b"KEYS\x01k%d-%d" % (queue, len(self.expected[queue])))
            self.expected[queue].append(body)
        self.store.drain()

    def back_up(self) -> tuple[BackupFiles, Manifest]:
        self.made += 1
        return back_up(small_config(self.root), self.folder, NOW + self.made)

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.close()


def opened(root: Path, config: StoreConfig | None = None) -> tuple[dict[int, list[bytes]], RecoveryReport]:
    """What a broker finds in a store, which is sound before and after."""
    config = config or small_config(root)
    assert verify(root, config).findings == []
    store = Store(config)
    report = store.open()
    found = {queue: bodies(store, "T", queue) for queue in range(2)}
    for queue, texts in found.items():
        low = store.min_offset("T", queue)
        for number in range(low, low + len(texts)):
            assert len(store.query("T", f"k{queue}-{number}", 9, 0, 1 << 62).records) == 1
    assert store.close() is None
    assert verify(root, config).findings == []
    return found, report


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("persisted", ["nothing", "a part", "all"])
def test_a_backup_of_a_store_that_is_open_holds_all_that_was_stored(kept: Kept, persisted: str, tmp_path: Path) -> None:
    kept.fill(300)
    if persisted != "nothing":
        kept.store.persist(sync=persisted == "all")
    if persisted == "a part":
        kept.fill(100)
    _, manifest = kept.back_up()
    assert manifest.end_offset == kept.store.figures().max_offset
    restore(kept.folder, small_config(tmp_path / "restored"))
    found, report = opened(tmp_path / "restored")
    assert found == kept.expected
    assert (report.damages, report.lost_units, report.notes) == ([], [], [])


def test_what_comes_later_is_not_in_it(kept: Kept, tmp_path: Path) -> None:
    kept.fill(200)
    before = {queue: list(found) for queue, found in kept.expected.items()}
    kept.back_up()
    kept.fill(200)
    restore(kept.folder, small_config(tmp_path / "restored"))
    assert opened(tmp_path / "restored")[0] == before


def test_a_second_backup_adds_what_is_new(kept: Kept) -> None:
    kept.fill(400)
    kept.store.persist()
    first, _ = kept.back_up()
    full = {f"commitlog/{segment.path.name}" for segment in kept.store.commit_log.segments[:-1]}
    assert first.linked >= len(full) > 2 and first.unchanged == 0
    kept.fill(200)
    kept.store.persist()
    second, manifest = kept.back_up()
    assert second.unchanged >= first.linked
    shared = {entry.path for entry in manifest.files if (second.folder / entry.path).stat().st_nlink == 3}
    assert shared >= full, "the store's, the first backup's and the second's"
    third, _ = kept.back_up()
    assert third.linked == 0 and third.copied_bytes < second.copied_bytes + 1
    assert names_in(kept.folder) == [each.folder.name for each in (first, second, third)]


def test_an_older_backup_is_restored_by_name(kept: Kept, tmp_path: Path) -> None:
    kept.fill(100)
    before = {queue: list(found) for queue, found in kept.expected.items()}
    first, _ = kept.back_up()
    kept.fill(100)
    kept.back_up()
    restore(kept.folder, small_config(tmp_path / "old"), first.folder.name)
    assert opened(tmp_path / "old")[0] == before
    with pytest.raises(BackupFault, match=r"holds no complete backup never: there is 2.*Z, 2.*Z"):
        restore(kept.folder, small_config(tmp_path / "never"), "never")


def test_where_links_are_not_possible_files_are_copied_and_still_shared(kept: Kept, tmp_path: Path) -> None:
    """Another file system: /dev/shm, where the tests' folder is not there too."""
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    kept.folder = Path("/dev/shm") / f"eruca-{os.getpid()}-backups"
    try:
        kept.fill(400)
        kept.store.persist()
        first, _ = kept.back_up()
        second, _ = kept.back_up()
        assert first.linked == second.linked == 0
        assert second.unchanged >= len(kept.store.commit_log.segments) - 1
        restore(kept.folder, small_config(tmp_path / "restored"))
        assert opened(tmp_path / "restored")[0] == kept.expected
    finally:
        shutil.rmtree(kept.folder)


def test_a_closed_store_and_a_killed_one_are_backed_up_too(kept: Kept, tmp_path: Path) -> None:
    kept.fill(250)
    kept.store.persist(sync=False)
    kept.fill(50)
    shutil.copytree(kept.root, tmp_path / "killed")
    kept.close()
    for name, root in (("closed", kept.root), ("killed", tmp_path / "killed")):
        back_up(small_config(root), tmp_path / f"{name}-backups", NOW)
        restore(tmp_path / f"{name}-backups", small_config(tmp_path / f"{name}-restored"))
        assert opened(tmp_path / f"{name}-restored")[0] == kept.expected


def test_a_record_that_is_half_written_is_left_out(kept: Kept, tmp_path: Path) -> None:
    kept.fill(100)
    log = kept.store.commit_log
    last = log.segments[-1]
    at = log.position - last.start
    last.view[at : at + 60] = bytes(last.view[at - 100 : at - 40])
    _, manifest = kept.back_up()
    assert manifest.end_offset == log.position
    restore(kept.folder, small_config(tmp_path / "restored"))
    found, report = opened(tmp_path / "restored")
    assert found == kept.expected and report.damages == []


def test_queues_of_a_deleted_topic_do_not_come_back(kept: Kept, tmp_path: Path) -> None:
    put(kept.store, "Gone", 0, b"old")
    kept.fill(100)
    kept.store.persist()
    kept.store.drop_topic("Gone")
    kept.fill(10)
    kept.back_up()
    restore(kept.folder, small_config(tmp_path / "restored"))
    assert opened(tmp_path / "restored")[0] == kept.expected
    assert not (tmp_path / "restored" / "consumequeue" / "Gone").exists()


def test_retention_takes_nothing_from_a_backup(kept: Kept, tmp_path: Path) -> None:
    kept.fill(400)
    kept.store.persist()
    kept.back_up()
    for segment in kept.store.commit_log.segments[:3]:
        segment.unlink()
    kept.store.commit_log.forget_oldest(3)
    _, manifest = kept.back_up()
    assert manifest.begin_offset == kept.store.commit_log.min_offset > 0
    first, second = names_in(kept.folder)
    for name in (first, second):
        restore(kept.folder, small_config(tmp_path / name), name)
    assert opened(tmp_path / first)[0] == kept.expected
    later = opened(tmp_path / second)[0]
    assert all(kept.expected[queue][-len(found) :] == found for queue, found in later.items())


def test_no_recovery_changes_what_a_backup_shares_with_the_store(kept: Kept, tmp_path: Path) -> None:
    """Damage in a full file: the backup has it as well; recovery covers it in the store, in a file of its own."""
    kept.fill(400)
    kept.store.persist()
    log = kept.store.commit_log
    full = log.segments[1]
    full.view[1000:1100] = b"\xa5" * 100
    files, _ = kept.back_up()
    linked = files.folder / "commitlog" / full.path.name
    assert linked.stat().st_ino == full.path.stat().st_ino
    before = contents(files.folder)
    kept.close()
    (kept.root / "eruca.mark").unlink()
    (kept.root / "checkpoint").unlink()
    (kept.root / "abort").touch()
    kept.store = open_store(kept.root)
    assert kept.store.recovery.damages
    assert full.path.read_bytes() != linked.read_bytes()
    assert linked.stat().st_ino != full.path.stat().st_ino
    kept.fill(50)
    assert contents(files.folder) == before
    assert not list(kept.root.rglob("*.own"))


def test_a_broker_on_the_backup_itself_changes_nothing_that_the_store_has(kept: Kept, tmp_path: Path) -> None:
    """Nobody should, but it is only a folder."""
    kept.fill(400)
    kept.store.persist()
    files, _ = kept.back_up()
    (files.folder / "commitlog" / sorted(os.listdir(files.folder / "commitlog"))[-1]).unlink()
    before = contents(kept.root)
    wrong = open_store(files.folder)
    put(wrong, "T", 0, b"wrong")
    wrong.close()
    assert contents(kept.root) == before


def test_the_manifest_names_each_file_with_its_length_and_crc(kept: Kept) -> None:
    kept.fill(200)
    (kept.root / "config" / "topics.json").write_text('{"a": 1}')
    (kept.root / "config" / "consumerOffset.json").write_text('{"b": 2}')
    files, manifest = kept.back_up()
    there = contents(files.folder)
    assert sorted(there) == sorted([*(entry.path for entry in manifest.files), "manifest.json"])
    for entry in manifest.files:
        data = there[entry.path]
        assert len(data) == entry.size and crc32(data[: entry.length]) == entry.crc
        assert not data[entry.length :].strip(b"\0")
    assert read_manifest(files.folder) == manifest
    assert there["config/topics.json"] == b'{"a": 1}'
    order = [entry.path for entry in manifest.files]
    log = next(number for number, path in enumerate(order) if path.startswith("commitlog/"))
    assert order.index("config/consumerOffset.json") < log < order.index("config/topics.json")


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "config"])
def test_a_damaged_backup_is_refused_and_leaves_nothing(kept: Kept, kind: str, tmp_path: Path) -> None:
    kept.fill(200)
    kept.store.persist()
    (kept.root / "config" / "topics.json").write_text('{"a": 1}')
    files, _ = kept.back_up()
    path = max(path for path in (files.folder / kind).rglob("*") if path.is_file())
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(BackupFault, match=r"is damaged: .* restore another backup"):
        restore(kept.folder, small_config(tmp_path / "restored"))
    assert contents(tmp_path / "restored") == {}


def test_a_backup_that_is_not_complete_is_none(kept: Kept, tmp_path: Path) -> None:
    kept.fill(10)
    files, _ = kept.back_up()
    files.folder.rename(files.folder.with_name(f"{files.folder.name}.partial"))
    with pytest.raises(BackupFault, match="there is none"):
        restore(kept.folder, small_config(tmp_path / "restored"))


def test_a_store_is_restored_into_an_empty_folder_only(kept: Kept, tmp_path: Path) -> None:
    kept.fill(10)
    kept.back_up()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(BackupFault, match="is not empty"):
        restore(kept.folder, small_config(tmp_path / "other"))
    with pytest.raises(BackupFault, match="is not empty"):
        restore(kept.folder, small_config(kept.root))


def test_a_manifest_cannot_lead_out_of_the_store(kept: Kept, tmp_path: Path) -> None:
    kept.fill(10)
    files, _ = kept.back_up()
    for path in ("../outside", "/outside", "config/../../outside", "commitlog/../../outside"):
        table = json.loads((files.folder / "manifest.json").read_bytes())
        table["files"][0]["path"] = path
        (files.folder / "manifest.json").write_text(json.dumps(table))
        with pytest.raises(BackupFault, match="lies outside a store"):
            restore(kept.folder, small_config(tmp_path / "restored"))
    assert not (tmp_path / "outside").exists()


def test_an_index_of_other_sizes_is_refused_with_what_to_do(kept: Kept) -> None:
    kept.fill(10)
    kept.store.persist()
    with pytest.raises(BackupFault, match=r"name the broker.conf of the store with -c"):
        back_up(StoreConfig(store_path_root_dir=kept.root), kept.folder, NOW)
    assert names_in(kept.folder) == [] and list(kept.folder.iterdir()) == []


def test_there_is_no_backup_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(BackupFault, match="holds no store"):
        back_up(small_config(tmp_path), tmp_path / "backups", NOW)
    assert not (tmp_path / "backups").exists()


# ---------------------------------------------------------------------- the format of a store


def newer(root: Path, number: int = 3) -> bytes:
    """Let a newer version have written the store."""
    data = (root / "eruca.mark").read_bytes()
    data = data[:7] + bytes([number]) + data[8:-4] + b"something new"
    data += crc32(data).to_bytes(4, "big")
    (root / "eruca.mark").write_bytes(data)
    return data


def test_a_store_of_a_newer_format_is_refused_and_not_changed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", Clock())
    put(store, "T", 0, b"x")
    store.close()
    newer(tmp_path / "store")
    before = contents(tmp_path / "store")
    sentence = "has format 3, and this version knows formats up to 2: start the version of Eruca that wrote it"
    with pytest.raises(StoreTooNew, match=sentence):
        open_store(tmp_path / "store")
    with pytest.raises(StoreTooNew, match=sentence):
        verify(tmp_path / "store", small_config(tmp_path / "store"))
    with pytest.raises(StoreTooNew, match=sentence):
        back_up(small_config(tmp_path / "store"), tmp_path / "backups", NOW)
    assert contents(tmp_path / "store") == before


def test_a_damaged_mark_is_no_newer_format(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, "T", 0, b"x")
    store.close()
    data = newer(tmp_path)
    (tmp_path / "eruca.mark").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    store = open_store(tmp_path)
    assert bodies(store, "T", 0) == [b"x"]
    store.close()


def test_files_that_are_being_made_are_left_out(kept: Kept, tmp_path: Path) -> None:
    """Between their creation and their size."""
    kept.fill(100)
    kept.store.persist()
    end = kept.store.commit_log.segments[-1].end
    (kept.root / "commitlog" / f"{end:020d}").touch()
    (kept.root / "index" / "20991231235959999").touch()
    (kept.root / "consumequeue" / "T" / "0" / f"{1 << 30:020d}").touch()
    kept.back_up()
    (kept.root / "commitlog" / f"{end:020d}").unlink()
    (kept.root / "index" / "20991231235959999").unlink()
    (kept.root / "consumequeue" / "T" / "0" / f"{1 << 30:020d}").unlink()
    restore(kept.folder, small_config(tmp_path / "restored"))
    (tmp_path / "restored" / "consumequeue" / "T" / "0" / f"{1 << 30:020d}").unlink()
    assert opened(tmp_path / "restored")[0] == kept.expected
