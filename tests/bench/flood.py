"""A load of sends that costs the sender little: frames made beforehand, a fixed number of them under way.

Owns the connections of one load and the counting of answers; what comes back is not decoded. Figures are of the whole
load: messages acknowledged, and for a probe (one send at a time, at an even pace) the milliseconds of each.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle

from tests.support.peers import Peer

Place = tuple[str, int]
"""A topic and a queue."""
BORN = 1_767_225_600_000
"""When all messages were made."""


def frame(place: Place, number: int, body: bytes, queues: int) -> bytes:
    """A SEND_MESSAGE_V2 as a Java client writes it, with a unique key and a tag."""
    fields = {"a": "bench", "b": place[0], "c": "TBW102", "d": queues, "e": place[1], "f": 0, "g": BORN, "h": 0}
    key = f"7F00000110924AAC0018B4{number:010X}"
    fields |= {"i": f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA\x02", "j": 0, "k": "false", "m": "false"}
    head = {"code": 310, "extFields": {name: str(value) for name, value in fields.items()}, "flag": 0}
    head |= {"language": "JAVA", "opaque": number, "serializeTypeCurrentRPC": "JSON", "version": 401}
    header = json.dumps(head, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class Pipe(asyncio.Protocol):
    """One connection: each answer lets the next frame go."""

    def __init__(self, frames: Iterator[bytes], under_way: int) -> None:
        self.answered = 0
        self.refused = 0
        self.ending = False
        self._frames = frames
        self._under_way = under_way
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def begin(self) -> None:
        """Send the first frames."""
        assert self._transport is not None
        self._transport.write(b"".join(next(self._frames) for _ in range(self._under_way)))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = count = 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            self.refused += b'"code":0' not in data[at:end]
            at = end
            count += 1
        self._rest = data[at:]
        self.answered += count
        if count and not self.ending and self._transport is not None:
            self._transport.write(b"".join(next(self._frames) for _ in range(count)))

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()


def _same(pipe: Pipe) -> Pipe:
    return pipe


class Flood:
    """Sends to ``places`` in turn over so many connections, each with ``under_way`` frames."""

    def __init__(
        self, address: str, places: Sequence[Place], connections: int, under_way: int, body: bytes = bytes(128)
    ) -> None:
        queues = max(queue for _, queue in places) + 1
        self._address = address
        self._under_way = under_way
        shift = max(len(places) // connections, 1)
        made = [frame(place, number, body, queues) for number, place in enumerate(places)]
        self._frames = [
            cycle(made[n * shift % len(made) :] + made[: n * shift % len(made)]) for n in range(connections)
        ]
        self.pipes: list[Pipe] = []

    async def start(self) -> None:
        """Connect all, then begin."""
        loop = asyncio.get_running_loop()
        host, _, port = self._address.rpartition(":")
        for frames in self._frames:
            pipe = Pipe(frames, self._under_way)
            await loop.create_connection(partial(_same, pipe), host, int(port))
            self.pipes.append(pipe)
        for pipe in self.pipes:
            pipe.begin()

    @property
    def answered(self) -> int:
        """Messages acknowledged so far. Raises RuntimeError when some were refused."""
        refused = sum(pipe.refused for pipe in self.pipes)
        if refused:
            raise RuntimeError(
                f"{refused} sends were refused: leave the machine more room, or look at the broker's log"
            )
        return sum(pipe.answered for pipe in self.pipes)

    async def stop(self) -> None:
        """Send no more, and close."""
        for pipe in self.pipes:
            pipe.ending = True
        await asyncio.sleep(0.2)
        for pipe in self.pipes:
            pipe.close()


async def probe(address: str, place: Place, seconds: float, per_second: int = 100) -> list[float]:
    """The milliseconds of sends that go out at an even pace, one after another."""
    peer = await Peer().connect(address)
    found = []
    fields = {"a": "probe", "b": place[0], "c": "TBW102", "d": 8, "e": place[1], "f": 0, "g": 1, "h": 0}
    fields |= {"i": "", "j": 0, "k": "false", "m": "false"}
    end = time.monotonic() + seconds
    due = time.monotonic()
    while due < end:
        await asyncio.sleep(max(due - time.monotonic(), 0))
        since = time.monotonic()
        answer = await peer.ask(310, fields, b"probe", within=60)
        if answer.code:
            raise RuntimeError(f"a probe was refused with {answer.code}: {answer.remark}")
        found.append((time.monotonic() - since) * 1000)
        due += 1 / per_second
    await peer.close()
    return found


def quantiles(millis: Sequence[float]) -> str:
    """Median, 99 % and the worst."""
    ordered = sorted(millis)
    return f"{ordered[len(ordered) // 2]:.2f} / {ordered[len(ordered) * 99 // 100]:.2f} / {ordered[-1]:.2f}"
