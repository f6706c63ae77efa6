"""TLS of Eruca's servers, judged by Apache's clients and servers: all modes, certificates of both sides, both ways."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat.clients import JavaClients, Letter
from tests.compat.transcript import java_mqadmin
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.certificates import Certificates
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.java import Judge

CREATE = ("updateTopic", "-c", "JudgeCluster", "-t", "T", "-r", "1", "-w", "1")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def java_client(certificates: Certificates, *, shows: bool) -> list[str]:
    """Java's options for a client that verifies servers; `shows`: it has a certificate of its own."""
    own = certificates.client
    options = {"authServer": "true", "trustCertPath": str(certificates.ca_file)}
    if shows:
        options |= {"certPath": str(own.certificate), "keyPath": str(own.key)}
    names = [f"-Dtls.client.{name}={value}" for name, value in options.items()]
    return ["-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.config.file=/nowhere", *names]


def java_server(certificates: Certificates, mode: str) -> list[str]:
    """Java's options for a server."""
    own = certificates.server
    files = [f"-Dtls.server.certPath={own.certificate}", f"-Dtls.server.keyPath={own.key}"]
    return ["-Dtls.test.mode.enable=false", "-Dtls.config.file=/nowhere", f"-Dtls.server.mode={mode}", *files]


def ours(certificates: Certificates, mode: str, **more: str) -> dict[str, str]:
    """The settings of Eruca's servers."""
    own = certificates.server
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": str(own.certificate),
        "tls.server.keyPath": str(own.encrypted_key),
        "tls.server.keyPassword": "open-sesame",
        "tls.client.trustCertPath": str(certificates.ca_file),
        "tls.client.certPath": str(own.certificate),
        "tls.client.keyPath": str(own.key),
        **more,
    }


@pytest.fixture(scope="module")
def trusting(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.ca_file)
    context.load_cert_chain(certificates.client.certificate, certificates.client.key)
    return context


@pytest.fixture(scope="module")
def secure(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Java's clients with TLS."""
    home = tmp_path_factory.mktemp("judge-tls")
    with Judge("4.9.7", home, options=java_client(certificates, shows=False)) as judge:
        yield judge


@pytest.fixture(scope="module")
def mutual(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Java's clients with TLS and a certificate."""
    home = tmp_path_factory.mktemp("judge-mutual")
    with Judge("4.9.7", home, options=java_client(certificates, shows=True)) as judge:
        yield judge


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


Started = Callable[[dict[str, str]], str]


@pytest.fixture
def started(tmp_path: Path, stack: ExitStack, trusting: ssl.SSLContext) -> Started:
    """Starts Eruca's nameserver and broker, both with these settings; the nameserver's address."""

    def start(settings: dict[str, str]) -> str:
        names = ErucaNameServer(tmp_path / "names", settings)
        stack.callback(names.stop)
        how = trusting if settings["tls.server.mode"] == "enforcing" else None
        broker = ErucaBroker(tmp_path / "broker", names.address, settings, tls=how)
        stack.callback(broker.stop)
        return names.address

    return start


def works(judge: Judge, address: str) -> None:
    """Apache's mqadmin, a producer and a consumer do their work."""
    done = java_mqadmin(judge)((*CREATE, "-n", address))
    assert "success" in done.stdout, done
    java = JavaClients(judge)
    letters = [Letter("T", b"%d " % number * (1 << number)) for number in range(16)]
    with java.producer("producers", address) as producer, java.member("g", address, {"T": "*"}) as member:
        for how in ("sync", "async", "oneway", "batch"):
            producer.send(letters, how)
        assert {each.body for each in member.received(64)} == {each.body for each in letters}


def fails(judge: Judge, address: str) -> None:
    """A producer does not reach the servers."""
    with (
        JavaClients(judge).producer("producers", address) as producer,
        pytest.raises(AssertionError, match=r"Remoting\w+Exception"),
    ):
        producer.send([Letter("T", b"x")], "sync")


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_javas_clients_with_tls(mode: str, certificates: Certificates, secure: Judge, started: Started) -> None:
    works(secure, started(ours(certificates, mode)))


def test_javas_clients_without_tls(certificates: Certificates, judge: Judge, started: Started) -> None:
    works(judge, started(ours(certificates, "permissive")))


def test_an_enforcing_server_refuses_javas_clients_without_tls(
    certificates: Certificates, judge: Judge, started: Started
) -> None:
    fails(judge, started(ours(certificates, "enforcing")))


def test_a_server_without_tls_refuses_javas_clients_with_it(
    certificates: Certificates, judge: Judge, secure: Judge, started: Started
) -> None:
    address = started(ours(certificates, "disabled"))
    fails(secure, address)
    works(judge, address)


def test_certificates_of_both_sides(certificates: Certificates, secure: Judge, mutual: Judge, started: Started) -> None:
    asks = {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(certificates.ca_file)}
    address = started(ours(certificates, "enforcing", **asks))
    fails(secure, address)
    works(mutual, address)


def test_apaches_test_mode(started: Started, tmp_path: Path, certificates: Certificates) -> None:
    """As Apache's servers and clients do it by default: encrypted, and nobody is verified."""
    settings = {"tls.server.mode": "permissive", "tls.test.mode.enable": "true", "tls.enable": "true"}
    address = started(settings)
    with Judge("4.9.7", tmp_path, options=["-Dtls.enable=true", "-Dtls.config.file=/nowhere"]) as judge:
        works(judge, address)


def test_a_broker_of_apache_at_our_nameserver(
    certificates: Certificates, secure: Judge, tmp_path: Path, stack: ExitStack, trusting: ssl.SSLContext
) -> None:
    names = ErucaNameServer(tmp_path / "names", ours(certificates, "enforcing"))
    stack.callback(names.stop)
    options: Sequence[str] = [*java_client(certificates, shows=False), *java_server(certificates, "enforcing")]
    broker = ApacheBroker("4.9.7", tmp_path / "broker", names.address, options=options, tls=trusting)
    stack.callback(broker.discard)
    works(secure, names.address)


def test_our_broker_at_a_nameserver_of_apache(
    certificates: Certificates, secure: Judge, tmp_path: Path, stack: ExitStack, trusting: ssl.SSLContext
) -> None:
    names = ApacheNameServer("4.9.7", tmp_path / "names", options=java_server(certificates, "enforcing"))
    stack.callback(names.stop)
    broker = ErucaBroker(tmp_path / "broker", names.address, ours(certificates, "enforcing"), tls=trusting)
    stack.callback(broker.stop)
    works(secure, names.address)
