"""Pipes whose reader has stalled."""

from __future__ import annotations

import os
from contextlib import suppress


def fill_pipe(writing: int) -> None:
    """Leave no room in a pipe; those who share its end still wait for room when they write."""
    own = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(own, b"\n" * 4096)
    os.close(own)
