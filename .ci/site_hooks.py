"""What the pages of docs/ need to become a site: mkdocs calls these functions (``make site``).

Pages are written for a reader of the repository, too. So nothing in them is special to mkdocs: a link to a file
outside docs/ names that file here, examples that follow one another under **Asyncio** and **Blocking** become tabs, and
pictures, which are Mermaid's text, are drawn: the page needs no script and nothing from another host.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import merm
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Link, Navigation

_ROOT = Path(__file__).parents[1]
_REFERENCE = _ROOT / "out" / "reference"
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)[^)\s]*\)")
_PICTURE = re.compile(r"(?ms)^```mermaid\n(.*?)^```$")
_TAB = re.compile(r"(?ms)^\*\*(Asyncio|Blocking)\*\*\n\n(```.*?^```)$")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links that leave docs/ become names of files, alternatives become tabs, texts of pictures become pictures."""
    return _PICTURE.sub(_drawn, _TAB.sub(_tab, _OUTSIDE.sub(_named, markdown)))


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


def _drawn(picture: re.Match[str]) -> str:
    drawn = "\n".join(filter(str.strip, merm.render_diagram(picture[1]).splitlines()))
    return f'<div style="overflow-x: auto">{drawn}</div>'
