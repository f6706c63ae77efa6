"""CPU of the Python client for a send by every option, without a network: `python -m tests.bench.client_sends`.

    --messages N    messages of a round (default 20000)
    --rounds N      rounds a row (default 7)
    --rows TEXT     only the rows whose names hold this text

The other end of the connection is in this process and answers at once with prepared bytes, so that the figures differ
by little even on a busy machine; the cost of answering is taken off. Printed is the least of the rounds, in
microseconds of CPU a message, and the ratio to the first row.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from eruca.client import ClientSettings, Credentials, Hook, Message, Producer
from eruca.client.selectors import by_hash
from eruca.protocol import frame
from eruca.protocol.headers.send import SendReply
from eruca.remoting import Connection
from tests.support.scripted import Scripted

WINDOW = 512
BODY = b"x" * 128
LARGE = b"0123456789abcdef" * 320
_opaques = re.compile(rb'"opaque":(\d+)').findall


class Near:
    """A transport whose other end answers every send at the end of the turn."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        whole = frame.encode(
            frame.JSON, 0, 1, frame.RESPONSE_FLAG, SendReply(msg_id="0" * 32, queue_id=0, queue_offset=7)
        )
        self._header = whole[8:].replace(b'"opaque":1,', b'"opaque":%d,')
        self.seconds = 0.0

    def write(self, data: bytes) -> None:
        began = time.thread_time()
        answers = []
        for opaque in _opaques(data):
            header = self._header % int(opaque)
            answers.append(b"%b%b%b" % ((len(header) + 4).to_bytes(4, "big"), len(header).to_bytes(4, "big"), header))
        for at in range(0, len(answers), 256):  # as much as a read of 64 KiB brings
            self._loop.call_soon(self._connection.data_received, b"".join(answers[at : at + 256]))
        self.seconds += time.thread_time() - began

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self._connection.connection_lost(None)

    abort = close


class Watching(Hook):
    """Sees every send."""

    def before_send(self, context: Any) -> None:
        pass

    def after_send(self, context: Any) -> None:
        pass


Send = Callable[[Producer, int], Awaitable[object]]


def pipelined(message: Callable[[], Message], **chosen: Any) -> Send:
    async def work(producer: Producer, count: int) -> None:
        for _ in range(0, count, WINDOW):
            for send in [producer.start_send(message(), **chosen) for _ in range(WINDOW)]:
                await send

    return work


async def awaiting(producer: Producer, count: int) -> None:
    async def one() -> None:
        for _ in range(count // 256):
            await producer.send(Message("T", BODY))

    await asyncio.gather(*(one() for _ in range(256)))


async def batches(producer: Producer, count: int) -> None:
    for _ in range(0, count, 512):
        await asyncio.gather(*(producer.send_batch([Message("T", BODY) for _ in range(32)]) for _ in range(16)))


async def oneway(producer: Producer, count: int) -> None:
    for number in range(count):
        await producer.send_oneway(Message("T", BODY))
        if not number % WINDOW:
            await producer.send(Message("T", BODY))


def plain() -> Message:
    return Message("T", BODY)


ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], Send]] = {
    "plain": ({}, {}, pipelined(plain)),
    "tag and key": ({}, {}, pipelined(lambda: Message("T", BODY, tags="tag", keys="key-1"))),
    "tag and key in Chinese": ({}, {}, pipelined(lambda: Message("T", BODY, tags="标签", keys="钥匙-1"))),
    "a delay": ({}, {}, pipelined(lambda: Message("T", BODY, delay_level=3))),
    "a flag": ({}, {}, pipelined(lambda: Message("T", BODY, flag=7))),
    "a hook": ({"hooks": [Watching()]}, {}, pipelined(plain)),
    "a namespace": ({}, {"namespace": "ns"}, pipelined(plain)),
    "an account": ({}, {"credentials": Credentials("access", "secret")}, pipelined(plain)),
    "compression": ({}, {}, pipelined(lambda: Message("T", LARGE))),
    "ordered by a hash": ({}, {}, pipelined(plain, selector=by_hash, arg="order-7")),
    "fault tolerance": ({"fault_tolerance": True}, {}, pipelined(plain)),
    "256 tasks that await each": ({}, {}, awaiting),
    "batches of 32": ({}, {}, batches),
    "one-way": ({}, {}, oneway),
}


async def measure(options: dict[str, Any], settings: dict[str, Any], work: Send, count: int, rounds: int) -> float:
    """Microseconds of CPU for a message."""
    async with Scripted("names") as names, Scripted("broker-a") as broker:
        names.knows("ns%T" if "namespace" in settings else "T", broker, queues=8)
        given = ClientSettings(nameserver=names.address, **settings)
        async with Producer("bench", settings=given, **options) as producer:
            await producer.send(Message("T", BODY))
            connection = producer.session.ready(broker.address)
            assert connection is not None
            near = Near(connection)
            connection.connection_made(near)  # type: ignore[arg-type]
            await work(producer, count // 10)
            costs = []
            for _ in range(rounds):
                near.seconds = 0.0
                began = time.thread_time()
                await work(producer, count)
                costs.append((time.thread_time() - began - near.seconds) / count * 1e6)
            connection.abort()
            return min(costs)


def main() -> None:
    """Run the rows."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--messages", type=int, default=20_480)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--rows", default="")
    given = arguments.parse_args()
    chosen = [name for name in ROWS if given.rows in name]
    if not chosen:
        arguments.error(f"no row has {given.rows!r} in its name; the rows are {', '.join(ROWS)}")
    first = 0.0
    for name in chosen:
        options, settings, work = ROWS[name]
        cost = asyncio.run(measure(options, settings, work, given.messages, given.rounds))
        first = first or cost
        print(f"{name:28} {cost:7.2f} us/msg {cost / first:6.2f}", flush=True)


if __name__ == "__main__":
    main()
