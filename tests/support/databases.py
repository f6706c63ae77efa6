"""SQLite databases that tests write and read: one transaction in one connection, which is closed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def opened(path: Path | str, timeout: float = 5.0) -> Iterator[sqlite3.Connection]:
    """A connection; what was done is committed, or rolled back after an error, and the connection closed."""
    with closing(sqlite3.connect(path, timeout=timeout)) as connection, connection:
        yield connection
