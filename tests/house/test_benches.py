"""Every bench that can be run says how, by ``--help``, and names its rows when it is asked for one that it lacks."""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT

RUNNABLE = [path for path in sorted((ROOT / "tests" / "bench").glob("*.py")) if "__main__" in path.read_text("utf-8")]


@contextlib.contextmanager
def called_with(*arguments: str) -> Iterator[None]:
    """This process as if it had been called with these arguments; all is as before afterwards."""
    before, path = sys.argv[:], sys.path[:]
    sys.argv[:] = ["bench", *arguments]
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = before, path


@pytest.mark.parametrize("bench", RUNNABLE, ids=lambda path: path.stem)
def test_a_bench_says_how_it_is_run(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with called_with("--help"), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bench), run_name="__main__")

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


@pytest.mark.parametrize(("bench", "option"), [("run", "--only"), ("spark", "--only"), ("client_sends", "--rows")])
def test_a_row_that_is_not_there_is_no_empty_table(bench: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with called_with(option, "sync64"), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "tests" / "bench" / f"{bench}.py"), run_name="__main__")

    assert ended.value.code == 2
    assert "'sync64'" in capsys.readouterr().err
