"""Programs that wait for their consumers: a signal ends them in order, and calls under way are waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

import pytest

from eruca.client import Message, MessageQueue
from tests.client.conftest import Lab

pytestmark = pytest.mark.processes

QUEUE = MessageQueue("T", "broker-a", 0)
BEGIN = """
import asyncio, signal, sys
from eruca.client import PushConsumer, sync

address, group = sys.argv[1:]
options = {"nameserver": address, "start_from": "first"}

async def listener(message):
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        await asyncio.sleep(0.01)  # the program begins to wait
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print("done", flush=True)
"""
IN_ORDER = {
    "a wait": """
async def main():
    async with PushConsumer(group, listener, **options).subscribe("T") as consumer:
        print(await consumer.wait())

asyncio.run(main())
""",
    "two waits": """
async def main():
    busy = PushConsumer(group, listener, **options).subscribe("T")
    idle = PushConsumer(f"{group}-idle", listener, **options).subscribe("U")
    await asyncio.gather(busy.start(), idle.start())
    print(all(await asyncio.gather(idle.wait(), busy.wait())))

asyncio.run(main())
""",
    "a blocking wait": """
with sync.PushConsumer(group, listener, **options).subscribe("T") as consumer:
    print(consumer.wait())
""",
}
OWN = """
async def main():
    own = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, own.set)
    async with PushConsumer(group, listener, **options).subscribe("T") as consumer:
        waiting = asyncio.create_task(consumer.wait())
        await own.wait()
        await asyncio.sleep(0)
        print(not waiting.done())

asyncio.run(main())
"""


async def begun(lab: Lab, program: str, group: str) -> Process:
    """A program whose listener has the message."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BEGIN + program, lab.address, group, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    return process


async def end(process: Process, number: int) -> tuple[str, str, int | None]:
    """What a program still said, on both streams, and its status: the signal comes before its listener may go on."""
    process.send_signal(number)
    out, err = await process.communicate(b"go on\n")
    return out.decode(), err.decode(), process.returncode


async def ended(lab: Lab, program: str, group: str, number: int) -> tuple[tuple[str, str, int | None], int | None]:
    process = await begun(lab, program, group)
    try:
        said = await end(process, number)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said, (await lab.offsets(group, "T"))[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_wait_when_the_calls_under_way_are_done(lab: Lab, number: int) -> None:
    await lab.producer.send(Message("T", b"x"), queue=QUEUE)
    await lab.producer.create_topic("U", queues=1)  # a topic that is not there is warned of
    async with asyncio.timeout(60):
        found = await asyncio.gather(
            *(ended(lab, program, f"g{place}", number) for place, program in enumerate(IN_ORDER.values()))
        )
    assert dict(zip(IN_ORDER, found, strict=True)) == dict.fromkeys(IN_ORDER, (("done\nTrue\n", "", 0), 1))


async def test_a_second_signal_ends_at_once(lab: Lab) -> None:
    await lab.producer.send(Message("T", b"x"), queue=QUEUE)
    process = await begun(lab, IN_ORDER["a wait"], "g")
    async with asyncio.timeout(60):
        while process.returncode is None:  # two signals that come at once are one
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)  # send_signal() would take the status, which the loop waits for
            await asyncio.sleep(0.01)
    assert process.returncode == -signal.SIGTERM


async def test_a_signal_that_the_program_handles_stays_the_programs(lab: Lab) -> None:
    await lab.producer.send(Message("T", b"x"), queue=QUEUE)
    async with asyncio.timeout(60):
        (out, err, status), offset = await ended(lab, OWN, "g", signal.SIGTERM)
    assert (sorted(out.split()), err, status, offset) == (["True", "done"], "", 0, 1)
