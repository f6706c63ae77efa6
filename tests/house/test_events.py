"""Every event of the daemons' log stands in docs/log.md with its meaning, and no other one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.tree import ROOT, parsed, product_modules

SAID_OTHERWISE = {
    "broker_not_registered",
    "broker_unregistered",
    "daemon_ended",
    "daemon_stopped",
    "finalizer_failed",
    "log_file_failed",
    "log_lines_lost",
    "thread_failed",
}
"""Events whose names do not stand in the call."""
_DAEMONS = ("broker/", "nameserver/", "remoting/")
_LEVELS = {"debug", "info", "warning", "error", "exception"}


def _events() -> Iterator[str]:
    for file in product_modules():
        if str(file).startswith(_DAEMONS):
            for node in ast.walk(parsed(file)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in _LEVELS
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                ):
                    yield str(node.args[0].value)


@pytest.mark.usefixtures("trees")
def test_each_event_is_listed_with_its_meaning() -> None:
    page = (ROOT / "docs" / "log.md").read_text()
    table = page[page.index("\n## Events") :]
    listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    names = [name for name, _ in listed]
    events = set(_events()) | SAID_OTHERWISE

    assert sorted(names) == sorted(set(names)), "an event is listed twice"
    assert events - set(names) == set(), "list these in docs/log.md"
    assert set(names) - events == set(), "nobody logs these any more"
