"""Deduplicate: what was processed is left out, and a crash at any point neither repeats an effect nor loses one."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca.client import Backoff, Later, Message, PushConsumer, ReceivedMessage, Reject, sync
from eruca.client.deduplication import Deduplicate, RedisMarks, SqliteMarks
from eruca.client.errors import BadConfig, StateError, UsageError
from tests.client.conftest import Lab, Seen, eventually
from tests.support.databases import opened
from tests.support.ports import free_port
from tests.support.programme import amount

redis_only = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="no redis-server: apt-get install redis-server"
)


@pytest.fixture
def marks(tmp_path: Path) -> Iterator[SqliteMarks]:
    marks = SqliteMarks(tmp_path / "shop.db")
    yield marks
    marks.close()


class Orders:
    """What the listener wrote, by the marks' own transaction."""

    def __init__(self, marks: SqliteMarks, path: Path) -> None:
        self._marks = marks
        self._path = path
        with opened(path) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (body TEXT)")

    def add(self, message: ReceivedMessage) -> None:
        self._marks.connection.execute("INSERT INTO orders VALUES (?)", (message.body.decode(),))

    @property
    def all(self) -> list[str]:
        with opened(self._path) as connection:
            return sorted(body for (body,) in connection.execute("SELECT body FROM orders"))


@pytest.fixture
def orders(marks: SqliteMarks, tmp_path: Path) -> Orders:
    return Orders(marks, tmp_path / "shop.db")


async def twice(lab: Lab, *bodies: bytes) -> None:
    """Each message two times, by its keys."""
    for body in (*bodies, *bodies):
        await lab.producer.send(Message("T", body, keys=f"order {body.decode()}"))


def consumer(lab: Lab, listener: Any, middleware: Deduplicate, group: str = "g", **options: Any) -> PushConsumer:
    made: PushConsumer = PushConsumer(
        group, listener, nameserver=lab.address, start_from="first", middleware=[middleware], **options
    )
    return made.subscribe("T")


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_the_second_one_does_not_reach_the_listener(
    lab: Lab, marks: SqliteMarks, orders: Orders, kind: str
) -> None:
    async def coroutine(message: ReceivedMessage) -> None:
        orders.add(message)

    await twice(lab, b"1", b"2", b"3")
    async with consumer(lab, {"coroutine": coroutine, "function": orders.add}[kind], Deduplicate(marks, by="keys")):
        await lab.stores("g", "T", [end or 0 for end in await lab.ends("T")])
    assert orders.all == ["1", "2", "3"]


@pytest.mark.parametrize("by", ["id", "keys", "function"])
@pytest.mark.parametrize("shared", [True, False])
async def test_each_group_has_marks_of_its_own(lab: Lab, tmp_path: Path, by: str, shared: bool) -> None:
    """Of groups that share a table, and even the object, each gets every message once; so does a plain function."""
    await twice(lab, b"1", b"2")
    named: Any = (lambda message: message.body.decode()) if by == "function" else by
    first = SqliteMarks(tmp_path / "shop.db")
    second = first if shared else SqliteMarks(tmp_path / "shop.db")
    expected = [b"1", b"1", b"2", b"2"] if by == "id" else [b"1", b"2"]
    one, two = Seen(), Seen()
    async with (
        consumer(lab, one.coroutine, Deduplicate(first, by=named)),
        consumer(lab, two.function, Deduplicate(second, by=named), "h"),
    ):
        for group in ("g", "h"):
            await lab.stores(group, "T", [end or 0 for end in await lab.ends("T")])
    assert sorted(one.bodies) == sorted(two.bodies) == expected
    first.close()
    second.close()


async def test_keys_are_those_of_a_topic(lab: Lab, marks: SqliteMarks, seen: Seen) -> None:
    for topic in ("T", "Payments"):
        await lab.producer.send(Message(topic, topic.encode(), keys="order 1"))
    async with consumer(lab, seen.coroutine, Deduplicate(marks, by="keys")).subscribe("Payments"):
        await seen.reaches(2)


