"""Signed and encrypted, as a user sets it: what leaves the client, and what is never shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from eruca.client import ClientSettings, Credentials, Message, Producer, PullConsumer, PushConsumer, Tls
from eruca.client.errors import BadConfig, BrokerUnreachable, NameserverUnreachable
from eruca.protocol.signature import SIGNATURE, sign
from tests.client.conftest import Lab, Seen
from tests.support.certificates import PASSWORD, Certificates
from tests.support.encrypted import Front
from tests.support.examples import examples_of
from tests.support.peers import requests_in
from tests.support.proxy import Proxy
from tests.support.scripted import Scripted

SECRET = "the-secret-key"
ACCOUNT = Credentials("the-account", SECRET, "the-token")


@pytest.mark.parametrize("header", ["JSON", "ROCKETMQ", "MSGPACK"])
async def test_every_request_of_a_client_is_signed(
    lab: Lab, seen: Seen, header: Literal["JSON", "ROCKETMQ", "MSGPACK"]
) -> None:
    await lab.send("T", b"so that the topic is there")
    broker = await Proxy(lab.cluster.broker.address).start()
    async with Scripted() as nameserver:
        for topic in ("T", "%RETRY%g"):
            nameserver.leads(topic, {"broker-a": broker.address})
        settings = ClientSettings(nameserver=nameserver.address, credentials=ACCOUNT, header=header)
        async with (
            Producer("p", settings=settings) as producer,
            PushConsumer("g", seen.coroutine, settings=settings, start_from="first").subscribe("T"),
            PullConsumer(settings=settings) as puller,
        ):
            result = await producer.send(Message("T", "Bücher".encode(), keys="k"))
            await seen.reaches(1)
            await puller.max_offset(result.queue)
    await broker.stop()

    sent = [request for data in broker.sent for request in requests_in(bytes(data))]
    assert {310, 30, 34, 11} <= {code for code, _ in sent}
    for _, fields in sent:
        assert (fields["AccessKey"], fields["SecurityToken"]) == ("the-account", "the-token") and SIGNATURE in fields
    send = next(fields for code, fields in sent if code == 310)
    assert send[SIGNATURE] == sign(send, "Bücher".encode(), SECRET)


def test_nothing_secret_is_shown() -> None:
    settings = ClientSettings(credentials=ACCOUNT, tls=Tls(key_password=PASSWORD))

    for secret in (SECRET, "the-token", PASSWORD):
        assert secret not in repr(settings)


# ---------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def fronts(lab: Lab, certificates: Certificates) -> AsyncIterator[str]:
    """The encrypted address of a nameserver that sends clients to the broker's encrypted one."""
    broker = Front(lab.cluster.broker.address, certificates)
    encrypted = await broker.start()
    async with Scripted() as known:
        for topic in ("T", "Orders"):
            known.leads(topic, {"broker-a": encrypted})
        nameserver = Front(known.address, certificates)
        yield await nameserver.start()
        await nameserver.stop()
    await broker.stop()


async def test_a_client_with_tls(fronts: str, lab: Lab, certificates: Certificates) -> None:
    await lab.send("T", b"so that the topic is there")
    own = Tls(
        ca_file=certificates.ca_file, certificate_file=certificates.client.certificate, key_file=certificates.client.key
    )
    settings = ClientSettings(nameserver=fronts, tls=own)
    large = bytes(range(256)) * 2000
    async with Producer("p", settings=settings, compress_from=1 << 30) as producer:
        assert (await producer.send(Message("T", large))).status.name == "SEND_OK"
        assert lab.cluster.broker.address not in producer.session.channels.addresses()

    async with PullConsumer(settings=replace(settings, tls=own.context())) as puller:
        assert await puller.fetch_queues("T"), "a context of the user's own serves as well"


async def test_a_client_without_tls_is_told_so(fronts: str) -> None:
    async with PullConsumer(nameserver=fronts) as puller:
        with pytest.raises(NameserverUnreachable, match="if it serves TLS only, TLS must be set here, too"):
            await puller.fetch_queues("T")


async def test_a_client_with_tls_at_servers_without(lab: Lab, certificates: Certificates) -> None:
    async with PullConsumer(settings=ClientSettings(nameserver=lab.address, tls=Tls())) as puller:
        with pytest.raises(NameserverUnreachable, match="it may serve no TLS"):
            await puller.fetch_queues("T")
        with pytest.raises(BrokerUnreachable, match="it may serve no TLS"):
            await puller.session.connection(lab.cluster.broker.address)


async def test_files_are_replaced_while_a_client_runs(
    fronts: str, lab: Lab, certificates: Certificates, tmp_path: Path
) -> None:
    await lab.send("T", b"so that the topic is there")
    own = tmp_path / "ca.pem"
    own.write_bytes(Certificates(tmp_path / "others").ca_file.read_bytes())
    tls = Tls(
        ca_file=own,
        certificate_file=certificates.client.certificate,
        key_file=certificates.client.encrypted_key,
        key_password=PASSWORD,
    )
    async with Producer("p", settings=ClientSettings(nameserver=fronts, tls=tls)) as producer:
        with pytest.raises(NameserverUnreachable, match="its certificate is not trusted"):
            await producer.send(Message("T", b"x"))
        own.write_bytes(certificates.ca_file.read_bytes())
        assert (await producer.send(Message("T", b"x"))).status.name == "SEND_OK"


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    settings = ClientSettings(nameserver="n:1", tls=Tls(ca_file=tmp_path / "none.pem"))
    with pytest.raises(BadConfig, match=r"TLS cannot be used: the certificates in ca_file=.*No such file"):
        await Producer("p", settings=settings).start()


# ---------------------------------------------------------------------- the page


@pytest.mark.parametrize("code", examples_of("security.md"))
async def test_an_example(
    code: str, fronts: str, lab: Lab, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await lab.send("Orders", b"so that the topic is there")
    own = certificates.client
    for name, file in (("ca.pem", certificates.ca_file), ("client.pem", own.certificate), ("client.key", own.key)):
        (tmp_path / name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "the-account")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", fronts if "tls=" in code else lab.address)

    await asyncio.to_thread(exec, compile(code, "an example", "exec"), {"__name__": "__main__"})


def test_there_are_examples() -> None:
    assert len(examples_of("security.md")) == 2
