"""What every thread and every task of a daemon is doing, as lines of its log, on SIGUSR1.

Owns the pipe into which ``faulthandler`` writes and the thread that reads it: so threads are dumped also while the
event loop is stuck, and that is when it matters. The tasks follow when the loop turns. Must not know who asks.
Invariant: a dump has at most 64 KiB of threads (a pipe) and ``MOST_STACKS`` lines of tasks; tasks that wait at the same
place are one line.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import re
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eruca.remoting.log import Log

MOST_STACKS = 200
"""Different stacks of tasks in a dump."""
MOST_NAMES = 10
"""Names of tasks in a line."""
DEEPEST = 30
"""Frames of a stack."""
_QUIET = 0.2
"""Seconds of silence that end a dump of threads."""
_PIECE = 65_536

_THREAD = re.compile(r"(?:Current t|T)hread (0x[0-9a-f]+)")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')

log = Log("eruca.dump")


def dump_on(number: signal.Signals) -> None:
    """Dump at each such signal from now on; call it on the running loop, which must have a handler for it already.

    Does nothing where faulthandler has no signals (Windows).
    """
    if not hasattr(faulthandler, "register"):
        return
    reading, writing = os.pipe()
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    os.set_blocking(writing, False)  # what does not fit is left out: a signal handler waits for nobody
    threading.Thread(target=_read_dumps, args=(reading, poll.poll), name="dumps", daemon=True).start()
    faulthandler.register(number, file=writing, all_threads=True, chain=True)


def _read_dumps(descriptor: int, arriving: Callable[[float], object]) -> None:
    """Log what comes through the pipe, for as long as the daemon runs."""
    while True:
        data = os.read(descriptor, _PIECE)
        while arriving(_QUIET * 1000):
            data += os.read(descriptor, _PIECE)
        names = {f"0x{thread.ident:016x}": thread.name for thread in threading.enumerate() if thread.ident}
        for thread, stack in stacks_of_threads(data.decode(errors="replace")):
            log.info("thread_dumped", thread=names.get(thread, thread), stack=stack)


def stacks_of_threads(text: str) -> Iterator[tuple[str, str]]:
    """Each thread and its stack, innermost frame first, in what ``faulthandler`` has written."""
    thread, frames = "", list[str]()
    for line in text.splitlines():
        if begins := _THREAD.match(line):
            if thread:
                yield thread, " < ".join(frames)
            thread, frames = begins[1], []
        elif frame := _FRAME.match(line):
            frames.append(_shown(frame[3], frame[1], int(frame[2])))
    if thread:
        yield thread, " < ".join(frames)


def dump_tasks() -> None:
    """Log what each task of the running loop waits for."""
    names: dict[str, list[str]] = {}
    tasks = asyncio.all_tasks()
    for task in tasks:
        names.setdefault(_stack(task), []).append(task.get_name())
    for stack, waiting in sorted(names.items())[:MOST_STACKS]:
        shown = ", ".join(sorted(waiting)[:MOST_NAMES])
        log.info("tasks_dumped", count=len(waiting), tasks=shown, stack=stack)
    log.info("dumped", tasks=len(tasks), stacks=len(names))


def _stack(task: asyncio.Task[Any]) -> str:
    """The frames of a task, innermost first: it waits there."""
    frames: list[str] = []
    waits: Any = task.get_coro()
    while waits is not None and len(frames) < DEEPEST:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None)
        if frame is not None:
            frames.append(_shown(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
    return " < ".join(reversed(frames))


def _shown(function: str, file: str, line: int) -> str:
    return f"{function} ({'/'.join(Path(file).parts[-2:])}:{line})"
