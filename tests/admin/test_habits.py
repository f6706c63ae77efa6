"""What all commands have in common: exit statuses, help, options before the command, zones, colours."""

from __future__ import annotations

import asyncio
import io
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eruca.admin.catalogue import ALIASES, names
from eruca.admin.cli import run
from eruca.admin.command import COMMANDS
from eruca.admin.commands import every
from eruca.admin.errors import MEANINGS, Status
from eruca.admin.examples import examples, examples_of
from eruca.admin.help_pages import OTHERS
from tests.admin.conftest import Done, Lab

AWAY = "127.0.0.1:1"
GO_ON = {"console", "startMonitoring", "top"}
"""They go on when a nameserver is away."""
UNKNOWN = 3
"""The status of a check that cannot know."""


def line_of(name: str, address: str) -> list[str]:
    """A call of a command, with what it needs; brokers are at that address."""
    port = int(address.rpartition(":")[2])
    stored = f"7F000001{port:08X}0000000000000000"
    text = examples_of(name)[0].line.replace("10.0.0.1:10911", address)
    return [stored if word.startswith("AC11000100") else word for word in shlex.split(text)]


async def mqadmin(*line: str, environment: dict[str, str] | None = None, source: int | None = None) -> Done:
    out, err = io.StringIO(), io.StringIO()
    status = await run(line, environment or {}, out, err, source=source)
    return Done(status, out.getvalue(), err.getvalue())


