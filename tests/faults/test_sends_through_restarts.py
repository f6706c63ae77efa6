"""A steady producer of every kind of send, while its brokers are killed, or stopped in order, and started again.

Real processes. No send may fail whose time is longer than the restart, and each ends soon after the broker is there.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from eruca.client import ClientSettings, Hook, Message, TransactionProducer, TransactionState
from eruca.client.selectors import by_hash
from tests.support import raw
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.processes import Process

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SOON = 2.5
"""Seconds after which a send ends when its broker is there again, on a busy machine, too."""
NAMESPACE = "INST"


class Server(Protocol):
    process: Process
    address: str


class Brokers:
    """Brokers by name, each of which keeps its port."""

    def __init__(self, names: Server, make: Callable[[str, int], Server], *brokers: str) -> None:
        self.names = names
        self._make = make
        self._ports: dict[str, int] = {}
        self.running: dict[str, Server] = {}
        for name in brokers:
            self._start(name)
            fields = {"topic": f"{NAMESPACE}%T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4"}
            fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
            assert raw.ask(self.running[name].address, 17, fields)[0]["code"] == 0

    def _start(self, name: str) -> None:
        broker = self.running[name] = self._make(name, self._ports.get(name, 0))
        self._ports[name] = int(broker.address.rpartition(":")[2])

    async def restart(self, name: str, number: signal.Signals, least: float) -> float:
        """End a broker by a signal and start it again; for how many seconds it was away, ``least`` or more."""

        def run() -> float:
            process, began = self.running.pop(name).process, time.monotonic()
            process.signal(number)
            process.wait()
            time.sleep(max(0.0, began + least - time.monotonic()))
            self._start(name)
            return time.monotonic() - began

        return await asyncio.to_thread(run)

    def close(self) -> None:
        for broker in self.running.values():
            broker.process.kill()
        self.names.process.kill()


class Steady:
    """Senders of each kind, which go on without a pause until the end of the ``async with``."""

    def __init__(self, producer: TransactionProducer) -> None:
        self.longest = 0.0
        self.counts: dict[str, int] = {}
        self.errors: list[Exception] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._kinds: dict[str, Callable[[bytes], Awaitable[Any]]] = {
            "plain": lambda body: producer.send(Message("T", body)),
            "ordered": lambda body: producer.send(Message("T", body), selector=by_hash, arg="order-7"),
            "batch": lambda body: producer.send_batch([Message("T", body), Message("T", body)]),
            "delayed": lambda body: producer.send(Message("T", body, delay=60)),
            "compressed": lambda body: producer.send(Message("T", body * 5000)),
            "half": lambda body: producer.send_in_transaction(Message("T", body), _commit),
        }

    async def __aenter__(self) -> Steady:
        self._tasks = [asyncio.create_task(self._send(kind)) for kind in self._kinds]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def more(self) -> None:
        """Wait until each kind was sent some more times."""
        ends = {kind: self.counts.get(kind, 0) + 5 for kind in self._kinds}
        async with asyncio.timeout(60):
            while any(self.counts.get(kind, 0) < end for kind, end in ends.items()):
                self._news.clear()
                await self._news.wait()

    async def _send(self, kind: str) -> None:
        for number in itertools.count():
            began = time.monotonic()
            try:
                await self._kinds[kind](b"%d" % number)
            except Exception as error:
                self.errors.append(error)
            else:
                self.counts[kind] = self.counts.get(kind, 0) + 1
            self._news.set()
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0.002)


async def _commit(message: Message, transaction_id: str) -> TransactionState:
    return TransactionState.COMMIT


class Count(Hook):
    """Sees every send."""

    def __init__(self) -> None:
        self.failed = 0

    def after_send(self, context: Any) -> None:
        self.failed += context.error is not None


@pytest.fixture
async def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Brokers]:
    names = ErucaNameServer(tmp_path / "names")

    def make(name: str, port: int) -> ErucaBroker:
        properties = {"brokerName": name, "listenPort": str(port)}
        return ErucaBroker(tmp_path / name, names.address, properties)

    found = await asyncio.to_thread(Brokers, names, make, *request.param)
    yield found
    found.close()


async def none_fails(brokers: Brokers, *ends: tuple[str, signal.Signals], least: float) -> None:
    """Brokers are ended, each in this way, and are away for ``least`` seconds or more."""
    settings, hook = ClientSettings(nameserver=brokers.names.address, namespace=NAMESPACE), Count()
    # Longer than a restart takes on a busy machine.
    producer = TransactionProducer("p", lambda message: None, settings=settings, hooks=[hook], send_timeout=60)
    async with producer, Steady(producer) as steady:
        await steady.more()
        for name, number in ends:
            steady.longest = 0.0
            away = await brokers.restart(name, number, least)
            await steady.more()
            assert steady.longest < away + SOON
            assert steady.errors == [] and hook.failed == 0


@pytest.mark.parametrize("brokers", [["broker-a"]], indirect=True, ids=["one"])
async def test_no_send_fails_while_the_only_broker_restarts(brokers: Brokers) -> None:
    await none_fails(brokers, ("broker-a", signal.SIGKILL), ("broker-a", signal.SIGTERM), least=2.0)


@pytest.mark.parametrize("brokers", [["broker-a", "broker-b"]], indirect=True, ids=["two"])
async def test_no_send_fails_while_one_of_two_brokers_restarts(brokers: Brokers) -> None:
    await none_fails(brokers, ("broker-a", signal.SIGKILL), ("broker-b", signal.SIGTERM), least=0.5)
