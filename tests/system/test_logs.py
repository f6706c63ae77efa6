"""The log of daemons as operators use it: formats, files, logrotate, levels at run time."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house.tree import ROOT
from tests.support.load import pull, send
from tests.support.lone import LoneBroker
from tests.support.pairs import eventually
from tests.support.peers import Peer
from tests.support.processes import Process
from tests.support.programme import ENOUGH

pytestmark = [pytest.mark.processes, ENOUGH]
BIN = Path(sys.executable).parent


def events(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a log that is written as JSON, without what the daemon prints."""
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line[0] == "{"]


def said(file: Path, event: str) -> list[dict[str, Any]]:
    return [each for each in events(file) if each["event"] == event]


def listed(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def ask(broker: LoneBroker, code: int, body: bytes = b"") -> int:
    """Ask a broker once, over a connection of its own."""
    peer = await Peer().connect(broker.address)
    answer = await peer.ask(code, {}, body)
    await peer.close()
    return answer.code


async def complain(broker: LoneBroker) -> None:
    """Have the broker log a line, by a pull from where no message is."""
    peer = await Peer().connect(broker.address)
    await send(peer, 0, b"one")
    assert (await pull(peer, 0, 10**6)).code == 21
    await peer.close()


def said_plainly(file: Path) -> list[str]:
    """The changes in a log that is not written as JSON."""
    return [line for line in file.read_text().splitlines() if " change " in line] if file.exists() else []


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="logrotate is not installed")
async def test_logrotate_itself_with_the_configuration_of_the_page(tmp_path: Path) -> None:
    """All but the folder, who rotates (root owns it elsewhere), and whom the signal is for."""
    logs = tmp_path / "logs"
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"logFile": str(logs), "logFileSize": "0"})
    try:
        await eventually(lambda: (logs / "broker.log").exists() and "store_opened" in (logs / "broker.log").read_text())
        assert await ask(broker, 17) == 1
        await eventually(lambda: len(said_plainly(logs / "audit.log")) == 1)
        (block,) = re.findall(r"(?ms)^    (/var/log/eruca/.*?\n    \})\n", (ROOT / "docs" / "log.md").read_text())
        text = block.replace("/var/log/eruca", str(logs)).replace("daily", "" if os.getuid() else "su root root")
        conf = tmp_path / "logrotate.conf"
        conf.write_text(text.replace("systemctl kill -s HUP eruca-broker.service", f"kill -HUP {broker.pid}") + "\n")
        conf.chmod(0o644)
        for turn in (1, 2):
            done = await asyncio.to_thread(
                subprocess.run,
                ["logrotate", "--force", "--state", str(tmp_path / "state"), str(conf)],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            assert (logs / "audit.log.1").exists() and (logs / "audit.log.2.gz").exists() == (turn == 2)
            await eventually(lambda: (logs / "audit.log").exists() and "reloaded" in (logs / "audit.log").read_text())
            assert await ask(broker, 17) == 1
            await eventually(lambda: len(said_plainly(logs / "audit.log")) == 1)
        with gzip.open(logs / "audit.log.2.gz", "rt") as first:
            assert first.read().count(" change ") == 1
        assert "store_opened" in (logs / "broker.log.1").read_text()
        assert await asyncio.to_thread(broker.stop) == 0
    finally:
        broker.kill()


async def test_each_part_has_its_file_and_logrotate_may_move_them(tmp_path: Path) -> None:
    """As by logrotate with ``postrotate kill -HUP``: it moves the files, and the daemon opens new ones."""
    logs = tmp_path / "logs"
    broker = await LoneBroker.start(
        tmp_path, tmp_path / "store", {"logFile": str(logs), "logFormat": "json", "noSuchKey": "1"}
    )
    try:
        await eventually(lambda: bool(said(logs / "broker.log", "store_opened")))
        warnings = said(logs / "broker.log", "configuration")
        assert any("noSuchKey" in each["warning"] and each["logger"] == "eruca.broker.start" for each in warnings)
        assert await ask(broker, 17) == 1
        await eventually(lambda: len(said(logs / "audit.log", "change")) == 1)
        for file in ("broker.log", "audit.log", "store.log", "remoting.log"):
            (logs / file).rename(logs / f"{file}.1")
        broker.signal(signal.SIGHUP)
        await eventually(lambda: bool(said(logs / "audit.log", "reloaded")))
        await complain(broker)
        await eventually(lambda: bool(said(logs / "broker.log", "offset_moved")))
        assert said(logs / "audit.log.1", "change") and not said(logs / "audit.log", "change")
        assert "offset_moved" not in (logs / "broker.log.1").read_text()
        assert (await asyncio.to_thread(broker.stop), "store_opened" in broker.output) == (0, False)
    finally:
        broker.kill()


async def test_a_file_grows_to_its_size_and_as_many_as_wanted_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "b1.log"
    settings = {"logFile": str(log), "logFileSize": "2000", "logFileCount": "2"}
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
    try:
        audit = tmp_path / "b1-audit.log"
        for number in range(40):
            assert await ask(broker, 25, f"maxTopicNum={number + 100}".encode()) == 0
        await eventually(lambda: "maxTopicNum=139" in audit.read_text())
        files = [file for file in listed(tmp_path) if file.startswith("b1-audit.log")]
        assert files == ["b1-audit.log", "b1-audit.log.1", "b1-audit.log.2"]
        assert all(0 < (tmp_path / file).stat().st_size <= 2000 for file in files)
        await eventually(lambda: "store_opened" in log.read_text())
        assert "change" not in log.read_text()
    finally:
        broker.kill()


async def test_a_file_that_another_daemon_writes_or_nobody_may_is_refused(tmp_path: Path) -> None:
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"logFile": str(tmp_path / "logs")})
    try:
        second = LoneBroker.command(tmp_path / "b", tmp_path / "b" / "store", {"logFile": str(tmp_path / "logs")})
        done = await asyncio.to_thread(subprocess.run, second, capture_output=True, text=True, check=False)
        assert done.returncode == 78 and "broker.log cannot be written (another process writes it)" in done.stderr
        nowhere = LoneBroker.command(tmp_path / "b", tmp_path / "b" / "store", {"logFile": "/proc/none"})
        done = await asyncio.to_thread(subprocess.run, nowhere, capture_output=True, text=True, check=False)
        assert done.returncode == 78 and "logFile: /proc/none/broker.log cannot be written" in done.stderr
        assert not (tmp_path / "b" / "store").exists()
    finally:
        broker.kill()


