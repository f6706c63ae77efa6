"""Deduplicate: a middleware that leaves out messages that were processed before, by marks in a store.

Owns which key names a message, and when it is marked: after its listener has consumed it, never before. A key is that
of a message for one consumer group, so groups may share a store. Invariants: a message whose listener failed has no
mark; with ``SqliteMarks`` the mark and what the listener wrote by ``marks.connection`` are one transaction, so a crash
at any point leaves both or neither. ``RedisMarks`` cannot promise that: a crash between the work and the mark lets the
message come again. Needs ``pip install "eruca-client[redis]"`` for Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from eruca.client.config import check_positive
from eruca.client.errors import BadConfig, StateError, UsageError
from eruca.client.message import ReceivedMessage
from eruca.client.middleware import CallNext, consumer_group
from eruca.client.outcomes import Decision, Later, Outcome, Reject

if TYPE_CHECKING:
    import sqlite3

    from redis.asyncio import Redis

OUTBOX_ID = "OUTBOX_ID"
"""A property that names a row of an outbox, whatever the number of times that its message was sent."""
KEEP = 7 * 86400.0
"""Seconds for which a mark is kept."""
FORGET_EVERY = 600.0
"""Seconds between two looks for marks that are too old."""
ANSWER = 5.0
"""Seconds within which Redis has to answer when a consumer starts."""
T = TypeVar("T")


class Marks(Protocol):
    """Where it is marked which messages were processed. For stores of your own."""

    def processing(self, keys: Sequence[str]) -> AbstractAsyncContextManager[Processing]:
        """Around the processing of messages with these keys: says which are known, and marks those that are done.

        A key is ``group/topic/keys``, or ``group//name`` for a message that is named by its id or by a function.
        """


@dataclasses.dataclass(slots=True)
class Processing:
    """``known``: the keys that have a mark already. ``done``: those to be marked when the block ends without error."""

    known: frozenset[str]
    done: list[str] = dataclasses.field(default_factory=list)


class Deduplicate:
    """A middleware: a message that has a mark does not reach the listener, and counts as consumed.

    Args:
        marks: ``SqliteMarks``, ``RedisMarks``, or a store of your own.
        by: what names a message. "id": the producer's id, or the id of its row in an outbox; it stays through retries
            and redrives, but a program that sends once more after an error makes another one. "keys": the business keys
            of the sender, all together, within their topic. Or a function of the message that returns a text, which
            names one message for all topics of the group. A message that has none is named by its id.

    Raises UsageError.
    """

    def __init__(
        self, marks: Marks, by: Literal["id", "keys"] | Callable[[ReceivedMessage], str | None] = "id"
    ) -> None:
        if not callable(getattr(marks, "processing", None)):
            raise UsageError(
                f"marks is of type {type(marks).__name__}: SqliteMarks(...) or RedisMarks(...) is expected."
            )
        if not callable(by) and by not in ("id", "keys"):
            raise UsageError(f'by={by!r}: "id", "keys" or a function is expected.')
        self._marks = marks
        self._by = by

    async def works_here(self) -> None:
        """Asked by a consumer at its start: whether the marks can be kept. Raises BadConfig and StateError."""
        if isinstance(self._marks, SqliteMarks | RedisMarks):
            await self._marks.works_here()

    async def __call__(self, message: Any, call_next: CallNext) -> Outcome:
        """The outcome of the listener; None for what it need not see."""
        messages: list[ReceivedMessage] = message if isinstance(message, list) else [message]
        group = consumer_group() or ""
        keys = [f"{group}/{self._name(each)}" for each in messages]
        async with self._marks.processing(keys) as processing:
            new = _first_of_each(keys, processing.known)
            if not new:
                return None
            given: Any = [messages[number] for number in new] if isinstance(message, list) else message
            outcome = await call_next(given)
            consumed = _consumed(outcome, len(new))
            processing.done = [keys[number] for number in new[:consumed]]
        if isinstance(outcome, Later | Reject) and outcome.consumed:  # counted in the list that the consumer knows
            passed = new[consumed] if consumed < len(new) else len(messages)
            return dataclasses.replace(outcome, consumed=passed)
        return outcome

    def _name(self, message: ReceivedMessage) -> str:
        """What names a message for a group: its topic, if names are those of one topic, and a text."""
        if self._by == "keys" and message.keys:
            return f"{message.topic}/{' '.join(message.keys)}"
        name = self._by(message) if callable(self._by) else None
        return f"/{name or message.properties.get(OUTBOX_ID) or message.message_id}"


def _first_of_each(keys: Sequence[str], known: Iterable[str]) -> list[int]:
    """The numbers of the keys that are not known, of equal ones the first."""
    seen, found = set(known), []
    for number, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            found.append(number)
    return found


def _consumed(outcome: Outcome, count: int) -> int:
    """How many of the messages of a call the listener consumed."""
    if outcome is None or outcome is Decision.COMMIT:
        return count
    return min(outcome.consumed, count) if isinstance(outcome, Later | Reject) else 0


class SqliteMarks:
    """Marks in a table of an SQLite database, in one transaction with what the listener writes.

    The listener writes by ``marks.connection``, and does not commit: its work and the mark are committed together, or
    rolled back together when it fails. One message, or one list, is processed at a time: SQLite has one writer.

    Args:
        database: the file, in a folder that is there; a consumer looks at its start whether it is a database.
        table: the table of the marks, which is made if it is not there. Groups may share it. One of an older version,
            whose marks name no group, becomes that of the first group that uses it.
        keep: seconds for which marks are kept, longer than any message may come again.
        timeout: seconds to wait for another program that writes to the database.

    Raises BadConfig.
    """

    def __init__(
        self, database: str | Path, *, table: str = "processed_messages", keep: float = KEEP, timeout: float = 30.0
    ) -> None:
        check_positive(keep=keep, timeout=timeout)
        if not table.isidentifier():
            raise BadConfig(f"table={table!r} is not allowed: a name of letters, digits and _ is expected")
        _check_place(database)
        self._database = database
        self._table = table
        self._keep = keep
        self._timeout = timeout
        self._opened: sqlite3.Connection | None = None
        self._current: ContextVar[sqlite3.Connection | None] = ContextVar("current", default=None)
        self._thread: ThreadPoolExecutor | None = None
        self._turn: asyncio.Lock | None = None
        self._forget_at = 0.0

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection whose transaction is open for the message at work. Raises StateError outside a listener."""
        connection = self._current.get()
        if connection is None:
            raise StateError("marks.connection is for the listener behind Deduplicate(marks), while it runs.")
        return connection

    @contextlib.asynccontextmanager
    async def processing(self, keys: Sequence[str]) -> AsyncIterator[Processing]:
        """One transaction around the processing of these messages."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            connection, known = await self._off_the_loop(self._begin, keys)
            token = self._current.set(connection)
            processing = Processing(frozenset(known))
            try:
                yield processing
            except BaseException:
                await asyncio.shield(self._off_the_loop(self._end, connection, ()))
                raise
            finally:
                self._current.reset(token)
            await asyncio.shield(self._off_the_loop(self._end, connection, processing.done))

    async def works_here(self) -> None:
        """Whether the file is a database, as consumers ask at their start. Raises BadConfig."""
        await self._off_the_loop(self._look)

    def _look(self) -> None:
        import sqlite3  # not needed by those who only send

        with contextlib.closing(sqlite3.connect(self._database, timeout=self._timeout)) as connection:
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise BadConfig(f'database="{self._database}" cannot be used: {error}') from None

    async def _off_the_loop(self, function: Callable[..., T], *args: Any) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="eruca-marks")
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def _begin(self, keys: Sequence[str]) -> tuple[sqlite3.Connection, list[str]]:
        connection = self._opened
        if connection is None:
            connection = self._opened = self._open(keys[0].partition("/")[0] if keys else "")
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = f"SELECT 1 FROM {self._table} WHERE mark IN (?, ?)"  # the name was checked
            known = [key for key in keys if connection.execute(found, (key, _without_topic(key))).fetchone()]
            return connection, known
        except BaseException:
            connection.rollback()
            raise

    def _open(self, group: str) -> sqlite3.Connection:
        """A connection to a database that has the table, for ``group`` if it is of an older version."""
        import sqlite3  # not needed by those who only send

        connection = sqlite3.connect(
            self._database, timeout=self._timeout, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("BEGIN IMMEDIATE")
            _make_table(connection, self._table, group)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _end(self, connection: sqlite3.Connection, done: Sequence[str]) -> None:
        """Commit with the marks of what is done; without any, roll back."""
        if not done:
            connection.rollback()
            return
        now = time.time()
        try:
            add = f"INSERT OR REPLACE INTO {self._table} (mark, at) VALUES (?, ?)"
            connection.executemany(add, [(key, now) for key in done])
            if now >= self._forget_at:
                self._forget_at = now + FORGET_EVERY
                connection.execute(f"DELETE FROM {self._table} WHERE at < ?", (now - self._keep,))
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise

    def close(self) -> None:
        """Close the database. Call it when the consumer has stopped."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _check_place(database: str | Path) -> None:
    """Raise BadConfig for a file that SQLite cannot make or open."""
    if not isinstance(database, str | Path):
        raise BadConfig(f"database is of type {type(database).__name__}: the path of a file is expected")
    path = Path(database)
    if str(database) in ("", ":memory:"):
        return
    if path.is_dir():
        raise BadConfig(f'database="{database}" is a folder: the path of a file is expected')
    if not path.parent.is_dir():
        raise BadConfig(f'database="{database}" cannot be opened: make the folder {path.parent} first')
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise BadConfig(f'database="{database}" cannot be opened: this process may not read and write it')


