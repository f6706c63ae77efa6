"""Completion: what shells are answered, and what a person sees after TAB in bash, zsh and fish."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.conftest import Lab
from tests.support.stopwatch import Stopwatch

BIN = Path(sys.executable).parent
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_]|[()][AB0])")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An operator without contexts and without a cache."""
    return {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


async def complete(lab: Lab, home: dict[str, str], *words: str) -> list[str]:
    """The candidates that fish is given; what they mean is left out."""
    done = await lab.mqadmin("__complete", "fish", *words, environment=home)
    assert (done.status, done.err) == (0, "")
    return [line.partition("\t")[0] for line in done.out.splitlines()]


async def test_commands_options_and_values(lab: Lab, home: dict[str, str]) -> None:
    assert await complete(lab, home, "topicR") == ["topicRoute"]
    assert await complete(lab, home, "CHEA") == ["cheat"]
    assert (await complete(lab, home, "topicRoute", ""))[:2] == ["--topic", "-t"]
    assert "--topic" not in await complete(lab, home, "topicRoute", "-t", "T", "--")
    assert await complete(lab, home, "topicRoute", "-o", "j") == ["json", "jsonl"]
    assert await complete(lab, home, "-o", "ta") == ["table"]
    assert await complete(lab, home, "-o", "table", "topicStat") == ["topicStatus"]
    assert await complete(lab, home, "topicRoute", "--output=c") == ["--output=csv"]
    assert await complete(lab, home, "updateTopic", "-o", "") == ["true", "false"]
    assert await complete(lab, home, "diff", "-f", "") == [":files"]
    assert await complete(lab, home, "help", "--f") == ["--flat"]
    assert await complete(lab, home, "context", "u") == ["use"]
    assert await complete(lab, home, "completion", "") == ["bash", "zsh", "fish"]
    assert await complete(lab, home, "topic", "") == ["set"]
    assert (await complete(lab, home, "topic", "set", ""))[:2] == ["--topic", "-t"]
    assert await complete(lab, home, "topic", "set", "--ke") == []
    assert await complete(lab, home, "noSuchCommand", "-") == []


async def test_names_of_the_cluster(lab: Lab, home: dict[str, str]) -> None:
    await lab.topic("Orders")
    await lab.done("updateSubGroup", "-g", "shop", "-b", lab.broker)
    await lab.member("shop", "Orders", client_id="10.0.0.1@c")
    assert await complete(lab, home, "topicRoute", "-t", "ord") == ["Orders"]
    assert "shop" in await complete(lab, home, "consumerProgress", "-g", "")
    assert await complete(lab, home, "consumerStatus", "-g", "shop", "-i", "") == ["10.0.0.1@c"]
    assert await complete(lab, home, "wipeWritePerm", "-b", "") == ["broker-a"]
    assert await complete(lab, home, "brokerStatus", "-b", "") == [lab.broker]
    assert await complete(lab, home, "brokerStatus", "-c", "") == ["DefaultCluster"]


async def test_words_without_an_option(lab: Lab, home: dict[str, str]) -> None:
    await lab.topic("Tasks")
    await lab.member("shop", "Tasks")
    assert await complete(lab, home, "tail", "Ta") == ["Tasks"]
    assert await complete(lab, home, "-o", "json", "tail", "Ta") == ["Tasks"]
    assert await complete(lab, home, "send", "--rate", "5", "Ta") == ["Tasks"]
    assert await complete(lab, home, "doctor", "") == ["shop"]
    assert await complete(lab, home, "lag", "shop", "s") == ["shop"]
    assert await complete(lab, home, "check", "l") == ["lag"]
    assert await complete(lab, home, "check", "lag", "-g", "") == ["shop"]
    behind = await complete(lab, home, "tail", "Tasks", "")
    assert "--follow" in behind and not {"Tasks", "--topic"} & {*behind}
    assert await complete(lab, home, "tail", "Tasks", "--from", "f") == ["first"]
    assert await complete(lab, home, "tail", "Tasks", "--from", "group:") == ["group:shop"]
    assert await complete(lab, home, "resetOffset", "--to=gr") == ["--to=group:shop"]
    assert await complete(lab, home, "context", "add", "lab", "--acc") == ["--account", "--account-command"]
    assert await complete(lab, home, "context", "add", "lab", "--output", "js") == ["json", "jsonl"]


def make_old(cache: Path) -> None:
    """Let what is kept be old; nobody else may read it."""
    for kept in cache.rglob("*.json"):
        assert kept.stat().st_mode & 0o777 == 0o600
        os.utime(kept, (0, 0))


async def test_names_are_kept_for_a_while(lab: Lab, home: dict[str, str]) -> None:
    assert await complete(lab, home, "topicRoute", "-t", "Later") == []
    await lab.topic("Later")
    assert await complete(lab, home, "topicRoute", "-t", "Later") == []
    make_old(Path(home["XDG_CACHE_HOME"]))
    assert await complete(lab, home, "topicRoute", "-t", "Later") == ["Later"]


async def test_bash_gets_what_is_behind_its_breaks(lab: Lab, home: dict[str, str]) -> None:
    host, port = lab.broker.split(":")
    await lab.topic("Tasks")
    await lab.member("shop", "Tasks")
    for line, answer in (
        ("mqadmin topicR", "topicRoute"),
        (f"mqadmin brokerStatus -b {host}:", port),
        ("mqadmin topicRoute --output=js", "json"),
        ('mqadmin resetOffset -g "an open quote', ""),
        ("mqadmin consumerProgress -g 'unknown group' -s ", "true"),
        ("mqadmin tail Ta", "Tasks"),
        ("mqadmin tail Tasks --from group:s", "shop"),
    ):
        done = await lab.mqadmin("__complete", "bash", line, environment=home)
        assert (done.status, done.err) == (0, "")
        assert done.out.partition("\n")[0] == answer, line


async def test_a_cluster_that_is_away_or_hangs_costs_a_second_and_is_silence(lab: Lab, home: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:  # which nobody accepts from
        port = hung.getsockname()[1]
        for nameserver in ("127.0.0.1:1", f"127.0.0.1:{port}", "no address at all:x"):
            for line in (("topicRoute", "-t", ""), ("lag", ""), ("consumerStatus", "-g", "g", "-i", "")):
                with Stopwatch() as watch:
                    assert await complete(lab, {**home, "NAMESRV_ADDR": nameserver}, *line) == []
                assert watch.seconds < 1


async def test_a_script_is_for_a_shell_that_is_known(lab: Lab) -> None:
    done = await lab.mqadmin("completion", "tcsh")
    assert (done.status, done.out) == (2, "")
    assert done.err == "mqadmin completion: give one of bash, zsh, fish: mqadmin completion bash\n"


# ------------------------------------------------------------------ in the shells themselves


class Terminal:
    """A shell in a pseudo terminal."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=folder
        )
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        """Type a text."""
        self.seen = ""
        os.write(self.master, text.encode())

    def shows(self, words: str) -> str:
        """Wait until words are on the screen; all that was shown since the last typing."""
        deadline = time.monotonic() + 40
        while words not in _ESCAPES.sub("", self.seen):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], _ESCAPES.sub("", self.seen)
            part = os.read(self.master, 65536).decode(errors="replace")
            self.seen += part
            if "\x1b[c" in part or "\x1b[0c" in part:  # the shell asks what terminal this is
                os.write(self.master, b"\x1b[?62;c")
        return _ESCAPES.sub("", self.seen)

    def close(self) -> None:
        """End the shell."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)


START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
LOAD = {
    "bash": "bind 'set enable-bracketed-paste off'; source <(mqadmin completion bash)",
    "zsh": "autoload -U compinit; compinit -u -D; source <(mqadmin completion zsh)",
    "fish": "mqadmin completion fish | source",
}


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, lab: Lab, home: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")
    path = f"{BIN}:{os.environ['PATH']}"
    terminal = Terminal(
        START[name],
        {**home, "PATH": path, "TERM": "xterm", "LANG": "C.UTF-8", "NAMESRV_ADDR": lab.nameserver},
        tmp_path,
    )
    try:
        terminal.type(f"{LOAD[name]}; echo rea''dy\n")
        terminal.shows("ready")
        yield terminal
    finally:
        terminal.close()


@pytest.mark.processes
async def test_tab_completes_a_command_an_option_and_a_topic(lab: Lab, shell: Terminal) -> None:
    await lab.topic("OrdersOfToday")

    def session() -> None:
        shell.type("mqadmin tail Ord\t")
        shell.shows("ersOfToday ")
        shell.type("\x15mqadmin check la\t")
        shell.shows("lag ")
        shell.type("\x15mqadmin topicRou\t")
        shell.shows("mqadmin topicRoute ")
        shell.type("--to\t")
        shell.shows("pic ")
        shell.type("Ord\t")
        shell.shows("ersOfToday ")
        shell.type("-o json\n")
        shown = shell.shows('"readQueues"')
        assert "rror" not in shown.replace('"errors": []', "")

    await asyncio.to_thread(session)


@pytest.mark.processes
async def test_tab_in_front_of_nothing_prints_no_error(lab: Lab, shell: Terminal) -> None:
    def session() -> None:
        shell.type("mqadmin -n 127.0.0.1:1 topicRoute -t Ord\t")
        shell.type("X; echo do''ne\n")
        shown = shell.shows("done")
        assert "Traceback" not in shown and "rror" not in shown

    await asyncio.to_thread(session)
