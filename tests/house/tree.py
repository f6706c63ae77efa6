"""The tree of this repository, as the tests of the house look at it."""

from __future__ import annotations

import ast
import gc
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_NOT_OURS = {".git", ".venv", ".cache", "out", "dist", "build", "__pycache__", ".hypothesis"}


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def source_roots() -> list[str]:
    roots: list[str] = pyproject()["tool"]["hatch"]["build"]["dev-mode-dirs"]
    return roots


def product_modules() -> list[Path]:
    """Every module of the product, tests not among them, relative to the repository."""
    return [
        file.relative_to(ROOT)
        for root in source_roots()
        for file in sorted((ROOT / root).rglob("*.py"))
        if "__pycache__" not in file.parts
    ]


@cache
def parsed(file: Path) -> ast.Module:
    """A module of this tree, as the tests share it until the last test of the house has run: nobody changes it."""
    collects = gc.isenabled()
    gc.disable()  # a million nodes, none of them garbage, and a collection looks at all of them
    try:
        return ast.parse((ROOT / file).read_text())
    finally:
        if collects:
            gc.enable()


@cache
def committed_files() -> list[Path]:
    """Every file under version control; where there is no git, every file that would be."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return [
            file.relative_to(ROOT)
            for file in sorted(ROOT.rglob("*"))
            if file.is_file() and not _NOT_OURS & set(file.relative_to(ROOT).parts)
        ]
    names = [Path(name) for name in listed.split("\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def text_of(file: Path) -> str | None:
    """The text of a file, None for one that holds none."""
    try:
        return (ROOT / file).read_text("utf-8")
    except UnicodeDecodeError:
        return None
