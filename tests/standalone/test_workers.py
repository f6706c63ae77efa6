"""``eruca run``: an application as one process or several, which are replaced, reloaded, and stopped in order."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from eruca.client import App, Message, sync
from eruca.standalone.background import BackgroundCluster
from eruca.standalone.cli import main
from eruca.standalone.workers.command import Run
from eruca.standalone.workers.supervisor import Worker
from eruca.standalone.workers.target import BadTarget, load

pytestmark = pytest.mark.processes

PROGRAM = """
import contextlib, os
from eruca.client import App

def say(*words):  # by one write: two workers share the pipe
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

@contextlib.asynccontextmanager
async def lifespan():
    say("open", os.getpid())
    yield
    say("closed", os.getpid())

app = App(lifespan=lifespan)

@app.consumer("Orders", "kitchen", start_from="first")
async def cook(dish: str):
    say("cooked", dish, "{version}")
"""

CACHES = """
import os
from eruca.client import App

app = App()

@app.consumer(os.environ["TOPIC"], "caches", broadcast=True, start_from="first", offset_folder="offsets")
async def keep(price: str):
    os.write(1, f"got {price} by {os.getpid()}\\n".encode())
"""


class Running:
    """``eruca run`` in a folder, and the lines that it and its workers print."""

    def __init__(self, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eruca.standalone.cli", "run", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def says(self, pattern: str) -> str:
        """Wait for a line with this pattern; returns its first group, or what matched."""
        while True:
            try:
                line = self._lines.get(timeout=30)
            except queue.Empty:
                raise AssertionError(f"it does not say {pattern}: {self.said}") from None
            assert line is not None, f"it ended without saying {pattern}: {self.said}"
            self.said.append(line)
            if found := re.search(pattern, line):
                return found[found.re.groups and 1]

    def ends(self) -> int:
        """Wait for its end; returns the exit code."""
        code = self.process.wait(60)
        self._reader.join(60)
        while (line := self._lines.get(timeout=1)) is not None:
            self.said.append(line)
        return code

    def lines(self, word: str) -> list[int]:
        """The processes that said a word."""
        return sorted(int(found[1]) for line in self.said if (found := re.match(rf"{word} (\d+)$", line)))


@pytest.fixture
def running(tmp_path: Path, rocketmq: BackgroundCluster) -> Iterator[Running]:
    """Two workers that watch their files."""
    (tmp_path / "orders.py").write_text(PROGRAM.format(version="v1"))
    running = Running(tmp_path, "orders:app", "--workers", "2", "--reload", "--nameserver", rocketmq.address)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.ends()


def send(cluster: BackgroundCluster, body: bytes) -> None:
    with sync.Producer("p", nameserver=cluster.address) as producer:
        producer.send(Message("Orders", body))


@pytest.mark.slow
def test_workers_are_replaced_reloaded_and_stopped_in_order(
    running: Running, tmp_path: Path, rocketmq: BackgroundCluster
) -> None:
    first = [int(running.says(r"^open (\d+)")) for _ in range(2)]
    send(rocketmq, b"soup")
    running.says("^cooked soup v1")

    os.kill(first[0], signal.SIGKILL)
    running.says(r"WARNING .* worker \d was ended by SIGKILL; another one starts in 0\.5 s")
    third = int(running.says(r"^open (\d+)"))
    assert third not in first

    (tmp_path / "orders.py").write_text(PROGRAM.format(version="v2"))
    running.says("changed: orders.py; the workers start again")
    for _ in range(2):
        running.says(r"^closed (\d+)")
    second = [int(running.says(r"^open (\d+)")) for _ in range(2)]
    send(rocketmq, b"salad")
    running.says("^cooked salad v2")

    (tmp_path / "orders.py").write_text("app = 5")
    running.says("eruca run: orders:app is of type int: an App is expected")
    running.says("the application cannot be loaded: waiting until its files change")
    (tmp_path / "orders.py").write_text(PROGRAM.format(version="v3"))
    last = [int(running.says(r"^open (\d+)")) for _ in range(2)]

    running.process.send_signal(signal.SIGTERM)
    assert running.ends() == 0
    assert running.lines("closed") == sorted([first[1], third, *second, *last])


def test_one_process_ends_in_order_with_its_exit_code(tmp_path: Path, rocketmq: BackgroundCluster) -> None:
    (tmp_path / "orders.py").write_text(PROGRAM.format(version="v1"))
    one = Running(tmp_path, "orders:app", environment={"ROCKETMQ_NAMESRV_ADDR": rocketmq.address})
    one.says("^open")
    one.says("application started: kitchen")
    one.process.send_signal(signal.SIGINT)
    assert one.ends() == 0 and len(one.lines("closed")) == 1


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path, rocketmq: BackgroundCluster) -> None:
    (tmp_path / "orders.py").write_text(PROGRAM.format(version="v1"))
    two = Running(tmp_path, "orders:app", "-w", "2", "-n", rocketmq.address)
    for _ in range(2):
        two.says("application started")
    two.process.kill()
    assert two.ends() == -signal.SIGKILL
    assert two.lines("closed") == two.lines("open") and len(two.lines("open")) == 2


def test_each_worker_has_the_offsets_of_its_broadcasting_groups(tmp_path: Path, rocketmq: BackgroundCluster) -> None:
    """Every worker gets every message, those that were sent between two runs as well, and none twice."""
    (tmp_path / "caches.py").write_text(CACHES)
    topic = f"Prices-{tmp_path.name}"
    environment = {"TOPIC": topic}
    with sync.Producer("p", nameserver=rocketmq.address) as producer:
        for number in (1, 2):
            producer.send(Message(topic, b"%d" % number))
            two = Running(tmp_path, "caches:app", "-w", "2", "-n", rocketmq.address, environment=environment)
            got = {two.says(rf"^got {number} by (\d+)") for _ in range(2)}
            two.process.send_signal(signal.SIGTERM)
            assert two.ends() == 0 and len(got) == 2
            assert sum(line.startswith("got") for line in two.said) == 2, two.said
    found = sorted(path.parts[-3].partition("@")[2] for path in (tmp_path / "offsets").rglob("offsets.json"))
    assert found == ["DEFAULT", "worker-2"]


def test_workers_that_cannot_load_it_are_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text("1 / 0")
    failing = Running(tmp_path, "orders:app", "-w", "2")
    assert failing.ends() == 2
    assert "ZeroDivisionError" in "".join(failing.said)


def test_a_module_that_ends_the_process_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text("raise SystemExit('no settings')")
    failing = Running(tmp_path, "orders:app", "-w", "2")
    assert failing.ends() == 2
    assert "orders:app cannot be loaded: its module ends the process (no settings)" in "".join(failing.said)


async def test_a_worker_that_is_stopped_before_its_process_is_there_ends() -> None:
    worker = Worker(1, [sys.executable, "-c", "import time; time.sleep(600)"], 30.0)
    kept = asyncio.create_task(worker.keep())
    await asyncio.sleep(0)  # it has begun to start the process
    await worker.stop()
    async with asyncio.timeout(30):
        assert await kept == -signal.SIGKILL


def test_a_worker_that_is_ended_by_a_signal_without_a_name_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text("import os; os.kill(os.getpid(), 40)")
    one = Running(tmp_path, "orders:app", "-w", "2")
    one.says(r"worker \d was ended by signal 40; another one starts")
    one.process.send_signal(signal.SIGTERM)
    one.ends()


@pytest.mark.parametrize(
    ("target", "code", "sentence"),
    [
        ("orders", 2, '"orders" is no application: "module:app" is expected'),
        ("nothing_there:app", 2, 'there is no module "nothing_there" in'),
        ("run_without_consumers:ap", 2, "did you mean run_without_consumers:app?"),
        ("run_without_consumers:number", 2, "is of type int: an App is expected"),
        ("run_without_consumers:app", 1, "has no consumer and no producer"),
        ("run_without_consumers:other", 1, "NoNameserver: "),
        (
            "json:dumps",
            2,
            "json:dumps cannot be called without arguments (missing a required argument: 'obj')",
        ),
        (
            "json:JSONDecoder",
            2,
            "json:JSONDecoder is of type JSONDecoder: an App is expected, or a function",
        ),
    ],
)
def test_what_cannot_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: str,
    code: int,
    sentence: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ROCKETMQ_NAMESRV_ADDR", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "run_without_consumers.py").write_text(
        "from eruca.client import App\napp = App()\nother = App()\nother.producer('p')\nnumber = 5"
    )
    assert Run(target, tmp_path, None).here(supervised=False) == code
    assert sentence in capsys.readouterr().err


def test_a_function_may_make_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_by_a_function.py").write_text("from eruca.client import App\ndef make():\n    return App()\n")
    assert isinstance(load("made_by_a_function:make", tmp_path), App)
    with pytest.raises(BadTarget, match="did you mean made_by_a_function:make"):
        load("made_by_a_function:mak", tmp_path)


def test_a_stop_without_time_is_refused() -> None:
    told = CliRunner().invoke(main, ["run", "orders:app", "--stop-timeout", "-1"])
    assert told.exit_code == 2 and "Invalid value for '--stop-timeout': -1.0 is not in the range x>=0." in told.output
