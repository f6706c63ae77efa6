"""The systemd units, checked by systemd's own tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MOST_EXPOSED = 1.5
"""Of systemd's scale from 0 (nothing is open) to 10."""

judge = shutil.which("systemd-analyze")
judged = pytest.mark.skipif(judge is None, reason="systemd-analyze is not installed here")


def systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert judge is not None
    environment = os.environ | {"SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    return subprocess.run([judge, *arguments], capture_output=True, text=True, timeout=60, env=environment)


def test_both_daemons_have_a_unit() -> None:
    assert [unit.name for unit in UNITS] == ["eruca-broker.service", "eruca-namesrv.service"]


@judged
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace("/opt/eruca/bin", str(Path(sys.executable).parent)))
        copies.append(copy)

    verdict = systemd_analyze("verify", "--man=no", *copies)

    assert (verdict.returncode, verdict.stdout, verdict.stderr) == (0, "", "")


@judged
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_daemon_is_hardly_exposed(unit: Path) -> None:
    verdict = systemd_analyze("security", "--offline=true", unit)

    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", verdict.stdout)
    assert found, verdict.stdout + verdict.stderr
    assert float(found[1]) <= MOST_EXPOSED
