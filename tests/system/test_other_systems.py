"""Windows and macOS, as far as Linux can be one: servers, clients and mqadmin without what these systems lack."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.other_systems import SYSTEMS
from tests.support.processes import Process

pytestmark = pytest.mark.processes


def on(system: str, module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.other_systems", system, module, *arguments]


def run(system: str, module: str, *arguments: str) -> str:
    ran = subprocess.run(on(system, module, *arguments), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("system", SYSTEMS)
def test_ordinary_use_needs_nothing_of_linux(system: str, tmp_path: Path) -> None:
    ports = ["--port", "0", "--broker-port", "0", "--store", str(tmp_path / "files")]
    with Process(on(system, "eruca.standalone.cli", "standalone", *ports), tmp_path / "log") as servers:
        found = re.match(r"nameserver on (\S+), broker on (\S+), files in", servers.wait_for_line("nameserver on"))
        assert found

        assert "done\n" in run(system, "tests.support.ordinary_use", found[1])

        servers.signal(signal.SIGINT)
        assert servers.wait() == 0, servers.output

    store = str(tmp_path / "files" / "store")
    assert "The store is sound." in run(system, "eruca.standalone.cli", "store", "verify", store)
