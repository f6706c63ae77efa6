"""The run of the tests itself: a test that fails leaves nothing to the next one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.admin.resets.ways_back import folder
from tests.house.tree import ROOT

LEAVES_SOCKETS_OPEN = """
import asyncio, gc, socket

server = socket.create_server(("127.0.0.1", 0))

def test_fails_with_a_socket_in_a_circle():
    held = [socket.socket()]
    held.append(held)
    assert False

async def test_fails_with_a_connection():
    reader, writer = await asyncio.open_connection(*server.getsockname())
    assert False

def test_the_next_is_not_accused():
    gc.collect()
"""


def test_nobody_writes_to_the_state_of_whoever_runs_the_tests() -> None:
    with pytest.raises(AssertionError, match="give mqadmin an XDG_STATE_HOME"):
        (folder({}) / "back.json").write_text("{}")


@pytest.mark.processes
def test_a_failed_test_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_leaving.py").write_text(LEAVES_SOCKETS_OPEN)
    options = ["-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    options += ["--basetemp", str(tmp_path / "temporary")]  # its own: pytest deletes those of earlier runs

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)], capture_output=True, text=True, timeout=100
    )

    assert run.stdout.splitlines()[-1].startswith("2 failed, 1 passed"), run.stdout
