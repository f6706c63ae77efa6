"""The outbox: a message is sent if and only if the transaction that wrote it was committed, whatever is killed."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eruca.client import Message, PushConsumer, sync
from eruca.client.errors import BadConfig, BadMessage, StateError, UsageError
from eruca.client.outbox import Outbox, OutboxRelay
from tests.client.conftest import Lab, Seen, eventually
from tests.support.databases import opened
from tests.support.programme import amount


def connecting(path: Path) -> Callable[[], sqlite3.Connection]:
    return lambda: sqlite3.connect(path, timeout=30)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with opened(path) as connection:
        Outbox().create(connection)
        Outbox().create(connection)
        connection.execute("CREATE TABLE orders (name TEXT)")
    return path


def rows(path: Path) -> int:
    with opened(path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM outbox_messages").fetchone()
        return int(count)


async def test_what_was_committed_is_sent_and_what_was_rolled_back_is_not(lab: Lab, seen: Seen, database: Path) -> None:
    outbox, connection = Outbox(), sqlite3.connect(database)
    row = outbox.add(connection, Message("T", b"kept", tags="t", keys=["k1", "k2"], properties={"a": "b"}, flag=1))
    connection.commit()
    outbox.add(connection, Message("T", b"undone"))
    connection.rollback()
    async with (
        OutboxRelay(outbox, connecting(database), "relay", every=0.01, nameserver=lab.address),
        PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"),
    ):
        await seen.reaches(1)
        outbox.add(connection, Message("T", b"later"))
        connection.commit()
        await seen.reaches(2)
        await eventually(lambda: rows(database) == 0)
    connection.close()
    first = seen.messages[0]
    assert seen.bodies == [b"kept", b"later"]
    assert (first.tags, first.keys, first.flag) == ("t", ["k1", "k2"], 1)
    assert (first.properties["a"], first.properties["OUTBOX_ID"]) == ("b", row)


async def test_in_order(lab: Lab, seen: Seen, database: Path) -> None:
    outbox = Outbox()
    await lab.producer.create_topic("T", 1)
    with opened(database) as connection:
        for number in range(30):
            outbox.add(connection, Message("T", b"%d" % number))
    async with (
        OutboxRelay(outbox, connecting(database), "relay", every=0.01, most=7, in_order=True, nameserver=lab.address),
        PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first", orderly=True).subscribe("T"),
    ):
        await seen.reaches(30)
    assert seen.bodies == [b"%d" % number for number in range(30)]


async def test_a_broker_that_takes_nothing_for_a_while(
    lab: Lab, seen: Seen, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "eruca.client")
    await lab.producer.create_topic("T", 1)
    with opened(database) as connection:
        Outbox().add(connection, Message("T", b"x"))
    lab.fill_disk()
    async with OutboxRelay(Outbox(), connecting(database), "relay", every=0.01, nameserver=lab.address):
        await eventually(lambda: "could not be sent" in caplog.text)
        lab.fill_disk(full=False)
        await eventually(lambda: rows(database) == 0)
        await eventually(lambda: "the outbox of relay is sent again" in caplog.text)
    assert caplog.text.count("could not be sent") == 1


async def test_rows_that_cannot_be_sent_keep_up_no_other(lab: Lab, seen: Seen, database: Path) -> None:
    """Not even if there are more of them than the relay reads at once."""
    outbox, most = Outbox(), 3
    with opened(database) as connection:
        forbidden = '{"topic": "SCHEDULE_TOPIC_XXXX", "body": "", "properties": {}}'
        for number in range(2 * most):
            connection.execute("INSERT INTO outbox_messages VALUES (?, ?)", (f"0{number}", forbidden))
        connection.execute("INSERT INTO outbox_messages VALUES ('1', 'no message')")
        for number in range(2 * most):
            outbox.add(connection, Message("T", b"%d" % number))
    relay = OutboxRelay(outbox, connecting(database), "relay", every=0.01, most=most, nameserver=lab.address)
    async with relay, PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await seen.reaches(2 * most)
    assert sorted(seen.bodies) == [b"%d" % number for number in range(2 * most)]
    assert rows(database) == 2 * most + 1


async def test_a_stop_removes_what_was_sent(lab: Lab, seen: Seen, database: Path) -> None:
    """Also if its thread did not begin yet, which happens most with threads that wait long for each other."""
    await lab.producer.create_topic("T", 1)
    left, interval = [], sys.getswitchinterval()
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        sys.setswitchinterval(0.1)
        try:
            for number in range(1, 13):
                with opened(database) as connection:
                    Outbox().add(connection, Message("T", b"x"))
                async with OutboxRelay(Outbox(), connecting(database), "relay", every=0.01, nameserver=lab.address):
                    await seen.reaches(number)
                left.append(rows(database))
        finally:
            sys.setswitchinterval(interval)
    assert left == [0] * 12


async def test_a_database_that_is_away_for_a_while(lab: Lab, database: Path, caplog: pytest.LogCaptureFixture) -> None:
    away = True

    def connect() -> sqlite3.Connection:
        if away:
            raise OSError("no route to the database")
        return sqlite3.connect(database)

    with opened(database) as connection:
        Outbox().add(connection, Message("T", b"x"))
    async with OutboxRelay(Outbox(), connect, "relay", every=0.01, nameserver=lab.address):
        await eventually(lambda: "no route to the database" in caplog.text)
        away = False
        await eventually(lambda: rows(database) == 0)


def test_every_field_travels(database: Path) -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)
    messages = [
        Message("T", b"\x00\xff", flag=1, delay_level=1, wait_store=False),
        Message("T", b"x", delay=timedelta(seconds=1)),
        Message("T", b"x", delay=1),
        Message("T", b"x", deliver_at=when),
    ]
    connection = sqlite3.connect(database)
    for message in messages:
        Outbox().add(connection, message)
    read = [message for _, message in Outbox().first(connection, 9) if message is not None]
    connection.close()
    assert [(m.topic, m.body, m.flag, m.delay_level, m.wait_store) for m in read] == [
        (m.topic, m.body, m.flag, m.delay_level, m.wait_store) for m in messages
    ]
    assert [(m.delay, m.deliver_at) for m in read[1:]] == [(1, None), (1, None), (None, when.timestamp() * 1000)]


def test_wrong_calls(database: Path) -> None:
    with pytest.raises(BadConfig, match="a name of letters, digits and _ is expected"):
        Outbox("x; DROP TABLE orders")
    with pytest.raises(BadConfig, match='"qmark" or "format" is expected'):
        Outbox(paramstyle="named")  # type: ignore[arg-type]
    with pytest.raises(BadMessage, match="length is zero"), opened(database) as connection:
        Outbox().add(connection, Message("T", b""))
    with pytest.raises(UsageError, match="a function that connects is expected"):
        OutboxRelay(Outbox(), database, "relay", nameserver="mq:1")  # type: ignore[arg-type]


async def test_started_twice(lab: Lab, database: Path) -> None:
    async with OutboxRelay(Outbox(), connecting(database), "relay", nameserver=lab.address) as relay:
        with pytest.raises(StateError, match="started already"):
            await relay.start()
    await relay.stop()


def test_other_drivers() -> None:
    """Those that mark values by %s, and whose cursors are DB-API's and no more."""
    told: list[Any] = []

    class Cursor:
        def execute(self, statement: str, values: Any = ()) -> None:
            told.append((statement, values))

        def close(self) -> None:
            told.append("closed")

    class Connection:
        def cursor(self) -> Cursor:
            return Cursor()

    row = Outbox("box", paramstyle="format").add(Connection(), Message("T", b"x"))  # type: ignore[arg-type]
    (statement, values), closed = told
    assert (statement, values[0], closed) == ("INSERT INTO box (id, message) VALUES (%s, %s)", row, "closed")


