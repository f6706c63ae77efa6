"""The wheel: the same bytes wherever and whenever it is built, so that anybody can check one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT, committed_files

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def wheel(folder: Path) -> Path:
    """Build a wheel from a copy of the tree in ``folder``, as `pip wheel` does in a release."""
    for file in committed_files():
        if file.parts[0] in ("tests", "docs"):
            continue
        copy = folder / "tree" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / file).read_bytes())
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=folder / "tree", capture_output=True, text=True, check=True
    )
    return folder / made.stdout.split()[-1]


def test_two_builds_in_two_places_are_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "another place").mkdir()
    one, other = wheel(tmp_path / "one"), wheel(tmp_path / "another place")

    assert one.name == other.name
    assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest()
