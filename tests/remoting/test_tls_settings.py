"""TLS under Apache's names: what they mean, and what contradicts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eruca.nameserver.config import NamesrvConfig
from eruca.remoting import BadTls, Tls
from eruca.remoting.command_line import command_line
from eruca.remoting.settings import BadSetting, values
from eruca.remoting.sources import Start, read
from eruca.remoting.tls_server import ClientAuth, TlsMode
from eruca.remoting.tls_settings import TlsSettings
from tests.support.certificates import Certificates


def settings(text: str) -> TlsSettings:
    return read(TlsSettings, text=text).config


@pytest.mark.parametrize(
    ("text", "mode", "ha_mode"),
    [
        ("", TlsMode.disabled, TlsMode.disabled),
        ("tls.server.certPath=/c.pem", TlsMode.permissive, TlsMode.permissive),
        ("tls.test.mode.enable=true", TlsMode.permissive, TlsMode.permissive),
        ("tls.server.mode=enforcing\ntls.server.certPath=/c.pem", TlsMode.enforcing, TlsMode.enforcing),
        ("tls.server.mode=disabled\ntls.server.certPath=/c.pem", TlsMode.disabled, TlsMode.disabled),
        ("tls.server.certPath=/c.pem\ntls.ha.server.mode=disabled", TlsMode.permissive, TlsMode.disabled),
    ],
)
def test_without_a_certificate_there_is_no_tls(text: str, mode: TlsMode, ha_mode: TlsMode) -> None:
    found = settings(text)
    found.check()
    assert (found.mode, found.ha_mode) == (mode, ha_mode)


@pytest.mark.parametrize(
    ("text", "enabled", "ha"),
    [
        ("", False, False),
        ("tls.enable=true", True, True),
        ("tls.enable=true\ntls.ha.enable=false", True, False),
        ("tls.server.mode=enforcing", True, True),
        ("tls.server.mode=enforcing\ntls.enable=false", False, False),
        ("tls.server.mode=permissive", False, False),
    ],
)
def test_whose_connections_to_others_are_encrypted(text: str, enabled: bool, ha: bool) -> None:
    found = settings(text)
    assert (found.enabled, found.ha_enabled) == (enabled, ha)


def test_connections_verify_unless_that_is_switched_off() -> None:
    assert settings("tls.client.trustCertPath=/ca").client == Tls(ca_file="/ca")
    assert settings("tls.client.authServer=false").client == Tls(verify=False)
    assert settings("tls.test.mode.enable=true\ntls.client.certPath=/c").client == Tls(verify=False)
    own = settings("tls.client.certPath=/c\ntls.client.keyPath=/k\ntls.client.keyPassword=p").client
    assert own == Tls(certificate_file="/c", key_file="/k", key_password="p")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tls.server.mode=enforcing", r"needs a certificate: set tls\.server\.certPath"),
        ("tls.ha.server.mode=permissive", r"needs a certificate: set tls\.server\.certPath"),
        (
            "tls.server.certPath=/c\ntls.server.need.client.auth=require",
            r"name the CA of the clients in tls",
        ),
        (
            "tls.server.certPath=/c\ntls.server.need.client.auth=optional\ntls.server.trustCertPath=/ca\n"
            "tls.server.authClient=false",
            r"need\.client\.auth optional would take any certificate",
        ),
    ],
)
def test_what_contradicts(text: str, sentence: str) -> None:
    with pytest.raises(BadTls, match=sentence):
        settings(text).check()


def test_an_unknown_mode_is_refused_where_apache_takes_it_for_permissive() -> None:
    with pytest.raises(BadSetting, match="write one of disabled, permissive, enforcing"):
        settings("tls.server.mode=Enforcing")
    with pytest.raises(BadSetting, match="write one of none, optional, require"):
        settings("tls.server.need.client.auth=true")


def test_clients_that_are_asked_for_certificates_are_verified() -> None:
    found = settings(
        "tls.server.certPath=/c\ntls.server.keyPath=/k\ntls.server.need.client.auth=require\ntls.server.trustCertPath=/ca"
    )
    found.check()
    certificate = found.certificate()
    assert (certificate.client_auth, certificate.ca_file) == (ClientAuth.require, "/ca")
    assert (certificate.certificate, certificate.key_file) == ("/c", "/k")


def test_passwords_are_not_shown() -> None:
    found = settings("tls.server.keyPassword=sesame\ntls.client.keyPassword=sesame")
    assert not any("assword" in key for key in values(found))


def test_servers_need_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    settings("").check()
    with pytest.raises(BadTls, match=r"needs uvloop.*pip install 'eruca\[broker\]'"):
        settings("tls.server.certPath=/c").check()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    own = Certificates(tmp_path)
    Path(own.server.key).chmod(0o600)
    good = f"tls.server.certPath={own.server.certificate}\ntls.server.keyPath={own.server.key}\ntls.enable=true\n"
    assert list(settings(good).unusable()) == []
    assert list(settings("tls.server.certPath=/none\ntls.server.mode=disabled").unusable()) == []
    (server,) = settings(good + "tls.server.keyPath=/none").unusable()
    assert server.key == "tls.server.certPath" and 'tls.server.keyPath="/none" cannot be used' in server.sentence
    Path(own.server.key).chmod(0o644)
    (open_key,) = settings(good).unusable()
    assert (open_key.key, open_key.sentence, open_key.is_fault) == (
        "tls.server.keyPath",
        f"names {own.server.key}, which others may read: chmod 600",
        False,
    )
    Path(own.server.key).chmod(0o600)
    (client,) = settings(good + "tls.client.trustCertPath=/none").unusable()
    assert client.key == "tls.client.certPath" and 'ca_file="/none" cannot be read' in client.sentence


# ------------------------------------------------------------------ tls.config.file


def start(*arguments: str, **environment: str) -> Start[NamesrvConfig]:
    return command_line(NamesrvConfig, "mqnamesrv", arguments, environment)


def test_the_file_of_tls(tmp_path: Path) -> None:
    conf, file = tmp_path / "namesrv.conf", tmp_path / "tls.properties"
    conf.write_text(f"tls.config.file={file}\ntls.server.certPath=/old.pem\ntls.server.keyPath=/a.key\n")
    file.write_text("tls.server.certPath=/new.pem\ntls.client.keyPassword=x\nlistenPort=1\ntls.nothing.of.this=1\n")
    found = start("-c", str(conf), ERUCA_TLS_SERVER_KEY_PATH="/b.key")

    tls = found.config.tls
    assert (tls.tls_server_cert_path, tls.tls_server_key_path) == ("/new.pem", "/b.key")
    assert found.config.listen_port == 9876
    assert found.warnings == [
        f"{file}:3: listenPort does not belong there; it is ignored",
        f"{file}:4: unknown key tls.nothing.of.this; it is ignored",
    ]
    assert start("-c", str(conf), "--set", "tls.server.certPath=/x").config.tls.tls_server_cert_path == "/x"


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"none\.properties: No such file"):
        start("--set", f"tls.config.file={tmp_path}/none.properties")
    bad = tmp_path / "bad"
    bad.write_text("tls.enable=\\u12")
    with pytest.raises(BadSetting, match="bad: "):
        start("--set", f"tls.config.file={bad}")
