"""Ports with TLS: who gets a handshake, who is refused, and what is said then; on both event loops."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from eruca.protocol import api, frame
from eruca.protocol.header import Empty
from eruca.remoting import (
    BadTls,
    Call,
    Channels,
    ConnectFailed,
    ConnectionLost,
    Reply,
    Router,
    Routes,
    Tls,
)
from eruca.remoting.connection_limits import ConnectionLimits
from eruca.remoting.server import Server
from eruca.remoting.tls_server import ClientAuth, ServerCertificate, TlsPort, TlsServer
from tests.support.certificates import PASSWORD, Certificates
from tests.support.loops import on_both_loops
from tests.support.pairs import eventually

MANY = ConnectionLimits(connects=0, connections_per_address=2000)
QUICK = ConnectionLimits(idle=0.2, sweep_every=0.05)

routes: Routes[None] = Routes()


@routes.on(api.GET_BROKER_RUNTIME_INFO)
def echo(_: None, call: Call[Any]) -> Reply:
    return Reply(header=Empty(), body=call.body)


@routes.on(api.GET_ALL_CONSUMER_OFFSET)
def large(_: None, call: Call[Empty]) -> Reply:
    return Reply(body=bytes(8 << 20))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """No test leaves a socket open."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    after = {name for name in os.listdir("/proc/self/fd") if "socket" in _target(name)}
    assert after <= before


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError as gone:
        assert gone.errno == errno.ENOENT
        return ""


def tls_of(certificates: Certificates, client_auth: ClientAuth = ClientAuth.none, **options: Any) -> TlsServer:
    own = ServerCertificate(
        certificate=str(certificates.server.certificate),
        key_file=certificates.server.key,
        client_auth=client_auth,
        ca_file=certificates.ca_file,
    )
    return TlsServer(own, **{"rate": 0, "rate_of_address": 0, **options})


@asynccontextmanager
async def serving(
    tls: TlsServer | None, *, enforcing: bool = False, limits: ConnectionLimits = MANY
) -> AsyncIterator[Server]:
    port = TlsPort(tls, enforcing) if tls is not None else None
    server = Server(Router(None, [routes]), limits=limits, tls=port)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop(grace=0.2)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not server.connections


