"""Every module of the product: says what it is, is short, has a name of the domain, and rests on lower layers only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT, product_modules, source_roots

LONGEST = 600
"""Lines. 400 are advice; a file is cut at a seam of its subject, never at a number."""

LONG_FOR_A_REASON: dict[str, str] = {}
"""Path -> why it is longer all the same."""

_EMPTY_WORDS = re.compile(r"(Impl|Manager|Helper|Factory|Utils?)$")
_FOR_LATER = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
_EMPTY_FILES = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "impl", "factory"}


def test_every_source_root_has_modules() -> None:
    assert {module.parts[0] for module in product_modules()} == set(source_roots())


def test_modules_open_with_their_contract() -> None:
    silent = [
        str(module)
        for module in product_modules()
        if (text := (ROOT / module).read_text()).strip() and len((ast.get_docstring(ast.parse(text)) or "").split()) < 5
    ]

    assert silent == [], "say what the module owns and what it must not know"


def test_modules_are_short() -> None:
    lengths = {str(module): len((ROOT / module).read_text().splitlines()) for module in product_modules()}
    long = {module: lines for module, lines in lengths.items() if lines > LONGEST}

    assert {module: lines for module, lines in long.items() if module not in LONG_FOR_A_REASON} == {}
    assert LONG_FOR_A_REASON.keys() - long.keys() == set(), "short enough now: take it off the list"


def test_names_are_nouns_of_the_domain() -> None:
    empty = [str(module) for module in product_modules() if module.stem in _EMPTY_FILES]
    for module in product_modules():
        for node in ast.walk(ast.parse((ROOT / module).read_text())):
            if isinstance(node, ast.ClassDef) and _EMPTY_WORDS.search(node.name):
                empty.append(f"{module}: {node.name}")

    assert empty == []


def test_nothing_is_left_for_later() -> None:
    left = {str(module): _FOR_LATER.findall((ROOT / module).read_text()) for module in product_modules()}

    assert {module: words for module, words in left.items() if words} == {}


def test_dependencies_point_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")

    ran = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", ran.stdout)
