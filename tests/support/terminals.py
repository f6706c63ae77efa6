"""A terminal of its own for a process that a test starts: what it shows, and the keys that a person presses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import struct
import termios
from collections.abc import Iterator
from fcntl import ioctl


class Terminal:
    """A process at a terminal of its own."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.seen = ""
        self._news = asyncio.Event()

    def read(self) -> None:
        self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        self._news.set()

    def type(self, keys: str) -> None:
        """Press keys; what was shown before no longer counts."""
        self.seen = ""
        os.write(self.master, keys.encode())

    async def shows(self, *words: str) -> None:
        try:
            async with asyncio.timeout(20):
                while not all(word in self.seen for word in words):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{words} not in {self.seen[-3000:]!r}") from None


@contextlib.contextmanager
def at_a_terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    asyncio.get_running_loop().add_reader(terminal.master, terminal.read)
    yield terminal
    asyncio.get_running_loop().remove_reader(terminal.master)
    os.close(terminal.master)
    os.close(terminal.slave)
