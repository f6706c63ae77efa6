"""A client of any language and version, by hand: JSON frames over one socket, both ways.

Sends requests, keeps what the server pushes, and answers pushes as the test says. Knows the frame, not its meaning.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from eruca.protocol import frame

Answering = Callable[["Pushed"], tuple[int, bytes] | None]
"""Given a request of the server: code and body of the answer, None to stay silent."""


class Pushed(NamedTuple):
    """A request that the server sent."""

    code: int
    fields: dict[str, str]
    body: bytes
    oneway: bool


class Answered(NamedTuple):
    """What the server answered."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    header: dict[str, Any]


class Peer:
    """One connected client."""

    def __init__(self, language: str = "JAVA", version: int = 407, answering: Answering | None = None) -> None:
        self.language = language
        self.version = version
        self.address = ""
        self.pushed: list[Pushed] = []
        self._answering = answering
        self._answers: dict[int, asyncio.Future[Answered]] = {}
        self._news = asyncio.Condition()
        self._opaque = 0
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, address: str, *, local: str | None = None) -> Peer:
        """Connect to ``host:port``, from the address ``local`` of this machine."""
        host, _, port = address.rpartition(":")
        source = None if local is None else (local, 0)
        reader, self._writer = await asyncio.open_connection(host, int(port), local_addr=source)
        name = self._writer.get_extra_info("sockname")
        self.address = f"{name[0]}:{name[1]}"
        self._task = asyncio.create_task(self._read(reader))
        return self

    async def close(self) -> None:
        """End the connection."""
        assert self._writer is not None and self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def ended(self, *, within: float = 5.0) -> None:
        """Wait until the other side has ended the connection."""
        assert self._task is not None
        async with asyncio.timeout(within):
            await asyncio.shield(self._task)

    async def ask(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", *, within: float = 5.0
    ) -> Answered:
        """Send a request and wait for its answer. Raises EOFError when the other side ends the connection."""
        self._opaque += 1
        if self._task is None or self._task.done():
            raise EOFError("the connection has ended")
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._answers[self._opaque] = future
        self._send(code, self._opaque, 0, fields or {}, body)
        async with asyncio.timeout(within):
            return await future

    def tell(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> None:
        """Send a request that wants no answer."""
        self._opaque += 1
        self._send(code, self._opaque, 2, fields or {}, body)

    async def received(self, code: int, count: int = 1, *, within: float = 5.0) -> list[Pushed]:
        """Wait until the server has pushed ``count`` requests of this code; they are taken."""

        def there() -> list[Pushed]:
            return [pushed for pushed in self.pushed if pushed.code == code]

        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: len(there()) >= count)
            taken = there()
            self.pushed = [pushed for pushed in self.pushed if pushed.code != code]
            return taken

    def _send(self, code: int, opaque: int, flag: int, fields: dict[str, Any], body: bytes, remark: str = "") -> None:
        head: dict[str, Any] = {
            "code": code,
            "extFields": {name: str(value) for name, value in fields.items()},
            "flag": flag,
            "language": self.language,
            "opaque": opaque,
            "version": self.version,
        }
        if remark:
            head["remark"] = remark
        header = json.dumps(head).encode()
        assert self._writer is not None
        self._writer.write(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length, size = struct.unpack(">ii", await reader.readexactly(8))
                header = json.loads(await reader.readexactly(size))
                body = await reader.readexactly(length - 4 - size)
                await self._take(header, body)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(EOFError("the connection has ended"))

    async def _take(self, header: dict[str, Any], body: bytes) -> None:
        fields = header.get("extFields") or {}
        if header["flag"] & 1:
            future = self._answers.pop(header["opaque"], None)
            if future is not None and not future.done():
                future.set_result(Answered(header["code"], header.get("remark"), fields, body, header))
            return
        pushed = Pushed(header["code"], fields, body, bool(header["flag"] & 2))
        async with self._news:
            self.pushed.append(pushed)
            self._news.notify_all()
        answer = self._answering(pushed) if self._answering is not None and not pushed.oneway else None
        if answer is not None:
            self._send(answer[0], header["opaque"], 1, {}, answer[1], remark=f"from {self.language}")


def requests_in(data: bytes) -> Iterator[tuple[int, dict[str, str]]]:
    """Code and fields of each request in what was written to one connection."""
    at = 0
    while found := frame.split(data, at):
        serialization, header_at, body_at, at = found
        head = frame.read(serialization, data[header_at:body_at])
        if not head.flag & frame.RESPONSE_FLAG:
            yield head.code, frame.texts(serialization, data[header_at:body_at])
