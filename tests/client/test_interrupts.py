"""Ctrl-C in programs as users write them: what was consumed is stored, what was not comes again, and nothing hangs."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from eruca.client import Message, MessageQueue
from tests.client.conftest import Lab

pytestmark = pytest.mark.processes

QUEUE = MessageQueue("T", "broker-a", 0)
BEGIN = """
import asyncio, sys, time
from eruca.client import LitePullConsumer, Message, Producer, PushConsumer, sync

address, group = sys.argv[1:]
options = {"nameserver": address, "start_from": "first"}

def said(message):
    print(message.body.decode(), flush=True)
    return message.body == b"4"
"""
PROGRAMS = {
    "a listener": """
async def listener(message):
    if said(message):
        await asyncio.sleep(3600)  # cut off by the end of the program, so it comes again

async def main():
    async with PushConsumer(group, listener, stop_timeout=0.2, **options).subscribe("T"):
        await asyncio.sleep(3600)

asyncio.run(main())
""",
    "a function": """
def listener(message):
    if said(message):
        time.sleep(1)  # is waited for, and consumed

async def main():
    async with PushConsumer(group, listener, concurrency=1, **options).subscribe("T"):
        await asyncio.sleep(3600)

asyncio.run(main())
""",
    "a loop": """
async def main():
    async with PushConsumer(group, **options).subscribe("T") as consumer:
        async for message in consumer:
            if said(message):
                await asyncio.sleep(3600)

asyncio.run(main())
""",
    "polling": """
async def main():
    async with LitePullConsumer(group, pull_batch_size=1, **options).subscribe("T") as consumer:
        while True:
            for message in await consumer.poll():
                if said(message):
                    await asyncio.sleep(3600)

asyncio.run(main())
""",
    "a blocking loop": """
with sync.PushConsumer(group, **options).subscribe("T") as consumer:
    for message in consumer:
        if said(message):
            time.sleep(3600)
""",
    "blocking polls": """
with sync.LitePullConsumer(group, pull_batch_size=1, **options).subscribe("T") as consumer:
    while True:
        for message in consumer.poll():
            if said(message):
                time.sleep(3600)
""",
    "a blocking wait": """
with sync.PushConsumer(group, offset_interval=0.05, **options).subscribe("T") as consumer:
    for message in consumer:
        said(message)
""",
}
CONSUMED = {"a function": 5, "a blocking wait": 5}
"""Of the five messages; of the others all but the last, at which the program was interrupted."""


async def run(lab: Lab, name: str, group: str) -> tuple[list[bytes], int | None, str, int | None]:
    """What a program said until it had all messages; its status, its last words, and the offset after Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BEGIN + PROGRAMS[name], lab.address, group, stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        said = [(await process.stdout.readline()).strip() for _ in range(5)]
        # Where nothing says that the last one counts, look until it waits for more.
        while name == "a blocking wait" and (await lab.offsets(group, "T"))[0] != 5:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        words = (await process.stderr.read()).decode().split()
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return sorted(said), status, words[-1] if words else "", (await lab.offsets(group, "T"))[0]


async def test_what_programs_consumed_is_stored(lab: Lab) -> None:
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies:
        await lab.producer.send(Message("T", body), queue=QUEUE)
    async with asyncio.timeout(120):
        found = await asyncio.gather(*(run(lab, name, f"g{number}") for number, name in enumerate(PROGRAMS)))
    assert dict(zip(PROGRAMS, found, strict=True)) == {
        name: (bodies, -signal.SIGINT, "KeyboardInterrupt", CONSUMED.get(name, 4)) for name in PROGRAMS
    }
