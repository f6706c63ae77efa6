"""One state file of the broker: read with its backup, saved when its content changed (ConfigManager in 4.9.7).

Owns when the file is written; concurrent waiters share a write. Must not know the content. Invariant: every change that
``saved`` has waited for survives a power loss.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from eruca.protocol.errors import ProtocolError
from eruca.remoting.files import NoAccess, backup_of, replace_file

T = TypeVar("T")

log = structlog.get_logger("eruca.broker")


class StateUnreadable(Exception):
    """A state file and its backup exist, but neither can be read; the message says what to do."""


def read_state(
    path: Path,
    decode: Callable[[bytes], T],
    table: str,
    check: Callable[[T], None] | None = None,
    on_copy: Callable[[], object] = bool,
) -> T | None:
    """The content of ``path``, or of ``path``.bak if it is missing, empty or damaged; None if neither exists.

    ``table`` is the key of the entries in such a file. A file without this key counts as damaged: one damaged byte in
    the key would else drop all entries. ``check`` raises ProtocolError for content that is readable and not allowed;
    the copy does not stand in for that, since it lacks the last changes. ``on_copy`` is called when the copy is read.

    Raises StateUnreadable if nothing of what exists can be decoded: a start without it would lose the operator's
    settings. Raises NoAccess if a file may not be read.
    """
    faults = []
    for candidate in (path, backup_of(path)):
        try:
            data = candidate.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:  # the copy is older, and does not stand in for a file that is not damaged
            raise NoAccess(candidate, "read", error) from None
        if not data.strip(b"\0 \t\r\n"):
            faults.append(f"{candidate}: empty")
            continue
        if f'"{table}"'.encode() not in data:
            faults.append(f"{candidate}: no {table} in it")
            continue
        try:
            state = decode(data)
        except ProtocolError as error:
            faults.append(f"{candidate}: {error}")
            continue
        _allowed(candidate, state, check)
        if candidate != path:
            log.warning("state_read_from_copy", file=str(candidate), faults=faults or [f"{path}: missing"])
            on_copy()
        return state
    if faults:
        raise StateUnreadable(
            f"{'; '.join(faults)}. Restore {path} from a backup, or move it and its .bak away to start without it."
        )
    return None


def _allowed(path: Path, state: T, check: Callable[[T], None] | None) -> None:
    try:
        if check is not None:
            check(state)
    except ProtocolError as fault:
        raise StateUnreadable(f"{path}: {fault}. Correct it in the file, and start again.") from None


class Saver:
    """Saves one state file off the event loop; changes during a write share the next one.

    ``encode`` returns the whole content. It is called on the event loop, so the content is consistent. ``replace``
    writes it, in a thread.
    """

    def __init__(
        self, path: Path, encode: Callable[[], bytes], replace: Callable[[Path, bytes], None] = replace_file
    ) -> None:
        self.path = path
        self._encode = encode
        self._replace = replace
        self._changed = 0
        self._saved = 0
        self._written = 0
        self._lock = asyncio.Lock()
        self._writing = threading.Lock()  # a waiter may be cancelled while its thread still writes

    @property
    def dirty(self) -> bool:
        """Whether there are changes that are not on disk."""
        return self._saved != self._changed

    def changed(self) -> None:
        """Note a change; it reaches the disk with the next ``saved`` or ``save``."""
        self._changed += 1

    async def saved(self) -> None:
        """Wait until every change so far is on disk. Raises OSError when it cannot be written."""
        wanted = self._changed
        while self._saved < wanted:
            async with self._lock:
                if self._saved < wanted:
                    saving, data = self._changed, self._encode()
                    await asyncio.to_thread(self._write, saving, data)
                    self._saved = max(self._saved, saving)

    def save(self) -> None:
        """Write now, if anything changed. Raises OSError."""
        if self.dirty:
            saving = self._changed
            self._write(saving, self._encode())
            self._saved = saving

    def _write(self, saving: int, data: bytes) -> None:
        with self._writing:
            if saving > self._written:  # else newer content is already written
                self._replace(self.path, data)
                self._written = saving


class SavedState:
    """Base of state that lives in a file: ``saved`` and ``save`` write it."""

    _saver: Saver
    lacks_change = False
    """Whether the copy of the file was read, which lacks the last change."""

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._saver.path

    def _stored(self, decode: Callable[[bytes], T], table: str, check: Callable[[T], None] | None = None) -> T | None:
        """What ``read_state`` says of the file. Raises StateUnreadable, NoAccess."""
        return read_state(self._saver.path, decode, table, check, self._copy_was_read)

    def _copy_was_read(self) -> None:
        self.lacks_change = True

    @property
    def dirty(self) -> bool:
        """Whether there are changes that are not on disk."""
        return self._saver.dirty

    async def saved(self) -> None:
        """Wait until every change so far is on disk. Raises OSError."""
        await self._saver.saved()

    def save(self) -> None:
        """Write the file now if anything changed. Raises OSError."""
        self._saver.save()
