"""etcd in trouble: members killed, stopped, cut off, without a leader, by TLS, and what is no etcd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from eruca.broker.coordination.etcd import WATCHED, Etcd
from eruca.broker.coordination.port import ABSENT, Entry, Put, Unavailable
from eruca.broker.coordination.trust import ControllerTls
from tests.broker.services.replication.pairs import until
from tests.support.certificates import Certificates
from tests.support.desk import Desk
from tests.support.etcd import EtcdCluster, cluster, needs_etcd
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch

pytestmark = [needs_etcd, pytest.mark.processes]


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    with await cluster(tmp_path) as found:
        yield found


@pytest.fixture
async def etcd(members: EtcdCluster) -> AsyncIterator[Etcd]:
    etcd = Etcd(members.urls)
    yield etcd
    await etcd.close()


async def answered(ask: Callable[[], Awaitable[Entry | None]], within: float = 10.0) -> float:
    """Ask until there is an answer; the seconds that took."""
    with Stopwatch() as watch:
        while True:
            try:
                await ask()
            except Unavailable:
                assert watch.seconds < within
            else:
                return watch.seconds


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "stopped"])
async def test_without_its_leader_etcd_answers_again_within_seconds_and_holds_survive(
    members: EtcdCluster, etcd: Etcd, fault: str
) -> None:
    leader = await asyncio.to_thread(members.leader)
    first = await etcd.change({"/k": ABSENT}, [Put("/k", b"1")])
    hold = await etcd.hold(8)
    held = await etcd.change({"/held": ABSENT}, [Put("/held", b"", hold)])
    watch = etcd.watch("/")
    await anext(watch)
    members.kill(leader) if fault == "killed" else members.pause(leader)
    try:
        assert await answered(lambda: etcd.read("/k")) < 8
        await etcd.renew(hold)
        assert await etcd.read("/k") == (b"1", first) and await etcd.read("/held") == (b"", held)
        while True:  # a change that is not answered at once may have been made
            try:
                found = await etcd.read("/k")
                assert found is not None
                if found.value == b"2" or await etcd.change({"/k": found.revision}, [Put("/k", b"2")]):
                    break
            except Unavailable:
                continue
        async with asyncio.timeout(8):
            await anext(watch)
    finally:
        members.go_on(leader)


@pytest.mark.slow
async def test_a_member_that_is_cut_off_answers_no_read_and_renews_no_hold_for_long(
    members: EtcdCluster, etcd: Etcd
) -> None:
    """It still has the data, and what it says may be old."""
    await etcd.change({"/k": ABSENT}, [Put("/k", b"1")])
    alone = Etcd(members.urls[:1])
    try:
        assert await alone.read("/k") is not None
        members.pause(1)
        members.pause(2)
        with pytest.raises(Unavailable, match=r"no answer within 0\.8 s|leader|timed out"):
            await alone.read("/k")
        with pytest.raises(Unavailable):
            await alone.change({}, [Put("/k", b"2")])
        watch = alone.watch("/")
        back = asyncio.ensure_future(anext(watch))
        done, _ = await asyncio.wait([back], timeout=1.5)
        assert not done, "a watch has no turn from a member without a leader"
        members.go_on(1)
        members.go_on(2)
        async with asyncio.timeout(8):
            await back
    finally:
        await alone.close()


async def test_a_connection_that_carries_nothing_any_more_costs_one_attempt(members: EtcdCluster) -> None:
    proxy = await Proxy(members.addresses[0]).start()
    etcd = Etcd([f"http://{proxy.address}", members.urls[1]])
    try:
        await etcd.read("/k")
        proxy.mute()
        begun = time.monotonic()
        with Stopwatch() as watch:
            await etcd.read("/k")
        assert time.monotonic() - begun > 0.7 and watch.seconds < 3
        with Stopwatch() as watch:
            await etcd.read("/k")
        assert watch.seconds < 0.7, "the endpoint that answers is asked first from then on"
    finally:
        await etcd.close()
        await proxy.stop()


async def test_a_watch_leaves_a_member_that_hangs_when_a_request_gets_no_answer_there(members: EtcdCluster) -> None:
    """A broker renews its hold each second, so it is blind for about two, and not until the watch begins again."""
    proxy = await Proxy(members.addresses[0]).start()
    etcd = Etcd([f"http://{proxy.address}", members.urls[1]])
    try:
        hold = await etcd.hold(8)
        watch = etcd.watch("/")
        await anext(watch)
        proxy.mute()
        begun = time.monotonic()
        with Stopwatch() as stopwatch:
            await etcd.renew(hold)
            await anext(watch)
        assert time.monotonic() - begun > 0.7 and stopwatch.seconds < WATCHED / 2
        turn = asyncio.ensure_future(anext(watch))
        await etcd.change({"/k": ABSENT}, [Put("/k", b"1")])
        async with asyncio.timeout(8):
            await turn
    finally:
        await etcd.close()
        await proxy.stop()


async def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "tls")
    files = ("--cert-file", str(made.server.certificate), "--key-file", str(made.server.key))
    asked = ("--client-cert-auth", "--trusted-ca-file", str(made.ca_file))
    with await asyncio.to_thread(EtcdCluster, tmp_path, 1, (*files, *asked), "https") as members:
        ours, authority = str(made.client.certificate), str(made.ca_file)
        trust = ControllerTls(
            controller_trust_cert_path=authority, controller_cert_path=ours, controller_key_path=str(made.client.key)
        )
        etcd = Etcd(members.urls, trust.files())
        unknown = Etcd(members.urls, ControllerTls(controller_trust_cert_path=authority).files())
        stranger = Etcd(members.urls)
        try:
            assert await etcd.change({"/k": ABSENT}, [Put("/k", b"1")]) is not None
            assert await etcd.read("/k") is not None
            with pytest.raises(Unavailable, match="name the CA that signed it in controllerTrustCertPath"):
                await stranger.read("/k")
            with pytest.raises(Unavailable, match="name one in controllerCertPath and controllerKeyPath"):
                await unknown.read("/k")
            watch = etcd.watch("/")
            await anext(watch)
            turn = asyncio.ensure_future(anext(watch))
            await etcd.change({}, [Put("/k", b"2")])
            async with asyncio.timeout(8):
                await turn
        finally:
            await unknown.close()
            await etcd.close()
            await stranger.close()


async def test_a_broker_joins_its_group_by_tls(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "tls")
    files = ("--cert-file", str(made.server.certificate), "--key-file", str(made.server.key))
    asked = ("--client-cert-auth", "--trusted-ca-file", str(made.ca_file))
    with await asyncio.to_thread(EtcdCluster, tmp_path, 1, (*files, *asked), "https") as members:
        desk = Desk(tmp_path / "broker")
        desk.config.enable_controller_mode = True
        desk.config.broker_id = 1
        desk.config.controller_addr = members.urls[0]
        desk.config.controller_tls = ControllerTls(
            controller_trust_cert_path=str(made.ca_file),
            controller_cert_path=str(made.client.certificate),
            controller_key_path=str(made.client.key),
        )
        async with desk:
            await until(lambda: desk.broker.accepting)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found", "is this etcd, 3.4 or newer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "its answer cannot be read"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{}", "no whole answer came"),
        (b"220 smtp.example ready\r\n", "no whole answer came"),
        (b"", "it closed the connection|no whole answer came"),
    ],
)
async def test_what_is_no_etcd_is_said(answer: bytes, says: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        etcd = Etcd([f"http://127.0.0.1:{port}"])
        with pytest.raises(Unavailable, match=says):
            await etcd.read("/k")
        await etcd.close()


@pytest.mark.parametrize(
    "url", ["10.0.0.1:2379", "ftp://h:1", "http://h", "http://:2379", "http://h:2379/v3", "http://h:x"]
)
def test_an_endpoint_that_is_none_is_said(url: str) -> None:
    with pytest.raises(ValueError, match="is no address of an etcd member: write http://host:2379"):
        Etcd([url])


def test_etcd_needs_an_endpoint() -> None:
    with pytest.raises(ValueError, match="name at least one"):
        Etcd([])