def address_of(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


async def ask(server: Server, tls: Tls | None, body: bytes = b"hello") -> bytes:
    channels = Channels(tls=tls.context() if tls else None)
    try:
        return (await channels.call(address_of(server), api.GET_BROKER_RUNTIME_INFO, body=body, timeout=10)).body
    finally:
        await channels.close()


@asynccontextmanager
async def peer_of(server: Server, said: bytes = b"") -> AsyncIterator[socket.socket]:
    """A peer that has said this."""
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", server.port))
        await loop.sock_sendall(peer, said)
        yield peer


async def ended(peer: socket.socket) -> bytes:
    """What a peer reads until its connection ends."""
    read = b""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(10):
            while data := await asyncio.get_running_loop().sock_recv(peer, 65536):
                read += data
    return read


def hello() -> bytes:
    """How a client begins its handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


PLAIN = frame.encode(frame.JSON, api.GET_BROKER_RUNTIME_INFO.code, 7, 0, None, 0)
LARGE = bytes(range(256)) * 8192


@on_both_loops
async def test_a_permissive_port_takes_both_kinds(certificates: Certificates) -> None:
    tls = tls_of(certificates)
    async with serving(tls) as server:
        assert await ask(server, None, LARGE) == LARGE
        assert await ask(server, Tls(ca_file=certificates.ca_file), LARGE) == LARGE
    assert (tls.handshakes, tls.plain, tls.refused) == (1, 1, {})


@on_both_loops
async def test_an_enforcing_port_takes_encrypted_connections_only(certificates: Certificates) -> None:
    tls = tls_of(certificates)
    async with serving(tls, enforcing=True) as server:
        assert await ask(server, Tls(ca_file=certificates.ca_file)) == b"hello"
        with capture_logs() as lines, pytest.raises(ConnectionLost, match="if it serves TLS only, TLS must be set"):
            await ask(server, None)
    assert tls.refused == {"plain": 1}
    (line,) = [each for each in lines if each["event"] == "tls_refused"]
    assert line["remote"] == "127.0.0.1" and "plain text where only TLS is served" in line["reason"]


@on_both_loops
async def test_a_port_without_tls_says_so_once(certificates: Certificates) -> None:
    async with serving(None) as server:
        with capture_logs() as lines, pytest.raises(ConnectFailed, match="connect without TLS"):
            await ask(server, Tls(ca_file=certificates.ca_file))
    (line,) = [each for each in lines if each["log_level"] == "warning"]
    assert line["event"] == "tls_not_served" and "tls.server.certPath" in line["advice"]


@pytest.mark.parametrize("mode", [ClientAuth.optional, ClientAuth.require])
@on_both_loops
async def test_certificates_of_clients(certificates: Certificates, tmp_path: Path, mode: ClientAuth) -> None:
    other = Certificates(tmp_path)
    own, foreign = (
        Tls(ca_file=certificates.ca_file, certificate_file=each.client.certificate, key_file=each.client.key)
        for each in (certificates, other)
    )
    tls = tls_of(certificates, mode)
    async with serving(tls) as server:
        assert await ask(server, own) == b"hello"
        with pytest.raises(ConnectionLost, match="one that it trusts must be set here"):
            await ask(server, foreign)
        if mode is ClientAuth.optional:
            assert await ask(server, Tls(ca_file=certificates.ca_file)) == b"hello"
        else:
            with pytest.raises(ConnectionLost, match="one that it trusts must be set here"):
                await ask(server, Tls(ca_file=certificates.ca_file))
    assert tls.refused == {"certificate": 1 if mode is ClientAuth.optional else 2}


@on_both_loops
async def test_a_clients_certificate_that_has_expired(certificates: Certificates, tmp_path: Path) -> None:
    old = certificates.authority.issue_cert("late.example", not_after=datetime.now(UTC) - timedelta(days=1))
    file = tmp_path / "late.pem"
    old.private_key_and_cert_chain_pem.write_to_path(str(file))
    tls = tls_of(certificates, ClientAuth.require)
    async with serving(tls) as server:
        with (
            capture_logs() as lines,
            pytest.raises(ConnectionLost, match="one that it trusts must be set here"),
        ):
            await ask(server, Tls(ca_file=certificates.ca_file, certificate_file=file))
    (line,) = [each for each in lines if each["event"] == "tls_refused"]
    assert (line["kind"], line["reason"]) == ("certificate", "its certificate is not accepted: certificate has expired")


@on_both_loops
async def test_old_versions_are_refused(certificates: Certificates) -> None:
    tls = tls_of(certificates)
    async with serving(tls) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with capture_logs() as lines:
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            await eventually(lambda: bool(tls.refused))
    (line,) = [each for each in lines if each["event"] == "tls_refused"]
    assert line["reason"] == "it speaks nothing newer than TLS 1.1: TLS 1.2 is the least"


@on_both_loops
async def test_a_client_that_does_not_trust_the_server(certificates: Certificates) -> None:
    tls = tls_of(certificates)
    async with serving(tls) as server:
        with capture_logs() as lines:
            with pytest.raises(ConnectFailed, match=r"with ca_file \(tls\.client\.trustCertPath\)"):
                await ask(server, Tls())
            await eventually(lambda: bool(tls.refused))
    (line,) = [each for each in lines if each["event"] == "tls_refused"]
    assert "it may not trust this server's certificate" in line["reason"]


# ------------------------------------------------------------------ odd peers


@pytest.mark.parametrize("enforcing", [False, True])
@on_both_loops
async def test_a_peer_that_leaves_before_it_says_anything(certificates: Certificates, enforcing: bool) -> None:
    tls = tls_of(certificates)
    async with serving(tls, enforcing=enforcing) as server:
        with capture_logs() as lines:
            for linger in (False, True):
                async with peer_of(server) as peer:
                    await eventually(lambda: len(server.connections) == 1)
                    if linger:  # the end is a reset
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await eventually(lambda: not server.connections)
        assert await ask(server, Tls(ca_file=certificates.ca_file)) == b"hello"
    assert (lines, tls.refused) == ([], {})


@on_both_loops
async def test_a_peer_that_says_nothing_is_cut_off_like_half_a_frame(certificates: Certificates) -> None:
    async with serving(tls_of(certificates, first_byte_within=0.1)) as server, peer_of(server) as peer:
        with capture_logs() as lines:
            assert await ended(peer) == b""
            await eventually(lambda: not server.connections)
    assert [line["event"] for line in lines] == ["half_frame_closed"]


@pytest.mark.parametrize("said", [b"\x16", hello()[:100], hello()], ids=["a byte", "half a hello", "a hello"])
@on_both_loops
async def test_a_handshake_that_does_not_go_on_is_cut_off(certificates: Certificates, said: bytes) -> None:
    tls = tls_of(certificates, handshake_within=0.2)
    async with serving(tls) as server, peer_of(server, said) as peer:
        await ended(peer)
        await eventually(lambda: not server.connections)
        assert await ask(server, Tls(ca_file=certificates.ca_file)) == b"hello"
    assert tls.refused == {"timeout": 1}


@pytest.mark.parametrize("said", [b"\x16\x03garbage" * 9, b"\x16" + bytes(100), b"\x16\x03\x01\xff\xff" + bytes(99)])
@on_both_loops
async def test_garbage_after_the_first_byte_of_a_handshake(certificates: Certificates, said: bytes) -> None:
    tls = tls_of(certificates, handshake_within=0.5)
    async with serving(tls) as server, peer_of(server, said) as peer:
        await ended(peer)
        await eventually(lambda: not server.connections)
        assert await ask(server, Tls(ca_file=certificates.ca_file)) == b"hello"
    assert tls.refused.total() == 1


@pytest.mark.parametrize("first", [0x00, 0x01, 0x02, 0x14, 0x15, 0x17, 0x80, 0x47, 0xFF])
@on_both_loops
async def test_any_other_first_byte_is_plain(certificates: Certificates, first: int) -> None:
    tls = tls_of(certificates)
    said = PLAIN if not first else bytes([first]) + PLAIN[1:]
    for enforcing in (False, True):
        async with serving(tls, enforcing=enforcing) as server, peer_of(server, said) as peer:
            if not first and not enforcing:
                await eventually(lambda: any(each.remote for each in server.connections))
            else:
                assert await ended(peer) == b""
    assert tls.refused == {"plain": 1}


@on_both_loops
async def test_a_frame_that_comes_byte_by_byte(certificates: Certificates) -> None:
    async with serving(tls_of(certificates)) as server, peer_of(server) as peer:
        loop = asyncio.get_running_loop()
        for at in range(len(PLAIN)):
            await loop.sock_sendall(peer, PLAIN[at : at + 1])
            await asyncio.sleep(0)
        answer = await loop.sock_recv(peer, 4096)
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4


@on_both_loops
async def test_silent_peers_count_as_connections(certificates: Certificates) -> None:
    limits = ConnectionLimits(connections_per_address=3)
    server = Server(Router(None, [routes]), limits=limits, tls=TlsPort(tls_of(certificates), False))
    await server.start("127.0.0.1", 0)
    async with peer_of(server), peer_of(server, b"\x16"), peer_of(server, PLAIN):
        await eventually(lambda: len(server.connections) == 3)
        async with peer_of(server) as fourth:
            assert await ended(fourth) == b""
        assert server.rejected.total() == 1
    await eventually(lambda: not server.connections)
    await server.stop()


@on_both_loops
async def test_a_stop_waits_for_nobody_who_is_silent(certificates: Certificates) -> None:
    server = Server(Router(None, [routes]), tls=TlsPort(tls_of(certificates), False))
    await server.start("127.0.0.1", 0)
    async with peer_of(server) as one, peer_of(server, hello()[:50]) as two:
        await eventually(lambda: len(server.connections) == 2)
        async with asyncio.timeout(5):
            await server.stop()
        assert not server.connections
        assert (await ended(one), await ended(two)) == (b"", b"")


@on_both_loops
async def test_a_thousand_slow_handshakes_keep_nobody_out(certificates: Certificates) -> None:
    tls = tls_of(certificates, handshake_within=60)
    half = hello()[:200]
    peers: list[socket.socket] = []
    async with serving(tls) as server:
        try:
            for _ in range(1000):
                peer = socket.create_connection(("127.0.0.1", server.port))
                peers.append(peer)
                peer.sendall(half)
                await asyncio.sleep(0)
            assert await ask(server, Tls(ca_file=certificates.ca_file)) == b"hello"
            assert await ask(server, None) == b"hello"
            assert len(server.connections) >= 1000
        finally:
            for peer in peers:
                peer.close()
        await eventually(lambda: not server.connections)


def encrypted_peer(server: Server, certificates: Certificates) -> ssl.SSLSocket:
    """A peer that has ended its handshake; to be called in a thread."""
    plain = socket.create_connection(("127.0.0.1", server.port))
    return ssl.create_default_context(cafile=certificates.ca_file).wrap_socket(plain, server_hostname="127.0.0.1")


@on_both_loops
async def test_a_peer_that_is_silent_after_its_handshake_is_closed(certificates: Certificates) -> None:
    async with serving(tls_of(certificates), limits=QUICK) as server:
        with await asyncio.to_thread(encrypted_peer, server, certificates) as peer:
            assert await asyncio.to_thread(peer.recv, 100) == b""
        await eventually(lambda: not server.connections)


@on_both_loops
async def test_peers_that_read_no_answer_are_cut_off(certificates: Certificates) -> None:
    request = frame.encode(frame.JSON, api.GET_ALL_CONSUMER_OFFSET.code, 1, 0, None, 0)
    async with serving(tls_of(certificates), limits=QUICK) as server:
        with ExitStack() as peers:
            for _ in range(5):
                peer = peers.enter_context(await asyncio.to_thread(encrypted_peer, server, certificates))
                await asyncio.to_thread(peer.sendall, request)
            await eventually(lambda: not server.connections)


# ------------------------------------------------------------------ the rate


@on_both_loops
async def test_too_many_handshakes_of_one_address_are_refused(certificates: Certificates) -> None:
    tls = tls_of(certificates, rate_of_address=4)
    trusting = Tls(ca_file=certificates.ca_file)
    async with serving(tls) as server:
        with capture_logs() as lines:
            done = await asyncio.gather(*(ask(server, trusting) for _ in range(40)), return_exceptions=True)
        assert await ask(server, None) == b"hello", "a plain connection needs no handshake"
    assert done.count(b"hello") == tls.handshakes >= 4
    assert tls.refused == {"limit": 40 - tls.handshakes}
    assert any("too many handshakes" in line.get("reason", "") for line in lines)


@on_both_loops
async def test_too_many_handshakes_of_all_addresses_are_refused(certificates: Certificates) -> None:
    tls = tls_of(certificates, rate=4)
    granted = [tls.may_begin(f"10.0.0.{number}") for number in range(20)]
    assert 4 <= granted.count(True) <= 6


@on_both_loops
async def test_the_handshakes_of_one_block_of_ipv6_count_together(certificates: Certificates) -> None:
    tls = tls_of(certificates, rate_of_address=4)
    granted = [tls.may_begin(f"2001:db8::{number:x}") for number in range(20)]
    assert 4 <= granted.count(True) <= 6
    assert tls.may_begin("2001:db8:0:1::1")


# ------------------------------------------------------------------ files


@on_both_loops
async def test_replaced_files_apply_to_new_connections(certificates: Certificates, tmp_path: Path) -> None:
    mine, renewed = tmp_path / "mine", Certificates(tmp_path / "renewed")
    mine.mkdir()

    def put(source: Certificates, *names: str) -> None:
        for name in names:
            file = source.server.certificate if name == "cert" else source.server.key
            (mine / f"{name}.new").write_bytes(file.read_bytes())
            (mine / f"{name}.new").replace(mine / name)

    put(certificates, "cert", "key")
    own = ServerCertificate(certificate=str(mine / "cert"), key_file=mine / "key")
    tls = TlsServer(own, rate=0, rate_of_address=0)
    former, later = Tls(ca_file=certificates.ca_file), Tls(ca_file=renewed.ca_file)
    async with serving(tls) as server:
        old = Channels(tls=former.context())
        await old.get(address_of(server))
        assert tls.files.read() == []
        put(renewed, "cert")
        with pytest.raises(BadTls, match=r"tls\.server\.certPath=.*mismatch"):
            tls.files.read()
        assert await ask(server, former) == b"hello", "the former pair serves"
        put(renewed, "key")
        assert tls.files.read() == ["new connections use the replaced certificates"]
        assert await ask(server, later) == b"hello"
        assert (await old.call(address_of(server), api.GET_BROKER_RUNTIME_INFO, body=b"old")).body == b"old"
        await old.close()


@on_both_loops
async def test_unusable_files_of_a_server(certificates: Certificates, tmp_path: Path) -> None:
    own = str(certificates.server.certificate)
    locked = certificates.server.encrypted_key
    for certificate, sentence in (
        (ServerCertificate(certificate=str(tmp_path / "none")), r"tls\.server\.certPath=.*No such file"),
        (ServerCertificate(certificate=own, key_file=certificates.client.key), r"tls\.server\.keyPath=.*mismatch"),
        (ServerCertificate(certificate=own, key_file=locked), r"give its tls\.server\.keyPassword"),
        (ServerCertificate(certificate=own, key_file=locked, key_password="x"), "cannot be used"),
        (
            ServerCertificate(
                certificate=own,
                key_file=certificates.server.key,
                client_auth=ClientAuth.require,
                ca_file=tmp_path / "none",
            ),
            r"tls\.server\.trustCertPath=.*cannot be read",
        ),
    ):
        with pytest.raises(BadTls, match=sentence):
            certificate.context()
    assert ServerCertificate(certificate=own, key_file=locked, key_password=PASSWORD).context()
    assert PASSWORD not in repr(ServerCertificate(certificate=own, key_password=PASSWORD))


def test_the_least_version_and_no_renegotiation(certificates: Certificates) -> None:
    context = tls_of(certificates).files.present
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
