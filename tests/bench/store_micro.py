"""What the store itself costs: microseconds per put, dispatch, get and query; with ``ERUCA_PURE=1`` without C.

Run: ``python -m tests.bench.store_micro [messages]`` (50,000). Prints min / median / max of five rounds.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eruca.broker.store import Matcher, Store, StoreConfig
from eruca.protocol.message import encode_properties, tags_code, unique_key
from eruca.protocol.record import BatchEntry, encode_batch, host_bytes
from tests.bench.command_line import numbers

ROUNDS = 5
HOST = host_bytes("127.0.0.1", 10911)
BODY = bytes(128)


def properties(number: int) -> bytes:
    key = unique_key(HOST[:4], 4242, 0x18B4AAC2, 1_000_000 + number // 40, number)
    return encode_properties({"UNIQ_KEY": key, "CLUSTER": "DefaultCluster", "TAGS": "TagA" if number % 100 else "Rare"})


def with_key(text: bytes, tag: str, key: str) -> bytes:
    """The properties with a business key and another tag."""
    return text.partition(b"\x02TAGS")[0] + f"\x02TAGS\x01{tag}\x02KEYS\x01{key}".encode()


def report(name: str, work: Callable[[], int]) -> None:
    costs = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        count = work()
        costs.append((time.process_time() - begin) / count * 1e6)
    print(f"{name:34} {min(costs):7.2f} {statistics.median(costs):7.2f} {max(costs):7.2f} us")


def main(messages: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="eruca-store-"))
    store = Store(StoreConfig(store_path_root_dir=folder))
    store.open()
    texts = [properties(number) for number in range(messages)]
    waiting = store._dispatch.pending
    kept: list[list[Any]] = []

    latin = [with_key(text, "TagB", f"order-{number}") for number, text in enumerate(texts)]
    chinese = [with_key(text, "标签", f"订单号码-{number}") for number, text in enumerate(texts)]

    def put(topic: str, queues: int, texts: list[bytes] = texts) -> int:
        append = store.appender.put
        for number, text in enumerate(texts):
            append(topic, number % queues, BODY, text, born_timestamp=1, born_host=HOST, store_host=HOST)
        kept.append(list(waiting))
        waiting.clear()
        return messages

    def dispatch() -> int:
        work = kept.pop(0)
        for start in range(0, len(work), 64):
            waiting[:] = work[start : start + 64]
            store.drain()
        store.persist(sync=False)
        return len(work)

    batch = encode_batch(BatchEntry(0, BODY, text) for text in texts[:32])

    def put_batch() -> int:
        for _ in range(messages // 32):
            store.appender.put_batch("Batch", 0, batch, born_timestamp=1, born_host=HOST, store_host=HOST)
        return messages // 32 * 32

    def get(topic: str, queue: int, match: Matcher | None = None) -> Callable[[], int]:
        def work() -> int:
            offset = calls = 0
            end = store.max_offset(topic, queue)
            while offset < end:
                got = store.get(topic, queue, offset, 32, match)
                offset = got.next_begin_offset
                calls += 1
            return calls

        return work

    def query(topic: str, key: str) -> Callable[[], int]:
        def work() -> int:
            for number in range(0, 2000, 10):
                assert store.query(topic, key % number, 32, 0, 2**62).records
            return 200

        return work

    print(f"{messages} messages of 128 B                  min  median     max")
    report("put, 8 queues", lambda: put("Eight", 8))
    report("dispatch (unit, index), of 64", dispatch)
    report("put, 1 queue", lambda: put("One", 1))
    report("dispatch", dispatch)
    report("put, keys in Latin", lambda: put("Latin", 8, latin))
    report("dispatch, keys in Latin", dispatch)
    report("put, keys in Chinese", lambda: put("Chinese", 8, chinese))
    report("dispatch, keys in Chinese", dispatch)
    report("batch of 32, put, a message", put_batch)
    report("batch of 32, dispatch, a message", lambda: store.drain() or 1)
    report("get of 32, contiguous", get("One", 0))
    report("get of 32, one of 8 queues", get("Eight", 3))
    report("get by one tag of 100", get("One", 0, Matcher(frozenset({tags_code("Rare")}))))
    report("query by a key in Latin", query("Latin", "order-%d"))
    report("query by a key in Chinese", query("Chinese", "订单号码-%d"))
    store.close()
    begin = time.perf_counter()
    store = Store(StoreConfig(store_path_root_dir=folder))
    store.open()
    print(f"start after a clean stop: {time.perf_counter() - begin:.3f} s, {store.recovery.records} records read again")
    report("get of 32, of an earlier run", get("One", 0))
    report("get by tag, of an earlier run", get("One", 0, Matcher(frozenset({tags_code("Rare")}))))
    store.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(*numbers(__doc__, messages=50_000))
