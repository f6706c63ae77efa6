"""Health and metrics of real daemons, asked by curl, promtool and ``eruca health`` as the page of them says."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.ports import free_port
from tests.support.processes import Process

pytestmark = pytest.mark.processes

DOCS = Path(__file__).parents[2] / "docs" / "observability.md"
SCRIPTS = Path(sys.executable).parent


def pages_of(process: Process) -> int:
    """The port of a daemon's pages, from its log."""
    found = re.search(r"\bport=(\d+)", process.wait_for_line("health_pages"))
    assert found is not None
    return int(found.group(1))


def curl(*arguments: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    run = subprocess.run(["curl", "-s", *arguments], capture_output=True, text=True, timeout=30, check=True)
    return run.stdout


class Daemons:
    """A nameserver and a broker with pages."""

    def __init__(self, folder: Path) -> None:
        self.nameserver = ErucaNameServer(folder, {"metricsPort": str(free_port())})
        self.broker = ErucaBroker(folder, self.nameserver.address, {"metricsPort": str(free_port())})
        self.port = pages_of(self.broker.process)
        self.nameservers_port = pages_of(self.nameserver.process)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    daemons = Daemons(tmp_path_factory.mktemp("daemons"))
    yield daemons
    daemons.broker.stop()
    daemons.nameserver.stop()


def documented() -> list[tuple[str, str]]:
    """Commands of the page, and what they print."""
    blocks = re.findall(r"(?ms)^```console\n(.*?)^```", DOCS.read_text())
    return [
        (command, output.strip())
        for block in blocks
        for command, output in re.findall(r"(?ms)^\$ ([^\n]+)\n(.*?)(?=^\$ |\Z)", block)
    ]


def shape(answer: str) -> object:
    """An answer without what differs from one machine and moment to another."""
    content = json.loads(answer)
    assert isinstance(content, dict)
    return {name: type(value).__name__ for name, value in content.items()}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/info"])
def test_curl_prints_what_the_page_says(daemons: Daemons, path: str) -> None:
    shown = [output for command, output in documented() if command == f"curl -s http://127.0.0.1:5557{path}"]
    assert len(shown) == 1

    answer = curl(daemons.url(path))

    assert shape(answer) == shape(shown[0])
    assert path == "/info" or json.loads(answer).keys() == json.loads(shown[0]).keys()
    if path == "/readyz":
        assert answer.strip() == shown[0]


def test_the_reason_of_the_page_is_that_of_the_code() -> None:
    from eruca.broker.services import registration

    [shown] = [json.loads(output) for command, output in documented() if "its nameserver is gone" in command]
    assert shown["reasons"]["registration"].partition(" in the last")[0] in Path(registration.__file__).read_text()


def test_the_command_health(daemons: Daemons, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    [(command, shown)] = [each for each in documented() if each[0].startswith("eruca health")]
    here = f"http://127.0.0.1:{daemons.port}"

    run = eruca(*command.replace("http://127.0.0.1:5557", here).split()[1:])

    assert (run.returncode, run.stdout.strip()) == (0, shown.replace("http://127.0.0.1:5557", here))


def eruca(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPTS / "eruca"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_promtool_finds_nothing_wrong(daemons: Daemons, accept: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    for port in (daemons.port, daemons.nameservers_port):
        text = curl("-H", f"Accept: {accept}", f"http://127.0.0.1:{port}/metrics")
        assert "eruca_build_info" in text
        if "openmetrics" in accept:
            assert list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
            assert text.endswith("# EOF\n")
            continue
        run = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        told = [line for line in run.stderr.splitlines() if line and not known(line)]
        assert told == []


ROCKETMQS = re.compile(r"^rocketmq_\w+ (non-histogram and non-summary metrics|no unit|counter metrics)")


def known(line: str) -> bool:
    """What promtool dislikes of the names that RocketMQ has chosen."""
    return ROCKETMQS.match(line) is not None


def test_pages_of_the_nameserver(daemons: Daemons) -> None:
    url = f"http://127.0.0.1:{daemons.nameservers_port}"
    assert json.loads(curl(f"{url}/info"))["brokers"] == ["broker-a"]
    assert json.loads(curl(f"{url}/readyz")) == {"ready": True, "reasons": {}}
    metrics = curl(f"{url}/metrics")
    assert re.search(r'eruca_nameserver_brokers\{cluster="JudgeCluster",[^}]*node_type="nameserver"\} 1.0', metrics)


def test_a_broker_that_is_stuck_is_not_alive_and_one_without_its_nameserver_is(tmp_path: Path) -> None:
    nameserver = ErucaNameServer(tmp_path)
    conf = {"metricsPort": str(free_port()), "registerNameServerPeriod": "10000"}
    broker = ErucaBroker(tmp_path, nameserver.address, conf)
    try:
        port = pages_of(broker.process)
        nameserver.process.kill()
        broker.process.wait_until(lambda: "registration" in curl(f"http://127.0.0.1:{port}/readyz"), "not ready")
        assert json.loads(curl(f"http://127.0.0.1:{port}/healthz"))["alive"] is True
        broker.process.signal(signal.SIGSTOP)
        stuck = eruca("health", f"http://127.0.0.1:{port}/healthz")
        assert stuck.returncode == 1 and "timed out" in stuck.stderr
    finally:
        broker.process.signal(signal.SIGCONT)
        broker.stop()
        nameserver.stop()
