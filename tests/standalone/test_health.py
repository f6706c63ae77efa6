"""The command ``eruca health``: what it says of a daemon that is ready, that is not, and that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.processes import Process

pytestmark = pytest.mark.processes
BIN = Path(sys.executable).parent


def health(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([str(BIN / "eruca"), "health", *arguments], capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).strip()


def broker(folder: Path, *lines: str) -> tuple[Process, str]:
    """A broker, and the address of its page /readyz."""
    port = free_port()
    settings = ["listenPort=0", "bindAddress=127.0.0.1", "brokerIP1=127.0.0.1", *lines]
    conf = folder / "broker.conf"
    conf.write_text("\n".join([*settings, f"storePathRootDir={folder / 'store'}", "mappedFileSizeCommitLog=1048576"]))
    environment = {"ERUCA_METRICS_PORT": str(port)}
    process = Process([str(BIN / "mqbroker"), "-c", str(conf)], folder / "log", env=environment)
    process.wait_for_line("boot success")
    return process, f"http://127.0.0.1:{port}/readyz"


def test_a_broker_that_is_ready(tmp_path: Path) -> None:
    process, url = broker(tmp_path)
    with process:
        assert health(url) == (0, f"{url}: ready")


def test_a_broker_that_no_nameserver_knows_says_so(tmp_path: Path) -> None:
    process, url = broker(tmp_path, f"namesrvAddr=127.0.0.1:{free_port()}")
    with process:
        code, said = health(url)
    assert code == 1
    assert said.startswith(f"eruca health: {url}: ")
    assert "nameserver" in said


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}/readyz"
    assert health(url) == (1, f"eruca health: {url} does not answer: Connection refused")


def test_an_address_that_is_no_page() -> None:
    code, said = health("127.0.0.1:5557")
    assert (code, said) == (1, "eruca health: 127.0.0.1:5557 is no address of a page: write http://host:port/readyz")


def test_an_address_without_its_page_names_the_page(tmp_path: Path) -> None:
    process, url = broker(tmp_path)
    there = url.removesuffix("/readyz")
    with process:
        for asked in (there, f"{there}/", f"{there}/ready"):
            sentence = f"{asked}: HTTP 404, as there is no such page: ask for {url}"
            assert health(asked) == (1, f"eruca health: {sentence}")


@pytest.mark.parametrize("port", ["x", "70000", "-1"])
def test_a_port_that_is_none_has_no_traceback(port: str) -> None:
    code, said = health(f"http://127.0.0.1:{port}/readyz")
    assert (code, len(said.splitlines())) == (1, 1) and "does not answer" in said
