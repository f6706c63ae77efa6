"""Every command says which version runs, and so does the client."""

from __future__ import annotations

import subprocess
import sys

import pytest

import eruca.client
from eruca.remoting.version import version
from tests.house.tree import pyproject


@pytest.mark.processes
@pytest.mark.parametrize(("command", "place"), sorted(pyproject()["project"]["scripts"].items()))
def test_a_command_says_its_version(command: str, place: str) -> None:
    module, _, function = place.partition(":")
    program = f"import sys; from {module} import {function}; sys.argv[:] = [{command!r}, '--version']; {function}()"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, f"{command} {version()}\n"), ran.stderr


def test_the_client_says_its_version() -> None:
    assert eruca.client.__version__ == version() != "unknown"
    with pytest.raises(AttributeError, match=r"module 'eruca\.client' has no attribute 'nothing'"):
        eruca.client.nothing  # type: ignore[attr-defined]  # noqa: B018
