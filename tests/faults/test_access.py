"""State that a daemon may not read or write: the start ends with one sentence, and changes nothing.

Root may read and write everything, so its daemons run without the capabilities that let it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_broker_port
from tests.support.processes import Process

pytestmark = pytest.mark.processes
BIN = Path(sys.executable).parent
WITHOUT_OVERRIDE = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; only root has any
os.execv(sys.argv[1], sys.argv[1:])
"""


def start(command: str, folder: Path, *lines: str) -> Process:
    conf = folder / "conf"
    conf.write_text("\n".join((*lines, "bindAddress=127.0.0.1", "")))
    call = [sys.executable, "-c", WITHOUT_OVERRIDE, str(BIN / command), "-c", str(conf)]
    return Process(call, folder / "log")


def broker(folder: Path) -> Process:
    port = free_broker_port()
    return start(
        "mqbroker", folder, f"storePathRootDir={folder / 'store'}", "brokerIP1=127.0.0.1", f"listenPort={port}"
    )


def nameserver(folder: Path) -> Process:
    return start("mqnamesrv", folder, f"kvConfigPath={folder / 'names' / 'kv.json'}", "listenPort=0")


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file): (file.stat().st_mtime_ns, file.read_bytes())
        for file in folder.rglob("*")
        if file.is_file() and file.name not in ("lock", "log", "conf")
    }


def assert_refused(daemon: Process, path: Path, how: str) -> None:
    assert daemon.wait() == 78, daemon.output
    last = daemon.output.splitlines()[-1]
    assert f"{path} cannot be {how} (Permission denied)" in last, daemon.output
    assert "Traceback" not in daemon.output


@pytest.mark.parametrize(
    ("spoiled", "mode", "how"),
    [
        ("config/topics.json", 0o000, "read"),
        ("config/consumerOffset.json", 0o000, "read"),
        ("config", 0o555, "written"),
        ("commitlog", 0o555, "written"),
        ("consumequeue", 0o555, "written"),
        ("index", 0o555, "written"),
        ("checkpoint", 0o444, "written"),
        ("eruca.mark", 0o444, "written"),
        ("", 0o555, "written"),
    ],
)
def test_a_broker_does_not_start_on_state_that_it_may_not_use(
    tmp_path: Path, spoiled: str, mode: int, how: str
) -> None:
    store = tmp_path / "store"
    with broker(tmp_path) as daemon:
        daemon.wait_for_line("boot success")
    for name, text in (("topics.json", '{"topicConfigTable":{}}'), ("consumerOffset.json", '{"offsetTable":{}}')):
        for file in (store / "config" / name, store / "config" / f"{name}.bak"):
            file.write_text(text)
    for name in ("consumequeue", "index"):
        (store / name).mkdir(exist_ok=True)
    before = content(store)
    was = (store / spoiled).stat().st_mode
    os.chmod(store / spoiled, mode)
    try:
        with broker(tmp_path) as daemon:
            assert_refused(daemon, store / spoiled, how)
    finally:
        os.chmod(store / spoiled, was)
    assert content(store) == before

    with broker(tmp_path) as daemon:
        daemon.wait_for_line("boot success")


@pytest.mark.parametrize(("spoiled", "mode", "how"), [("kv.json", 0o000, "read"), ("", 0o555, "written")])
def test_a_nameserver_does_not_start_on_state_that_it_may_not_use(
    tmp_path: Path, spoiled: str, mode: int, how: str
) -> None:
    names = tmp_path / "names"
    names.mkdir()
    for file in (names / "kv.json", names / "kv.json.bak"):
        file.write_text('{"configTable":{}}')
    os.chmod(names / spoiled, mode)
    try:
        with nameserver(tmp_path) as daemon:
            assert_refused(daemon, names / spoiled, how)
    finally:
        os.chmod(names / spoiled, 0o755)
