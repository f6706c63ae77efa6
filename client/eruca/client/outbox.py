"""Outbox: messages are written as rows in the user's own database transaction, and sent by a relay.

Owns the table, the form of a row, and the relay's order: a row is deleted only after a broker answered SEND_OK for its
message. So a message is sent if and only if its transaction was committed, at least once; after a crash it may be sent
twice, with the same property OUTBOX_ID, by which ``Deduplicate`` knows it. Any DB-API connection serves: only INSERT,
SELECT, DELETE and a table of two text columns are used.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeVar

from eruca.client.checks import check_kind, check_least
from eruca.client.config import ClientSettings, check_positive
from eruca.client.deduplication import OUTBOX_ID
from eruca.client.environment import known_options
from eruca.client.errors import BadConfig, ClientError, StateError, UsageError
from eruca.client.lifecycle import Startable
from eruca.client.log import log
from eruca.client.message import Message, check_message
from eruca.client.moments import moment
from eruca.client.outcomes import SendStatus
from eruca.client.producing.producer import Producer

MAX_BODY = 4 * 1024 * 1024
_PLACES = {"qmark": "?", "format": "%s"}
T = TypeVar("T")


class _Cursor(Protocol):
    def execute(self, statement: str, values: Any = ..., /) -> Any: ...
    def fetchall(self) -> Any: ...
    def close(self) -> Any: ...


class DatabaseConnection(Protocol):
    """A connection of Python's DB-API (PEP 249), such as sqlite3's or psycopg's."""

    def cursor(self) -> Any: ...
    def commit(self) -> Any: ...
    def rollback(self) -> Any: ...
    def close(self) -> Any: ...


