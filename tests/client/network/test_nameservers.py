"""Finding nameservers: names with several addresses, lists that change, and a list that is fetched."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from eruca.client import ClientSettings, Message, Producer, PullConsumer
from eruca.client.errors import BadConfig, NameserverUnreachable, TopicNotFound
from eruca.client.network.nameservers import Nameservers
from eruca.protocol import api
from eruca.remoting import Call, Channels, ConnectionLost, Reply, Router, Routes
from eruca.remoting.server import Server
from tests.client.conftest import Lab, eventually
from tests.support.ports import free_port

routes: Routes[str] = Routes()
NAME = "mq.example"


@routes.on(api.GET_BROKER_CLUSTER_INFO)
def tell_name(name: str, call: Call[Any]) -> Reply:
    return Reply(body=name.encode())


@contextlib.asynccontextmanager
async def nameserver(host: str, port: int) -> AsyncIterator[Server]:
    """One that answers with its own address."""
    server = Server(Router(host, [routes]))
    await server.start(host, port)
    try:
        yield server
    finally:
        await server.stop(0.0)


async def who_answers(nameservers: Nameservers) -> str:
    return (await nameservers.call(api.GET_BROKER_CLUSTER_INFO)).body.decode()


class Names:
    """What a name stands for now; None: the resolver does not know."""

    def __init__(self) -> None:
        self.hosts: list[str] | None = []


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    known = Names()
    system = asyncio.get_running_loop().getaddrinfo

    async def resolve(host: str, port: int, **asked: Any) -> list[Any]:
        if host != NAME:  # what a server listens at
            return await system(host, port, **asked)
        if known.hosts is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in known.hosts]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    return known


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    made = Channels(offer=False)
    yield made
    await made.close()


async def test_a_name_stands_for_all_its_addresses(names: Names, channels: Channels) -> None:
    port = free_port()
    names.hosts = ["127.0.0.1", "127.0.0.2"]
    asked = Nameservers([f"{NAME}:{port}"], channels, timeout=3)
    assert asked.addresses == [f"{NAME}:{port}"]
    async with nameserver("127.0.0.2", port):  # nobody is at the other one
        assert await who_answers(asked) == "127.0.0.2"
        assert asked.addresses == [f"127.0.0.2:{port}", f"127.0.0.1:{port}"], "who answered is asked first again"


async def test_an_address_that_is_gone_is_not_asked_any_more(names: Names, channels: Channels) -> None:
    port = free_port()
    names.hosts = ["127.0.0.1"]
    asked = Nameservers([f"{NAME}:{port}"], channels, timeout=3)
    async with nameserver("127.0.0.1", port) as old, nameserver("127.0.0.2", port):
        assert await who_answers(asked) == "127.0.0.1"
        names.hosts = ["127.0.0.2"]
        await asked.refresh()
        assert await who_answers(asked) == "127.0.0.2", "though the old one still runs"
        await eventually(lambda: not old.connections)
        assert asked.addresses == [f"127.0.0.2:{port}"]


async def test_one_in_use_stays_when_others_join(names: Names, channels: Channels) -> None:
    port = free_port()
    names.hosts = ["127.0.0.2"]
    asked = Nameservers([f"{NAME}:{port}"], channels, timeout=3)
    async with nameserver("127.0.0.1", port), nameserver("127.0.0.2", port):
        assert await who_answers(asked) == "127.0.0.2"
        names.hosts = ["127.0.0.1", "127.0.0.2"]
        await asked.refresh()
        assert asked.addresses == [f"127.0.0.2:{port}", f"127.0.0.1:{port}"]
        assert await who_answers(asked) == "127.0.0.2"


async def test_when_nobody_answers_the_name_is_looked_up_at_once(names: Names, channels: Channels) -> None:
    port = free_port()
    names.hosts = ["127.0.0.1"]
    asked = Nameservers([f"{NAME}:{port}"], channels, timeout=3)
    async with nameserver("127.0.0.1", port):
        assert await who_answers(asked) == "127.0.0.1"
    names.hosts = ["127.0.0.2"]
    async with nameserver("127.0.0.2", port):
        assert await who_answers(asked) == "127.0.0.2"


async def test_a_resolver_that_fails_leaves_the_list_as_it_was(names: Names, channels: Channels) -> None:
    port = free_port()
    names.hosts = ["127.0.0.1"]
    asked = Nameservers([f"{NAME}:{port}"], channels, timeout=3)
    async with nameserver("127.0.0.1", port):
        assert await who_answers(asked) == "127.0.0.1"
        names.hosts = None
        await asked.refresh()
        assert await who_answers(asked) == "127.0.0.1"


async def test_a_name_that_nobody_knows(names: Names, channels: Channels) -> None:
    names.hosts = None
    asked = Nameservers([f"{NAME}:9876"], channels, timeout=3)
    with pytest.raises(NameserverUnreachable, match=rf"{NAME}:9876 answered: the name {NAME} cannot be resolved"):
        await who_answers(asked)


@pytest.mark.parametrize("name", ["mq..example", "x" * 64 + ".example"])
async def test_a_name_that_is_none(channels: Channels, name: str) -> None:
    with pytest.raises(NameserverUnreachable, match=r"cannot be resolved \(it is no legal name\)"):
        await who_answers(Nameservers([f"{name}:9876"], channels, timeout=3))


async def test_one_that_hangs_is_not_waited_for(channels: Channels) -> None:
    """It accepts connections and never says a word, and is the one in use."""
    with socket.create_server(("127.0.0.1", 0)) as hung:
        first = f"127.0.0.1:{hung.getsockname()[1]}"
        asked = Nameservers([first], channels, timeout=3)
        await asked.refresh()
        async with nameserver("127.0.0.1", port := free_port()):
            await asked.replace([first, f"127.0.0.1:{port}"])
            assert asked.addresses[0] == first
            async with asyncio.timeout(2.5):
                assert await who_answers(asked) == "127.0.0.1"
            assert asked.addresses == [f"127.0.0.1:{port}", first]


async def test_one_that_hesitates_is_heard_when_the_next_says_nothing(channels: Channels) -> None:
    slow, quiet, next_asked = Routes[str](), Routes[str](), asyncio.Event()

    @slow.on(api.GET_BROKER_CLUSTER_INFO)
    async def tell_late(name: str, call: Call[Any]) -> Reply:
        await next_asked.wait()
        return Reply(body=name.encode())

    @quiet.on(api.GET_BROKER_CLUSTER_INFO)
    async def tell_nothing(name: str, call: Call[Any]) -> Reply:
        next_asked.set()
        await asyncio.Event().wait()
        return Reply()

    first, second = Server(Router("slow", [slow])), Server(Router("quiet", [quiet]))
    for server in (first, second):
        await server.start("127.0.0.1", 0)
    asked = Nameservers([f"127.0.0.1:{first.port}"], channels, timeout=3)
    await asked.refresh()
    await asked.replace([f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}"])
    assert await who_answers(asked) == "slow"
    for server in (first, second):
        await server.stop(0.0)


async def test_a_question_that_nobody_waits_for_any_more_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """As when a client leaves: its question is given up, and its connection ends."""

    class Ending(Channels):
        async def call(self, *_: Any, **__: Any) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise ConnectionLost("127.0.0.1:1", "it was closed")

    begun = asyncio.Event()
    asked = asyncio.ensure_future(who_answers(Nameservers(["127.0.0.1:1"], Ending(), timeout=3)))
    await begun.wait()
    asked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked
    await asyncio.sleep(0)
    gc.collect()
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if not line.startswith("slow_loop")] == [], "a collection may take long"


async def test_unreachable_is_told_from_unknown(lab: Lab) -> None:
    with pytest.raises(TopicNotFound, match=rf"topic: Nowhere\. The nameserver {lab.address} answered, and knows no"):
        await lab.puller.fetch_queues("Nowhere")
    async with PullConsumer(nameserver=f"127.0.0.1:{free_port()}") as puller:
        with pytest.raises(NameserverUnreachable, match="Check that mqnamesrv runs there"):
            await puller.fetch_queues("Nowhere")


async def test_a_broker_is_no_nameserver(lab: Lab) -> None:
    broker = lab.cluster.broker.address
    async with PullConsumer(nameserver=broker) as puller:
        with pytest.raises(NameserverUnreachable, match=f"<{broker}> is no nameserver, but perhaps a broker"):
            await puller.fetch_queues("Nowhere")
    async with PullConsumer(nameserver=[broker, lab.address]) as puller:
        with pytest.raises(TopicNotFound):
            await puller.fetch_queues("Nowhere")


async def test_a_web_server_is_no_nameserver(capfd: pytest.CaptureFixture[str]) -> None:
    """It is told why, and nothing is written to the terminal."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, PullConsumer(nameserver=f"{host}:{port}") as puller:
        with pytest.raises(
            NameserverUnreachable, match=r"what it sent is no frame of RocketMQ's \(a frame of \d+ bytes"
        ):
            await puller.fetch_queues("Nowhere")
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------- a list that is fetched


