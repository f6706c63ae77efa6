"""The command ``eruca bundle``: what is in it, and that no secret and no message is."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from eruca.client import Message
from eruca.client.sync import Producer
from tests.support.certificates import PASSWORD, Certificates
from tests.support.eruca import ErucaNameServer
from tests.support.ports import free_port
from tests.support.processes import Process

pytestmark = pytest.mark.processes
BIN = Path(sys.executable).parent
SECRET, BODY = "marked-secret-7f3a", "marked-body-91bc"


def bundle(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    archive = folder / "report.tar.gz"
    command = [str(BIN / "eruca"), "bundle", *arguments, str(archive)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if not archive.exists():
        return ran, {}
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as packed:
        found = {name.removeprefix("report/"): packed.extractfile(name) for name in packed.getnames()}
        return ran, {name: file.read().decode() for name, file in found.items() if file is not None}


def test_a_bundle_of_a_broker_with_secrets_and_messages(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.yml"
    accounts.write_text(
        f"globalWhiteRemoteAddresses: [127.0.0.1]\naccounts:\n- accessKey: operator\n  secretKey: {SECRET}\n"
    )
    pair = Certificates(tmp_path / "tls").server
    port = free_port()
    conf = tmp_path / "broker.conf"
    nameserver = ErucaNameServer(tmp_path / "namesrv")
    conf.write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nstorePathRootDir={tmp_path / 'store'}\n"
        f"namesrvAddr={nameserver.address}\nmappedFileSizeCommitLog=1048576\nlogFile={tmp_path / 'logs'}\n"
        f"aclEnable=true\naclFile={accounts}\ntls.server.certPath={pair.certificate}\n"
        f"tls.server.keyPath={pair.encrypted_key}\ntls.server.keyPassword={PASSWORD}\n"
    )
    (tmp_path / "logs").mkdir()
    environment = {"ERUCA_METRICS_PORT": str(port)}
    command = [str(BIN / "mqbroker"), "-c", str(conf)]
    with Process(command, tmp_path / "out", env=environment) as broker:
        broker.wait_for_line("boot success")
        with Producer("orders", nameserver=nameserver.address) as producer:
            producer.send(Message("Orders", BODY.encode(), keys=BODY))
        ran, pieces = bundle(tmp_path, "-c", str(conf), "--pages", f"http://127.0.0.1:{port}")
    nameserver.stop()

    assert ran.returncode == 0, ran.stderr
    assert "missing" not in ran.stdout
    assert "brokerName" in pieces["settings.txt"]
    assert '"ready": true' in pieces["readyz.txt"]
    assert "rocketmq_messages_in_total" in pieces["metrics.txt"]
    assert "DefaultCluster" in pieces["clusterList.txt"]
    assert "msgPutTotalTodayNow" in pieces["brokerStatus.txt"]
    assert "commitlog" in pieces["store.txt"]
    assert "daemon_started" in pieces["log/broker.log"]
    assert "dumped" in "".join(text for name, text in pieces.items() if name.startswith("log/"))
    for name, text in pieces.items():
        for marked in (SECRET, BODY, PASSWORD):
            assert marked not in text, f"{marked} in {name}"


def test_a_bundle_without_a_broker_says_what_is_missing(tmp_path: Path) -> None:
    ran, pieces = bundle(tmp_path, "--pages", f"http://127.0.0.1:{free_port()}")

    assert ran.returncode == 0
    assert "Connection refused" in pieces["metrics.txt"]
    assert pieces["versions.txt"].startswith("eruca ")


def test_a_bundle_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "report.tar.gz").write_text("mine")
    archive = tmp_path / "report.tar.gz"
    ran = subprocess.run([str(BIN / "eruca"), "bundle", str(archive)], capture_output=True, text=True)

    assert ran.returncode == 1
    assert "File exists" in ran.stderr
    assert archive.read_text() == "mine"
