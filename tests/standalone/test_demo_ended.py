"""Ctrl-C while a process of the demonstration runs: it ends with all its children."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from eruca.standalone.demo.processes import outcome
from tests.support.pairs import eventually

pytestmark = pytest.mark.processes

PARENT = """
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
with open(sys.argv[1], "w") as pipe:
    pipe.write(f"{os.getpid()} {child.pid}")
child.wait()
"""


def runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


async def test_a_program_that_is_no_longer_waited_for_ends_with_its_children(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    waiting = asyncio.ensure_future(outcome("-c", PARENT, str(told)))
    pids = [int(pid) for pid in (await asyncio.to_thread(told.read_text)).split()]
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: not any(map(runs, pids)))  # what was killed may take a moment to be gone


async def test_what_a_program_says_comes_back() -> None:
    assert await outcome("-c", "import sys; print('out'); sys.exit('err')") == (1, "out\n", "err\n")
