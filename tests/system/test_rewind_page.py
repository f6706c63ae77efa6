"""The page about rewinds, as a newcomer follows it: its programs and commands, in its order, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.processes import Process

pytestmark = pytest.mark.processes

BIN = Path(sys.executable).parent
PAGE = (ROOT / "docs" / "rewind.md").read_text()
ORDERS, BILLING = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE)
CONSOLE = "".join(re.findall(r"(?ms)^```console\n(.*?)^```", PAGE))
SINCE = "10:31:08.130"
"""The time of the page to which the group goes back."""

VARYING = {
    r"\(PYTHON [^)]+\)|\S+@\S+": "MEMBER",
    r"\S*/mqadmin/undo/\S+": "FILE",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}( [+-]\d\d:\d\d)?|\d\d:\d\d:\d\d\.\d{3}|\b\d{13}\b": "TIME",
    r"\d+\.\d s": "N s",
}
"""What is another each time, and what stands for it here."""


def test_what_the_page_shows_is_what_happens(tmp_path: Path) -> None:
    steps = re.findall(r"(?m)^\$ (.*)\n((?:[^$].*\n)*)", CONSOLE)
    assert len(steps) == 7

    arguments = ["--port", "0", "--broker-port", "0", "--store", str(tmp_path / "store")]
    with Process([str(BIN / "eruca"), "standalone", *arguments], tmp_path / "standalone.out") as standalone:
        line = standalone.wait_for_line("nameserver on ")
        printed = follow(tmp_path, [command for command, _ in steps], line.split()[2].rstrip(","))

    for (command, shown), said in zip(steps, printed, strict=True):
        assert steady(said) == steady(shown), command


def follow(folder: Path, commands: list[str], nameserver: str) -> list[str]:
    """What each command prints, on either output, of a person who has this nameserver and a time of his own."""
    script = ["trap 'kill $(jobs -p)' EXIT"]
    for number, command in enumerate(commands):
        here = command.replace("127.0.0.1:9876", nameserver).replace(SINCE, "$since")
        script += [f"{{ {here}; }} >{number}.out 2>&1", f"[ $? = {3 if '--dry-run' in command else 0} ] || exit 1"]
        if command.startswith("python orders.py"):
            script.append(f"since=$(sed 's/.*since //' {number}.out)")
    for file, program in (("orders.py", ORDERS), ("billing.py", BILLING)):
        (folder / file).write_text(program.replace("127.0.0.1:9876", nameserver))
    environment = os.environ | {"HOME": str(folder), "XDG_STATE_HOME": "", "PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", "\n".join(script)], cwd=folder, env=environment, timeout=150, check=True)
    return [(folder / f"{number}.out").read_text() for number in range(len(commands))]


def steady(text: str) -> list[str]:
    """The lines of an output without what is another each time, in any order: there are two outputs."""
    for pattern, name in VARYING.items():
        text = re.sub(pattern, name, text)
    return sorted(" ".join(line.split()) for line in text.splitlines())
