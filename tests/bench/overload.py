"""A busy broker: bursts that it works off, a machine that holds it up, and a load that it cannot take.

Run: ``python -m tests.bench.overload [seconds] [times]`` (20 s at 10 times what the broker can do). Each send has a
property that the broker's native step leaves to Python, so that one other process can offer so much. Owns the load of
fixed rate (``Load``), whose frames are made beforehand, and the duty cycle that stops a process again and again
(``held_up``). The time of an answer counts from the moment when the socket took the send; what it does not take is not
offered. On a machine that others use as well, the share of the broker's CPU time tells more than that of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import struct
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from eruca.client import Message, Producer
from eruca.client.errors import ClientError
from tests.bench.command_line import numbers
from tests.bench.flood import Place, frame, quantiles
from tests.bench.restart import LARGE_FILES
from tests.support.lone import LoneBroker
from tests.support.processes import Process

CALIBRATION = 2.0
"""Seconds in which the broker shows what it can do."""
STEP = 0.005
"""Seconds between two writes of a load."""
FRAMES = 40_000
"""Frames of a connection, by turns; more are never under way."""
PLACES = [("TBW102", queue) for queue in range(8)]
"""Queues of a topic that every broker has."""


def costly(place: Place, number: int) -> bytes:
    """The frame of a send that Python handles."""
    plain = frame(place, number, bytes(128), 8)
    head = plain[8:-128].replace(b"TAGS", b"DELAY\\u00010\\u0002TAGS")
    return struct.pack(">ii", 4 + len(head) + 128, len(head)) + head + plain[-128:]


@dataclass
class Figures:
    """What became of a load; times in ms."""

    offered: int = 0
    took: list[float] = field(default_factory=list)
    """The times of the sends that were accepted, in the order of their answers."""
    refused: int = 0
    memory: int = 0
    """The most resident memory, without files, in bytes."""


class Load(asyncio.Protocol):
    """One connection with a fixed rate of sends."""

    def __init__(self, figures: Figures, number: int) -> None:
        self._figures = figures
        self._frames = [costly(PLACES[each % 8], each) for each in range(FRAMES)]
        self._sent = [0.0] * FRAMES
        self._next = number
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=0)
        self._transport = transport

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True

    def offer(self, count: int) -> None:
        """Send so many now, unless the socket takes nothing."""
        if not self.writable or self._transport is None:
            return
        begin, now = self._next, time.monotonic()
        numbers_ = [(begin + each) % FRAMES for each in range(count)]
        for number in numbers_:
            self._sent[number] = now
        self._next = (begin + count) % FRAMES
        self._figures.offered += count
        self._transport.write(b"".join([self._frames[number] for number in numbers_]))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        now, figures, at = time.monotonic(), self._figures, 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            head = data[at:end]
            if b'"code":0' in head:
                opaque = head.index(b'"opaque":') + 9
                number = int(head[opaque : opaque + 9].partition(b",")[0].partition(b"}")[0])
                figures.took.append((now - self._sent[number]) * 1000)
            else:
                figures.refused += 1
            at = end
        self._rest = data[at:]

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _same(load: Load) -> Load:
    return load


async def _connected(figures: Figures, address: str, connections: int) -> list[Load]:
    host, _, port = address.rpartition(":")
    loads = [Load(figures, number * 1000) for number in range(connections)]
    for load in loads:
        await asyncio.get_running_loop().create_connection(partial(_same, load), host, int(port))
    return loads


def _close(loads: list[Load]) -> None:
    for load in loads:
        load.close()


async def capacity(address: str, seconds: float) -> float:
    """Such sends a second that a broker answers when it is kept busy, but never late."""
    figures, under_way = Figures(), 256
    (load,) = loads = await _connected(figures, address, 1)
    sent = answered = 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        answered = len(figures.took) + figures.refused
        load.offer(under_way - (sent - answered))
        sent = figures.offered
        await asyncio.sleep(0)
    _close(loads)
    return len(figures.took) / seconds


async def offer(broker: Process, address: str, per_second: float, seconds: float, connections: int = 4) -> Figures:
    """Offer a load of fixed rate."""
    figures = Figures()
    loads = await _connected(figures, address, connections)
    began = last = time.monotonic()
    due = 0.0
    while (now := time.monotonic()) - began < seconds:
        due += (now - last) * per_second / connections
        last = now
        for load in loads:
            load.offer(int(due))
        due -= int(due)
        figures.memory = max(figures.memory, broker.memory()["anonymous"])
        await asyncio.sleep(STEP)
    await asyncio.sleep(1.0)
    _close(loads)
    return figures


@contextlib.asynccontextmanager
async def held_up(process: Process, running: float, stopped: float) -> AsyncIterator[None]:
    """A process that runs and is stopped by turns, for so many seconds each."""

    async def turns() -> None:
        while True:
            process.signal(signal.SIGSTOP)
            await asyncio.sleep(stopped)
            process.signal(signal.SIGCONT)
            await asyncio.sleep(running)

    task = asyncio.create_task(turns())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        process.signal(signal.SIGCONT)


async def burst(nameserver: str, topic: str, count: int, *, timeout: float = 3.0) -> tuple[list[ClientError], float]:
    """So many sends in one turn of the loop, with Chinese keys and bodies: the errors, and the seconds of all."""
    async with Producer("burst", nameserver=nameserver, send_timeout=timeout) as producer:
        began = time.monotonic()
        sends = [
            producer.start_send(Message(topic, f"订单 {number}".encode(), keys=f"键{number}", tags="付款"))
            for number in range(count)
        ]
        results = await asyncio.gather(*sends, return_exceptions=True)
    return [each for each in results if isinstance(each, ClientError)], time.monotonic() - began


async def main(seconds: float, times: float) -> None:
    """Print the figures of a load that is too much."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**LARGE_FILES, "brokerFastFailureEnable": "true"}
        broker = await LoneBroker.start(Path(folder), Path(folder) / "store", settings)
        try:
            began = broker.cpu_seconds()
            rate = await capacity(broker.address, CALIBRATION)
            busy = broker.cpu_seconds()
            before = broker.memory()["anonymous"]
            print(f"The broker can do {rate:,.0f} sends a second.")
            figures = await offer(broker, broker.address, times * rate, seconds)
            cost, later = (busy - began) / (rate * CALIBRATION), (broker.cpu_seconds() - busy) / len(figures.took)
        finally:
            broker.stop()
    took = figures.took
    print(f"Offered: {figures.offered / seconds:,.0f} a second; accepted {len(took) / seconds:,.0f}, refused ", end="")
    print(f"{figures.refused / seconds:,.0f}. Memory: {before >> 20} MiB before, {figures.memory >> 20} MiB at most.")
    print(f"CPU of the broker for each accepted send: {cost * 1e6:.0f} us before, then {later * 1e6:.0f} us ", end="")
    print(f"with those that it refuses: {cost / later:.0%} of what its CPU time could do was accepted.")
    print(f"Accepted, ms (median / 99 % / worst): {quantiles(took)}; after the first 20 %: ", end="")
    print(quantiles(took[len(took) // 5 :]))


if __name__ == "__main__":
    asyncio.run(main(*numbers(__doc__, seconds=20.0, times=10.0)))
