"""A background task that ends by itself: a line says why, the daemon stops in order, and its exit code is 70."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.desk import Desk
from tests.support.lone import SMALL
from tests.support.pairs import eventually
from tests.support.processes import Process

PLANTED = """
import asyncio, os, sys
from eruca.remoting import run
from eruca.remoting.clock import monotonic_ms
from eruca.remoting.command_line import command_line
from eruca.remoting.logs import log_to_stderr

def planted():
    try:
        name = asyncio.current_task().get_name()
    except (RuntimeError, AttributeError):  # outside of the loop, or of tasks
        name = ""
    if name == sys.argv[1]:
        raise LookupError("planted")
    return monotonic_ms()
"""
BROKER = """
from eruca.broker.app import BrokerApp, serve
from eruca.broker.config import BrokerConfig

with log_to_stderr() as say:
    start = command_line(BrokerConfig, "mqbroker", sys.argv[2:], os.environ)
    run(serve(BrokerApp(start.config, monotonic=planted), say))
"""
NAMESERVER = """
from eruca.nameserver.app import Nameserver, serve
from eruca.nameserver.config import NamesrvConfig

with log_to_stderr() as say:
    start = command_line(NamesrvConfig, "mqnamesrv", sys.argv[2:], os.environ)
    run(serve(Nameserver(start.config, monotonic=planted), say))
"""


def ended(folder: Path, program: str, task: str, settings: Mapping[str, str]) -> tuple[str, list[str]]:
    """Run a daemon until it ends with 70; its output, and what systemd heard."""
    conf = folder / "daemon.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{folder}"[:100])
        systemd.settimeout(20)
        command = [sys.executable, "-c", PLANTED + program, task, "-c", str(conf)]
        with Process(command, folder / "out", env={"NOTIFY_SOCKET": f"@{folder}"[:100]}) as daemon:
            heard = [systemd.recv(500).decode()]
            while not heard[-1].startswith("STOPPING"):
                heard.append(systemd.recv(500).decode())
            assert daemon.wait(20) == 70, daemon.output
        return daemon.output, heard


def check(output: str, heard: list[str], task: str) -> None:
    lines = re.findall(r"(?m)^\S+Z \[error    \] task_ended .*$", output)
    assert len(lines) == 1 and lines[0].endswith(f" task={repr(task) if ' ' in task else task}")
    assert "cause='LookupError: planted'" in lines[0] and "\n  LookupError: planted\n" in output
    assert heard[-1] == f"STOPPING=1\nSTATUS=the task {task} has ended: LookupError: planted"


@pytest.mark.processes
@pytest.mark.parametrize("task", ["statistics", "silent clients", "transactions", "retention"])
def test_a_broker_stops_in_order(tmp_path: Path, task: str) -> None:
    quick = {"channelExpiredTimeout": "200", "transactionCheckInterval": "100", "cleanResourceInterval": "100"}
    settings = {**SMALL, **quick, "storePathRootDir": str(tmp_path / "store")}

    output, heard = ended(tmp_path, BROKER, task, settings)

    check(output, heard, task)
    begun = [each for each in heard if not each.startswith("EXTEND_TIMEOUT_USEC=")]  # a slow start says how far it is
    assert begun[0].startswith("READY=1")
    assert (tmp_path / "store" / "commitlog").exists() and not (tmp_path / "store" / "abort").exists()


@pytest.mark.slow
@pytest.mark.processes
def test_a_nameserver_stops_in_order(tmp_path: Path) -> None:
    settings = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": str(tmp_path / "kv.json")}
    output, heard = ended(tmp_path, NAMESERVER, "scan", settings)
    check(output, heard, "scan")


class Faulty(Desk):
    """A broker whose statistics cannot read the clock, once it is ``broken``."""

    broken = False

    def passed(self) -> int:
        task = asyncio.current_task() if self.broken else None  # a recovery, in a thread, reads the clock, too
        if task is not None and task.get_name() == "statistics":
            raise LookupError("planted")
        return super().passed()


async def test_a_broker_whose_task_has_ended_is_not_ready(tmp_path: Path) -> None:
    async with Faulty(tmp_path) as desk:
        assert desk.broker.readiness.ready
        desk.broken = True
        await eventually(lambda: not desk.broker.readiness.ready)
        assert desk.broker.readiness.reasons == {"tasks": "the task statistics has ended: LookupError: planted"}
        assert (await desk.ask(28)).code == 0  # who runs it decides what comes of it
    assert "stop" in desk.broker.readiness.reasons
