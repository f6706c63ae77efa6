"""Who this client is: its address, client ids and the unique ids of its messages.

Owns the forms ``ip@pid#nanos[@unit]`` and UNIQ_KEY. Invariant: no two messages of a process get the same id within a
month, and a forked child does not repeat its parent's.
Facts: ClientConfig.buildMQClientId and MessageClientIDSetter in 4.9.7.
"""

from __future__ import annotations

import os
import time
from ipaddress import ip_address

from eruca.protocol import message
from eruca.remoting.addresses import local_address
from eruca.remoting.operating_system import after_fork_in_child

_HEX = tuple(f"{byte:02X}" for byte in range(256))
_HEX_BYTES = tuple(text.encode() for text in _HEX)


def _forked() -> None:
    if _keys is not None:
        _keys.restart()


def client_id(address: str, instance_name: str, unit_name: str | None) -> str:
    """A client id; the instance name ``DEFAULT`` becomes process id and nanoseconds, so each is new."""
    instance = f"{os.getpid()}#{time.monotonic_ns()}" if instance_name == "DEFAULT" else instance_name
    return stable_client_id(address, instance, unit_name)


def stable_client_id(address: str, instance_name: str, unit_name: str | None) -> str:
    """A client id that is the same after a restart: a broadcasting consumer's in Java, and in the path of its file."""
    return "@".join(part for part in (address, instance_name, unit_name) if part)


class UniqueKeys:
    """The unique ids of one process, made fast: all but time and counter is text already."""

    def __init__(self, address: str) -> None:
        self._address = ip_address(address).packed
        self.restart()

    def restart(self) -> None:
        """Take the process id again (after a fork)."""
        key = message.unique_key(self._address, os.getpid(), time.monotonic_ns() >> 8, 0, 0)
        self._prefix = key[:-12]
        self._counter = 0
        self._since = self._until = 0.0  # when ids begin with `_start`: within one ms
        self._start = self._head = ""  # all but the counter; all but its last byte
        self._start_of_month(time.time())

    def _start_of_month(self, now: float) -> None:
        local = time.localtime(now)
        year, month = local.tm_year, local.tm_mon
        self._month = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
        self._month_end = time.mktime((year + month // 12, month % 12 + 1, 1, 0, 0, 0, 0, 0, -1))

    def next(self, now: float) -> str:
        """The id of a message made at ``now`` (seconds since 1970)."""
        counter = self._counter = (self._counter + 1) & 0xFFFF
        last = counter & 0xFF
        if not last or not self._since <= now < self._until:
            self._begin(now, counter)
        return self._head + _HEX[last]

    def _begin(self, now: float, counter: int) -> None:
        """Ids of another ms, or with another first byte of the counter."""
        if not self._month <= now < self._month_end:
            self._start_of_month(now)
        elapsed = int((now - self._month) * 1000)
        self._since, self._until = now, self._month + (elapsed + 1) / 1000
        self._start = f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}"
        self._head = self._start + _HEX[counter >> 8]

    def several(self, now: float, count: int) -> list[str]:
        """The ids of ``count`` messages, one or more, made at ``now``."""
        return self.stretches(now, count).ids()

    def stretches(self, now: float, count: int) -> Stretches:
        """The same, not written out yet."""
        self.next(now)
        high, low = divmod(self._counter, 256)
        found = Stretches()
        while count > 0:
            self._head = head = self._start + _HEX[high]
            end = min(low + count, 256)
            found.append((head, low, end))
            count -= end - low
            self._counter = (high << 8) + end - 1
            high, low = (high + 1) & 0xFF, 0
        return found


class Stretches(list[tuple[str, int, int]]):
    """Unique ids in their order: for each stretch what they begin with, the first last byte and the one behind it."""

    def ids(self) -> list[str]:
        """Each id."""
        return [head + end for head, low, high in self for end in _HEX[low:high]]

    def joined(self) -> str:
        """All ids in one text, commas between them."""
        return ",".join([head + ("," + head).join(_HEX[low:high]) for head, low, high in self])

    def ends(self) -> list[tuple[str, tuple[bytes, ...]]]:
        """For each stretch what its ids begin with, and how each goes on."""
        return [(head, _HEX_BYTES[low:high]) for head, low, high in self]


_keys: UniqueKeys | None = None
after_fork_in_child(_forked)


def unique_keys() -> UniqueKeys:
    """The ids of this process."""
    global _keys
    if _keys is None:
        _keys = UniqueKeys(local_address())
    return _keys
