"""The file that remembers which dead letters were sent again, so that none is sent twice.

One JSON object a line: ``{"place": "broker:queue:offset", "id": message id, "state": "sending" or "sent", "at": ms}``;
the last line of a place counts. "sending" is on disk before a message leaves, "sent" after it was stored: a place that
stayed at "sending" may have left or not, and is a person's to decide. A letter is known by its place and its message
id: places come again where the topic of the dead letters was deleted and made again. Lines are only added. One program
at a time has a ledger.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from eruca.spark_connector.errors import BadOption

SENDING = "sending"
SENT = "sent"


class Letter(NamedTuple):
    """A dead letter: where it is, and its message id."""

    place: str
    identity: str


class Ledger:
    """An open ledger: ``states`` by letter. Raises BadOption where the file is another program's or no ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states: dict[Letter, str] = {}
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BadOption(f"The ledger {self.path} is in use by another triage: wait for its end.") from None
        try:
            self._read(self._file)
        except BaseException:
            self._file.close()
            raise
        return self

    def _read(self, file: IO[str]) -> None:
        file.seek(0)
        lines = file.read().split("\n")
        if lines[-1]:  # the machine died in the middle of a line, before what it announced was sent
            file.truncate(len("\n".join(lines[:-1]).encode()) + (1 if len(lines) > 1 else 0))
        for number, line in enumerate(lines[:-1], 1):
            try:
                entry = json.loads(line)
                self.states[Letter(entry["place"], entry["id"])] = entry["state"]
            except (ValueError, KeyError, TypeError):
                raise BadOption(f"Line {number} of {self.path} is none of a ledger: name another file.") from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def note(self, letters: Iterable[Letter], state: str, at: int) -> None:
        """Write down, durably, a state of letters."""
        assert self._file is not None
        for letter in letters:
            entry = {"place": letter.place, "id": letter.identity, "state": state, "at": at}
            self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
            self.states[letter] = state
        self._file.flush()
        os.fsync(self._file.fileno())
