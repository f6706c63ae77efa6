"""mqadmin as a process: what it does with the streams and bytes that a shell gives it."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMAND = f"{sys.executable} -m eruca.admin"

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (f"{COMMAND} >&-", 1, "mqadmin: the standard output is closed\n"),
        (f"{COMMAND} > /dev/full", 1, "mqadmin: the output cannot be written: No space left on device\n"),
        (f"set -o pipefail; {COMMAND} | head -1", 0, ""),
        (
            f"{COMMAND} topicStatus -t $'\\xff'",
            2,
            "mqadmin: the argument '\\udcff' is no text in this terminal's encoding\n",
        ),
        (f"PYTHONIOENCODING=latin-1 {COMMAND} '\u4e2d'", 2, "The sub command \\u4e2d not exist.\n"),
    ],
)
def test_no_shell_gets_a_traceback(line: str, status: int, words: str) -> None:
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (status, words)
