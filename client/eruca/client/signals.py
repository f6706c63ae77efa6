"""The end by a signal: the first SIGTERM or Ctrl-C ends what waits in order, a second one ends the process at once.

Owns the two handlers while something waits, and puts back what was there before. Several may wait at once, in the main
thread's event loop or in none: one signal ends them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

_USUAL: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_ends: list[Callable[[], object]] = []
"""What the first signal calls."""
_before: dict[signal.Signals, Any] = {}
"""The handlers that were there, of the signals that are ours now."""


@contextlib.contextmanager
def ended_by_signal(end: Callable[[], object], *, always: bool = False) -> Iterator[bool]:
    """Within it the first SIGTERM or SIGINT calls ``end``, in the main thread; the next one has its usual effect.

    A signal that the program handles itself stays the program's, unless ``always``. Gives whether it can be: signals
    reach the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    _ends.append(end)  # before the handlers: a signal may come between two lines
    try:
        for number in _USUAL:
            if number not in _before and (always or _is_usual(number)):
                _before[number] = signal.signal(number, _handle)
        yield True
    finally:
        _ends.remove(end)
        if not _ends:
            while _before:
                number, handler = _before.popitem()
                signal.signal(number, handler)


def _handle(number: int, frame: FrameType | None) -> None:
    for each in _before:
        signal.signal(each, _USUAL[each])
    for end in tuple(_ends):
        end()


def _is_usual(number: signal.Signals) -> bool:
    """Whether nobody but Python itself handles a signal: asyncio.Runner takes Ctrl-C to cancel its coroutine."""
    handler = signal.getsignal(number)
    of_runner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler == _USUAL[number] or isinstance(of_runner, asyncio.Runner)
