"""The pages: every link leads somewhere, and the README leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, committed_files

PAGES = [file for file in committed_files() if file.suffix == ".md"]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```", "", (ROOT / page).read_text())


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(page))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """What a page links to in this repository."""
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in target]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        goal = (page.parent / name if name else page).as_posix()
        file = (ROOT / goal).resolve().relative_to(ROOT)
        assert (ROOT / file).exists(), target
        assert not anchor or anchor in anchors(file), target


def test_the_readme_leads_to_every_page() -> None:
    linked = {Path(target.partition("#")[0]) for target in links(Path("README.md"))}
    assert {page for page in PAGES if page.parts[0] == "docs"} <= linked
