"""One bit flipped anywhere in a store: no wrong body comes out, at most one message is lost, and it is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eruca.broker.store import Store, StoreDamaged
from eruca.broker.store.scan import Scan
from eruca.protocol.record import Record, decode_record, decode_records
from tests.support.file_systems import Unsynced
from tests.support.programme import ENOUGH, chance, rounds
from tests.support.stores import Clock, open_store, put, small_config

COUNT = 150


def body(number: int) -> bytes:
    return b"the body of message %d;" % number * (1 + number % 4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("model")
    store = open_store(root, Clock(), file_system=Unsynced(), max_index_num=400)
    for number in range(COUNT):
        put(store, "T", number % 3, body(number), b"UNIQ_KEY\x01K%d\x02TAGS\x01t%d" % (number, number % 5))
    store.close()
    return root


def all_records(store: Store) -> list[Record]:
    """What a reader gets who goes on wherever he is told to."""
    records = []
    for queue in store.queue_ids("T"):
        offset = 0
        while offset < store.max_offset("T", queue):
            got = store.get("T", queue, offset, 32)
            assert got.next_begin_offset > offset
            offset = got.next_begin_offset
            records += decode_records(b"".join(got.buffers))
    return records


KNOWN = {body(number) for number in range(COUNT)}


def check(root: Path, where: str) -> None:
    """Open the damaged store, read all of it, and go on."""
    store = Store(small_config(root, max_index_num=400), Clock(), file_system=Unsynced())
    try:
        report = store.open()
    except StoreDamaged as damaged:
        pytest.fail(f"{where}: {damaged}")
    records = all_records(store)
    found = [record.body for record in records]
    assert set(found) <= KNOWN, where
    assert len(found) == len(set(found)), where
    for queue in range(3):
        offsets = [record.queue_offset for record in records if record.queue_id == queue]
        assert offsets == sorted(offsets), where
    lost = COUNT - len(found)
    assert lost <= 1, where
    if lost:
        assert report.damages or store.figures().damaged_records, f"{where}: lost in silence"
    for key in (3, 77):
        for data_found in store.query("T", f"K{key}", 32, 0, 2**62).records:
            assert decode_record(data_found).body == body(key), where
    put(store, "T", 0, b"afterwards")
    store.drain()
    assert store.max_offset("T", 0) >= COUNT // 3, where
    store.close()
    shutil.rmtree(root)


@ENOUGH
@pytest.mark.parametrize("stopped", ["in order", "killed"])
@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "index", "checkpoint", "eruca.mark", "lock"])
def test_a_flipped_bit(model: Path, tmp_path: Path, kind: str, stopped: str) -> None:
    random = chance(f"flips/{kind}/{stopped}")
    share = 1 if kind in ("commitlog", "consumequeue") else 5  # the other files are small
    for _ in rounds(100 // share, 2000 // share, seconds=10 / share):
        root = tmp_path / "store"
        shutil.copytree(model, root)
        if stopped == "killed":
            (root / "abort").touch()
        path = random.choice(sorted(path for path in (root / kind).rglob("*") if path.is_file()) or [root / kind])
        data = bytearray(path.read_bytes())
        used = len(bytes(data).rstrip(b"\0")) or 1
        bit = random.randrange(used * 8)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        check(root, f"{path.relative_to(root)} bit {bit}")


def test_a_store_that_does_not_look_is_found_out(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: CRCs are looked at neither at the start nor before a message is given out."""
    monkeypatch.setattr("eruca.broker.store.recover.Scan", lambda log, **_: Scan(log, check_crc=False))
    monkeypatch.setattr("eruca.broker.store.reader.Reader._belongs", lambda *_: True)
    root = tmp_path / "store"
    shutil.copytree(model, root)
    (log,) = [path for path in (root / "commitlog").iterdir() if b"message 7;" in path.read_bytes()]
    log.write_bytes(log.read_bytes().replace(b"message 7;", b"message 6;"))
    with pytest.raises(AssertionError):
        check(root, "message 7")
