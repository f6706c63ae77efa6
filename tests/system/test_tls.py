"""TLS as an operator sets it up: certificates by `eruca tls init`, daemons, mqadmin, openssl, and a renewal."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eruca.client import ClientSettings, Message, Producer, Tls
from tests.broker.services.replication.pairs import until
from tests.support.eruca import SCRIPTS, ErucaBroker, ErucaNameServer

pytestmark = pytest.mark.processes


def tls_init(folder: Path, *options: str) -> None:
    subprocess.run([str(SCRIPTS / "eruca"), "tls", "init", str(folder), *options], check=True, timeout=30)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = tmp_path / "certificates"
    tls_init(folder, "--host", "127.0.0.1", "--host", "mq.example")
    return folder


def settings_of(certificates: Path, mode: str) -> dict[str, str]:
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": str(certificates / "server.pem"),
        "tls.server.keyPath": str(certificates / "server.key"),
        "tls.client.trustCertPath": str(certificates / "ca.pem"),
    }


@contextmanager
def daemons(folder: Path, certificates: Path, mode: str) -> Iterator[tuple[ErucaNameServer, ErucaBroker]]:
    settings = settings_of(certificates, mode)
    names = ErucaNameServer(folder / "names", settings)
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem") if mode == "enforcing" else None
    try:
        broker = ErucaBroker(folder / "broker", names.address, settings, tls=trusting)
    except BaseException:
        names.stop()
        raise
    yield names, broker
    broker.stop()
    names.stop()


def mqadmin(address: str, *properties: str) -> subprocess.CompletedProcess[str]:
    line = [str(SCRIPTS / "mqadmin"), *properties, "clusterList", "-n", address]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
def test_mqadmin_in_each_mode(tmp_path: Path, certificates: Path, mode: str) -> None:
    with daemons(tmp_path, certificates, mode) as (names, broker):
        plain = mqadmin(names.address)
        encrypted = mqadmin(names.address, "-Dtls.enable=true", f"-Dtls.client.trustCertPath={certificates}/ca.pem")
        shown = f"127.0.0.1:{broker.port}"
        assert (shown in plain.stdout) is (mode != "enforcing"), plain
        assert (shown in encrypted.stdout) is (mode != "disabled"), encrypted
        if mode == "enforcing":
            assert (
                "if it serves TLS only, TLS must be set here, too" in plain.stderr and "tls.enable=true" in plain.stderr
            )
            names.process.wait_for_line("speaks plain text where only TLS is served")
        if mode == "disabled":
            assert "it may serve no TLS" in encrypted.stderr and "tls.enable=false" in encrypted.stderr
            names.process.wait_for_line("tls_not_served")


async def test_a_renewal_under_load_loses_no_send(tmp_path: Path, certificates: Path) -> None:
    with daemons(tmp_path, certificates, "enforcing") as (names, broker):
        settings = ClientSettings(nameserver=names.address, tls=Tls(ca_file=certificates / "ca.pem"))
        sent, renewed = 0, False

        async def send(group: str) -> None:
            """New connections all the time, each for a few messages, without a second try."""
            nonlocal sent
            while not renewed:
                async with Producer(group, settings=settings, retries=0) as producer:
                    for _ in range(20):
                        await producer.send(Message("T", b"x"))
                        sent += 1

        loads = [asyncio.create_task(send(f"g{number}")) for number in range(3)]
        await until(lambda: sent > 100, within=30)
        await asyncio.to_thread(tls_init, certificates)
        for daemon in (names, broker):
            daemon.process.signal(signal.SIGHUP)
            await asyncio.to_thread(daemon.process.wait_for_line, "new connections use the replaced certificates")
        mark = sent
        await until(lambda: sent > mark + 100, within=30)
        renewed = True
        await asyncio.gather(*loads)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_openssl_sees_the_chain_and_no_old_version_and_no_renegotiation(tmp_path: Path, certificates: Path) -> None:
    with daemons(tmp_path, certificates, "permissive") as (names, _):

        def s_client(*options: str, said: str = "") -> str:
            line = ["openssl", "s_client", "-connect", names.address, "-CAfile", str(certificates / "ca.pem"), *options]
            done = subprocess.run(line, input=said, capture_output=True, text=True, timeout=60)
            return done.stdout + done.stderr

        shown = s_client("-showcerts", "-verify_ip", "127.0.0.1")
        assert "Verify return code: 0 (ok)" in shown and "BEGIN CERTIFICATE" in shown and "TLSv1.3" in shown
        old = s_client("-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
        assert "no peer certificate available" in old
        names.process.wait_for_line("TLS 1.2 is the least")
        again = s_client("-tls1_2", said="R\n")
        assert "RENEGOTIATING" in again and "no renegotiation" in again


def test_a_start_without_what_it_needs(tmp_path: Path, certificates: Path) -> None:
    other = tmp_path / "other"
    tls_init(other, "--host", "127.0.0.1")
    good = settings_of(certificates, "enforcing")
    for wrong, sentence in (
        ({"tls.server.mode": "enforcing"}, "needs a certificate: set tls.server.certPath"),
        ({**good, "tls.server.keyPath": f"{other}/server.key"}, "key values mismatch"),
        ({**good, "tls.client.trustCertPath": "/none"}, "No such file"),
        ({**good, "tls.server.need.client.auth": "require"}, "would take any certificate"),
    ):
        for check in ([], ["--check"]):
            given = [f"--set={key}={value}" for key, value in {"listenPort": "0", **wrong}.items()]
            environment = {**os.environ, "HOME": str(tmp_path)}
            line = [str(SCRIPTS / "mqnamesrv"), *given, *check]
            done = subprocess.run(line, capture_output=True, text=True, timeout=30, env=environment)
            assert done.returncode == os.EX_CONFIG and sentence in done.stderr, done
