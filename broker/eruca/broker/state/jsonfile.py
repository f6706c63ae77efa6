"""One JSON file of the broker's state: read with its spare copy, written so that a crash leaves old or new.

Owns how such a file reaches the disk: written aside, fsynced, the former content kept as ``.bak``, renamed, the
folder fsynced. Must not know what is in it. Invariant: a file that was once saved is always readable as a whole, and
what ``saved`` has waited for survives a power loss.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from eruca.protocol.errors import ProtocolError

T = TypeVar("T")

log = structlog.get_logger("eruca.broker")


class StateUnreadable(Exception):
    """A state file and its copy exist, but neither can be read; the message says what to do."""


def read_state(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """The content of ``path``, or of ``path``.bak when it is missing, empty or broken; None when neither exists.

    Raises StateUnreadable when what exists cannot be read: starting without it would forget the operator's settings.
    """
    faults = []
    for candidate in (path, _spare(path)):
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


def write_state(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``; when this returns it is on disk. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    with open(aside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _keep_spare(path)
    os.replace(aside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _spare(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _keep_spare(path: Path) -> None:
    """Let ``.bak`` be the former content, without a moment in which ``path`` is missing."""
    step = path.with_name(path.name + ".bak.tmp")
    try:
        step.unlink(missing_ok=True)
        os.link(path, step)
    except FileNotFoundError:
        return
    except OSError:  # a file system without hard links
        step.write_bytes(path.read_bytes())
    os.replace(step, _spare(path))


class Saver:
    """Saves one state file, whenever it changed, off the event loop; changes that come meanwhile share the next write.

    ``encode`` gives the whole content; it is called on the event loop, so that the content is of one moment.
    """

    def __init__(self, path: Path, encode: Callable[[], bytes]) -> None:
        self.path = path
        self._encode = encode
        self._changed = 0
        self._saved = 0
        self._lock = asyncio.Lock()

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
                    await asyncio.to_thread(write_state, self.path, data)
                    self._saved = max(self._saved, saving)

    def save(self) -> None:
        """Write now, if anything changed. Raises OSError."""
        if self.dirty:
            saving = self._changed
            write_state(self.path, self._encode())
            self._saved = saving
