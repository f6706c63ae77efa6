"""The prose of the product: words for which the field has better ones do not come back."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import ROOT, committed_files

BETTER = {
    "told": "returned, reported, sent, notified",
    "tells": "returns, reports, sends",
    "so many": "N, or the name of the argument",
    "anew": "again; rebuilt, retried",
    "ordinary way": "slow path, or what it does",
    "short way": "fast path",
    "patient way": "slow path",
}
_WORDS = re.compile(rf"\b(?:{'|'.join(BETTER)})\b", re.IGNORECASE)
_CODE = re.compile(r"``?[^`]*``?")
"""Names in prose: an argument may be called ``told``."""


def _prose(file: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines: of Python its texts and comments, of C and pages all."""
    text = (ROOT / file).read_text()
    if file.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from enumerate(token.string.splitlines(), token.start[0])


def test_words_that_have_a_better_one_do_not_come_back() -> None:
    found = [
        f"{file}:{number}: {word[0]} -> {BETTER[word[0].lower()]}"
        for file in committed_files()
        if file.parts[0] != "tests" and file.suffix in (".py", ".pyi", ".c", ".h", ".md")
        for number, line in _prose(file)
        if (word := _WORDS.search(_CODE.sub("", line)))
    ]

    assert found == []
