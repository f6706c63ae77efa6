"""Whether a daemon is ready to serve, and if not, why.

Owns the reasons, at most one of each part of the daemon. A part says when its reason begins and ends, or is asked each
time. Must not know what the parts do, or who asks. Invariant: a daemon is ready exactly while no part has a reason
against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType


class Readiness:
    """The reasons for which a daemon is not ready; at first that it has not started."""

    def __init__(self) -> None:
        self._reasons = {"start": "it has not started yet"}
        self._checks: dict[str, Callable[[], str | None]] = {}

    @property
    def ready(self) -> bool:
        """Whether the daemon serves."""
        return not self.reasons

    @property
    def serving(self) -> bool:
        """Whether the daemon is between its start and its stop."""
        return self._reasons.keys().isdisjoint(("start", "stop"))

    @property
    def reasons(self) -> Mapping[str, str]:
        """A sentence for each part that is not ready; nobody is asked before the start and after the stop."""
        if not self.serving:
            return MappingProxyType(self._reasons)
        asked = ((part, check()) for part, check in self._checks.items())
        return {**self._reasons, **{part: reason for part, reason in asked if reason is not None}}

    def add(self, part: str, check: Callable[[], str | None]) -> None:
        """Ask this part each time: ``check`` returns the reason why it is not ready, None if it is."""
        self._checks[part] = check

    def withdraw(self, part: str, reason: str) -> None:
        """The daemon is not ready because of this part."""
        self._reasons[part] = reason

    def restore(self, part: str) -> None:
        """This part is ready."""
        self._reasons.pop(part, None)
