"""The commands, as in a terminal, and the examples of docs/pipelines.md."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from eruca.spark_connector import pipelines
from eruca.standalone.cli import main
from tests.support.spark import Topic

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "pipelines.md").read_text()


@pytest.fixture
def run(spark: SparkSession, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in the session of the tests: exit code and output."""

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(pipelines, "open_session", session)

    def invoke(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["pipeline", *arguments], env={"NAMESRV_ADDR": topic.name_server})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout or result.stderr

    return invoke


def test_archive_and_replay_say_what_they_did(run: Any, topic: Topic, tmp_path: Path) -> None:
    topic.fill(30)
    to = str(tmp_path / "lake")

    code, told = run("archive", "--topic", topic.name, "--to", to)
    assert code == 0
    assert re.search(rf"^30 messages of 1 topic were added to {to} in .* s: \d files?, .* KiB\.$", told, re.M), told
    assert re.search(rf"^{topic.name} +█+ 30$", told, re.M)
    code, told = run("archive", "--topic", topic.name, "--to", to)
    assert (code, told) == (0, f"Nothing is new, no message was added to {to}.\n")

    code, told = run("replay", "--topic", topic.name, "--archive", to, "--to", f"{topic.name}_2", "--rehearse")
    assert (code, "would be sent to" in told) == (0, True), told
    code, told = run("replay", "--topic", topic.name, "--to", f"{topic.name}_2", "--tag", "a", "--tag", "b")
    sentence = f"No message of {topic.name} with the tag a or b was stored in that interval: nothing is sent.\n"
    assert (code, told) == (0, sentence)
    code, told = run("replay", "--topic", topic.name, "--to", f"{topic.name}_2", "--key", "key3")
    assert code == 0
    assert re.search(r"^1 messages of .*, stored from \d{4}-.*Z to .*Z, were sent to .* s \(\d+/s\)\.$", told, re.M), (
        told
    )


def test_a_rollup_fits_a_terminal_and_draws_its_picture(run: Any, topic: Topic, tmp_path: Path) -> None:
    for second in range(3):
        topic.send(0, b"body", tags=f"tag-{second}")
        time.sleep(0.11)
    picture = tmp_path / "counts.png"
    given = ("--topic", topic.name, "--window", "100ms", "--by", "tag", "--picture", str(picture))

    code, told = run("rollup", *given)

    assert code == 0 and picture.read_bytes().startswith(b"\x89PNG"), told
    table = [line for line in told.splitlines() if re.match(r"window|\d\d:\d\d:\d\d\.\d00 ", line)]
    assert len(table) == 4 and max(map(len, table)) <= 80, told
    assert re.search(r"^by window  .*\n +\d\d:\d\d:\d\d.\d00 +\d\d:\d\d:\d\d.\d00 20\d\d-\d\d-\d\d UTC$", told, re.M), (
        told
    )


def test_a_command_that_fails_says_why_in_its_last_line(run: Any, topic: Topic, tmp_path: Path) -> None:
    topic.fill(1)
    for arguments, sentence in (
        (("replay", "--topic", topic.name), "Say where to: a topic, or a group (one of both)."),
        (("archive", "--topic", "nowhere", "--to", str(tmp_path)), "The topic nowhere is not there, or cannot be read"),
        (("archive", "--pattern", "(", "--to", str(tmp_path)), 'The option subscribePattern="(" cannot be read'),
    ):
        code, told = run(*arguments)
        assert code == 1
        assert told.splitlines()[-1].startswith(f"eruca pipeline: {sentence}"), told
    code, told = run("replay", "--topic", "a", "--access", "tls")
    assert code == 2 and '"tls" is expected to be NAME=VALUE' in told


def test_the_examples_run(run: Any, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}

    def here(text: str) -> str:
        text = text.replace("localhost:9876", topic.name_server).replace("/tmp/lake", str(tmp_path / "lake"))
        return re.sub(r"\blines(-again)?\b(?=[\" ]|$)", rf"{topic.name}\1", text)

    worked = PAGE.partition("## Example")[2].partition("\n## ")[0]
    for kind, example in re.findall(r"```(python|)\n(.*?)```", worked, re.DOTALL):
        if kind == "python":
            exec(here(example.replace("for line in", "for entry in").replace("line.", "entry.")), names)
            continue
        for line in here(example).splitlines():
            code, told = run(*shlex.split(line)[2:])
            assert code == 0, told

    told = capsys.readouterr().out
    assert "400 messages in 1 files" in told
    assert "__future__.py" in told
    assert re.search(r"^[1-9]\d* letters because of \w+, such as \w+$", told, re.M), told
    assert re.search(r"^[1-9]\d* were sent again, to the indexer alone$", told, re.M), told


def test_every_option_is_described() -> None:
    group = main.get_command(click.Context(main), "pipeline")
    assert isinstance(group, click.Group)
    shared = set(re.findall(r"`(--?[a-z-]+)", PAGE.partition("## Common options")[2].partition("\n## ")[0]))
    for name, command in group.commands.items():
        section = PAGE.partition(f"## {name.capitalize()}\n")[2].partition("\n## ")[0]
        table = "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
        own = set(re.findall(r"`(--[a-z-]+)", table))
        options = {opt for each in command.params for opt in each.opts if opt.startswith("--")}
        assert options - shared == own - shared, name
