"""One JSON file of the broker's state: read with its spare copy, and saved when it changed.

Owns when such a file is written, and that nobody waits twice for the same write. Must not know what is in it.
Invariant: what ``saved`` has waited for survives a power loss.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from eruca.protocol.errors import ProtocolError
from eruca.remoting.files import backup_of, replace_file

T = TypeVar("T")

log = structlog.get_logger("eruca.broker")


class StateUnreadable(Exception):
    """A state file and its copy exist, but neither can be read; the message says what to do."""


def read_state(path: Path, decode: Callable[[bytes], T], table: str) -> T | None:
    """The content of ``path``, or of ``path``.bak when it is missing, empty or broken; None when neither exists.

    ``table`` is the name under which such a file holds its entries: one damaged byte in it would leave none of them.

    Raises StateUnreadable when what exists cannot be read: starting without it would forget the operator's settings.
    """
    faults = []
    for candidate in (path, backup_of(path)):
        try:
            data = candidate.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            faults.append(f"{candidate}: {error.strerror}")
            continue
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
        if faults:
            log.warning("state_read_from_copy", file=str(candidate), faults=faults)
        return state
    if faults:
        raise StateUnreadable(
            f"{'; '.join(faults)}. Restore {path} from a backup, or move it and its .bak away to start without it."
        )
    return None


class Saver:
    """Saves one state file, whenever it changed, off the event loop; changes that come meanwhile share the next write.

    ``encode`` gives the whole content; it is called on the event loop, so that the content is of one moment.
    """

    def __init__(self, path: Path, encode: Callable[[], bytes]) -> None:
        self.path = path
        self._encode = encode
        self._changed = 0
        self._saved = 0
        self._written = 0
        self._lock = asyncio.Lock()
        self._writing = threading.Lock()  # who waited may be gone while the thread still writes

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
            if saving > self._written:  # else newer content is there already
                replace_file(self.path, data)
                self._written = saving


class SavedState:
    """What all state that is kept in a file has in common: how it gets there."""

    _saver: Saver

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
