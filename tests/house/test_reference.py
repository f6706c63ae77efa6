"""The API reference: it can be made, and every public name in it is explained."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import eruca.client
from tests.house.tree import ROOT

PDOC = (sys.executable, "-m", "pdoc")


def public_modules() -> list[str]:
    """The modules of ``make reference``."""
    found = re.search(r"^REFERENCE := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert found is not None
    return found.group(1).replace("\\", " ").split()


@pytest.mark.slow
def test_it_can_be_made(tmp_path: Path) -> None:
    run = subprocess.run(
        [*PDOC, "--docformat", "google", "--no-show-source", "-o", str(tmp_path), *public_modules()],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    told = [line for line in run.stderr.splitlines() if "Error parsing type annotation" not in line]
    assert (run.returncode, told) == (0, []), "annotations of dataclasses that it cannot link are shown as they stand"
    page = (tmp_path / "eruca" / "client.html").read_text()
    assert [name for name in eruca.client.__all__ if f'id="{name}"' not in page] == []
    for module in public_modules():
        assert (tmp_path / Path(*module.split(".")).with_suffix(".html")).is_file()


@pytest.mark.parametrize("module", public_modules())
def test_every_public_name_is_explained(module: str) -> None:
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None) or [
        name for name, value in vars(loaded).items() if getattr(value, "__module__", None) == module
    ]
    silent = []
    for name in names:
        value = getattr(loaded, name)
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not inspect.getdoc(value):
            silent.append(name)
        if inspect.isclass(value):
            silent += [f"{name}.{each}" for each in _methods(value) if not inspect.getdoc(getattr(value, each))]
    assert silent == []


def _methods(kind: type) -> list[str]:
    """The public methods and properties that Eruca defines."""
    return [
        name
        for parent in kind.__mro__
        if parent.__module__.startswith("eruca.")
        for name, value in vars(parent).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod))
    ]
