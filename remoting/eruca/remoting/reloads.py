"""What a daemon reads again while it runs: accounts, certificates, log files, live settings.

Owns when: every few seconds for parts whose files have changed, and on SIGHUP for all parts; and the lines about it,
which the audit log has. Must not know what the parts read. Invariant: a part that cannot be read keeps its former
state, and stops no other one.

A part registers once, before the daemon serves::

    reloads.add("accounts", accounts.read, files=accounts.files)

``read`` returns a sentence for each change (none: nothing has changed), and raises ValueError or OSError, with a
sentence for the operator, when it keeps its former state.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from os import PathLike
from typing import NamedTuple

from eruca.remoting.audit import audit_log

LOOK_EVERY = 5.0
"""Seconds between two looks at the files."""

Read = Callable[[], Iterable[str]]
Files = Iterable[str | PathLike[str]]
Stamp = tuple[tuple[str, int, int, int], ...]


class _Part(NamedTuple):
    read: Read
    files: Callable[[], Files]


class Reloads:
    """The parts of one daemon that can be read again."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._seen: dict[str, Stamp] = {}

    def add(self, name: str, read: Read, *, files: Callable[[], Files] = tuple) -> None:
        """Register a part; without ``files`` it is read on SIGHUP only. Raises ValueError for a name that is taken."""
        if name in self._parts:
            raise ValueError(f"the part {name} is registered already")
        self._parts[name] = _Part(read, files)
        self._seen[name] = _stamp(files())

    def all(self) -> None:
        """Read every part again; a part's failure is a line and stops no other part."""
        for name in self._parts:
            self._read(name)
        audit_log.info("reloaded", parts=", ".join(self._parts) or "none")

    def changed(self) -> None:
        """Read the parts again whose files have changed since they were last read."""
        for name, part in self._parts.items():
            if _stamp(part.files()) != self._seen[name]:
                self._read(name)

    async def watch(self) -> None:
        """Look at the files every LOOK_EVERY seconds, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.changed()

    def _read(self, name: str) -> None:
        part = self._parts[name]
        self._seen[name] = _stamp(part.files())
        try:
            changes = list(part.read())
        except (ValueError, OSError) as fault:
            audit_log.error("reload_failed", part=name, reason=str(fault), state="the former one stays in use")
        else:
            for change in changes:
                audit_log.info("reload_changed", part=name, change=change)


def _stamp(files: Files) -> Stamp:
    """What distinguishes one content of the files from another, without reading them."""
    found = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue
        found.append((os.fspath(file), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
