"""The documentation site, as far as it can be judged without its tool: each page has its place in the navigation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.house.tree import ROOT, committed_files

PAGES = sorted(file.name for file in committed_files() if file.parts[0] == "docs" and file.suffix == ".md")
LINKS = (sys.executable, str(ROOT / ".ci/site_links.py"))


def test_each_page_has_one_place_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]

    assert sorted(re.findall(r"\S+\.md$", nav, flags=re.MULTILINE)) == PAGES


def test_no_two_pages_have_one_title() -> None:
    titles = Counter((ROOT / "docs" / page).read_text().partition("\n")[0] for page in PAGES)

    assert [title for title, number in titles.items() if number > 1 or not title.startswith("# ")] == []


def test_a_list_has_an_empty_line_before_it() -> None:
    """A forge shows it as a list without that line, the site does not."""
    joined = [
        f"{page}: {line}"
        for page in PAGES
        for line in re.findall(
            r"(?m)^(?![-*|#>] | ).+\n(?=- )", re.sub(r"(?ms)^```.*?^```", "", (ROOT / "docs" / page).read_text())
        )
    ]
    assert joined == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('<a href="b.html#here">b</a>', "2 pages, 1 links, 0 broken"),
        ('<a href="c.html">c</a>', "a.html: no such file: c.html"),
        ('<a href="b.html#there">b</a>', "a.html: no such place: b.html#there"),
        ('<script src="https://elsewhere.example/x.js"></script>', "a.html: comes from the network"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(body: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<h2 id="here">b</h2>')

    run = subprocess.run([*LINKS, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False)

    assert says in run.stdout + run.stderr
    assert run.returncode == (0 if ", 0 broken" in says else 1)
