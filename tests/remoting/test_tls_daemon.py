"""TLS of one daemon: its certificates over time, keys that others may read, and the test mode."""

from __future__ import annotations

import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.remoting.access.tally import Tally
from eruca.remoting.clock import now_ms
from eruca.remoting.daemon_metrics import add_security
from eruca.remoting.metrics import Metrics
from eruca.remoting.reloads import Reloads
from eruca.remoting.tls_daemon import DaemonTls
from eruca.remoting.tls_settings import TlsSettings
from tests.support.certificates import Certificates

DAY = 86_400


def settings_of(certificates: Certificates, **more: Any) -> TlsSettings:
    key = certificates.server.key
    key.chmod(0o600)
    return TlsSettings(tls_server_cert_path=str(certificates.server.certificate), tls_server_key_path=str(key), **more)


def test_without_tls_there_is_nothing() -> None:
    tls, reloads = DaemonTls(TlsSettings()), Reloads()
    tls.register(reloads)
    with capture_logs() as lines:
        tls.look()
        reloads.all()
    assert (tls.server, tls.client, tls.ha_client, tls.port, tls.ha_port) == (None,) * 5
    assert (tls.seconds_left(), [line.get("parts") for line in lines]) == ({}, ["none"])


def test_a_certificate_that_expires_gets_a_line_for_each_of_its_last_days(tmp_path: Path) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=100)
    now = now_ms()
    tls = DaemonTls(settings_of(Certificates(tmp_path, server_until=end)), clock=lambda: now)
    said = []
    for days in (99, 31, 30, 29, 8, 7, 6, 2, 1, 0.5, 0, -1):
        now = int((end.timestamp() - days * DAY) * 1000)
        assert tls.seconds_left() == {"server": days * DAY}
        with capture_logs() as lines:
            tls.look()
        said += [(days, line["event"], line.get("days")) for line in lines]
    assert said == [
        (30, "tls_certificate_expires", 30),
        (7, "tls_certificate_expires", 7),
        (1, "tls_certificate_expires", 1),
        (0, "tls_certificate_expired", None),
    ]


def test_a_renewed_certificate_starts_again(tmp_path: Path) -> None:
    soon = Certificates(tmp_path, server_until=datetime.now(UTC) + timedelta(days=20))
    tls, reloads = DaemonTls(settings_of(soon)), Reloads()
    tls.register(reloads)
    with capture_logs() as lines:
        tls.look()
        later = Certificates(tmp_path, server_until=datetime.now(UTC) + timedelta(days=90))
        later.server.key.chmod(0o600)
        reloads.changed()
        tls.look()
    assert [line["event"] for line in lines] == ["tls_certificate_expires", "reload_changed"]
    assert tls.seconds_left()["server"] > 89 * DAY


def test_a_pair_that_does_not_fit_keeps_the_former_one(tmp_path: Path) -> None:
    tls, reloads = DaemonTls(settings_of(Certificates(tmp_path))), Reloads()
    assert tls.server is not None
    tls.register(reloads)
    former = tls.server.files.present
    other = Certificates(tmp_path / "other")
    (tmp_path / "server.pem").write_bytes(other.server.certificate.read_bytes())
    with capture_logs() as lines:
        reloads.changed()
    (line,) = lines
    assert line["event"] == "reload_failed" and "tls.server.certPath" in line["reason"]
    assert tls.server.files.present is former


def test_a_key_that_others_may_read_gets_a_line(tmp_path: Path) -> None:
    settings = settings_of(Certificates(tmp_path))
    with capture_logs() as lines:
        DaemonTls(settings)
        Path(str(settings.tls_server_key_path)).chmod(0o644)
        DaemonTls(settings)
    assert [(line["event"], line["file"]) for line in lines] == [("tls_key_readable", settings.tls_server_key_path)]


@pytest.mark.slow
def test_the_test_mode_makes_a_certificate_and_daemons_import_no_cryptography() -> None:
    text = (
        "import sys, eruca.broker.app, eruca.nameserver.app\n"
        "from eruca.remoting.tls_daemon import DaemonTls\n"
        "from eruca.remoting.tls_settings import TlsSettings\n"
        "tls = DaemonTls(TlsSettings(tls_test_mode_enable=True))\n"
        "assert tls.port is not None and not tls.port.enforcing\n"
        "assert 'cryptography' not in sys.modules\n"
        "print(tls.seconds_left()['server'])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 300 * DAY


def test_only_the_server_context_of_this_daemon_is_built(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = DaemonTls(settings_of(certificates, tls_enable=True, tls_client_trust_cert_path=str(certificates.ca_file)))
    assert tls.client is tls.ha_client and tls.client is not None
    assert tls.client.present.verify_mode is ssl.CERT_REQUIRED


async def test_metrics(tmp_path: Path) -> None:
    tls = DaemonTls(settings_of(Certificates(tmp_path, server_until=datetime.now(UTC) + timedelta(days=9))))
    assert tls.server is not None
    with capture_logs():
        tls.server.refuse("10.0.0.7", "limit", "too many")
    metrics = Metrics({})
    add_security(metrics, tls, Tally())
    rows = {
        (family.name, labels): value
        for source in metrics.sources
        for family, found in zip(source.families, await metrics.rows(source), strict=True)
        for labels, value in found
    }
    left = rows["eruca_tls_certificate_expires_seconds", ("server",)]
    assert isinstance(left, float | int) and 8 * DAY < left <= 9 * DAY
    assert rows["eruca_tls_handshakes_total", ()] == 0
    refused = {labels[0]: value for (name, labels), value in rows.items() if name == "eruca_tls_refused_total"}
    assert refused == {"limit": 1, "plain": 0, "timeout": 0, "certificate": 0, "failed": 0}
