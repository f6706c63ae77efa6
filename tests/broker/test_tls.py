"""Brokers and nameservers with TLS: registration, clients, slaves, and a certificate that is renewed under load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.app import BrokerApp
from eruca.client import ClientSettings, Message, Producer, PullConsumer, PushConsumer, Tls
from eruca.client.errors import ClientError
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.tls_server import ClientAuth, TlsMode
from eruca.remoting.tls_settings import TlsSettings
from tests.broker.services.replication.pairs import caught_up, filled, followed, log_bytes, master_of, slave_of, until
from tests.client.conftest import Seen
from tests.support.certificates import Certificates
from tests.support.desk import Desk


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def trusting(certificates: Certificates) -> Tls:
    return Tls(ca_file=certificates.ca_file)


def tls_of(certificates: Certificates, mode: TlsMode = TlsMode.enforcing) -> TlsSettings:
    """What a daemon needs: as a server and as a client it shows the same certificate."""
    own = certificates.server
    own.key.chmod(0o600)
    return TlsSettings(
        tls_server_mode=mode,
        tls_server_cert_path=str(own.certificate),
        tls_server_key_path=str(own.key),
        tls_client_cert_path=str(own.certificate),
        tls_client_key_path=str(own.key),
        tls_client_trust_cert_path=str(certificates.ca_file),
    )


@asynccontextmanager
async def pair_of(folder: Path, tls: TlsSettings) -> AsyncIterator[tuple[Nameserver, BrokerApp]]:
    """A nameserver and a broker that is registered there, both with these settings of TLS."""
    config = NamesrvConfig(bind_address="127.0.0.1", rocketmq_home=str(folder / "names"), tls=tls)
    config.listen_port = 0
    nameserver = Nameserver(config)
    await nameserver.start()
    desk = Desk(folder / "broker")
    desk.config.tls = tls
    desk.config.namesrv_addr = nameserver.address
    broker = BrokerApp(desk.config)
    await broker.start()
    await until(lambda: nameserver.address in broker.broker.registration.registered)
    yield nameserver, broker
    await broker.stop()
    await nameserver.stop()


async def send_and_pull(nameserver: Nameserver, tls: Tls | None) -> bytes:
    settings = ClientSettings(nameserver=nameserver.address, tls=tls)
    async with Producer("g", settings=settings) as producer, PullConsumer(settings=settings) as puller:
        sent = await producer.send(Message("T", b"hello"))
        return (await puller.pull(sent.queue, sent.offset)).records[0].body


def handshakes(broker: BrokerApp) -> int:
    server = broker.broker.tls.server
    assert server is not None
    return server.handshakes


@pytest.mark.parametrize("mode", [TlsMode.permissive, TlsMode.enforcing])
async def test_clients_with_tls(tmp_path: Path, certificates: Certificates, trusting: Tls, mode: TlsMode) -> None:
    async with pair_of(tmp_path, tls_of(certificates, mode)) as (nameserver, broker):
        assert await send_and_pull(nameserver, trusting) == b"hello"
        assert handshakes(broker)


async def test_a_client_without_tls(tmp_path: Path, certificates: Certificates) -> None:
    async with pair_of(tmp_path / "permissive", tls_of(certificates, TlsMode.permissive)) as (nameserver, broker):
        assert await send_and_pull(nameserver, None) == b"hello"
        assert handshakes(broker) == 0
    async with pair_of(tmp_path / "enforcing", tls_of(certificates)) as (nameserver, _):
        with pytest.raises(ClientError, match="if it serves TLS only, TLS must be set here, too"):
            await send_and_pull(nameserver, None)


async def test_everybody_shows_a_certificate(tmp_path: Path, certificates: Certificates, trusting: Tls) -> None:
    tls = tls_of(certificates)
    tls.tls_server_need_client_auth = ClientAuth.require
    tls.tls_server_trust_cert_path = str(certificates.ca_file)
    own = replace(trusting, certificate_file=certificates.client.certificate, key_file=certificates.client.key)
    async with pair_of(tmp_path, tls) as (nameserver, _):
        assert await send_and_pull(nameserver, own) == b"hello"
        with pytest.raises(ClientError, match="if it asks for certificates, one that it trusts must"):
            await send_and_pull(nameserver, trusting)


async def test_a_renewed_certificate_loses_no_send(tmp_path: Path, certificates: Certificates, trusting: Tls) -> None:
    async with pair_of(tmp_path, tls_of(certificates)) as (nameserver, broker):
        settings = ClientSettings(nameserver=nameserver.address, tls=trusting)
        renewed = Certificates(tmp_path / "renewed", authority=certificates.authority)
        sent, done = 0, False

        async def load() -> None:
            nonlocal sent
            async with Producer("g", settings=settings, retries=0) as producer:
                while not done:
                    await producer.send(Message("T", b"x"))
                    sent += 1

        loads = [asyncio.create_task(load()) for _ in range(4)]
        await until(lambda: sent > 100, within=30)
        with capture_logs() as lines:
            for name in ("server.pem", "server.key"):
                (tmp_path / "renewed" / name).replace(tmp_path / "certificates" / name)
                broker.broker.reloads.changed()
        assert [line["event"] for line in lines if line["event"].startswith("reload")] == [
            *["reload_failed"] * 2,
            *["reload_changed"] * 2,
        ], "both the server's and the client's: between the two files neither fits"
        before = sent
        await until(lambda: sent > before + 100, within=30)
        assert await send_and_pull(nameserver, trusting) == b"hello", "a new connection"
        done = True
        await asyncio.gather(*loads)
    assert renewed.ca_file.exists()


# ------------------------------------------------------------------ slaves


def with_tls(desk: Desk, certificates: Certificates, **settings: object) -> Desk:
    """TLS on the HA port, or to the master's; the operator of the desk speaks plain text."""
    desk.config.tls = tls_of(certificates, TlsMode.permissive)
    for name, value in settings.items():
        setattr(desk.config.tls, name, value)
    return desk


