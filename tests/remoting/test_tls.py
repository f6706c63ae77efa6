"""Encrypted connections: who is trusted, who is not, and what is said then."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eruca.protocol import api
from eruca.protocol.header import Empty
from eruca.remoting import (
    BadTls,
    Call,
    Channels,
    ConnectFailed,
    Connection,
    ConnectionLost,
    Reply,
    Router,
    Routes,
    Tls,
    TlsFiles,
)
from tests.support.certificates import PASSWORD, Certificates

routes: Routes[None] = Routes()


@routes.on(api.GET_BROKER_RUNTIME_INFO)
def echo(_: None, call: Call[Any]) -> Reply:
    return Reply(header=Empty(), body=call.body)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def server(certificates: Certificates | None, *, ask_clients: bool = False) -> AsyncIterator[str]:
    """A server's address; without certificates it speaks no TLS."""
    loop = asyncio.get_running_loop()
    made: set[Connection] = set()
    context = certificates.server_context(ask_clients=ask_clients) if certificates is not None else None
    listening = await loop.create_server(
        lambda: Connection(Router(None, [routes]), on_made=made.add), "127.0.0.1", 0, ssl=context
    )
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        for connection in made:
            connection.abort()
        await asyncio.sleep(0)  # asyncio ends aborted transports in its next round


async def ask(address: str, tls: Tls | None, body: bytes = b"hello") -> bytes:
    channels = Channels(tls=tls.context() if tls else None, server_name=tls.server_name if tls else None)
    try:
        return (await channels.call(address, api.GET_BROKER_RUNTIME_INFO, body=body, timeout=10)).body
    finally:
        await channels.close()


async def test_a_server_whose_certificate_is_trusted(certificates: Certificates) -> None:
    large = bytes(range(256)) * 4096
    async with server(certificates) as address:
        assert await ask(address, Tls(ca_file=certificates.ca_file), large) == large


async def test_a_server_that_nobody_vouches_for(certificates: Certificates) -> None:
    async with server(certificates) as address:
        with pytest.raises(ConnectFailed, match=r"its certificate is not trusted .*name the CA .* with ca_file"):
            await ask(address, Tls())


async def test_a_server_that_nobody_vouches_for_is_taken_when_asked_to(certificates: Certificates) -> None:
    async with server(certificates) as address:
        assert await ask(address, Tls(verify=False)) == b"hello"


async def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    elsewhere = Certificates(tmp_path, ("broker.example",))
    async with server(elsewhere) as address:
        with pytest.raises(ConnectFailed, match=r"its certificate is for another host .*server_name"):
            await ask(address, Tls(ca_file=elsewhere.ca_file))
        assert await ask(address, Tls(ca_file=elsewhere.ca_file, server_name="broker.example")) == b"hello"
        assert await ask(address, Tls(ca_file=elsewhere.ca_file, check_hostname=False)) == b"hello"


async def test_a_certificate_that_has_expired(tmp_path: Path) -> None:
    old = Certificates(tmp_path, server_until=datetime.now(UTC) - timedelta(days=1))
    async with server(old) as address:
        with pytest.raises(ConnectFailed, match=r"not valid now \(certificate has expired\): the server needs another"):
            await ask(address, Tls(ca_file=old.ca_file))


async def test_a_name_that_led_to_an_address_is_looked_for(tmp_path: Path) -> None:
    elsewhere = Certificates(tmp_path, ("broker.example",))
    async with server(elsewhere) as address:
        channels = Channels(tls=Tls(ca_file=elsewhere.ca_file).context())
        channels.host_names[address] = "broker.example"
        assert (await channels.call(address, api.GET_BROKER_RUNTIME_INFO, body=b"hello")).body == b"hello"
        await channels.close()


@pytest.mark.parametrize("locked", [False, True])
async def test_a_server_that_asks_for_a_certificate(certificates: Certificates, locked: bool) -> None:
    own = certificates.client
    mutual = Tls(
        ca_file=certificates.ca_file,
        certificate_file=own.certificate,
        key_file=own.encrypted_key if locked else own.key,
        key_password=PASSWORD if locked else None,
    )
    async with server(certificates, ask_clients=True) as address:
        assert await ask(address, mutual) == b"hello"


async def test_a_server_that_asks_for_a_certificate_and_gets_none(certificates: Certificates) -> None:
    async with server(certificates, ask_clients=True) as address:
        with pytest.raises(ConnectionLost, match="if it asks for certificates, one that it trusts must"):
            await ask(address, Tls(ca_file=certificates.ca_file))