def _make_table(connection: sqlite3.Connection, table: str, group: str) -> None:
    """Make the table of the marks; what one of an older version has are marks of ``group`` in any topic."""
    columns = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
    if "mark" in columns:
        return
    if columns:
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN key TO mark")
        connection.execute(f"UPDATE {table} SET mark = ? || mark", (f"{group}//",))  # the name was checked
    else:
        connection.execute(f"CREATE TABLE {table} (mark TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID")


def _without_topic(key: str) -> str:
    """The mark of an older version for this key: it names no topic."""
    group, _, rest = key.partition("/")
    return f"{group}//{rest.partition('/')[2]}"


class RedisMarks:
    """Marks in Redis, set after the listener has consumed a message.

    Several members share them. A crash between the work and the mark lets the message come again, and so does a member
    that still works on a message while another one gets it.

    Args:
        client: a ``redis.asyncio.Redis``, or the address for one, such as ``redis://localhost:6379/0``.
        prefix: before each key. Groups may share it; marks of older versions, which name no group, do not count.
        keep: seconds for which marks are kept, longer than any message may come again.

    Raises BadConfig.
    """

    def __init__(self, client: Redis | str, *, prefix: str = "processed:", keep: float = KEEP) -> None:
        check_positive(keep=keep)
        if isinstance(client, str):
            try:
                from redis.asyncio import Redis as Client
            except ImportError as error:
                raise BadConfig('redis is not installed: run `pip install "eruca-client[redis]"`.') from error
            try:
                client = Client.from_url(client)
            except ValueError as error:
                raise BadConfig(
                    f"client is not an address of Redis ({error}): one such as redis://localhost:6379/0 is expected"
                ) from None
        self._client: Any = client
        self._prefix = prefix
        self._keep = max(round(keep * 1000), 1)

    @contextlib.asynccontextmanager
    async def processing(self, keys: Sequence[str]) -> AsyncIterator[Processing]:
        """Look for marks, and set those of what is done."""
        found = await self._client.mget([self._prefix + key for key in keys])
        processing = Processing(frozenset(key for key, mark in zip(keys, found, strict=True) if mark is not None))
        yield processing
        if processing.done:
            async with self._client.pipeline(transaction=True) as marks:
                for key in processing.done:
                    marks.set(self._prefix + key, "1", px=self._keep)
                await marks.execute()

    async def works_here(self) -> None:
        """Whether Redis answers, as consumers ask at their start. Raises StateError."""
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(ANSWER):
                await self._client.ping()
        except (RedisError, OSError) as error:
            why = str(error) or f"no answer within {ANSWER:g} s"
            raise StateError(
                f"The marks cannot be kept: Redis cannot be used ({why}). Start it, or mend its address."
            ) from None

    async def close(self) -> None:
        """Close the connections. Call it when the consumer has stopped."""
        await self._client.aclose()