def test_blocking(address: str, database: Path) -> None:
    with opened(database) as connection:
        Outbox().add(connection, Message("T", b"x"))
    with sync.OutboxRelay(Outbox(), connecting(database), "relay", every=0.01, nameserver=address):
        while rows(database):
            time.sleep(0.005)


WRITER = """
import random, sqlite3, sys, time
from eruca.client import Message
from eruca.client.outbox import Outbox

outbox, connection, chance = Outbox(), sqlite3.connect(sys.argv[1], timeout=30), random.Random(sys.argv[2])
while True:
    name = f"{sys.argv[2]}-{chance.randrange(1 << 60)}"
    connection.execute("INSERT INTO orders VALUES (?)", (name,))
    outbox.add(connection, Message("T", name.encode()))
    connection.rollback() if chance.random() < 0.2 else connection.commit()
    print(name, flush=True)
    time.sleep(0.002)
"""
RELAY = """
import asyncio, sqlite3, sys
from eruca.client.outbox import Outbox, OutboxRelay

async def main():
    connect = lambda: sqlite3.connect(sys.argv[1], timeout=30)
    async with OutboxRelay(Outbox(), connect, "relay", every=0.01, most=20, nameserver=sys.argv[2]):
        print("started", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def started(*programs: list[str]) -> list[subprocess.Popen[str]]:
    """Programs that start beside one another, when each has said its first line."""
    processes = [
        subprocess.Popen([sys.executable, "-c", *program], stdout=subprocess.PIPE, text=True) for program in programs
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline()
    return processes


@pytest.mark.slow
@pytest.mark.processes
def test_killed_at_any_point_every_committed_order_is_sent_and_no_other(address: str, database: Path) -> None:
    chance = random.Random(16)
    for number in range(amount(2, 8)):
        writer, relay = started([WRITER, str(database), str(number)], [RELAY, str(database), address])
        for process in (writer, relay) if chance.random() < 0.5 else (relay, writer):
            time.sleep(chance.random() * 0.15)
            process.kill()
            process.communicate()
    with sync.OutboxRelay(Outbox(), connecting(database), "relay", every=0.01, nameserver=address):
        while rows(database):
            time.sleep(0.01)
    with opened(database) as connection:
        orders = {name for (name,) in connection.execute("SELECT name FROM orders")}
    came: Counter[str] = Counter()
    by_row: dict[str, str] = {}
    with sync.PullConsumer(nameserver=address) as puller:
        for queue in puller.fetch_queues("T"):
            offset = 0
            while offset < puller.max_offset(queue):
                result = puller.pull(queue, offset)
                for record in result.records:
                    came[record.body.decode()] += 1
                    by_row[record.properties["OUTBOX_ID"]] = record.body.decode()
                offset = result.next_offset
    assert set(came) == orders, "none missing, none too many"
    assert sorted(by_row.values()) == sorted(orders), "one id for each, by which those that came twice are known"
    assert len(orders) > 4
