"""What the pages of docs/ need to become a site: mkdocs calls these functions (``make site``).

Pages are written for a reader of the repository, too. So nothing in them is special to mkdocs: a link to a file
outside docs/ names that file here, and examples that follow one another under **Asyncio** and **Blocking** become tabs.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Link, Navigation

_ROOT = Path(__file__).parents[1]
_REFERENCE = _ROOT / "out" / "reference"
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)[^)\s]*\)")
_TAB = re.compile(r"(?ms)^\*\*(Asyncio|Blocking)\*\*\n\n(```.*?^```)$")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links that leave docs/ become names of files, alternatives become tabs."""
    return _TAB.sub(_tab, _OUTSIDE.sub(_named, markdown))


def on_nav(nav: Navigation, **_: object) -> Navigation:
    """The API reference, which pdoc makes, stands at the end of the navigation."""
    nav.items.append(Link("API reference", "reference/index.html"))
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """The API reference lies beside the pages."""
    shutil.copytree(_REFERENCE, Path(config.site_dir) / "reference", dirs_exist_ok=True)


def _named(link: re.Match[str]) -> str:
    text, file = link.groups()
    return text if file in text else f"{text} (`{file}` in the sources)"


def _tab(example: re.Match[str]) -> str:
    title, code = example.groups()
    indented = "\n".join(f"    {line}" if line else "" for line in code.splitlines())
    return f'=== "{title}"\n\n{indented}'
