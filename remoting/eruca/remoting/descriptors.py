"""File descriptors: how many this process may have, how many connections may take, and what an error says without one.

Owns the limit of the process (RLIMIT_NOFILE) and the count of connections that the servers of a daemon share. Must not
know what the other descriptors are for. Invariant: connections leave descriptors to the files of a store.
"""

from __future__ import annotations

import errno
import os
import sys

import msgspec

from eruca.remoting.log import log

RESERVED = 2000
"""Descriptors that connections leave to files, where the limit is high enough."""
_LEAST_SHARE = 0.4
"""Of the free descriptors, the share of connections where the limit is low."""
_WITHOUT_PROC = 64
_WITHOUT_LIMIT = 8192
"""What a process can have where the system names no limit: on Windows that of the C library, on macOS less than that
of its kernel."""
_EXHAUSTED = {
    errno.EMFILE: "Too many open files: this process may open {limit}; raise its LimitNOFILE (ulimit -n) and restart",
    errno.ENFILE: "Too many open files in the whole system: raise the kernel's fs.file-max",
}


def raise_limit() -> int:
    """Raise the limit of this process as far as it may (to the hard limit); returns it."""
    try:
        import resource
    except ImportError:  # Windows
        return _WITHOUT_LIMIT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:  # macOS, which takes no such number
        hard = max(soft, _WITHOUT_LIMIT)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def limit() -> int:
    """The number of descriptors that this process may have."""
    try:
        import resource
    except ImportError:
        return _WITHOUT_LIMIT
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else _WITHOUT_LIMIT


def in_use() -> int:
    """The number of descriptors that this process has."""
    try:
        return len(os.listdir("/dev/fd" if sys.platform == "darwin" else "/proc/self/fd"))
    except OSError:
        return _WITHOUT_PROC


def most_connections(wanted: int) -> int:
    """``wanted``, or the number of connections that leaves enough descriptors to files.

    Files keep 2,000 descriptors, or twice the number that is open now if that is more. Where the limit is too low for
    that, connections get 40 % of those that are free.
    """
    most, used = limit(), in_use()
    return max(1, min(wanted, max(most - max(RESERVED, 2 * used), int((most - used) * _LEAST_SHARE))))


def is_exhausted(fault: OSError) -> bool:
    """Whether an error means that there is no descriptor left, rather than that the disk fails or is full."""
    return fault.errno in _EXHAUSTED


def reason(fault: OSError) -> str:
    """The cause of an error in words; if no descriptor is left, with what to do."""
    sentence = _EXHAUSTED.get(fault.errno or 0)
    return sentence.format(limit=limit()) if sentence is not None else fault.strerror or str(fault)


class ConnectionCount(msgspec.Struct):
    """The connections of all servers of a daemon: ``taken`` of at most ``most``."""

    most: int
    taken: int = 0
    chosen: bool = True
    """Whether somebody has set ``most``: it is no fault of a machine that it has not what a default would like."""

    @property
    def full(self) -> bool:
        """Whether there is no room for another one."""
        return self.taken >= self.most

    def fit(self) -> None:
        """Lower ``most`` to what the descriptors of this process allow. Call it when the daemon has opened its files.

        Logs a line if that is less than was wanted, a warning if somebody wanted it.
        """
        wanted, self.most = self.most, most_connections(self.most)
        if self.most < wanted:
            about = {
                "connections": self.most,
                "wanted": wanted,
                "descriptors": limit(),
                "advice": f"raise LimitNOFILE (ulimit -n) to {wanted + max(RESERVED, 2 * in_use())}",
            }
            if self.chosen:
                log.warning("connections_limited", **about)
            else:
                log.info("connections_limited", **about)
