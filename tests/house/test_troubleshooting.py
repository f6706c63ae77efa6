"""Each line that the page about troubleshooting names is one that the client logs or raises."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.tree import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
LINES = [line for line in re.findall(r"(?m)^\| `([^`]+)`", PAGE) if "…" in line or " " in line]
GAP = "…"


def sentences() -> list[str]:
    """The literal texts of the client, with ``…`` where a value stands."""
    found = []
    for file in (ROOT / "client" / "eruca" / "client").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%[-.\d]*[a-z]", GAP, node.value))
            elif isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values]
                found.append("".join(parts))
    return found


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences()


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_page_is_one_of_the_client(line: str, texts: list[str]) -> None:
    pieces = [piece.rstrip() for piece in line.split(GAP) if piece.strip(" ,:;.()")]
    assert any(holds(text, pieces) for text in texts), line


def holds(text: str, pieces: list[str]) -> bool:
    """Whether the pieces stand in the text, one behind the other."""
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def test_the_page_has_lines() -> None:
    assert len(LINES) > 20
