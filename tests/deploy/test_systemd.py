"""The systemd units, checked by systemd's own tools."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.processes import Process

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MOST_EXPOSED = 1.5
"""Of systemd's scale from 0 (nothing is open) to 10."""

judge = shutil.which("systemd-analyze")
judged = pytest.mark.skipif(judge is None, reason="systemd-analyze is not installed here")


def systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert judge is not None
    environment = os.environ | {"SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    return subprocess.run([judge, *arguments], capture_output=True, text=True, timeout=60, env=environment)


def test_both_daemons_have_a_unit_and_several_brokers_a_template() -> None:
    assert [unit.name for unit in UNITS] == ["eruca-broker.service", "eruca-broker@.service", "eruca-namesrv.service"]


def settings_of_unit(name: str) -> list[str]:
    lines = (ROOT / "deploy" / "systemd" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_template_is_the_unit_with_a_name_in_each_place() -> None:
    template = "\n".join(settings_of_unit("eruca-broker@.service"))
    for named, plain in {
        "broker %i (": "broker (",
        "/etc/eruca/%i.conf": "/etc/eruca/broker.conf",
        "eruca-broker/%i": "eruca-broker",
    }.items():
        assert named in template
        template = template.replace(named, plain)
    assert template.splitlines() == settings_of_unit("eruca-broker.service")


def test_both_daemons_are_confined_alike() -> None:
    broker, nameserver = (settings_of_unit(f"eruca-{name}.service") for name in ("broker", "namesrv"))
    confined = broker[broker.index("DynamicUser=yes") :]
    assert confined == nameserver[nameserver.index("DynamicUser=yes") :]


@judged
@pytest.mark.processes
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed here")
def test_a_broker_makes_no_system_call_that_its_unit_forbids(tmp_path: Path) -> None:
    allowed = system_calls("@system-service") - system_calls("@privileged") - system_calls("@resources")
    trace = tmp_path / "trace"
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nstorePathRootDir={tmp_path / 'store'}\n"
        "mappedFileSizeCommitLog=1048576\n"
    )
    mqbroker = str(Path(sys.executable).parent / "mqbroker")
    traced = ["strace", "-f", "-qq", "-o", str(trace), "-e", "signal=none", mqbroker, "-c", str(conf)]
    with Process(traced, tmp_path / "log") as broker:
        port = int(broker.wait_for_line("boot success").split("127.0.0.1:")[1].split("]")[0])
        socket.create_connection(("127.0.0.1", port)).close()
        os.kill(int(trace.read_text().split(maxsplit=1)[0]), signal.SIGTERM)
        assert broker.wait() == 0

    made = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert {"accept4", "mmap", "fdatasync"} & made
    assert made - allowed == set()


def system_calls(group: str) -> set[str]:
    """The system calls of one of systemd's groups, those of groups within it included."""
    found = set()
    for line in systemd_analyze("syscall-filter", group).stdout.splitlines():
        word = line.strip()
        if word.startswith("@") and word != group:
            found |= system_calls(word)
        elif re.fullmatch(r"\w+", word):
            found.add(word)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_wrong_configuration_is_not_started_again_and_again(unit: Path) -> None:
    assert f"RestartPreventExitStatus={os.EX_CONFIG}" in unit.read_text().splitlines()


@judged
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace("/opt/eruca/bin", str(Path(sys.executable).parent)))
        copies.append(copy)

    verdict = systemd_analyze("verify", "--man=no", *copies)

    assert (verdict.returncode, verdict.stdout, verdict.stderr) == (0, "", "")


@judged
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_daemon_is_hardly_exposed(unit: Path) -> None:
    verdict = systemd_analyze("security", "--offline=true", unit)

    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", verdict.stdout)
    assert found, verdict.stdout + verdict.stderr
    assert float(found[1]) <= MOST_EXPOSED
