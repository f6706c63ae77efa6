"""The first steps of a newcomer, as pages show them: Getting started, and the two daemons by hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.processes import Process

pytestmark = pytest.mark.processes

BIN = Path(sys.executable).parent
STARTED = (ROOT / "docs/getting-started.md").read_text()
BY_HAND = (ROOT / "docs/operations.md").read_text().partition("## Servers by hand\n")[2].partition("\n## ")[0]


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", text)


def said(command: list[str], nameserver: str, *, status: int = 0) -> str:
    """What a command or program prints; it ends with this status, well within a minute."""
    environment = os.environ | {"ROCKETMQ_NAMESRV_ADDR": nameserver, "PATH": f"{BIN}:{os.environ['PATH']}"}
    ran = subprocess.run(command, env=environment, timeout=60, capture_output=True, text=True)
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stdout


def test_getting_started(tmp_path: Path) -> None:
    install, variable, look = blocks(STARTED, "sh")
    assert install.splitlines()[1] == "eruca standalone"
    assert variable.startswith("export ROCKETMQ_NAMESRV_ADDR=")
    commands = [line.partition(" #")[0].strip() for line in look.splitlines()]
    assert commands.pop() == "mqadmin console", "it serves until it is ended: tests/admin/console"

    place = ["--port", "0", "--broker-port", "0", "--store", str(tmp_path / "store")]
    with Process([str(BIN / "eruca"), "standalone", *place], tmp_path / "log") as standalone:
        nameserver = standalone.wait_for_line("nameserver on ").split()[2].rstrip(",")
        sent, consumed = (said([sys.executable, "-c", program], nameserver) for program in blocks(STARTED, "python"))
        advice = said(commands.pop().split(), nameserver, status=1)
        shown = {command: said(command.split(), nameserver) for command in commands}

    assert [line.split()[0] for line in sent.splitlines()] == ["SEND_OK"] * 5
    assert sorted(line.partition(" ")[2] for line in consumed.splitlines()) == [f"order {n}" for n in range(5)]
    assert "broker-a" in shown["mqadmin clusterList"]
    assert "autoCreateTopicEnable=false" in advice and "billing" in advice
    assert "Diff Total: 0" in shown["mqadmin consumerProgress -g billing"]


def test_servers_by_hand(tmp_path: Path) -> None:
    (conf,) = blocks(BY_HAND, "ini")
    start, look = blocks(BY_HAND, "sh")
    check, names, broker = (line.removesuffix(" &").split() for line in start.splitlines())
    file = tmp_path / "broker.conf"

    with Process([str(BIN / names[0])], tmp_path / "names", env={"ERUCA_LISTEN_PORT": "0"}) as nameserver:
        address = f"127.0.0.1:{nameserver.wait_for_line('listening on').rpartition(':')[2].strip()}"
        conf = conf.replace("127.0.0.1:9876", address).replace("/var/lib/eruca/store", str(tmp_path / "store"))
        file.write_text(conf + "listenPort=0\n")
        said([*check[:-1], str(file)], address)
        with Process([str(BIN / broker[0]), "-c", str(file)], tmp_path / "broker"):
            nameserver.wait_for_line("broker_registered")
            assert "broker-a" in said(look.replace("127.0.0.1:9876", address).split(), address)
