"""SIGINT (Ctrl-C) and SIGTERM while ``eruca pipeline`` is still being imported: nothing was begun, and it says so.

``signals`` takes over from here. Imports nothing that it need not.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # typing takes a while
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

STOPPED = 128
"""Plus the number of the signal: the exit code."""
_before: dict[int, Any] = {}


def listen() -> None:
    """Answer both signals, where this process does not ignore them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            _before[number] = signal.signal(number, _end)


def handler_before(number: int) -> Any:
    """The handler of a signal that this program was started with."""
    handler = signal.getsignal(number)
    return _before[number] if handler is _end else handler


def _end(number: int, frame: FrameType | None) -> NoReturn:
    name = signal.Signals(number).name
    os.write(2, f"eruca pipeline: stopped by {name}, before anything was begun. Run it again.\n".encode())
    os._exit(STOPPED + number)
