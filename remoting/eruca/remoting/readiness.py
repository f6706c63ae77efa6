"""Whether a daemon is ready to serve, and if not, why.

Owns the reasons, at most one of each part of the daemon. Must not know what the parts do, or who asks. Invariant: a
daemon is ready exactly while no part has a reason against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class Readiness:
    """The reasons for which a daemon is not ready; at first that it has not started."""

    def __init__(self) -> None:
        self._reasons = {"start": "it has not started yet"}

    @property
    def ready(self) -> bool:
        """Whether the daemon serves."""
        return not self._reasons

    @property
    def reasons(self) -> Mapping[str, str]:
        """A sentence for each part that is not ready."""
        return MappingProxyType(self._reasons)

    def withdraw(self, part: str, reason: str) -> None:
        """The daemon is not ready because of this part."""
        self._reasons[part] = reason

    def restore(self, part: str) -> None:
        """This part is ready."""
        self._reasons.pop(part, None)
