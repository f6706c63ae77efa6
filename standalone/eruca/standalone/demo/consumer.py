"""The consumer process of the demonstration: prints one report for each consumed message.

Started as ``python -m eruca.standalone.demo.consumer NAMESERVER TOPIC GROUP``; ends on SIGTERM, with its offsets
committed.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from eruca.client import PushConsumer, ReceivedMessage
from eruca.remoting import run
from eruca.standalone.demo.tally import Place, report


async def consume(nameserver: str, topic: str, group: str) -> None:
    """Consume until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    async def show(message: ReceivedMessage) -> None:
        place = Place(message.queue.queue_id, message.queue_offset)
        print(report(place, message.body, " ".join(message.keys)), flush=True)

    consumer = PushConsumer(group, show, nameserver=nameserver, start_from="first")
    consumer.subscribe(topic)
    print("ready", flush=True)  # every line after this one is a report
    async with consumer:
        await ended.wait()


if __name__ == "__main__":
    run(consume(*sys.argv[1:4]))
