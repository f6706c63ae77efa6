"""How far a recovery has come, for those who wait for it; and their word that it is to end early.

Owns the offsets between which the log is read, and the wish to stop. The thread that recovers writes the offsets; any
other may read them, and ask to stop. Must not know what is recovered. Invariant: after ``stop`` the next ``check`` or
``reach`` raises, so no step of a recovery is longer than the work between two of these.
"""

from __future__ import annotations


class RecoveryStopped(Exception):
    """A recovery was stopped before its end; the next start recovers the store from where this one began."""

    def __init__(self) -> None:
        super().__init__("the recovery was stopped before its end; the next start begins it again")


class Progress:
    """The progress of one opening of a store."""

    def __init__(self) -> None:
        self.begin = self.position = self.end = 0
        """Offsets of the commit log: where reading began, where it is, where the log may end."""
        self._file_size = 1
        self._stopped = False

    def aim(self, begin: int, end: int, file_size: int) -> None:
        """Reading begins at ``begin``, in files of that size; ``end`` is the end of the last one."""
        self.begin = self.position = begin
        self.end, self._file_size = end, file_size

    def reach(self, position: int) -> None:
        """Reading has come to ``position``. Raises RecoveryStopped."""
        self.position = position
        self.check()

    def check(self) -> None:
        """Raises RecoveryStopped when the recovery is to end."""
        if self._stopped:
            raise RecoveryStopped

    def stop(self) -> None:
        """End the recovery at its next step; any thread."""
        self._stopped = True

    @property
    def percent(self) -> int:
        """The part of the log that was read, of what is to be read."""
        return 100 * (self.position - self.begin) // (self.end - self.begin) if self.end > self.begin else 0

    @property
    def file(self) -> str:
        """The name of the commit log file that is read."""
        return f"{self.position - self.position % self._file_size:020d}"
