"""What `eruca store verify` says of a store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eruca.broker.store import Store, StoreConfig, StoreLocked, Verification, verify
from tests.support.stores import Clock, put, queue_units, small_config


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return small_config(tmp_path, max_index_num=400)


@pytest.fixture
def root(tmp_path: Path, config: StoreConfig) -> Path:
    store = Store(config, Clock())
    store.open()
    for number in range(100):
        body = b"a body of message %d;" % number * 5
        put(store, "T", number % 2, body, b"KEYS\x01a%d b%d\x02TAGS\x01t" % (number, number))
    store.close()
    return tmp_path


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def sentences(result: Verification) -> list[str]:
    return [finding.sentence for finding in result.findings]


def test_a_sound_store(root: Path, config: StoreConfig) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    result = verify(root, config)
    assert result.sound and result.notes == []
    assert (result.records, result.queues, result.units, result.index_entries) == (100, 2, 100, 200)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_damaged_record(root: Path, config: StoreConfig) -> None:
    log = root / "commitlog" / ("0" * 20)
    size = int.from_bytes(log.read_bytes()[:4], "big")
    change(log, 90, b"\xff")
    result = verify(root, config)
    assert result.findings[0].path == log
    assert result.findings[0].sentence.startswith(f"offsets 0 to {size} ({size} bytes) hold no sound record")
    assert "unit 0 points to offset 0, where no sound message of this queue lies" in sentences(result)


def test_after_recovery_the_lost_slot_is_a_note(root: Path, config: StoreConfig) -> None:
    change(root / "commitlog" / ("0" * 20), 90, b"\xff")
    store = Store(config, Clock())
    store.open()
    store.close()
    result = verify(root, config)
    assert result.sound
    assert result.notes == ["the message of T queue 0 offset 0 was lost; its unit repeats offset 1"]


def test_a_wrong_unit(root: Path, config: StoreConfig) -> None:
    queue = root / "consumequeue" / "T" / "1"
    change(queue / ("0" * 20), 3 * 20 + 15, b"\x01")
    change(queue / ("0" * 20), 5 * 20 + 7, b"\x01")
    result = verify(root, config)
    assert {finding.path for finding in result.findings} == {queue}
    assert sentences(result)[0].startswith("unit 3 says")
    assert "unit 5 points to offset" in sentences(result)[1]


def test_a_zero_unit_where_a_queue_begins(root: Path, config: StoreConfig) -> None:
    """The log begins later, and may have the message of the unit."""
    (root / "commitlog" / ("0" * 20)).unlink()
    assert verify(root, config).sound
    units = queue_units(root)["T/0"]
    first = next(at for at in range(0, len(units), 20) if int.from_bytes(units[at : at + 8], "big") >= 8192)
    change(root / "consumequeue" / "T" / "0" / f"{first // 400 * 400:020d}", first % 400, bytes(20))
    (found,) = sentences(verify(root, config))
    assert found.startswith(f"unit {first // 20} ")


def test_files_that_are_missing_or_short(root: Path, config: StoreConfig) -> None:
    files = sorted((root / "commitlog").iterdir())
    files[1].unlink()
    with files[0].open("r+b") as file:
        file.truncate(8000)
    (root / "consumequeue" / "T" / "0" / "00000000000000000400").unlink()
    found = sentences(verify(root, config))
    assert "the file has 8000 bytes instead of 8192" in found
    assert "the file or files from 00000000000000008192 to before this one are missing" in found
    assert "the file that begins at 00000000000000000400 is missing before this one" in found


def test_an_index_with_a_wrong_entry(root: Path, config: StoreConfig) -> None:
    (path,) = (root / "index").iterdir()
    change(path, 40 + 50 * 4 + 7 * 20 + 3, b"\xee")
    found = sentences(verify(root, config))
    assert any(sentence.startswith("entry 7 has the hash of none of the keys") for sentence in found)


def test_an_index_file_that_was_made_a_moment_before_a_kill(root: Path, config: StoreConfig) -> None:
    """It has no header yet, or the first entries without one; the next start goes on with it, or makes it again."""
    (path,) = (root / "index").iterdir()
    new = path.with_name(str(int(path.name) + 1))
    new.write_bytes(bytes(path.stat().st_size))
    (root / "abort").touch()
    assert verify(root, config).findings == []
    slot, entry = 40 + 4 * 7, 40 + 4 * config.max_hash_slot_num + 20
    change(new, slot, (1).to_bytes(4, "big"))
    change(new, entry, b"\x12" * 20)
    assert verify(root, config).findings == []
    store = Store(config, Clock())
    assert store.open().damages == []
    store.close()
    assert verify(root, config).findings == []


def test_an_index_of_unknown_sizes_is_not_judged(root: Path) -> None:
    result = verify(root)
    assert result.sound
    assert "do not fit maxHashSlotNum 5000000" in result.notes[0]


def test_messages_missing_in_a_queue(root: Path, config: StoreConfig) -> None:
    with (root / "consumequeue" / "T" / "1" / "00000000000000000800").open("r+b") as file:
        file.truncate(160)
        file.truncate(400)
    assert sentences(verify(root, config)) == ["2 messages at the end of the log are not in this consume queue"]
    (root / "abort").touch()
    result = verify(root, config)
    assert result.sound and len(result.notes) == 2


def test_a_store_in_use_or_none(tmp_path: Path, root: Path, config: StoreConfig) -> None:
    store = Store(config, Clock())
    store.open()
    with pytest.raises(StoreLocked):
        verify(root, config)
    store.close()
    with pytest.raises(FileNotFoundError, match=r"holds no store: it has no folder commitlog$"):
        verify(tmp_path / "elsewhere")
    shutil.copytree(root, tmp_path / "standalone" / "store")
    with pytest.raises(FileNotFoundError, match=r"; the store is in .*/standalone/store$"):
        verify(tmp_path / "standalone")