async def test_levels_change_while_it_runs(tmp_path: Path) -> None:
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", {"logFormat": "json"})
    try:
        log = broker.log

        async def refused() -> int:
            """How many lines a request leaves that is refused at DEBUG."""
            before = len(said(log, "request_refused"))
            await ask(broker, 99)
            await ask(broker, 25, b"brokerPermission=6")  # comes after it
            return len(said(log, "request_refused")) - before

        assert await refused() == 0
        assert await ask(broker, 25, b"logLevel=DEBUG@eruca.remoting/2s") == 0
        await eventually(lambda: bool(said(log, "change")))
        assert await ask(broker, 99) == 3
        await eventually(lambda: len(said(log, "request_refused")) == 1)
        assert said(log, "request_refused")[0]["request_code"] == 99
        await eventually(lambda: bool(said(log, "log_level_expired")))
        assert await refused() == 0
        conf = tmp_path / "broker.conf"
        assert "logLevel=DEBUG@eruca.remoting/2s" in conf.read_text()

        conf.write_text(conf.read_text().replace("logLevel=DEBUG@eruca.remoting/2s", "logLevel=error"))
        broker.signal(signal.SIGHUP)
        await eventually(lambda: bool(said(log, "reload_changed")))
        await complain(broker)
        assert await ask(broker, 25, b"maxTopicNum=7") == 0
        await eventually(lambda: any(each["after"] == "maxTopicNum=7" for each in said(log, "change")))
        assert not said(log, "offset_moved"), "only the audit log is written at every level"
        assert await ask(broker, 25, b"logLevel=LOUD") == 1
    finally:
        broker.kill()


async def test_a_nameserver_writes_its_own_files_and_says_why_it_ends(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nrocketmqHome={tmp_path}\n"
        f"logFile={tmp_path / 'logs'}\nlogFormat=json\nlogLevel=DEBUG/1h\n"
    )
    names = Process([str(BIN / "mqnamesrv"), "-c", str(conf)], tmp_path / "out")
    try:
        await asyncio.to_thread(names.wait_for_line, "listening on")
        assert listed(tmp_path / "logs") == ["audit.log", "namesrv.log", "remoting.log"]
        assert await asyncio.to_thread(names.stop) == 0
        (signalled,) = said(tmp_path / "logs" / "audit.log", "signal_received")
        assert (signalled["signal"], signalled["effect"]) == ("SIGTERM", "stop")
        conf.write_text(conf.read_text().replace("listenPort=0", "listenPort=1").replace("127.0.0.1", "203.0.113.1"))
        done = await asyncio.to_thread(
            subprocess.run,
            [str(BIN / "mqnamesrv"), "-c", str(conf)],
            capture_output=True,
            text=True,
            check=False,
        )
        (why,) = said(tmp_path / "logs" / "namesrv.log", "daemon_ended")
        assert done.returncode == 1 and why["reason"].startswith("mqnamesrv: cannot listen on 203.0.113.1:1")
        assert json.loads(done.stderr)["reason"] == why["reason"]
    finally:
        names.kill()