class Outbox:
    """The table of the messages that wait to be sent.

    Args:
        table: its name.
        paramstyle: how the database's driver marks values: "qmark" (?, as sqlite3) or "format" (%s, as psycopg and
            PyMySQL); see ``paramstyle`` of the driver's module.

    Raises BadConfig.
    """

    def __init__(self, table: str = "outbox_messages", *, paramstyle: Literal["qmark", "format"] = "qmark") -> None:
        if not isinstance(table, str) or not table.isidentifier():
            raise BadConfig(f"table={table!r} is not allowed: a name of letters, digits and _ is expected")
        if paramstyle not in _PLACES:
            raise BadConfig(f'paramstyle={paramstyle!r} is not allowed: "qmark" or "format" is expected')
        self._table = table
        self._place = _PLACES[paramstyle]
        self._lock = threading.Lock()
        self._last = 0

    def create(self, connection: DatabaseConnection) -> None:
        """Make the table if it is not there; in the transaction of the caller."""
        self._execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {self._table} (id VARCHAR(64) PRIMARY KEY, message TEXT NOT NULL)",
        )

    def add(self, connection: DatabaseConnection, message: Message) -> str:
        """Write a message into the transaction of the caller, who commits; returns the id of the row.

        The message is sent if the transaction is committed. Raises BadMessage, and what the database raises.
        """
        check_message(message, MAX_BODY)
        row = self._row_id()
        add = f"INSERT INTO {self._table} (id, message) VALUES ({self._place}, {self._place})"
        self._execute(connection, add, (row, _written(message)))
        return row

    def first(self, connection: DatabaseConnection, most: int, after: str = "") -> list[tuple[str, Message | None]]:
        """The oldest rows behind the row ``after``; None for a text that is no message of an outbox."""
        where = f"WHERE id > {self._place} ORDER BY id LIMIT {most:d}"
        found = self._execute(connection, f"SELECT id, message FROM {self._table} {where}", (after,))
        return [(row, _read(row, text)) for row, text in found]

    def remove(self, connection: DatabaseConnection, rows: Sequence[str]) -> None:
        """Delete rows whose messages were sent, in the transaction of the caller."""
        for row in rows:
            self._execute(connection, f"DELETE FROM {self._table} WHERE id = {self._place}", (row,))

    def _row_id(self) -> str:
        """An id that sorts by time, and is unique among processes."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns())
            return f"{self._last:020d}-{os.urandom(8).hex()}"

    @staticmethod
    def _execute(connection: DatabaseConnection, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        cursor: _Cursor = connection.cursor()
        try:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if statement.startswith("SELECT") else []
        finally:
            cursor.close()


def _written(message: Message) -> str:
    """A message as the text of a row."""
    delay, deliver_at = message.delay, message.deliver_at
    fields = {
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "properties": dict(message.properties or {}),
        "tags": message.tags,
        "keys": message.keys,
        "flag": message.flag,
        "delay_level": message.delay_level,
        "delay": delay.total_seconds() if isinstance(delay, timedelta) else delay,
        "deliver_at": None if deliver_at is None else moment(deliver_at),
        "wait_store": message.wait_store,
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def _read(row: str, text: str) -> Message | None:
    try:
        fields = json.loads(text)
        properties = {**fields.pop("properties"), OUTBOX_ID: row}
        topic, body = fields.pop("topic"), base64.b64decode(fields.pop("body"))
        return Message(topic, body, properties=properties, **fields)
    except (ValueError, KeyError, TypeError, AttributeError):  # a text that somebody else wrote
        return None


@known_options
class OutboxRelay(Startable):
    """Sends what is in an outbox, until it is stopped. Run one for each table.

    Args:
        outbox: the table.
        connect: makes a connection of the relay's own; called in the one thread that uses it.
        group: the producer group.
        every: seconds between two passes through the table.
        most: rows that are read, and sent at once.
        in_order: sends one message after the other, in the order in which they were added, and waits at one that cannot
            be sent.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        settings: everything else that clients share.

    Errors of the database and of brokers go to the log, once, and the relay tries again. A message that cannot be sent,
    and a row that is none, keep up no other unless ``in_order``; they stay in the table. Raises UsageError, BadConfig.
    """

    def __init__(
        self,
        outbox: Outbox,
        connect: Callable[[], DatabaseConnection],
        group: str,
        *,
        every: float = 0.5,
        most: int = 100,
        in_order: bool = False,
        nameserver: str | Sequence[str] | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        check_kind("outbox", outbox, Outbox, "an Outbox")
        if not callable(connect):
            raise UsageError(f"connect is of type {type(connect).__name__}: a function that connects is expected.")
        check_positive(every=every)
        check_least(1, most=most)
        self.group = group
        self._outbox = outbox
        self._connect = connect
        self._every = every
        self._most = most
        self._in_order = in_order
        self._producer = Producer(group, nameserver=nameserver, settings=settings)
        self._thread: ThreadPoolExecutor | None = None
        self._connection: DatabaseConnection | None = None
        self._work: asyncio.Task[None] | None = None
        self._trouble = ""
        self._after = ""
        """The row behind which this pass through the table goes on."""
        self._failed = False
        """Whether any row of this pass could not be sent."""

    async def start(self) -> None:
        """Start the producer, and begin to send."""
        if self._work is not None:
            raise StateError("The relay is started already.")
        await self._producer.start()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="eruca-outbox")
        self._work = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the sends under way, and stop. Further calls have no effect."""
        work, self._work = self._work, None
        if work is None:
            return
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        await self._in_thread(self._close)
        assert self._thread is not None
        self._thread.shutdown()
        await self._producer.stop()

    async def _run(self) -> None:
        while True:
            try:
                more = await self._round()
            except Exception as error:  # of any driver
                await self._in_thread(self._close)
                self._tell(f"the outbox cannot be read: {error!r}")
                more = False
                self._failed = True
            if not more:
                if self._trouble and not self._failed:
                    self._trouble = ""
                    log.info("the outbox of %s is sent again", self.group)
                self._after, self._failed = "", False
                await asyncio.sleep(self._every)

    async def _round(self) -> bool:
        """Send the next rows of this pass and delete those that were sent; whether more may follow in it."""
        rows = await self._in_thread(self._first)
        sending = asyncio.ensure_future(self._send_and_remove(rows))
        try:
            sent = await asyncio.shield(sending)
        except asyncio.CancelledError:
            await sending  # what is sent is removed, or the next relay would send it again
            raise
        if len(sent) < len(rows):
            self._failed = True
        if len(rows) < self._most or (self._failed and self._in_order):
            return False
        self._after = rows[-1][0]
        return True

    async def _send_and_remove(self, rows: list[tuple[str, Message | None]]) -> list[str]:
        sent = await self._send_all(rows)
        await self._in_thread(self._remove, sent)
        return sent

    async def _send_all(self, rows: list[tuple[str, Message | None]]) -> list[str]:
        if not self._in_order:
            stored = await asyncio.gather(*(self._sent(message) for _, message in rows))
            return [row for (row, _), well in zip(rows, stored, strict=True) if well]
        sent = []
        for row, message in rows:
            if not await self._sent(message):
                break
            sent.append(row)
        return sent

    async def _sent(self, message: Message | None) -> bool:
        if message is None:
            self._tell("a row of the outbox is no message that was added to one")
            return False
        try:
            result = await self._producer.send(message)
        except ClientError as error:
            self._tell(f"a message of the outbox could not be sent: {error}")
            return False
        return result.status is SendStatus.SEND_OK

    def _tell(self, trouble: str) -> None:
        if not self._trouble:
            log.warning("%s; the relay of %s tries again every %s s", trouble, self.group, self._every)
        self._trouble = trouble

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def _open(self) -> DatabaseConnection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _first(self) -> list[tuple[str, Message | None]]:
        connection = self._open()
        rows = self._outbox.first(connection, self._most, self._after)
        connection.rollback()  # ends the transaction in which some databases read
        return rows

    def _remove(self, rows: Sequence[str]) -> None:
        if rows:
            connection = self._open()
            self._outbox.remove(connection, rows)
            connection.commit()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()
