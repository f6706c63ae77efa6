"""Every command says which version runs, and so does the client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import eruca.client
from eruca.remoting.version import version
from eruca.standalone.cli import main
from tests.house.tree import pyproject


@pytest.mark.processes
@pytest.mark.parametrize(("command", "place"), sorted(pyproject()["project"]["scripts"].items()))
def test_a_command_says_its_version(command: str, place: str) -> None:
    module, _, function = place.partition(":")
    program = f"import sys; from {module} import {function}; sys.argv[:] = [{command!r}, '--version']; {function}()"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, f"{command} {version()}\n"), ran.stderr


def commands_of(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from commands_of(command, (*words, name))


def test_so_does_every_command_of_eruca() -> None:
    found = [*commands_of(main)]
    assert {("standalone",), ("store", "verify"), ("pipeline", "archive")} <= {*found}
    for words in found:
        ran = CliRunner().invoke(main, [*words, "--version"])
        assert (ran.exit_code, ran.output) == (0, f"eruca {version()}\n"), words


def test_the_client_says_its_version() -> None:
    assert eruca.client.__version__ == version() != "unknown"
    with pytest.raises(AttributeError, match=r"module 'eruca\.client' has no attribute 'nothing'"):
        eruca.client.nothing  # type: ignore[attr-defined]  # noqa: B018
