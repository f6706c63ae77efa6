"""A store that one wrote is opened by the other: Eruca's by Apache's broker, Apache's by Eruca."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.broker.failover.epochs import Epoch
from eruca.broker.store import FileSystem, Store, StoreConfig, verify
from eruca.broker.store.cut import intend_cut
from eruca.broker.store.epoch_file import read_epochs, write_epochs
from eruca.protocol.record import BatchEntry, Record, decode_records, encode_batch
from tests.compat.replicas import pulled
from tests.support import raw
from tests.support.apache import SMALL_STORE, ApacheBroker, ApacheNameServer
from tests.support.stores import bodies, put, read

COUNT = 3000
QUEUES = 4
PULL, SEND, SEND_BATCH, SEARCH_BY_TIME, QUERY = 11, 310, 320, 29, 12
LOG_SIZE = 1 << 20


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=LOG_SIZE,
        mapped_file_size_consume_queue=200 * 20,
        max_hash_slot_num=int(SMALL_STORE["maxHashSlotNum"]),
        max_index_num=int(SMALL_STORE["maxIndexNum"]),
        disk_max_used_space_ratio=100,
        disk_space_warning_level_ratio=2,
    )


SIZES = {"mappedFileSizeCommitLog": str(LOG_SIZE), "mappedFileSizeConsumeQueue": "4000", "checkCRCOnRecover": "true"}


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheNameServer]:
    server = ApacheNameServer("4.9.7", tmp_path_factory.mktemp("names"))
    yield server
    server.stop()


def text(number: int) -> bytes:
    return b"message %d;" % number * (1 + number % 60)


def written(root: Path) -> Store:
    """A store with messages in four queues, over several log and queue files."""
    store = Store(config(root))
    store.open()
    for number in range(COUNT):
        properties = b"UNIQ_KEY\x01%032d\x02KEYS\x01k%d\x02TAGS\x01%s" % (
            number,
            number,
            b"odd" if number % 2 else b"even",
        )
        put(store, "T", number % QUEUES, text(number), properties)
        if number % 50 == 0:
            store.drain()
            store.persist(sync=False)
    store.drain()
    topic = {
        "order": False,
        "perm": 6,
        "readQueueNums": QUEUES,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": QUEUES,
    }
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {"T": topic}}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    return store


def once(records: list[Record]) -> list[bytes]:
    """What a Java consumer keeps of them: one message per queue offset, in order."""
    return [record.body for _, record in sorted({record.queue_offset: record for record in records}.items())]


@pytest.mark.parametrize("stopped", ["in order", "killed"])
def test_apache_opens_a_store_of_eruca(tmp_path: Path, name_server: ApacheNameServer, stopped: str) -> None:
    store = written(tmp_path / "store")
    time = store.store_time("T", 2, 400)
    times = [store.store_time("T", 2, offset) for offset in range(COUNT // QUEUES)]
    store.close()
    if stopped == "killed":
        (tmp_path / "store" / "abort").touch()
    broker = ApacheBroker("4.9.7", tmp_path, name_server.address, SIZES)
    try:
        for queue in range(QUEUES):
            records = pulled(broker, queue)
            assert [record.body for record in records] == [text(number) for number in range(queue, COUNT, QUEUES)]
            assert [record.queue_offset for record in records] == list(range(COUNT // QUEUES))
        assert len(pulled(broker, 1, "odd")) == COUNT // QUEUES and pulled(broker, 1, "even") == []
        asked = {"topic": "T", "queueId": "2", "timestamp": str(time)}
        header, _ = raw.ask(broker.address, SEARCH_BY_TIME, asked)
        # Apache chooses the file to search by its time of change, which is that of its last write-out.
        assert abs(times[int(header["extFields"]["offset"])] - time) <= 100
        query = {"topic": "T", "key": "k777", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)}
        header, body = raw.ask(broker.address, QUERY, query)
        assert [record.body for record in decode_records(body)] == [text(777)]
    finally:
        broker.stop()
    store = Store(config(tmp_path / "store"))
    report = store.open()
    assert report.damages == [] and report.lost_units == []
    assert [len(bodies(store, "T", queue)) for queue in range(QUEUES)] == [COUNT // QUEUES] * QUEUES
    store.close()


def test_apache_opens_a_store_whose_log_was_cut(tmp_path: Path, name_server: ApacheNameServer) -> None:
    store = written(tmp_path / "store")
    whole = COUNT // QUEUES * QUEUES // 2
    unit = store.unit("T", whole % QUEUES, whole // QUEUES)
    assert unit is not None and store.close() is None
    write_epochs(tmp_path / "store", (Epoch(1, 0), Epoch(2, unit[0])))
    assert intend_cut(config(tmp_path / "store"), unit[0], FileSystem()) is not None
    store.open()
    assert store.close() is None
    broker = ApacheBroker("4.9.7", tmp_path, name_server.address, SIZES)
    try:
        for queue in range(QUEUES):
            assert [record.body for record in pulled(broker, queue)] == [
                text(number) for number in range(queue, whole, QUEUES)
            ]
    finally:
        broker.stop()
    assert read_epochs(tmp_path / "store") == (Epoch(1, 0),)
    store = Store(config(tmp_path / "store"))
    assert store.open().damages == []
    assert [len(bodies(store, "T", queue)) for queue in range(QUEUES)] == [whole // QUEUES] * QUEUES
    store.close()


@pytest.mark.parametrize("stopped", ["in order", "killed"])
def test_apache_opens_a_store_whose_damage_eruca_covered(
    tmp_path: Path, name_server: ApacheNameServer, stopped: str
) -> None:
    store = written(tmp_path / "store")
    places = [store.unit("T", 1, 700), store.unit("T", 3, COUNT // QUEUES - 2)]
    store.close()
    for place in places:
        assert place is not None
        with (tmp_path / "store" / "commitlog" / f"{place[0] // LOG_SIZE * LOG_SIZE:020d}").open("r+b") as file:
            file.seek(place[0] % LOG_SIZE + 20)
            file.write(b"\xa5" * (place[1] - 20))
    (tmp_path / "store" / "abort").touch()
    store = Store(config(tmp_path / "store"))
    assert store.open().lost_units == [("T", 1, 700), ("T", 3, COUNT // QUEUES - 2)]
    left = {queue: bodies(store, "T", queue) for queue in range(QUEUES)}
    assert sum(map(len, left.values())) == COUNT - 2
    store.close()
    if stopped == "killed":
        (tmp_path / "store" / "abort").touch()

    broker = ApacheBroker("4.9.7", tmp_path, name_server.address, SIZES)
    try:
        for queue in range(QUEUES):
            assert once(pulled(broker, queue)) == left[queue]
    finally:
        broker.discard()


def test_eruca_opens_a_store_of_apache(tmp_path: Path, name_server: ApacheNameServer) -> None:
    broker = ApacheBroker("4.9.7", tmp_path, name_server.address, SIZES)
    sent: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
    try:
        for number in range(600):
            queue = number % QUEUES
            fields = {
                "a": "PG",
                "b": "T",
                "c": "TBW102",
                "d": str(QUEUES),
                "e": str(queue),
                "f": "0",
                "g": "1700000000000",
                "h": "0",
                "i": f"KEYS\x01k{number}\x02TAGS\x01t",
                "j": "0",
                "k": "false",
                "l": "0",
                "m": "false",
            }
            if number % 100 == 99:
                fields["m"] = "true"
                batch = [BatchEntry(0, b"batch %d/%d" % (number, part), b"TAGS\x01t") for part in range(3)]
                header, _ = raw.ask(broker.address, SEND_BATCH, fields, encode_batch(batch))
                sent[queue] += [entry.body for entry in batch]
            else:
                header, _ = raw.ask(broker.address, SEND, fields, text(number))
                sent[queue].append(text(number))
            assert header["code"] == 0, header
    finally:
        broker.stop()

    assert verify(tmp_path / "store", config(tmp_path / "store")).findings == []
    for stopped in ("in order", "killed"):
        if stopped == "killed":
            (tmp_path / "store" / "abort").touch()
            (tmp_path / "store" / "eruca.mark").unlink()
        store = Store(config(tmp_path / "store"))
        report = store.open()
        assert report.damages == [] and report.notes == []
        for queue in range(QUEUES):
            assert [record.body for record in read(store, "T", queue)] == sent[queue]
        found = store.query("T", "k77", 32, 0, 2**62).records
        assert [record.body for record in decode_records(b"".join(found))] == [text(77)]
        put(store, "T", 0, b"from Eruca", b"TAGS\x01t")
        sent[0].append(b"from Eruca")
        store.drain()
        store.close()

    broker = ApacheBroker("4.9.7", tmp_path, name_server.address, SIZES)
    try:
        for queue in range(QUEUES):
            assert [record.body for record in pulled(broker, queue)] == sent[queue]
    finally:
        broker.discard()
