"""The configuration file of a running daemon, read again: what may change at run time does, the rest is named.

Owns what the file said at the start. Must not know any key, or what follows from one: the daemon gives the function
that applies changes. Invariants: the command line and the environment win over the file as at the start; a file that
cannot be taken changes nothing; the value of a secret is never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from eruca.remoting.settings import BadSetting, Setting, settings_of
from eruca.remoting.sources import Start

C = TypeVar("C")


class FileSettings(Generic[C]):
    """The settings of a daemon by its command line, of which the file can be read again.

    ``start`` is what the daemon starts with, ``again`` reads all of it again, and may raise BadSetting.
    """

    def __init__(self, start: Start[C], again: Callable[[], Start[C]]) -> None:
        self._config = start.config
        self._known = settings_of(type(start.config))
        self._at_start = {key: item.text(start.config) for key, item in self._known.items()}
        self._warnings = set(start.warnings)
        self._again = again

    def read(self, apply: Callable[[Mapping[str, str]], object]) -> list[str]:
        """Read the file, and ``apply`` what has changed and may; a sentence for each difference. Raises BadSetting."""
        try:
            fresh = self._again()
        except BadSetting as bad:
            raise BadSetting("; ".join(bad.faults)) from None
        changed: dict[str, str] = {}
        said: list[str] = []
        for key, item in self._known.items():
            now = item.text(fresh.config)
            if item.rules.live and now != (before := item.text(self._config)):
                changed[key] = now
                said.append(f"{key}: {_shown(before)} -> {_shown(now)}")
            elif not item.rules.live and now != self._at_start[key]:
                said.append(self._at_a_restart(item, now))
        if changed:
            apply(changed)
        said += [warning for warning in fresh.warnings if warning not in self._warnings]
        self._warnings = set(fresh.warnings)
        return said

    def _at_a_restart(self, item: Setting, now: str) -> str:
        if item.rules.secret:
            return f"{item.key}: changed (not shown); it takes effect at a restart"
        return f"{item.key}: {_shown(self._at_start[item.key])} -> {_shown(now)}; it takes effect at a restart"


def _shown(text: str) -> str:
    return text or "(empty)"