@pytest.mark.parametrize("mode", [TlsMode.permissive, TlsMode.enforcing])
async def test_a_slave_copies_over_tls(tmp_path: Path, certificates: Certificates, mode: TlsMode) -> None:
    master = with_tls(master_of(tmp_path / "master"), certificates, tls_ha_server_mode=mode)
    async with master:
        filled(master, 30)
        slave = with_tls(slave_of(tmp_path / "slave", master.broker.ha_address), certificates, tls_ha_enable=True)
        async with slave:
            await followed(master)
            filled(master, 300, first=30)
            await caught_up(master, slave)
            await slave.restart()  # now it compares the logs first
            filled(master, 10, first=330)
            await caught_up(master, slave)
            assert handshakes(master.app) >= 3
        assert log_bytes(slave) == log_bytes(master)


async def test_a_slave_without_tls(tmp_path: Path, certificates: Certificates) -> None:
    async with (
        with_tls(master_of(tmp_path / "master"), certificates) as master,
        slave_of(tmp_path / "slave", master.broker.ha_address) as slave,
    ):
        filled(master, 30)
        await caught_up(master, slave)
    enforcing = with_tls(master_of(tmp_path / "enforcing"), certificates, tls_ha_server_mode=TlsMode.enforcing)
    async with enforcing as master:
        with capture_logs() as lines:
            async with slave_of(tmp_path / "plain", master.broker.ha_address):
                await until(lambda: any(line["event"] == "master_lost" for line in lines))
    (refused, *_) = [line for line in lines if line["event"] == "tls_refused"]
    assert "plain text where only TLS is served" in refused["reason"]


async def test_a_slave_with_tls_at_a_master_without(tmp_path: Path, certificates: Certificates) -> None:
    async with master_of(tmp_path / "master") as master:
        slave = with_tls(slave_of(tmp_path / "slave", master.broker.ha_address), certificates, tls_ha_enable=True)
        with capture_logs() as lines:
            async with slave:
                await until(lambda: any(line["event"] == "master_unreachable" for line in lines))
    (rejected, *_) = [line for line in lines if line["event"] == "slave_rejected"]
    assert "it speaks TLS, and this HA port does not" in rejected["reason"]
    (unreachable,) = [line for line in lines if line["event"] == "master_unreachable"]
    assert "it may serve no TLS" in unreachable["fault"]


async def test_a_push_consumer_over_tls(tmp_path: Path, certificates: Certificates, trusting: Tls) -> None:
    seen = Seen()
    async with pair_of(tmp_path, tls_of(certificates)) as (nameserver, _):
        settings = ClientSettings(nameserver=nameserver.address, tls=trusting)
        async with Producer("p", settings=settings) as producer:
            await producer.send(Message("T", b"first"))
            async with PushConsumer("g", seen.coroutine, settings=settings, start_from="first").subscribe("T"):
                for number in range(200):
                    await producer.send(Message("T", b"%d" % number))
                await seen.reaches(201)
