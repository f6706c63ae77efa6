"""The processes of the demonstration: daemons and tools.

Owns every process that the demonstration starts. Each is ended by its own pid, in reverse order of the starts, also
after a failure.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

STOP_SECONDS = 10.0
"""Seconds that a process has to end after SIGTERM."""


class Failed(Exception):
    """A step of the demonstration failed; the text says which one and why."""


class Finished(NamedTuple):
    """The result of a command: its output, and its time in seconds."""

    output: str
    seconds: float


@asynccontextmanager
async def running(*arguments: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python program (``-m`` and so on) that runs until the block ends; its error output goes to ``log``."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=errors, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.communicate()
            except TimeoutError:
                process.kill()
                await process.communicate()


async def printed(process: asyncio.subprocess.Process, pattern: str, log: Path) -> str:
    """Wait until a process prints a matching line; returns the first group of the pattern."""
    assert process.stdout is not None
    seen = []
    while line := (await process.stdout.readline()).decode():
        seen.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise Failed(f"a daemon ended before it was ready: {''.join(seen)}{_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text()[-2000:]


async def start_cluster(stack: AsyncExitStack, folder: Path) -> str:
    """Start a nameserver and a broker on free ports with files in ``folder``; returns the nameserver's address."""
    (folder / "namesrv.conf").write_text(f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={folder}/kvConfig.json\n")
    (folder / "broker.conf").write_text(
        "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\nlistenPort=0\nbindAddress=127.0.0.1\n"
        f"brokerIP1=127.0.0.1\nstorePathRootDir={folder}/store\n"
    )
    log = folder / "nameserver.log"
    nameserver = await stack.enter_async_context(
        running("-m", "eruca.nameserver", "-c", str(folder / "namesrv.conf"), log=log)
    )
    async with asyncio.timeout(30):
        port = await printed(nameserver, r"listening on .*:(\d+)", log)
    address = f"127.0.0.1:{port}"
    log = folder / "broker.log"
    broker = await stack.enter_async_context(
        running("-m", "eruca.broker", "-c", str(folder / "broker.conf"), "-n", address, log=log)
    )
    async with asyncio.timeout(30):
        await printed(broker, r"The broker\[(.*)\] boot success", log)
    return address


async def outcome(*arguments: str) -> tuple[int, str, str]:
    """Run a Python program to its end: exit code, output and error output.

    A cancelled wait ends the program and all processes of its session, and waits for them.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = await process.communicate()
    except BaseException:
        await _end_session(process)
        raise
    return process.returncode or 0, output.decode(), errors.decode()


async def _end_session(process: asyncio.subprocess.Process) -> None:
    """End all processes of a session. Its output ends with the last of them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.communicate()
            return
        except TimeoutError:
            continue


async def mqadmin(*arguments: str) -> Finished:
    """Run one mqadmin command to its end. Raises Failed with its error output."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    code, output, errors = await outcome("-m", "eruca.admin", *arguments)
    if code:
        raise Failed(f"mqadmin {' '.join(arguments)} failed: {errors.strip()}")
    return Finished(output, loop.time() - start)