async def test_a_call_after_the_end_says_as_well_why_it_ended(certificates: Certificates) -> None:
    ended = asyncio.Event()
    async with server(certificates, ask_clients=True) as address:
        host, _, port = address.rpartition(":")
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(Router(None, ()), on_lost=lambda _: ended.set()),
            host,
            int(port),
            ssl=Tls(ca_file=certificates.ca_file).context(),
        )
        await ended.wait()
        with pytest.raises(ConnectionLost, match=r"is closed.*certificate_file"):
            await connection.call(api.GET_BROKER_RUNTIME_INFO)


async def test_a_server_without_tls(certificates: Certificates) -> None:
    async with server(None) as address:
        with pytest.raises(ConnectFailed, match="broke off the TLS handshake: it may serve no TLS"):
            await ask(address, Tls(ca_file=certificates.ca_file))


async def test_a_server_with_tls_only(certificates: Certificates) -> None:
    async with server(certificates) as address:
        with pytest.raises(ConnectionLost, match="if it serves TLS only, TLS must be set here, too"):
            await ask(address, None)


async def test_a_server_that_does_not_answer_the_end_is_not_waited_for(certificates: Certificates) -> None:
    """Java's TLS leaves the closing message unanswered; what was sent before arrives all the same."""
    listening = socket.create_server(("127.0.0.1", 0))
    received = bytearray()
    left = threading.Event()

    def serve() -> None:
        plain, _ = listening.accept()
        with certificates.server_context().wrap_socket(plain, server_side=True) as encrypted:
            while piece := encrypted.recv(65536):
                received.extend(piece)
            left.wait(30)

    server = threading.Thread(target=serve)
    server.start()
    channels = Channels(tls=Tls(ca_file=certificates.ca_file).context())
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    connection = await channels.get(address)
    await channels.oneway(address, api.GET_BROKER_RUNTIME_INFO, body=b"x" * (4 << 20))
    await channels.close()
    ended = connection.closed
    left.set()
    await asyncio.to_thread(server.join)
    listening.close()

    assert ended
    assert received.endswith(b"x" * 1000) and len(received) > 4 << 20


def test_files_that_cannot_be_used(certificates: Certificates, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    own = certificates.client
    for tls, sentence in (
        (Tls(ca_file=nothing), "No such file"),
        (Tls(ca_file=own.key), "cannot be read"),
        (Tls(certificate_file=nothing), "No such file"),
        (Tls(certificate_file=own.certificate, key_file=certificates.server.key), "cannot be used: .*mismatch"),
        (Tls(certificate_file=own.certificate, key_file=own.encrypted_key), "is encrypted: give its key_password"),
        (
            Tls(certificate_file=own.certificate, key_file=own.encrypted_key, key_password="wrong"),
            "cannot be used",
        ),
        (Tls(key_file=own.key), "without certificate_file"),
    ):
        with pytest.raises(BadTls, match=sentence):
            tls.context()


async def test_files_that_are_replaced_count_for_the_next_connection(
    certificates: Certificates, tmp_path: Path
) -> None:
    former, mine = Certificates(tmp_path / "former"), tmp_path / "mine"
    mine.mkdir()

    def put(source: Certificates, *names: str) -> None:
        files = {"ca": source.ca_file, "certificate": source.client.certificate, "key": source.client.key}
        for name in names:
            (mine / f"{name}.new").write_bytes(files[name].read_bytes())
            (mine / f"{name}.new").replace(mine / name)

    put(former, "ca", "certificate", "key")
    tls = Tls(ca_file=mine / "ca", certificate_file=mine / "certificate", key_file=mine / "key")
    channels = Channels(tls=TlsFiles(tls))
    async with (
        server(former, ask_clients=True) as first,
        server(former, ask_clients=True) as second,
        server(certificates, ask_clients=True) as renewed,
    ):
        assert (await channels.call(first, api.GET_BROKER_RUNTIME_INFO, body=b"1")).body == b"1"
        with pytest.raises(ConnectFailed, match="its certificate is not trusted"):
            await channels.get(renewed)

        put(certificates, "ca", "certificate")  # and not yet the key
        with pytest.raises(ConnectFailed, match=r"not trusted.*files were replaced and the former ones.*key_file="):
            await channels.get(renewed)
        assert (await channels.call(second, api.GET_BROKER_RUNTIME_INFO, body=b"2")).body == b"2"

        put(certificates, "key")
        assert (await channels.call(renewed, api.GET_BROKER_RUNTIME_INFO, body=b"3")).body == b"3"
        assert (await channels.call(first, api.GET_BROKER_RUNTIME_INFO, body=b"4")).body == b"4", "as it was made"
        await channels.close()


def test_no_password_is_shown() -> None:
    assert "sesame" not in repr(Tls(key_password=PASSWORD))
