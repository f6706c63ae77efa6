"""CPU that the Python client spends on a message: sends in several ways, and consumption.

    python -m tests.bench.client_micro [--nameserver HOST:PORT] [--messages N] [--rounds N]

Without --nameserver a nameserver and a broker of Eruca are started for the time of the run. The figure that counts is
microseconds of CPU of this process for one message (user and system), the least of the rounds; the rate depends on
what the broker and everything else on the machine do meanwhile. `floor` is the bare connection: one request and one
answer without a client around it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in ("", "protocol", "remoting", "client"):
    sys.path.insert(0, str(ROOT / folder))

from eruca.client import Message, Producer, PushConsumer, ReceivedMessage  # noqa: E402
from eruca.client.selectors import by_hash  # noqa: E402
from eruca.protocol import api  # noqa: E402
from eruca.protocol.headers.send import SendMessageV2  # noqa: E402
from eruca.remoting import Channels, run  # noqa: E402
from tests.support.eruca import ErucaCluster  # noqa: E402

TOPIC = "ClientMicro"
BODY = b"x" * 128
WINDOW = 512


async def measure(name: str, rounds: int, count: int, work: Callable[[int], Awaitable[object]]) -> None:
    """Print what `work(count)` costs a message."""
    cpu, rate = [], []
    for _ in range(rounds):
        used, began = time.process_time(), time.perf_counter()
        await work(count)
        cpu.append((time.process_time() - used) / count * 1e6)
        rate.append(count / (time.perf_counter() - began))
    print(f"{name:34} {min(cpu):7.2f} {median(cpu):7.2f} {max(cpu):7.2f} us/msg   {max(rate):10,.0f} msg/s", flush=True)


async def bench_sends(nameserver: str, rounds: int, count: int) -> None:
    """Every way of sending."""
    async with Producer("micro", nameserver=nameserver) as producer:
        await producer.send(Message(TOPIC, BODY))
        broker = next(iter((await producer.session.directory.route(TOPIC)).brokers))
        address = await producer.session.directory.master(broker)

        async def floor(count: int) -> None:
            channels = Channels(offer=False)
            connection = await channels.get(address)
            header = SendMessageV2(
                producer_group="micro",
                topic=TOPIC,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties="UNIQ_KEY\x01C00002026C0AABBBF2266952730A0001\x02WAIT\x01true",
            )
            for start in range(0, count, WINDOW):
                calls = [
                    connection.start_call(api.SEND_MESSAGE_V2, header, BODY) for _ in range(min(WINDOW, count - start))
                ]
                for call in calls:
                    await call
            await channels.close()

        async def pipelined(count: int, by: Producer = producer, **chosen: Any) -> None:
            for start in range(0, count, WINDOW):
                sends = [by.start_send(Message(TOPIC, BODY), **chosen) for _ in range(min(WINDOW, count - start))]
                for send in sends:
                    await send

        async def tolerant(count: int) -> None:
            async with Producer("micro-tolerant", nameserver=nameserver, fault_tolerance=True) as other:
                await other.send(Message(TOPIC, BODY))
                await pipelined(count, other)

        async def awaiting(count: int) -> None:
            async def one(share: int) -> None:
                for _ in range(share):
                    await producer.send(Message(TOPIC, BODY))

            await asyncio.gather(*(one(count // 256) for _ in range(256)))

        async def batches(count: int) -> None:
            for _ in range(count // (32 * 16)):
                await asyncio.gather(
                    *(producer.send_batch([Message(TOPIC, BODY) for _ in range(32)]) for _ in range(16))
                )

        async def oneway(count: int) -> None:
            for number in range(count):
                await producer.send_oneway(Message(TOPIC, BODY))
                if not number % WINDOW:
                    await producer.send(Message(TOPIC, BODY))

        await measure("send: floor", rounds, count, floor)
        await measure(f"send: {WINDOW} started, then awaited", rounds, count, pipelined)
        ordered = partial(pipelined, selector=by_hash, arg="order-7")
        await measure("send: the same, ordered by a hash", rounds, count, ordered)
        await measure("send: the same, fault tolerance", rounds, count, tolerant)
        await measure("send: 256 tasks that await each", rounds, count // 256 * 256, awaiting)
        await measure("send: batches of 32", rounds, count // 512 * 512, batches)
        await measure("send: one-way", rounds, count, oneway)


async def bench_consumption(nameserver: str, rounds: int, count: int) -> None:
    """The backlog that the sends left, to a coroutine, to a function, to a loop."""
    seen = 0
    enough = asyncio.Event()

    def saw(number: int) -> None:
        nonlocal seen
        seen += number
        if seen >= count:
            enough.set()

    async def coroutine(message: ReceivedMessage) -> None:
        saw(1)

    async def listed(messages: list[ReceivedMessage]) -> None:
        saw(len(messages))

    loop = asyncio.get_running_loop()

    def function(message: ReceivedMessage) -> None:
        nonlocal seen
        seen += 1
        if seen >= count and not enough.is_set():
            loop.call_soon_threadsafe(enough.set)

    group = iter(f"Micro{time.time_ns()}x{number}" for number in range(1000))

    async def consume(listener: Any, batch: int | None) -> None:
        nonlocal seen
        seen = 0
        enough.clear()
        consumer = PushConsumer(
            next(group),
            listener,
            nameserver=nameserver,
            start_from="first",
            consume_message_batch_max_size=batch,
        )
        async with consumer.subscribe(TOPIC):
            if listener is None:
                async for _ in consumer:
                    seen += 1
                    if seen >= count:
                        return
            await enough.wait()

    await measure("consume: coroutine", rounds, count, lambda _: consume(coroutine, None))
    await measure("consume: coroutine, lists of 32", rounds, count, lambda _: consume(listed, 32))
    await measure("consume: async for", rounds, count, lambda _: consume(None, None))
    await measure("consume: function in threads", rounds, count, lambda _: consume(function, None))


def main() -> None:
    """Run all of it."""
    arguments = argparse.ArgumentParser(description="CPU of the Python client for a message")
    arguments.add_argument("--nameserver")
    arguments.add_argument("--messages", type=int, default=50_000)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    print(f"{'':34} {'min':>7} {'median':>7} {'max':>7}")

    async def both(nameserver: str) -> None:
        await bench_sends(nameserver, given.rounds, given.messages)
        await bench_consumption(nameserver, given.rounds, given.messages)

    if given.nameserver:
        run(both(given.nameserver))
        return
    patient = {"waitTimeMillsInSendQueue": "5000"}  # a busy machine is no reason to refuse here
    with tempfile.TemporaryDirectory() as home, ErucaCluster(Path(home), patient) as cluster:
        run(both(cluster.address))


if __name__ == "__main__":
    main()
