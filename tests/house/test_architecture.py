"""ARCHITECTURE.md: every module, package and folder that it names exists."""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT, committed_files

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


def test_the_words_are_sorted_and_said_once() -> None:
    table = PAGE.partition("| word | where |")[2].partition("\n\n")[0]
    words = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    assert len(words) > 20
    assert words == sorted(set(words), key=str.lower)
