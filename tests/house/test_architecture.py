"""ARCHITECTURE.md: what it names exists, every package has a place in it, and its layers are those that are checked."""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT, committed_files, product_modules, pyproject, text_of

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PLACES = sorted(set(re.findall(r"`(\.?[a-z_]+(?:/[a-z_.]+)+)/?`", PAGE)))
DRAWN = sorted(
    set(re.findall(r"\b((?:handlers|services|store|network|producing|consuming|replication)/[a-z_]+)", PAGE))
)


@pytest.fixture(scope="module")
def places() -> set[str]:
    """All files, modules and folders of the repository, without the source roots' prefixes."""
    found = set()
    for file in committed_files():
        for path in (file, *file.parents[:-1]):
            found |= {f"/{path.as_posix()}", f"/{path.with_suffix('').as_posix()}"}
    return found


@pytest.mark.parametrize("place", sorted({*PLACES, *DRAWN}))
def test_a_place_exists(place: str, places: set[str]) -> None:
    assert any(path.endswith(f"/{place}") for path in places)


def test_every_package_has_a_place() -> None:
    packages = {file.parts[2:-1] for file in product_modules() if file.name == "__init__.py"}
    inner = {"/".join(package[-2:]) for package in packages if len(package) > 1}
    assert inner - {*PLACES} == set()


@pytest.mark.parametrize(("package", "drawn"), re.findall(r"(?s)\n    in (?:the )?(\w+): +(.*?)(?=\n\n)", PAGE))
def test_the_layers_are_those_that_are_checked(package: str, drawn: str) -> None:
    container = f"eruca.{package.replace('mqadmin', 'admin')}"
    [layers] = [
        contract["layers"]
        for contract in pyproject()["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == [container]
    ]
    on_page = [set(re.findall(r"\w+", layer)) for layer in drawn.split(">")]
    assert on_page == [set(layer.split(" | ")) for layer in layers]


def test_a_class_in_a_drawing_exists() -> None:
    classes = {name for file in product_modules() for name in re.findall(r"(?m)^class (\w+)", text_of(file) or "")}
    drawings = PAGE.partition("## A send")[2].partition("## Words")[0]
    named = set(re.findall(r"\b[A-Z][a-z]\w+", "\n".join(re.findall(r"(?m)^    .*", drawings))))
    assert len(named) > 10
    assert named - classes == set()


def test_the_words_are_sorted_and_said_once() -> None:
    table = PAGE.partition("| word | where |")[2].partition("\n\n")[0]
    words = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    assert len(words) > 20
    assert words == sorted(set(words), key=str.lower)
