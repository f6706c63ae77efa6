"""Small stores for tests: configuration, messages, and what a reader sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from eruca.broker.store import FileSystem, Matcher, PutStatus, Store, StoreConfig
from eruca.protocol.record import Record, decode_records, host_bytes
from eruca.remoting.clock import now_ms

HOST = host_bytes("127.0.0.1", 10911)


class Clock:
    """A clock that stands until it is moved; ms."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def small_config(root: Path, **changes: object) -> StoreConfig:
    """Files small enough for a few dozen messages each."""
    sizes: dict[str, object] = {
        "mapped_file_size_commit_log": 8192,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 50,
        "max_index_num": 60,
        "disk_space_warning_level_ratio": 0.999,
        "disk_space_clean_forcibly_ratio": 0.999,
        "disk_max_used_space_ratio": 100,
        "delete_when": "25",
    }
    return StoreConfig(store_path_root_dir=root, **(sizes | changes))  # type: ignore[arg-type]


def open_store(
    root: Path,
    clock: Callable[[], int] = now_ms,
    *,
    follows: bool = False,
    file_system: FileSystem | None = None,
    **changes: object,
) -> Store:
    """An open store with such a configuration."""
    store = Store(small_config(root, **changes), clock, follows=follows, file_system=file_system)
    store.open()
    return store


def put(store: Store, topic: str, queue: int, body: bytes, properties: bytes = b"", *, sys_flag: int = 0) -> int:
    """Store one message; returns its commit log offset."""
    result = store.appender.put(
        topic, queue, body, properties, sys_flag=sys_flag, born_timestamp=1, born_host=HOST, store_host=HOST
    )
    assert result.status is PutStatus.OK
    return result.physical_offset


def read(store: Store, topic: str, queue: int, match: Matcher | None = None) -> Iterator[Record]:
    """All messages of a queue, each buffer checked by its CRC."""
    offset = store.min_offset(topic, queue)
    while offset < store.max_offset(topic, queue):
        got = store.get(topic, queue, offset, 32, match)
        records = [record for buffer in got.buffers for record in decode_records(buffer, check=True)]
        assert len(records) == got.message_count and sum(record.size for record in records) == got.size
        yield from records
        assert got.next_begin_offset > offset
        offset = got.next_begin_offset


def bodies(store: Store, topic: str, queue: int, match: Matcher | None = None) -> list[bytes]:
    """The bodies of all messages of a queue."""
    return [record.body for record in read(store, topic, queue, match)]


def queue_units(root: Path) -> dict[str, bytes]:
    """The units in the consume queue files, by ``topic/queue``, trailing zeros left out."""
    units: dict[str, bytearray] = {}
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        data = path.read_bytes()
        end = len(data.rstrip(b"\0"))
        end += (len(data) - end) % 20  # the last unit may end with zeros
        units.setdefault(f"{path.parent.parent.name}/{path.parent.name}", bytearray()).extend(data[:end])
    return {name: bytes(data) for name, data in units.items() if data}


def index_contents(root: Path) -> list[bytes]:
    """What the index files hold, without their names (which are times)."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def spoil(root: Path, offset: int, size: int = 4) -> None:
    """Write something else into the log of a store, within one file."""
    start, file = max((int(path.name), path) for path in (root / "commitlog").iterdir() if int(path.name) <= offset)
    with file.open("r+b") as log:
        log.seek(offset - start)
        log.write(b"\xff" * size)
