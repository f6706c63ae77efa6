"""Any argument vector: never a traceback, and an exit status of the table."""

from __future__ import annotations

import asyncio
import io
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.admin.cli import run
from eruca.admin.command import Command
from eruca.admin.commands import every
from eruca.admin.errors import Status

LOOPS = {"startMonitoring", "clusterRT", "console"}
"""Commands that go on until they are interrupted."""
COMMANDS: dict[str, Command] = {each.name: each for each in every() if each.name not in LOOPS}
VALUES = st.text(st.characters(blacklist_characters="."), max_size=8) | st.sampled_from(
    ["", "-1", "T", "true", "--", "\udcff"]
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command, and its options, values and anything else in any order; nothing that asks for more than one look."""
    name = draw(st.sampled_from(sorted(COMMANDS)) | st.text(max_size=6))
    options = list(COMMANDS[name].options) if name in COMMANDS else []
    letters = [f"-{each.letter}" for each in options if each.letter not in ("", "n", "b")]
    words = [
        f"--{each.name}" for each in options if each.letter not in ("n", "b") and each.name not in ("watch", "interval")
    ]
    rest = draw(st.lists(st.sampled_from([*letters, *words, "-h", "--"]) | VALUES, max_size=8))
    return [each for each in (name, *rest) if "\0" not in each and (name, each) != ("clusterList", "-i")]


@settings(max_examples=100, deadline=None)
@given(lines())
def test_no_argument_vector_ends_in_a_traceback(line: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home}
        status = asyncio.run(run(line, environment, out, err))
    assert status in set(Status)
    assert "Traceback" not in err.getvalue()
    assert status == 0 or err.getvalue().startswith(("mqadmin", "The sub command"))
