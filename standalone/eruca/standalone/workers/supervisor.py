"""The supervisor of ``eruca run --workers``: it starts worker processes, replaces those that end, and stops them all.

Owns the processes: each is ended by its own pid. Knows nothing of what they do. A worker that ends by itself is started
again, after a wait that doubles while it keeps ending; workers that cannot load the application end the supervisor.
Invariant: when the supervisor ends, however, its workers end: they watch a pipe from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from eruca.client.app.groups import WORKER

NOT_LOADED = 2
"""The exit code of a worker that cannot load the application: another one could not either."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before an ended worker is started again, doubling."""
HEALTHY = 10.0
"""Seconds after which a worker counts as having run; the next wait is then the first one again."""

log = logging.getLogger("eruca.run")


class Worker:
    """One place of a worker process, and whoever fills it now."""

    def __init__(self, number: int, command: Sequence[str], stop_timeout: float) -> None:
        self.number = number
        self._command = command
        self._stop_timeout = stop_timeout
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.killed = False
        """Whether the process had to be killed."""

    async def keep(self) -> int:
        """Run a process, and another one when it ends, until ``stop``; returns the last exit code.

        Returns also when the application cannot be loaded.
        """
        wait = FIRST_WAIT
        while True:
            began = time.monotonic()
            code = await self._run()
            if self._stopping.is_set() or code == NOT_LOADED:
                return code
            if time.monotonic() - began >= HEALTHY:
                wait = FIRST_WAIT
            log.warning("worker %s %s; another one starts in %.1f s", self.number, _ended(code), wait)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
                    return 0
            wait = min(wait * 2, LONGEST_WAIT)

    async def _run(self) -> int:
        # A session of its own: Ctrl-C reaches the supervisor only, which then stops its workers.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, WORKER: str(self.number)},
        )
        log.info("worker %s is process %s", self.number, process.pid)
        if self._stopping.is_set():  # stop() came before there was a process
            process.kill()  # it has loaded nothing yet
        try:
            return await process.wait()
        finally:
            self._process = None
            if process.returncode is None:  # cancelled
                process.kill()
                await process.wait()

    async def stop(self) -> None:
        """End the process in order; kill it when that takes longer than the time it has."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        if sys.platform == "win32":
            assert process.stdin is not None
            process.stdin.close()  # terminate() would kill
        else:
            process.terminate()
        try:
            async with asyncio.timeout(self._stop_timeout):
                await process.wait()
        except TimeoutError:
            log.error("worker %s did not stop within %s s and is killed", self.number, self._stop_timeout)
            self.kill()

    def kill(self) -> None:
        """End the process at once."""
        process = self._process
        if process is not None and process.returncode is None:
            self.killed = True
            process.kill()


class Supervisor:
    """Workers that run the same command. To be made in the event loop that runs it.

    Args:
        command: of a worker; its standard input is a pipe that ends with the supervisor.
        count: how many.
        stop_timeout: seconds that a worker has to end in order.
        watched: folders whose Python files start the workers again when they change.
    """

    def __init__(self, command: Sequence[str], count: int, stop_timeout: float, watched: Sequence[Path] = ()) -> None:
        self._command = command
        self._count = count
        self._stop_timeout = stop_timeout
        self._watched = watched
        self._over = asyncio.Event()
        self._renew = asyncio.Event()
        self._workers: list[Worker] = []

    async def run(self) -> int:
        """Run until a signal; returns the exit code: 0 when all ended in order, 2 when none can be loaded, else 1."""
        async with self._signals(), self._changes():
            while True:
                self._renew.clear()
                code = await self._generation()
                if self._over.is_set() or (code == NOT_LOADED and not self._watched):
                    return code
                if code == NOT_LOADED:
                    log.error("the application cannot be loaded: waiting until its files change")
                    await _first(self._over, self._renew)

    async def _generation(self) -> int:
        """Run workers until they are to end, or to be replaced, or cannot be loaded."""
        workers = [Worker(number + 1, self._command, self._stop_timeout) for number in range(self._count)]
        self._workers = workers
        kept = [asyncio.create_task(worker.keep()) for worker in workers]
        asked = asyncio.create_task(_first(self._over, self._renew))
        try:
            await asyncio.wait([asked, *kept], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(worker.stop() for worker in workers))
            codes = await asyncio.gather(*kept)
        finally:
            for task in (asked, *kept):
                task.cancel()
            await asyncio.gather(asked, *kept, return_exceptions=True)
        if NOT_LOADED in codes:
            return NOT_LOADED
        in_order = all(code in (0, -signal.SIGTERM) for code in codes)
        return 0 if in_order and not any(worker.killed for worker in workers) else 1

    # ------------------------------------------------------------------ what ends or renews the workers

    @contextlib.asynccontextmanager
    async def _signals(self) -> AsyncIterator[None]:
        """SIGTERM and Ctrl-C stop, a second one kills; SIGHUP replaces the workers."""
        acts = {"SIGTERM": self._stop, "SIGINT": self._stop, "SIGHUP": self._renew.set}
        loop = asyncio.get_running_loop()
        numbers = {signal.Signals[name]: act for name, act in acts.items() if name in signal.Signals.__members__}
        for number, act in numbers.items():
            try:
                loop.add_signal_handler(number, act)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda *_, act=act: loop.call_soon_threadsafe(act))
        try:
            yield
        finally:
            for number in numbers:
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(number)

    def _stop(self) -> None:
        if not self._over.is_set():
            log.info("stopping %s workers", self._count)
            self._over.set()
        else:
            for worker in self._workers:
                worker.kill()

    @contextlib.asynccontextmanager
    async def _changes(self) -> AsyncIterator[None]:
        """Renew the workers when a watched file changes."""
        if not self._watched:
            yield
            return
        ended = asyncio.Event()
        watch = asyncio.create_task(self._watch(ended))
        try:
            yield
        finally:
            ended.set()
            await watch

    async def _watch(self, ended: asyncio.Event) -> None:
        from watchfiles import PythonFilter, awatch

        async for changes in awatch(
            *self._watched, watch_filter=PythonFilter(), debounce=200, step=50, stop_event=ended
        ):
            names = sorted({Path(path).name for _, path in changes})
            log.info("changed: %s; the workers start again", ", ".join(names))
            self._renew.set()


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    names = {int(each): each.name for each in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"  # most real-time signals have no name
