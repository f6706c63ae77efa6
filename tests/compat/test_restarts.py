"""Python's clients while Apache's nameserver and broker are killed and started again; the broker's address is IPv6.

The address is a part of the ids of messages: 16 bytes of it make ids of 56 digits.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eruca.client import ClientSettings, Message, Producer, PullConsumer, PushConsumer, ReceivedMessage
from eruca.client.errors import ClientError
from tests.compat.clients import JavaClients, Letter, Sent
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.java import Judge
from tests.support.programme import LONG, WHY

BROKER = {"brokerIP1": "::1"}
OPTIONS = ("-Djava.net.preferIPv4Stack=false",)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


class Parts:
    """A nameserver, which keeps its port, and a broker, which keeps its disk and gets another port."""

    def __init__(self, release: str, home: Path) -> None:
        self.release = release
        self._home = home
        self.names = ApacheNameServer(release, home / "names")
        self.broker = self._broker()

    def _broker(self) -> ApacheBroker:
        return ApacheBroker(self.release, self._home / "broker", self.names.address, BROKER, options=OPTIONS)

    def start_names(self) -> None:
        self.names = ApacheNameServer(self.release, self._home / "names", port=self.names.port)

    def start_broker(self) -> None:
        self.broker = self._broker()

    def end(self) -> None:
        self.broker.process.kill()
        self.names.process.kill()


class Sending:
    """Messages to T, one after the other; what was stored, and what was said to the others."""

    def __init__(self) -> None:
        self.ids: dict[bytes, str] = {}
        self.errors: list[ClientError] = []

    @asynccontextmanager
    async def by(self, producer: Producer) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run(producer))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _run(self, producer: Producer) -> None:
        for number in range(1_000_000):
            try:
                sent = await producer.send(Message("T", b"%d" % number, keys="k"))
                self.ids[b"%d" % number] = sent.offset_message_id
            except ClientError as error:
                self.errors.append(error)
            await asyncio.sleep(0.005)

    async def more(self, count: int) -> None:
        end = len(self.ids) + count
        await until(lambda: len(self.ids) >= end)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("release", ["4.9.7", pytest.param("5.3.3", marks=pytest.mark.skipif(not LONG, reason=WHY))])
async def test_every_part_may_be_killed_and_come_back(release: str, tmp_path: Path) -> None:
    parts = await asyncio.to_thread(Parts, release, tmp_path)
    settings = ClientSettings(nameserver=parts.names.address, route_interval=0.3)
    sending, seen = Sending(), set[bytes]()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message.body)

    try:
        producer = Producer("p", settings=settings, send_timeout=10.0)
        async with producer, PushConsumer("g", listener, settings=settings, start_from="first").subscribe("T"):
            async with sending.by(producer):
                await sending.more(50)
                parts.names.process.kill()
                await sending.more(50)
                assert sending.errors == []  # what is known is enough
                await asyncio.to_thread(parts.start_names)
                await sending.more(50)
                assert sending.errors == []

                parts.broker.process.kill()
                await until(lambda: len(sending.errors) > 3)
                await asyncio.to_thread(parts.start_broker)
                await sending.more(50)
            await until(lambda: seen >= sending.ids.keys())
        assert all(error.retriable for error in sending.errors)

        assert {len(each) for each in sending.ids.values()} == {56}
        body = list(sending.ids)[-1]
        found = await view(settings, sending.ids[body])
        assert (found.body, found.offset_message_id) == (body, sending.ids[body])
        assert found.record.store_host[:16] == socket.inet_pton(socket.AF_INET6, "::1")
        by_java = await asyncio.to_thread(java_and_the_ids, parts, tmp_path, sending.ids[body])
        found = await view(settings, by_java.offset_message_id)
        assert (found.body, found.offset_message_id) == (b"Java's", by_java.offset_message_id)
    finally:
        parts.end()


async def view(settings: ClientSettings, message_id: str) -> ReceivedMessage:
    async with PullConsumer(settings=settings) as puller:
        return await puller.view_message(message_id)


def java_and_the_ids(parts: Parts, home: Path, message_id: str) -> Sent:
    """Java reads where that message lies, asks there, and makes the id again from the record; and sends one itself."""
    with (
        Judge(parts.release, home, options=OPTIONS) as java,
        JavaClients(java).producer("by-java", parts.names.address) as producer,
    ):
        where = () if parts.release.startswith("4") else ("-t", "T")
        done = java.call("admin", line=["queryMsgById", "-n", parts.names.address, *where, "-i", message_id])
        assert re.search(rf"OffsetID: +{message_id}\n", done["stdout"]), done
        return producer.send([Letter("T", b"Java's")])[0]
