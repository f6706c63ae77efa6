"""How late delayed messages come, with and without load: milliseconds between the due time and the store time.

Run: ``python -m tests.bench.delays [seconds] [load per second] [delayed per second]``. A broker runs as a process of
its own; this program sends it messages with a delay of their own (50 ms to half the time), with delay level 1 (1 s),
and plain ones as load, and reads the delivered ones. Prints median, 99 %, 99.9 % and the worst of each kind.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from eruca.client import Message, MessageQueue, Producer, PullConsumer
from eruca.protocol.record import Record
from tests.bench.command_line import numbers
from tests.support.eruca import ErucaCluster

KINDS = ("own delay", "level 1")


async def send_load(producer: Producer, per_second: int, until: float) -> int:
    """Plain messages at an even pace; how many were sent."""
    sent = 0
    begin = time.monotonic()
    pending: set[asyncio.Task[object]] = set()
    while time.monotonic() < until:
        wanted = int((time.monotonic() - begin) * per_second)
        for _ in range(min(wanted - sent, 200)):
            task: asyncio.Task[object] = asyncio.ensure_future(producer.send(Message("Load", bytes(128))))
            pending.add(task)
            task.add_done_callback(pending.discard)
            sent += 1
        await asyncio.sleep(0.005)
    await asyncio.gather(*pending)
    return sent


async def send_delayed(producer: Producer, per_second: int, seconds: float) -> int:
    """Delayed messages of both kinds at an even pace; how many were sent."""
    dice = random.Random(1)
    begin = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - begin) < seconds:
        while sent < passed * per_second:
            delay = dice.randint(50, int(seconds * 500))
            own = Message("Delayed", b"own", properties={"TIMER_DELAY_MS": str(delay)})
            await producer.send(own if sent % 2 else Message("Delayed", b"level", delay_level=1))
            sent += 1
        await asyncio.sleep(0.002)
    return sent


async def read(puller: PullConsumer, expected: int) -> list[Record]:
    """All delivered messages, once they are complete."""
    found: dict[MessageQueue, list[Record]] = {}
    for _ in range(1200):
        for queue in await puller.fetch_queues("Delayed"):
            records = found.setdefault(queue, [])
            while (end := await puller.max_offset(queue)) is not None and len(records) < end:
                records += (await puller.pull(queue, len(records))).records
        if sum(map(len, found.values())) >= expected:
            break
        await asyncio.sleep(0.05)
    return [record for records in found.values() for record in records]


def lateness(record: Record, waited_from: int) -> int:
    due = record.properties.get("TIMER_OUT_MS")
    return record.store_timestamp - (int(due) if due else waited_from + 1000)


async def waiting_times(puller: PullConsumer) -> dict[str, int]:
    """When the messages of level 1 were stored, by their id."""
    queue = MessageQueue("SCHEDULE_TOPIC_XXXX", "broker-a", 0)
    times: dict[str, int] = {}
    at = 0
    while (end := await puller.max_offset(queue)) is not None and at < end:
        page = (await puller.pull(queue, at)).records
        times.update((record.properties["UNIQ_KEY"], record.store_timestamp) for record in page)
        at += len(page)
    return times


def line(name: str, late: Sequence[int]) -> str:
    ordered = sorted(late)
    at = [ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99, 0.999)]
    return f"  {name:<10} {len(ordered):>7} {at[0]:>7} {at[1]:>7} {at[2]:>7} {ordered[-1]:>7}"


async def measure(seconds: float, load: int, delayed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, ErucaCluster(Path(folder)) as cluster:
        async with (
            Producer("bench", nameserver=cluster.address) as producer,
            PullConsumer(nameserver=cluster.address) as puller,
        ):
            await producer.send(Message("Delayed", b"first"))
            ended = asyncio.create_task(send_load(producer, load, time.monotonic() + seconds * 1.5)) if load else None
            count = await send_delayed(producer, delayed, seconds)
            loaded = await ended if ended is not None else 0
            records = [record for record in await read(puller, count + 1) if record.body != b"first"]
            assert len(records) == count, f"{count} messages were sent, {len(records)} came"
            waited = await waiting_times(puller)
    print(f"{count / seconds:.0f} delayed messages a second, {loaded / seconds / 1.5:.0f} plain ones (ms late)")
    print(f"  {'':<10} {'count':>7} {'median':>7} {'99 %':>7} {'99.9 %':>7} {'worst':>7}")
    for name, body in zip(KINDS, (b"own", b"level"), strict=True):
        late = [lateness(each, waited.get(each.properties["UNIQ_KEY"], 0)) for each in records if each.body == body]
        print(line(name, late))


def main(seconds: float, load: int, delayed: int) -> None:
    """Measure without load, then with it."""
    for plain in (0, load):
        asyncio.run(measure(seconds, plain, delayed))


if __name__ == "__main__":
    main(*numbers(__doc__, seconds=20.0, load=4000, delayed=200))