@pytest.fixture
def hung() -> Iterator[str]:
    """The address of a server that is connected and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def inputs(tmp_path: Path) -> Iterator[list[int]]:
    """Two descriptors of a file with a line, for commands that read their standard input."""
    (tmp_path / "input").write_text("a message\n")
    descriptors = [os.open(tmp_path / "input", os.O_RDONLY) for _ in range(2)]
    yield descriptors
    for each in descriptors:
        os.close(each)


def test_each_name_is_where_the_index_has_it() -> None:
    assert [each.name for each in every()] == names()
    assert set(COMMANDS) == {*(name.lower() for name in names()), *ALIASES}
    folder = Path(sys.modules["eruca.admin.commands"].__path__[0])
    modules = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert {each.run.__module__.rpartition(".")[2] for each in every()} <= modules


def test_each_command_has_two_examples_that_can_be_called() -> None:
    for each in every():
        found = examples_of(each.name)
        assert len(found) >= 2, each.name
        for example in found:
            words = shlex.split(example.line)
            assert each.parse(words[1:]) is not None
    assert {example.command for example in examples()} <= {*names(), *OTHERS}


@pytest.mark.parametrize("name", names())
async def test_help_and_wrong_lines(name: str) -> None:
    page = await mqadmin("help", name)
    assert page == await mqadmin(name, "-h") == await mqadmin("--help", name)
    assert (page.status, page.err) == (Status.DONE, "")
    for part in ("Requests: ", "Examples:\n", "Exit status:\n"):
        assert part in page.out
    wrong = await mqadmin(name, "--no-such-option")
    assert wrong.status == (UNKNOWN if name == "check" else Status.USAGE)
    assert wrong.err.startswith(f"mqadmin {name}: there is no option --no-such-option")


@pytest.mark.parametrize("name", [name for name in names() if name not in GO_ON])
async def test_a_cluster_that_is_away_or_hangs(name: str, hung: str, inputs: list[int], tmp_path: Path) -> None:
    for file in ("cluster.yaml", "undo.json"):
        (tmp_path / file).write_text("{}")
    environment = {"HOME": str(tmp_path), "NO_COLOR": "1"}
    refused, silent = (UNKNOWN, UNKNOWN) if name == "check" else (Status.FAILED, Status.TIMED_OUT)
    line = ("-n", AWAY, *line_of(name, AWAY))
    away = await mqadmin(*line, environment=environment, source=inputs[0])
    assert away.status == refused and "connect to <127.0.0.1:1> failed" in away.out + away.err, away
    line = ("-n", hung, "--timeout", "0.2", *line_of(name, hung))
    async with asyncio.timeout(10):
        late = await mqadmin(*line, environment=environment, source=inputs[1])
    assert late.status == silent and "in time" in late.out + late.err, late


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (["topicList"], Status.DONE),
        (["topicRoute"], Status.USAGE),
        (["diff", "-f", "FILE"], Status.WOULD_CHANGE),
        (["apply", "-f", "FILE", "--dry-run"], Status.WOULD_CHANGE),
        (["resetOffset", "-g", "g", "-t", "T", "--to", "first", "--new-group", "--dry-run"], Status.WOULD_CHANGE),
        (["resetOffset", "-g", "unknown", "-t", "T", "--to", "first"], Status.NOT_FOUND),
        (["deleteTopic", "-t", "Nothing", "-c", "DefaultCluster"], Status.NOT_FOUND),
        (["deleteSubGroup", "-g", "nobody", "-c", "DefaultCluster"], Status.NOT_FOUND),
        (["deleteKvConfig", "-s", "S", "-k", "k"], Status.NOT_FOUND),
        (["queryMsgByKey", "-t", "T", "-k", "k"], Status.NOT_FOUND),
        (["cheat", "nothing of that kind"], Status.NOT_FOUND),
        (["context", "use", "nowhere"], Status.NOT_FOUND),
        (["topicStatus", "-t", "Half"], Status.PARTIAL),
        (["topicRoute", "-t", "Nothing"], Status.NOT_FOUND),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_exit_statuses(lab: Lab, line: list[str], status: Status, tmp_path: Path) -> None:
    from eruca.protocol.bodies import TopicConfig

    await lab.topic("T")
    await lab.topic("Half")
    await lab.send("T", "one")
    await lab.commit("g", "T", 1)
    away = TopicConfig(topic_name="Half", read_queue_nums=1, write_queue_nums=1)
    if "Half" in line:
        await lab.register("broker-b", AWAY, away)
    (tmp_path / "cluster.json").write_text('{"topics": [{"name": "Wanted"}]}')
    words = [str(tmp_path / "cluster.json") if word == "FILE" else word for word in line]
    done = await lab.mqadmin(*words, environment={"HOME": str(tmp_path)})
    assert done.status == status, done
    assert done.status in MEANINGS


@pytest.mark.processes
def test_an_interrupt_ends_with_130(hung: str) -> None:
    line = [sys.executable, "-m", "eruca.admin", "-n", hung, "clusterList", "--watch", "1", "--timeout", "0.1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "in time" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == Status.INTERRUPTED


async def test_words_that_are_no_commands(tmp_path: Path) -> None:
    assert (await mqadmin("-n", "a:1")).out == (await mqadmin()).out
    assert (await mqadmin("cheat", "undo")).out == (
        "   # take a reset back\n   mqadmin resetOffset -g shop --from-file undo.json\n"
    )
    assert len((await mqadmin("cheat")).out.splitlines()) == 2 * len(examples())
    for word in OTHERS:
        page = await mqadmin("help", word)
        assert page.out.startswith("usage: mqadmin ") and page == await mqadmin(word, "--help")
    assert (await mqadmin("topic", "set", "--help")).out == (await mqadmin("help", "updateTopic")).out
    wrong = await mqadmin("group", "show")
    assert wrong.err == "mqadmin group: give the word set and what shall change: see mqadmin group set --help\n"
    assert wrong.status == Status.USAGE
    assert (await mqadmin("help", "a", "b")).status == Status.USAGE
    assert (await mqadmin("schema")).status == Status.USAGE
    assert "did you mean cheat" in (await mqadmin("chaet")).err
    assert (await mqadmin("--nothing", "topicList")).err == "mqadmin: there is no option --nothing\n"
    assert "did you mean --topic" in (await mqadmin("topicRoute", "--topc", "T")).err


async def test_options_before_the_command(lab: Lab) -> None:
    rows = (await lab.done("-o", "jsonl", "topicList")).out
    assert rows.startswith('{"topic":')
    assert (await lab.done("--output=jsonl", "--namesrvAddr", lab.nameserver, "topicList")).out == rows
    assert (await lab.done("-o", "csv", "topicList", "-o", "jsonl")).out == rows
    assert (await lab.mqadmin("-n", AWAY, "topicList")).status == Status.FAILED


async def test_the_zone_of_times(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    line = ("resetOffset", "-g", "g", "-t", "T", "--new-group", "--dry-run", "--to", "2026-07-01 12:00")
    for zone, ms in (("UTC", 1782907200000), ("Asia/Kolkata", 1782887400000)):
        done = await lab.mqadmin("--tz", zone, *line)
        assert f"({ms})" in done.out and "2026-07-01 12:00:00.000" in done.out, done
    skipped = await lab.mqadmin(*line[:-1], "2026-03-29 02:30", "--tz", "Europe/Berlin")
    assert (skipped.status, "does not exist: the clocks of this zone skip it" in skipped.err) == (2, True)
    twice = await lab.mqadmin(*line[:-1], "2026-10-25 02:30", "--tz", "Europe/Berlin")
    assert (twice.status, "exists twice" in twice.err) == (2, True)
    wrong = await lab.mqadmin(*line, "--tz", "Europe/Nowhere")
    assert (wrong.status, "option --tz takes a time zone" in wrong.err) == (2, True)
    shown = (await lab.done("topicStatus", "-t", "T", "-o", "jsonl", "--tz", "Asia/Kolkata")).out
    assert '+05:30"' in shown


class Terminal(io.StringIO):
    """An output that is a terminal."""

    def isatty(self) -> bool:
        return True


async def test_colours_only_where_they_are_wanted(lab: Lab, tmp_path: Path) -> None:
    await lab.topic("%RETRY%g")

    async def shown(*line: str, out: io.StringIO, **environment: str) -> str:
        variables = {"NAMESRV_ADDR": lab.nameserver, "HOME": str(tmp_path), **environment}
        assert await run(["lag", "g", "-o", "table", *line], variables, out, io.StringIO()) == 0
        return out.getvalue()

    plain = await shown(out=io.StringIO())
    assert "\x1b" not in plain
    coloured = await shown(out=Terminal())
    assert coloured.startswith("\x1b[1mGROUP") and "\x1b[33m?\x1b[0m" in coloured
    assert await shown(out=Terminal(), NO_COLOR="1") == plain
    assert await shown("--color", "never", out=Terminal()) == plain
    assert await shown("--color", "always", out=io.StringIO(), NO_COLOR="1") == coloured
    add = ("context", "add", "lab", "-n", lab.nameserver, "--color", "always")
    await lab.mqadmin(*add, environment={"HOME": str(tmp_path)})
    assert await shown(out=io.StringIO()) == coloured
    wrong = await lab.mqadmin("topicList", "--color", "red")
    assert (wrong.status, wrong.err) == (2, "mqadmin topicList: option --color takes auto, always, never, not 'red'\n")


WORDS = st.one_of(
    st.sampled_from(
        [
            *names(),
            *OTHERS,
            *("-n", AWAY, "-t", "-g", "-b", "-c", "-o", "-h", "--help", "--", "-", "", "--tz", "UTC", "--color"),
            *("--watch", "--timeout", "0.1", "json", "-s", "-1", "now", "=", "-tT", "--topic=T", "list", "__complete"),
        ]
    ),
    st.text(max_size=8),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORDS, max_size=6))
async def test_no_line_gives_a_traceback(line: list[str]) -> None:
    """Whatever stands in whatever order: a status of the table, and a sentence if it is not 0."""
    harmful = {
        "console",
        "startmonitoring",
        "clusterrt",
        "add",
        "use",
        "rm",
    }  # that serve, go on, or write a file
    if harmful & {word.lower() for word in line} or any(word.lower().startswith("--watch") for word in line):
        return
    done = await mqadmin(*line, environment={"HOME": "/nowhere", "JAVA_OPT": ""})
    assert done.status in MEANINGS
    assert done.status == Status.DONE or done.err, done


LOOK = """
import sys
from eruca.admin.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
FEW = {"rich", "starlette", "uvicorn", "jinja2", "yaml", "csv", "zoneinfo", "ctypes"}
FEW |= {f"eruca.remoting.{each}" for each in ("settings", "sources", "tls_settings", "tls_server")}
FEW |= {f"eruca.protocol.{each}" for each in ("sql92", "subscription")}


def loaded_by(*line: str) -> set[str]:
    """The modules that a run of mqadmin has imported at its end."""
    run = [sys.executable, "-c", LOOK, *line]
    return set(subprocess.run(run, capture_output=True, text=True).stderr.split())


@pytest.mark.parametrize("line", ["help", "cheat lag", "completion bash", "__complete zsh res"])
def test_a_word_that_is_no_command_brings_none(line: str) -> None:
    loaded = loaded_by(*line.split())

    assert "eruca.admin.cli" in loaded
    assert loaded & FEW == set()
    assert not [each for each in loaded if each.startswith("eruca.admin.commands.")]


@pytest.mark.parametrize("line", ["topicList", "clusterList", "topicRoute -t T", "consumerProgress -g g"])
def test_a_command_brings_nothing_that_few_commands_need(line: str) -> None:
    loaded = loaded_by(*line.split(), "-n", AWAY)

    assert [each for each in loaded if each.startswith("eruca.admin.commands.")]
    assert loaded & FEW == set()
