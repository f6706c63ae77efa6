"""The links of a built site: `site_links.py FOLDER` names each that leads nowhere, and each part from the network."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
"""What a browser fetches when it shows a page."""


class Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors, self.targets = {"", "top"}, list[tuple[str, bool]]()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value is not None and dict(attrs).get("rel") != "canonical":
                self.targets.append((value, (tag, name) in LOADED))


def broken(site: Path) -> list[str]:
    """One line for each link that does not lead to a file of the site, or to no place in it."""
    pages = {file.resolve(): Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    found = []
    for file, page in pages.items():
        for target, loaded in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    found.append(f"{file.relative_to(site.resolve())}: comes from the network: {target}")
                continue
            goal = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            goal = goal / "index.html" if goal.is_dir() else goal
            if not goal.is_file():
                found.append(f"{file.relative_to(site.resolve())}: no such file: {target}")
            elif goal == file and "reference" in file.relative_to(site.resolve()).parts:
                continue  # pdoc links to inherited members that it does not show
            elif goal in pages and unquote(parts.fragment) not in pages[goal].anchors:
                found.append(f"{file.relative_to(site.resolve())}: no such place: {target}")
    print(f"{len(pages)} pages, {sum(len(page.targets) for page in pages.values())} links, {len(found)} broken")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(broken(Path(sys.argv[1]))) or None)
