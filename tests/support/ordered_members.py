"""A member of an ordered group as a program of its own."""

from __future__ import annotations

TOPIC, CONVERGED = "Ordered", 40.0

OF_QUEUES, OF_KEYS = "orderly=True", 'ordered_by=lambda message: message.body.partition(b"/")[0], concurrency=50'
"""What of a member keeps the order of whole queues, or of each key."""

MEMBER = """
import asyncio, os, signal, sys, time
from eruca.client import ClientSettings, PushConsumer

async def main(address, book, name, work):
    out = os.open(book, os.O_WRONLY | os.O_APPEND)

    def note(kind, message, moment):
        line = f"{moment:.6f} {kind} {name} {message.queue.queue_id} {message.queue_offset} {message.body.decode()}\\n"
        os.write(out, line.encode())

    async def listen(message):
        moment = time.monotonic()
        note("begin", message, moment)
        await asyncio.sleep(work)
        note("end", message, time.monotonic())

    settings = ClientSettings(nameserver=address, heartbeat_interval=0.4, lock_lifetime=0.9, lock_interval=0.3)
    consumer = PushConsumer("ordered", listen, {order}, start_from="first", offset_interval=0.5,
                            rebalance_interval=1.0, settings=settings).subscribe("Ordered")
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    async with consumer:
        print("joined", flush=True)
        await end.wait()

{planted}
asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
"""