async def test_marks_of_an_older_version_are_those_of_the_first_group(
    lab: Lab, marks: SqliteMarks, tmp_path: Path
) -> None:
    """They name neither group nor topic: its table was to be that of one group."""
    with opened(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE processed_messages (key TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID")
        connection.execute("INSERT INTO processed_messages VALUES ('order 1', ?)", (time.time(),))
    await lab.send("T", b"without keys")
    await twice(lab, b"1", b"2")
    for group, expected in (("g", [b"2", b"without keys"]), ("h", [b"1", b"2", b"without keys"])):
        seen = Seen()
        async with consumer(lab, seen.coroutine, Deduplicate(marks, by="keys"), group):
            await lab.stores(group, "T", [end or 0 for end in await lab.ends("T")])
        assert sorted(seen.bodies) == expected


async def test_what_fails_is_neither_marked_nor_written(lab: Lab, marks: SqliteMarks, orders: Orders) -> None:
    tried = Seen()

    async def listener(message: ReceivedMessage) -> Later | None:
        tried.add(message)
        orders.add(message)
        if len(tried.messages) == 1:
            raise ValueError("after the work")
        return Later(seconds=0.05) if len(tried.messages) == 2 else None

    await lab.send("T", b"x")
    async with consumer(lab, listener, Deduplicate(marks), retry=Backoff(first=0.05)):
        await tried.reaches(3)
        await eventually(lambda: orders.all == ["x"])


async def test_of_a_list_the_known_ones_are_left_out(lab: Lab, marks: SqliteMarks, orders: Orders) -> None:
    lists: list[list[bytes]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        lists.append([message.body for message in messages])
        for message in messages:
            orders.add(message)

    await lab.producer.create_topic("T", 1)
    await twice(lab, b"1", b"2")
    options: dict[str, Any] = {"consume_message_batch_max_size": 3, "orderly": True}
    async with consumer(lab, listener, Deduplicate(marks, by=lambda message: message.body.decode()), **options):
        await lab.stores("g", "T", [4])
    assert (sorted(body for each in lists for body in each), orders.all) == ([b"1", b"2"], ["1", "2"])


async def test_of_a_list_what_is_said_to_be_consumed_is_marked(lab: Lab, marks: SqliteMarks) -> None:
    """The numbers are those of the list that came, though the listener counts in the one that it got."""
    known = [Fake("a"), Fake("b"), Fake("c"), Fake("d")]
    given: list[list[str]] = []
    middleware = Deduplicate(marks, by=lambda message: message.message_id)

    async def call_next(messages: Any) -> Any:
        given.append([each.message_id for each in messages])
        return outcome

    outcome: Any = None
    assert await middleware(known[:1], call_next) is None
    outcome = Later(consumed=1)
    assert await middleware(known, call_next) == Later(consumed=2), "a, which is known, and b"
    outcome = Reject(consumed=0)
    assert await middleware(known, call_next) == Reject(consumed=0)
    outcome = None
    assert await middleware(known, call_next) is None
    assert await middleware(known, call_next) is None
    assert given == [["a"], ["b", "c", "d"], ["c", "d"], ["c", "d"]]


class Fake:
    """Enough of a message."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.keys: list[str] = []
        self.properties: dict[str, str] = {}


async def test_marks_are_forgotten_after_a_while(tmp_path: Path) -> None:
    async def call_next(message: Any) -> None:
        pass

    for number in range(3):
        marks = SqliteMarks(tmp_path / "marks.db", keep=0.001)
        await Deduplicate(marks)(Fake(str(number)), call_next)
        marks.close()
        await asyncio.sleep(0.005)
    with opened(tmp_path / "marks.db") as connection:
        assert [mark for (mark,) in connection.execute("SELECT mark FROM processed_messages")] == ["//2"]


def test_wrong_calls(marks: SqliteMarks) -> None:
    with pytest.raises(UsageError, match=r"SqliteMarks\(...\) or RedisMarks\(...\) is expected"):
        Deduplicate("shop.db")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match='"id", "keys" or a function is expected'):
        Deduplicate(marks, by="tags")  # type: ignore[arg-type]
    with pytest.raises(BadConfig, match="a name of letters, digits and _ is expected"):
        SqliteMarks("shop.db", table="x; DROP TABLE orders")
    with pytest.raises(StateError, match="while it runs"):
        _ = marks.connection


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path), "--bind", "127.0.0.1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Ready to accept connections" in line:
            break
    yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    process.communicate(timeout=10)


@redis_only
@pytest.mark.processes
async def test_by_redis(lab: Lab, redis_url: str) -> None:
    seen, marks = Seen(), RedisMarks(redis_url)
    await twice(lab, b"1", b"2", b"3")
    async with consumer(lab, seen.coroutine, Deduplicate(marks, by="keys"), orderly=True):
        await lab.stores("g", "T", [end or 0 for end in await lab.ends("T")])
    again = RedisMarks(redis_url, prefix="another:")
    async with again.processing(["g/T/order 1"]) as processing:
        assert not processing.known
    async with marks.processing(["g/T/order 1", "g/T/order 9", "h/T/order 1"]) as processing:
        assert processing.known == {"g/T/order 1"}
    await marks.close()
    await again.close()
    # The two of a pair may be in two queues, and at two listeners at once: Redis cannot tell these apart.
    assert set(seen.bodies) == {b"1", b"2", b"3"} and len(seen.bodies) <= 6


@redis_only
async def test_a_redis_that_is_away_is_told_at_the_start(lab: Lab) -> None:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    away: Any = Redis(port=free_port(), retry=Retry(NoBackoff(), 0))
    with pytest.raises(StateError, match=r"^The marks cannot be kept: Redis cannot be used \(.*\)\. Start it"):
        await consumer(lab, Seen().coroutine, Deduplicate(RedisMarks(away))).start()
    await away.aclose()


async def test_a_file_that_is_no_database_is_told_at_the_start(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    file.write_text("a shopping list of more than a hundred characters" * 9)
    marks = SqliteMarks(file)
    with pytest.raises(BadConfig, match=r'^database=".*shop\.db" cannot be used: file is not a database$'):
        await consumer(lab, Seen().coroutine, Deduplicate(marks)).start()
    marks.close()


WORKER = """
import asyncio, sys
from eruca.client import PushConsumer
from eruca.client.deduplication import Deduplicate, SqliteMarks

marks = SqliteMarks(sys.argv[2])

async def listener(message):
    print("work", flush=True)
    marks.connection.execute("INSERT INTO orders VALUES (?)", (message.body.decode(),))
    await asyncio.sleep(0.004)

async def main():
    consumer = PushConsumer("g", listener, nameserver=sys.argv[1], start_from="first", middleware=[Deduplicate(marks)])
    async with consumer.subscribe("T"):
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.processes
def test_killed_at_any_point_each_effect_is_there_once(address: str, tmp_path: Path) -> None:
    database, count, chance = tmp_path / "shop.db", 80, random.Random(16)
    with opened(database) as connection:
        connection.execute("CREATE TABLE orders (body TEXT)")
    with sync.Producer("p", nameserver=address) as producer:
        for future in [producer.start_send(Message("T", b"%d" % number)) for number in range(count)]:
            future.result(10)

    def effects() -> Counter[str]:
        with opened(database, timeout=30) as connection:
            return Counter(body for (body,) in connection.execute("SELECT body FROM orders"))

    worked = 0
    for last in (*[False] * amount(2, 8), True):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, address, str(database)], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        if last:
            deadline = time.monotonic() + 60
            while len(effects()) < count and time.monotonic() < deadline:
                time.sleep(0.02)
        else:
            for _ in range(chance.randrange(1, 15)):
                worked += bool(worker.stdout.readline())
            time.sleep(chance.random() * 0.004)
        worker.kill()
        worked += len(worker.communicate()[0].splitlines())
    assert effects() == Counter(str(number) for number in range(count)), "none twice, none missing"
    assert worked > count, "some were begun twice, so the kills were felt"
