"""The five minutes of the README, as a newcomer would spend them: its own commands and programs, in its order."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.processes import Process

pytestmark = pytest.mark.processes

BIN = Path(sys.executable).parent
README = (ROOT / "README.md").read_text()
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


class Tour:
    """What a person at the terminal does, with another port than the page's."""

    def __init__(self, folder: Path, nameserver: str) -> None:
        self.folder = folder
        self._nameserver = nameserver

    def shell(self, block: str) -> str:
        """Run the commands of a block; what they print."""
        commands = self._here(block).replace(".venv/bin", str(BIN))
        ran = subprocess.run(["sh", "-e", "-c", commands], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def program(self, name: str, block: str) -> Process:
        file = self.folder / f"{name}.py"
        file.write_text(self._here(block))
        return Process([sys.executable, str(file)], self.folder / f"{name}.out")

    def _here(self, block: str) -> str:
        return block.replace("127.0.0.1:9876", self._nameserver)


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    [command] = [line for line in SHELL[0].splitlines() if line]
    assert command == ".venv/bin/eruca standalone"
    arguments = ["--port", "0", "--broker-port", "0", "--store", str(tmp_path / "store")]
    with Process([str(BIN / "eruca"), "standalone", *arguments], tmp_path / "standalone.out") as standalone:
        line = standalone.wait_for_line("nameserver on ")
        yield Tour(tmp_path, line.partition("nameserver on ")[2].partition(",")[0])


def test_a_hundred_orders_are_sent_consumed_and_after_a_rewind_consumed_again(tour: Tour) -> None:
    printed = tour.shell(SHELL[1])
    assert "create topic to" in printed
    assert re.search(r"DefaultCluster\s+broker-a\s+0\s+127\.0\.0\.1:\d+", printed)

    producer = tour.program("producer", PYTHON[0])
    assert producer.wait() == 0, producer.output
    assert "SEND_OK" in producer.output

    with tour.program("consumer", PYTHON[1]) as consumer:
        consumer.wait_until(lambda: _orders(consumer) >= 100, "a hundred orders")
        tour.shell(SHELL[2])
        consumer.wait_until(lambda: _orders(consumer) >= 200, "the same orders again")

    lines = [line for line in consumer.output.splitlines() if " order " in line]
    assert len(set(lines)) == 100
    assert {lines.count(line) for line in set(lines)} == {2}


def _orders(consumer: Process) -> int:
    return consumer.output.count(" order ")
