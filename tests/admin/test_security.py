"""mqadmin's account and TLS, from tools.yml, JAVA_OPT and tls.properties."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from eruca.admin.cli import run
from eruca.admin.errors import AdminError
from eruca.admin.security import find_credentials, find_tls, make_context, split_properties
from eruca.protocol.signature import Credentials
from eruca.remoting import Tls
from tests.admin.conftest import Lab
from tests.support.certificates import PASSWORD, Certificates
from tests.support.peers import requests_in
from tests.support.proxy import Proxy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "account"),
    [
        ("accessKey: rocketmq2\nsecretKey: 12345678\n", Credentials("rocketmq2", "12345678")),
        (
            "# Note\naccessKey: 'a: b'   # who\nsecretKey: \"#secret\"\nsecurityToken: t\nother:\n  accessKey: x\n",
            Credentials("a: b", "#secret", "t"),
        ),
        ("accessKey:\nsecretKey:\n", None),
        ("", None),
    ],
)
def test_the_account_of_tools_yml(home: Path, text: str, account: Credentials | None) -> None:
    (home / "conf" / "tools.yml").write_text(text)

    assert find_credentials({}, {"ROCKETMQ_HOME": str(home)}) == account
    assert find_credentials({"rocketmq.home.dir": str(home)}, {"ROCKETMQ_HOME": "/elsewhere"}) == account


def test_without_an_account_nothing_is_signed(home: Path) -> None:
    assert find_credentials({}, {}) is None
    assert find_credentials({}, {"ROCKETMQ_HOME": str(home)}) is None


def test_half_an_account_is_none(home: Path) -> None:
    (home / "conf" / "tools.yml").write_text("accessKey: me\n")
    with pytest.raises(AdminError, match=r"tools\.yml needs both accessKey and secretKey, or neither"):
        find_credentials({}, {"ROCKETMQ_HOME": str(home)})


def test_java_properties_stand_in_java_opt_and_before_the_command() -> None:
    line = ["-Dtls.enable=true", "topicList", "-n", "a:1"]
    environment = {"JAVA_OPT": "-Xmx1g -Dtls.config.file='/a b/tls' -Dtls.enable=false"}

    properties, rest = split_properties(line, environment)

    assert properties == {"tls.config.file": "/a b/tls", "tls.enable": "true"}
    assert rest == ["topicList", "-n", "a:1"]


def test_tls_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.client.trustCertPath=/ca.pem\ntls.client.certPath=/c.pem\ntls.client.keyPath=/k.pem\n")
    given = {"tls.enable": "true", "tls.config.file": str(file)}

    assert find_tls(given) == Tls(ca_file="/ca.pem", certificate_file="/c.pem", key_file="/k.pem")
    file.write_text("tls.client.authServer=false\ntls.client.keyPassword=secret\n")
    assert find_tls(given) == Tls(verify=False, key_password="secret")
    file.write_text("tls.test.mode.enable=true\ntls.client.certPath=/c.pem\n")
    assert find_tls(given) == Tls(verify=False)


def test_tls_by_properties() -> None:
    given = {"tls.enable": "TRUE", "tls.client.trustCertPath": "/ca.pem", "tls.client.checkHostname": "false"}

    assert find_tls(given) == Tls(ca_file="/ca.pem", check_hostname=False)
    assert find_tls({**given, "tls.enable": "false"}) is None
    assert find_tls({}) is None


def test_what_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(AdminError, match=r"/none, which tls\.config\.file names, is not there"):
        find_tls({"tls.enable": "true", "tls.config.file": "/none"})
    with pytest.raises(AdminError, match="TLS cannot be used: the certificates in ca_file="):
        make_context(Tls(ca_file=tmp_path / "none"))


async def test_a_command_is_signed(lab: Lab, home: Path) -> None:
    (home / "conf" / "tools.yml").write_text("accessKey: operator\nsecretKey: 12345678\n")
    proxy = await Proxy(lab.broker).start()
    out, err = io.StringIO(), io.StringIO()
    properties = f"-Drocketmq.namesrv.addr={lab.nameserver}", f"-Drocketmq.home.dir={home}"
    assert await run([*properties, "brokerStatus", "-b", proxy.address], {}, out, err) == 0, err.getvalue()
    await proxy.stop()
    (sent,) = proxy.sent
    assert {code: fields["AccessKey"] for code, fields in requests_in(bytes(sent))} == {28: "operator"}


async def test_servers_without_tls(lab: Lab) -> None:
    out, err = io.StringIO(), io.StringIO()

    assert await run(["topicList", "-n", lab.nameserver], {"JAVA_OPT": "-Dtls.enable=true"}, out, err) == 1
    assert "the server broke off the TLS handshake: it may serve no TLS" in err.getvalue()
    assert "(-Dtls.enable=false, or a context without --tls)" in err.getvalue()


async def test_advice_names_the_options_of_mqadmin() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    out, err = io.StringIO(), io.StringIO()
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await run(["topicList", "-n", address], {}, out, err) == 1
    assert '(JAVA_OPT="-Dtls.enable=true", or a context with --tls)' in err.getvalue()
    assert "Tls(" not in err.getvalue()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "name the CA that signed it with tls.client.trustCertPath;"),
        (("-Dtls.client.trustCertPath={ca}",), "connect by a name that it has, or set tls.client.checkHostname=false;"),
        (
            ("-Dtls.client.trustCertPath={ca}", "-Dtls.client.checkHostname=false"),
            "tls.client.certPath and tls.client.keyPath",
        ),
    ],
    ids=["untrusted", "another host", "no certificate of its own"],
)
async def test_advice_about_certificates_names_the_properties(
    tmp_path: Path, given: tuple[str, ...], words: str
) -> None:
    certificates = Certificates(tmp_path, server_names=("broker.example",))
    context = certificates.server_context(ask_clients=True)
    out, err = io.StringIO(), io.StringIO()
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        properties = [each.format(ca=certificates.ca_file) for each in ("-Dtls.enable=true", *given)]
        assert await run([*properties, "topicList", "-n", address], {}, out, err) == 1
    assert words in err.getvalue() and "_file" not in err.getvalue()


async def test_no_secret_is_told(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    own = certificates.client
    options = f"-Dtls.enable=true -Dtls.client.certPath={own.certificate} -Dtls.client.keyPath={own.encrypted_key}"
    out, err = io.StringIO(), io.StringIO()
    wrong = f"-Dtls.client.keyPassword=not-{PASSWORD}"

    assert await run(["topicList", "-n", "127.0.0.1:1"], {"JAVA_OPT": f"{options} {wrong}"}, out, err) == 1
    assert "cannot be used" in err.getvalue() and PASSWORD not in err.getvalue()


async def test_a_server_without_access_control_is_called_that(lab: Lab) -> None:
    """It answers that it does not know the request (3), as brokers of RocketMQ 5 and nameservers do."""
    there = lab.nameserver.replace("127.0.0.1", "localhost")
    for line in (
        ("updateAclConfig", "-a", "account", "-s", "its-secret"),
        ("deleteAclConfig", "-a", "account"),
        ("updateGlobalWhiteAddr", "-g", "10.0.0.1"),
        ("clusterAclConfigVersion",),
        ("getAclConfig",),
    ):
        done = await lab.mqadmin(*line, "-b", there)
        words = "this broker has no access control (aclEnable), or does not take this request"
        assert done == (1, "", f"mqadmin {line[0]}: {there}: {words}\n")


@pytest.mark.parametrize("text", ["maybe", "", "1", "yes"])
def test_what_is_neither_true_nor_false_switches_no_encryption_off(text: str) -> None:
    with pytest.raises(AdminError, match=f"-Dtls.enable={text} is neither: write true or false"):
        find_tls({"tls.enable": text})
