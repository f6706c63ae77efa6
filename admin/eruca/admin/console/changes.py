"""What the console changed: who, what, before and after.

Owns the list of this run, the line on standard error for each change, and the file ``changes.jsonl`` in mqadmin's
folder of state, which stays. Asks nobody.
"""

from __future__ import annotations

import getpass
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from eruca.admin.results.answer import Moment, Result


class Change(Result, frozen=True, kw_only=True, rename="camel"):
    """One change."""

    at: Moment
    user: str
    """The account of the machine that runs the console."""
    peer: str
    """The address of the browser."""
    what: str
    before: str
    after: str


class Changes:
    """The changes of this run, the latest first."""

    def __init__(self, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        home = environment.get("HOME") or os.path.expanduser("~")
        state = environment.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
        self.path = Path(state) / "mqadmin" / "changes.jsonl"
        self.latest: deque[Change] = deque(maxlen=500)
        self._user = environment.get("USER") or environment.get("USERNAME") or _account()
        self._say = say

    def add(self, peer: str, what: str, before: object, after: object) -> None:
        """Note a change, in the list, on standard error and in the file."""
        at = Moment.at(time.time_ns() // 1_000_000)
        change = Change(at=at, user=self._user, peer=peer, what=what, before=str(before), after=str(after))
        self.latest.appendleft(change)
        self._say(f"{at.iso} {self._user} {peer} {what}: {change.before} -> {change.after}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(file, "ab") as lines:
                lines.write(msgspec.json.encode(change) + b"\n")
        except OSError as error:
            self._say(f"the change is in no file: {self.path} cannot be written: {error.strerror}")


def _account() -> str:
    """The account of this process, where no variable says it, as under systemd."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return "?"
