"""The configuration file of a running daemon is read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eruca.remoting.command_line import command_line
from eruca.remoting.file_settings import FileSettings
from eruca.remoting.settings import BadSetting, change, setting


@dataclass
class Inner:
    limit: int = setting(10, at_least=1, live=True)


@dataclass
class Config:
    colour: str = setting("green", live=True)
    port: int = setting(10911)
    password: str = setting("", secret=True)
    inner: Inner = field(default_factory=Inner)


class Daemon:
    """A daemon with this content of its file."""

    def __init__(self, folder: Path, text: str, *arguments: str) -> None:
        self.file = folder / "daemon.conf"
        self.file.write_text(text)
        self._arguments = ["-c", str(self.file), *arguments]
        start = command_line(Config, "daemon", self._arguments)
        self.config = start.config
        self.settings = FileSettings(start, lambda: command_line(Config, "daemon", self._arguments))
        self.applied: list[Mapping[str, str]] = []

    def reread(self, text: str) -> list[str]:
        self.file.write_text(text)
        return self.settings.read(self._apply)

    def _apply(self, changed: Mapping[str, str]) -> None:
        self.applied.append(changed)
        change(self.config, changed)


def test_what_may_change_does_and_is_said(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "colour=red\nport=1\n")
    assert daemon.reread("colour=red\nport=1\n") == [] and daemon.applied == []
    assert daemon.reread("colour=\nlimit=5\nport=1\n") == ["colour: red -> (empty)", "limit: 10 -> 5"]
    assert (daemon.config.colour, daemon.config.inner.limit) == ("", 5)
    assert daemon.applied == [{"colour": "", "limit": "5"}]
    assert daemon.reread("colour=\nlimit=5\nport=1\n") == []
    assert daemon.reread("port=1\n") == ["colour: (empty) -> green", "limit: 5 -> 10"], "a line that is gone"


def test_what_may_not_waits_for_a_restart_and_is_said_each_time(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "port=1\npassword=old\n")
    expected = [
        "port: 1 -> 2; it takes effect at a restart",
        "password: changed (not shown); it takes effect at a restart",
    ]
    assert daemon.reread("port=2\npassword=new\n") == expected
    assert daemon.reread("port=2\npassword=new\n") == expected
    assert (daemon.config.port, daemon.config.password, daemon.applied) == (1, "old", [])
    assert daemon.reread("port=1\npassword=old\n") == []


@pytest.mark.parametrize(
    "broken", ["colour=red\nlimit=0\n", "colour=red\nport=many\n", "colour=red\n\\u12"], ids=["bound", "kind", "form"]
)
def test_a_file_that_cannot_be_taken_changes_nothing(tmp_path: Path, broken: str) -> None:
    daemon = Daemon(tmp_path, "colour=green\n")
    with pytest.raises(BadSetting):
        daemon.reread(broken)
    daemon.file.unlink()
    with pytest.raises(BadSetting, match="cannot read"):
        daemon.settings.read(daemon.applied.append)
    assert daemon.config == Config() and daemon.applied == []
    assert daemon.reread("colour=red\n") == ["colour: green -> red"]


def test_the_command_line_wins_as_at_the_start(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "", "--set", "colour=blue", "--set", "port=7")
    assert daemon.reread("colour=red\nport=8\n") == []
    assert daemon.config.colour == "blue"


def test_a_value_that_was_changed_at_run_time_is_the_files_again(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "colour=red\n")
    change(daemon.config, {"colour": "blue"})
    assert daemon.reread("colour=red\n") == ["colour: blue -> red"]


def test_a_new_doubt_about_the_file_is_said_once(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "port=1\nold=1\n")
    said = daemon.reread("port=1\nold=1\ncolor=red\n")
    assert len(said) == 1 and "unknown key color (did you mean colour?)" in said[0]
    assert daemon.reread("port=1\nold=1\ncolor=red\n") == []
