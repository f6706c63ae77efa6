"""The examples of a page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def examples_of(page: str) -> list[object]:
    """Each example, named by the heading that it follows. Those of a page run in one worker: some need those before."""
    found: list[object] = []
    heading = ""
    for part in re.split(r"^(#+ .*|```python\n[\s\S]*?^```)$", (DOCS / page).read_text(), flags=re.MULTILINE):
        if part.startswith("#"):
            heading = part.strip("# ")
        elif part.startswith("```python"):
            code = part.removeprefix("```python\n").removesuffix("```")
            name = f"{page} {heading} {len(found)}"
            found.append(pytest.param(code, id=name, marks=pytest.mark.xdist_group(page)))
    return found
