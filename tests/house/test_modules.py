"""Every module of the product: says what it is, is short, and has a name of the domain.

That dependencies point down is judged by ``make layers``.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.tree import ROOT, committed_files, parsed, product_modules, source_roots

ADVISED, LONGEST = 400, 600
"""Lines. Longer than advised is worth a look; a file is cut at a seam of its subject, never at a number."""

NOUNS_IN_ING = {"housekeeping", "routing", "string"}
"""Last words of module names that end like a verb and are nouns all the same."""

_EMPTY_WORDS = re.compile(r"(Impl|Manager|Helper|Factory|Utils?)$")
_FOR_LATER = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
_EMPTY_FILES = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "impl", "factory"}


def test_every_source_root_has_modules() -> None:
    assert {module.parts[0] for module in product_modules()} == set(source_roots())


@pytest.mark.usefixtures("trees")
def test_modules_open_with_their_contract() -> None:
    silent = [
        str(module)
        for module in product_modules()
        if parsed(module).body and len((ast.get_docstring(parsed(module)) or "").split()) < 5
    ]

    assert silent == [], "say what the module owns and what it must not know"


def test_modules_are_short() -> None:
    lengths = {str(module): len((ROOT / module).read_text().splitlines()) for module in product_modules()}
    over = {module: lines for module, lines in lengths.items() if lines > ADVISED}
    print(f"longer than the advised {ADVISED} lines:", over or "none")

    assert {module: lines for module, lines in over.items() if lines > LONGEST} == {}


def test_modules_are_named_by_nouns() -> None:
    verbs = [
        str(module)
        for module in product_modules()
        if (word := module.stem.rpartition("_")[2]).endswith("ing") and word not in NOUNS_IN_ING
    ]

    assert verbs == []


@pytest.mark.usefixtures("trees")
def test_arguments_stand_in_the_call() -> None:
    """A literal tuple splatted into a call hides from editors, mypy and grep which argument is which."""
    splats = [
        f"{file}:{node.lineno}"
        for file in committed_files()
        if file.suffix == ".py"
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call)
        for argument in node.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple | ast.List)
    ]

    assert splats == []


@pytest.mark.usefixtures("trees")
def test_names_are_nouns_of_the_domain() -> None:
    empty = [str(module) for module in product_modules() if module.stem in _EMPTY_FILES]
    for module in product_modules():
        for node in ast.walk(parsed(module)):
            if isinstance(node, ast.ClassDef) and _EMPTY_WORDS.search(node.name):
                empty.append(f"{module}: {node.name}")

    assert empty == []


def test_nothing_is_left_for_later() -> None:
    left = {str(module): _FOR_LATER.findall((ROOT / module).read_text()) for module in product_modules()}

    assert {module: words for module, words in left.items() if words} == {}
