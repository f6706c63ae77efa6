"""The tables of docs/mqadmin.md, made of the declarations: commands by subject, and the exit statuses.

``python -m tests.house.mqadmin_page`` writes them between their marks; the rest of the page is written by hand.
"""

from __future__ import annotations

import re

from eruca.admin.catalogue import names_of
from eruca.admin.command import COMMON, OUTPUT, WATCH, Command
from eruca.admin.commands import find
from eruca.admin.errors import MEANINGS
from eruca.admin.help_pages import requests
from eruca.admin.posix import Option
from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "mqadmin.md"
COMMAND = "make configuration"
_TABLE = re.compile(r"<!-- (commands: [^>]*?|exit statuses) -->\n.*?<!-- end -->\n", re.DOTALL)
_COMMON = {option.name for option in (*COMMON, WATCH)} | {OUTPUT}


def page() -> str:
    """The page with the tables of the present declarations."""
    return _TABLE.sub(lambda found: f"<!-- {found[1]} -->\n{_table(found[1])}<!-- end -->\n", PAGE.read_text())


def subjects() -> list[str]:
    """The subjects whose tables the page has."""
    marks = [found[1] for found in _TABLE.finditer(PAGE.read_text())]
    return [mark.removeprefix("commands: ") for mark in marks if mark.startswith("commands: ")]


def _table(mark: str) -> str:
    if mark == "exit statuses":
        rows = [f"| {status:d} | {text} |" for status, text in MEANINGS.items()]
        return "\n".join(["| status | meaning |", "|---|---|", *rows, ""])
    found = [find(name) for name in names_of(mark.removeprefix("commands: "))]
    rows = [f"| `{call(each)}` | {_cell(each.help)} | {_cell(requests(each))} |" for each in found if each is not None]
    return "\n".join(["| command | what it does | requests |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")


def call(found: Command) -> str:
    """``topicStatus -t [--all]``: how a command is called, without what all commands take."""
    own = [option for option in found.options if option.name not in _COMMON]
    parts = [found.name, *([str(found.operand)] if found.operand else [])]
    if found.operand is not None:
        own = [option for option in own if option.name != found.operand.option.name]
    groups = dict.fromkeys(option.group for option in own if option.group)
    parts += [f"({' or '.join(_spelled(each) for each in own if each.group == group)})" for group in groups]
    parts += [_spelled(each) for each in own if each.required]
    others = [_spelled(each) for each in own if not each.required and not each.group]
    return " ".join([*parts, *([f"[{' '.join(others)}]"] if others else [])])


def _spelled(option: Option) -> str:
    return f"-{option.letter}" if option.letter else f"--{option.name}"


if __name__ == "__main__":
    PAGE.write_text(page())
