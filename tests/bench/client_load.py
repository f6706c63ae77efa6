"""One load by Eruca's Python client, in a process of its own: `python -m tests.bench.client_load KIND ...`.

Prints one line of JSON: messages, messages a second, microseconds of this process's CPU a message (user and system),
and its resident memory in bytes at the end. The topic must be there; consumption reads it from its first message.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from eruca.client import Message, Producer, PushConsumer, ReceivedMessage
from eruca.remoting import run

BODY = b"x" * 128
EACH = 32
"""Messages of a batch."""
PIPELINE = 512
"""Sends that are started before the first of them is awaited."""

Send = Callable[[Producer, str], Awaitable[int]]


async def send_one(producer: Producer, topic: str) -> int:
    await producer.send(Message(topic, BODY))
    return 1


async def send_batch(producer: Producer, topic: str) -> int:
    await producer.send_batch([Message(topic, BODY) for _ in range(EACH)])
    return EACH


async def send_pipelined(producer: Producer, topic: str) -> int:
    for send in [producer.start_send(Message(topic, BODY)) for _ in range(PIPELINE)]:
        await send
    return PIPELINE


SENDS: dict[str, tuple[int, Send]] = {
    "sync-64": (64, send_one),
    "async": (256, send_one),
    "pipelined": (1, send_pipelined),
    "batch": (16, send_batch),
}
"""How many tasks send, and what each does again and again."""
CONSUMPTIONS = ("consume", "async-for")


async def send(nameserver: str, topic: str, kind: str, seconds: float) -> dict[str, float]:
    """Send for so long."""
    tasks, one = SENDS[kind]
    async with Producer("BenchPython", nameserver=nameserver) as producer:
        await asyncio.gather(*(send_one(producer, topic) for _ in range(100)))
        end = time.perf_counter() + seconds

        async def again() -> int:
            count = 0
            while time.perf_counter() < end:
                count += await one(producer, topic)
            return count

        used, began = time.process_time(), time.perf_counter()
        count = sum(await asyncio.gather(*(again() for _ in range(tasks))))
        return figures(count, used, began)


async def consume(nameserver: str, topic: str, kind: str, wanted: int) -> dict[str, float]:
    """Consume so many messages, each by a call of a coroutine, or by `async for`.

    Bodies are read, as Java's client has read them before it calls a listener; as there, the clock of the rate runs
    from the first message.
    """
    seen = size = 0
    began = 0.0
    enough = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        nonlocal seen, size, began
        if not seen:
            began = time.perf_counter()
        seen += 1
        size += len(message.body)
        if seen >= wanted:
            enough.set()

    group = f"BenchPython{time.time_ns()}"
    used = time.process_time()
    by_loop = kind == "async-for"
    consumer = PushConsumer(group, None if by_loop else listener, nameserver=nameserver, start_from="first")
    async with consumer.subscribe(topic):
        if by_loop:
            async for message in consumer:
                if not seen:
                    began = time.perf_counter()
                seen += 1
                size += len(message.body)
                if seen >= wanted:
                    break
        else:
            await enough.wait()
        return figures(seen, used, began)


def figures(count: int, used: float, began: float) -> dict[str, float]:
    cpu, elapsed = time.process_time() - used, time.perf_counter() - began
    return {"messages": count, "rate": count / elapsed, "cpu_us": cpu / count * 1e6, "memory": memory()}


def memory() -> int:
    """Resident memory of this process in bytes."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("kind", choices=[*SENDS, *CONSUMPTIONS])
    parse.add_argument("nameserver")
    parse.add_argument("topic")
    parse.add_argument("--seconds", type=float, default=3.0)
    parse.add_argument("--messages", type=int, default=200_000, help="of a consumption")
    given = parse.parse_args()
    if given.kind in SENDS:
        found = run(send(given.nameserver, given.topic, given.kind, given.seconds))
    else:
        found = run(consume(given.nameserver, given.topic, given.kind, given.messages))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
