"""Every bench that can be run says how: ``--help`` prints a usage, measures nothing and ends with 0."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT

RUNNABLE = [path for path in sorted((ROOT / "tests" / "bench").glob("*.py")) if "__main__" in path.read_text("utf-8")]


@pytest.fixture
def asked_for_help() -> Iterator[None]:
    """This process as if ``--help`` were its only argument; its module path is as before afterwards."""
    arguments, path = sys.argv[:], sys.path[:]
    sys.argv[:] = ["bench", "--help"]
    yield
    sys.argv[:], sys.path[:] = arguments, path


@pytest.mark.usefixtures("asked_for_help")
@pytest.mark.parametrize("bench", RUNNABLE, ids=lambda path: path.stem)
def test_a_bench_says_how_it_is_run(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bench), run_name="__main__")

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")
