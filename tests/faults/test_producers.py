"""What a producer makes of brokers that are killed, stand still or are slow, and of a nameserver that is away.

Real processes: two brokers with the same topic, and several senders that each wait for their answer before they go on.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from types import SimpleNamespace, TracebackType
from typing import NamedTuple, Self

import pytest

from eruca.client import ClientSettings, Message, Producer, PullConsumer
from eruca.client.errors import CallTimeout, ClientError, NameserverUnreachable
from tests.support import raw
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.lone import LoneBroker
from tests.support.proxy import Proxy
from tests.support.scripted import Scripted

pytestmark = pytest.mark.processes

TOPIC = "Traffic"
SENDERS = 4


class Try(NamedTuple):
    """One send: when it began and ended (``time.monotonic``), and the broker that has it, or the error."""

    body: bytes
    begin: float
    end: float
    broker: str
    error: ClientError | None


class Traffic:
    """Senders that go on until the end of the ``async with``."""

    def __init__(self, producer: Producer) -> None:
        self.tries: list[Try] = []
        self._producer = producer
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(SENDERS)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def failed(self) -> list[Try]:
        return [each for each in self.tries if each.error is not None]

    @property
    def stored(self) -> list[Try]:
        return [each for each in self.tries if each.error is None]

    def since(self, moment: float) -> list[Try]:
        """Those that began then or later."""
        return [each for each in self.tries if each.begin >= moment]

    async def more(self, count: int, broker: str = "", within: float = 60.0) -> None:
        """Wait until so many more were stored, by that broker if one is named."""

        def stored() -> int:
            return sum(1 for each in self.stored if broker in ("", each.broker))

        end = stored() + count
        async with asyncio.timeout(within):
            while stored() < end:
                self._news.clear()
                await self._news.wait()

    async def _send(self, sender: int) -> None:
        number = 0
        while True:
            body, begin = b"%d/%d" % (sender, number), time.monotonic()
            broker, failure = "", None
            try:
                broker = (await self._producer.send(Message(TOPIC, body))).queue.broker_name
            except ClientError as error:
                failure = error
            self.tries.append(Try(body, begin, time.monotonic(), broker, failure))
            self._news.set()
            number += 1


class Two:
    """A nameserver and two brokers; what a broker stored is there again when it is started again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.names = self._make_names()
        self.settings = ClientSettings(nameserver=self.names.address, route_interval=0.5)
        self.brokers = {name: self._make(name) for name in ("a", "b")}
        fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        for broker in self.brokers.values():
            assert raw.ask(broker.address, 17, fields)[0]["code"] == 0

    def _make_names(self) -> ErucaNameServer | ApacheNameServer:
        return ErucaNameServer(self._home)

    def _make(self, name: str) -> ErucaBroker | ApacheBroker:
        return ErucaBroker(self._home / name, self.names.address, {"brokerName": f"broker-{name}"})

    def kill(self, name: str) -> None:
        self.brokers.pop(name).process.kill()

    async def start(self, name: str) -> None:
        self.brokers[name] = await asyncio.to_thread(self._make, name)

    async def bodies(self) -> Counter[bytes]:
        """What both brokers have of the topic."""
        found: Counter[bytes] = Counter()
        async with PullConsumer(nameserver=self.names.address) as puller:
            for queue in await puller.fetch_queues(TOPIC):
                offset, end = await puller.min_offset(queue), await puller.max_offset(queue)
                while offset < end:
                    pulled = await puller.pull(queue, offset)
                    found.update(record.body for record in pulled.records)
                    offset = pulled.next_offset
        return found

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.process.signal(signal.SIGCONT)
            broker.process.kill()
        self.names.process.kill()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    two = await asyncio.to_thread(Two, tmp_path)
    yield two
    two.close()


async def test_of_two_brokers_one_is_killed_and_no_send_fails(two: Two) -> None:
    async with Producer("p", settings=two.settings) as producer, Traffic(producer) as traffic:
        await traffic.more(100)
        for name, other in (("a", "b"), ("b", "a")):
            two.kill(name)
            await traffic.more(100, f"broker-{other}")
            await two.start(name)
            await traffic.more(20, f"broker-{name}")
    assert traffic.failed == []
    found = await two.bodies()
    assert set(found) >= {each.body for each in traffic.stored}


async def test_a_broker_that_stands_still_costs_each_sender_one_time_out(two: Two) -> None:
    producer = Producer("p", settings=two.settings, fault_tolerance=True, send_timeout=2.0)
    async with producer, Traffic(producer) as traffic:
        await traffic.more(50, "broker-a")
        two.brokers["a"].process.signal(signal.SIGSTOP)
        async with asyncio.timeout(30):
            while not traffic.failed:
                await traffic.more(1)
        first = traffic.failed[0]
        while not traffic.since(first.end + 1.0):
            await traffic.more(100)
        await traffic.more(100)
    later = traffic.since(first.end + 1.0)
    assert len(later) >= 50
    assert {each.broker for each in later} == {"broker-b"}
    assert median(each.end - each.begin for each in later) < 0.5
    assert 1 <= len(traffic.failed) <= SENDERS
    assert {type(each.error) for each in traffic.failed} == {CallTimeout}


async def test_without_a_nameserver_what_is_known_is_enough(two: Two) -> None:
    async with Producer("p", settings=two.settings) as producer, Traffic(producer) as traffic:
        await traffic.more(50)
        two.names.process.kill()
        await traffic.more(100)
        two.kill("a")  # and now nobody can tell that it is gone
        await traffic.more(100, "broker-b")
        with pytest.raises(NameserverUnreachable, match=f"None of the nameservers {two.names.address} answered"):
            await producer.send(Message("Unknown", b"x"))
    assert traffic.failed == []


async def test_a_slow_broker_is_passed_over(tmp_path: Path) -> None:
    brokers = [LoneBroker(tmp_path / name, tmp_path / name / "store", {"brokerName": name}) for name in ("a", "b")]
    proxies = [await Proxy(broker.address).start() for broker in brokers]
    slow = proxies[0]
    try:
        async with Scripted("names") as names:
            reached = [
                SimpleNamespace(name=name, address=proxy.address) for name, proxy in zip("ab", proxies, strict=True)
            ]
            names.knows("TBW102", *reached, queues=4, perm=7)  # type: ignore[arg-type]
            async with Producer("p", nameserver=names.address, fault_tolerance=True) as producer:
                async with Traffic(producer) as traffic:
                    await traffic.more(50, "a")
                    slow.delay = 0.7
                    await traffic.more(1, "a")
                    await traffic.more(200)
                since = [each for each in traffic.stored if each.end - each.begin >= 0.55]
                late = traffic.since(max(each.end for each in since))
    finally:
        for proxy in proxies:
            await proxy.stop()
        for broker in brokers:
            broker.kill()
    assert traffic.failed == []
    assert {each.broker for each in since} == {"a"} and len(since) <= 2 * SENDERS
    assert len(late) >= 50 and {each.broker for each in late} == {"b"}