class Page:
    """A web server with the list; `text` None: it fails."""

    def __init__(self) -> None:
        self.text: str | None = ""
        self.asked: list[str] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.asked.append(self.path)
                self.send_response(500 if page.text is None else 200)
                self.end_headers()
                self.wfile.write((page.text or "").encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/rocketmq/nsaddr"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.close()


async def test_a_list_that_is_fetched(lab: Lab, page: Page) -> None:
    page.text = f"{lab.address};127.0.0.1:{free_port()}\r\nthis line is of no interest\n"
    settings = ClientSettings(nameserver_url=page.url, unit_name="west")
    async with Producer("p", settings=settings) as producer:
        assert (await producer.send(Message("T", b"x"))).queue.topic == "T"
        assert lab.address in producer.session.nameservers.addresses

    assert page.asked == ["/rocketmq/nsaddr-west?nofix=1"]


async def test_a_fetched_list_that_changes(lab: Lab, page: Page) -> None:
    page.text = f"127.0.0.1:{free_port()}"
    settings = ClientSettings(nameserver_url=page.url, nameserver_interval=0.05)
    async with PullConsumer(settings=settings) as puller:
        with pytest.raises(NameserverUnreachable):
            await puller.fetch_queues("T")
        page.text = lab.address
        await lab.send("T", b"x")
        await eventually(lambda: puller.session.nameservers.addresses == [lab.address])
        page.text = None
        looks = len(page.asked)
        await eventually(lambda: len(page.asked) >= looks + 2)
        assert await puller.fetch_queues("T"), "the list that was known is asked on"


@pytest.mark.parametrize(("text", "cause"), [(None, "HTTP Error 500"), ("", "the answer is empty"), ("a:b:c", "a:b:c")])
async def test_a_list_that_cannot_be_fetched(page: Page, text: str | None, cause: str) -> None:
    page.text = text
    async with PullConsumer(settings=ClientSettings(nameserver_url=page.url)) as puller:
        with pytest.raises(NameserverUnreachable, match=rf"could not be had: {page.url} .*{cause}.*nameserver_url"):
            await puller.fetch_queues("T")


def test_what_is_given_comes_before_the_url_and_the_url_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    fetched = ClientSettings(nameserver_url="http://jmenv.example/rocketmq/nsaddr")
    assert ClientSettings.choose(fetched, None).nameserver_list() == ()
    assert ClientSettings.choose(fetched, "given:2").nameserver_list() == ("given:2",)
    assert ClientSettings.choose(fetched, "given:2").list_url() is None
    with pytest.raises(BadConfig, match="an http:// address is expected"):
        ClientSettings(nameserver_url="jmenv.example")
