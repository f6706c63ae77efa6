"""Clients under load: producers that send without a pause, and readers, with what became of each message."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

from eruca.client import ClientSettings, Message, Producer, PushConsumer, ReceivedMessage, SendStatus
from eruca.client.errors import ClientError
from tests.support.pairs import eventually

TOPIC, PATIENCE = "Traffic", 60.0


class Traffic:
    """Producers that send as fast as they are answered, and what became of each message."""

    def __init__(self, address: str, senders: int = 3, settings: ClientSettings | None = None) -> None:
        self.acknowledged: dict[bytes, str] = {}
        """Body and broker of each message that was stored."""
        self.confirmed: set[bytes] = set()
        """Those of them with SEND_OK."""
        self.failures: list[str] = []
        self.slowest = 0.0
        """Seconds of the slowest send."""
        self.pause = 0.0
        """Longest time in seconds in which no send was answered."""
        self._last = 0.0
        self._producer = Producer("traffic", settings=settings or ClientSettings(nameserver=address))
        self._senders = senders
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._last = time.monotonic()
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(self._senders)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer.stop()

    async def _send(self, sender: int) -> None:
        for number in range(1_000_000):
            body = b"%d/%d" % (sender, number)
            begin = time.monotonic()
            try:
                result = await self._producer.send(Message(TOPIC, body))
            except ClientError as error:
                self.failures.append(f"{body!r}: {error}")
            else:
                self.acknowledged[body] = result.queue.broker_name
                if result.status is SendStatus.SEND_OK:
                    self.confirmed.add(body)
            now = time.monotonic()
            self.slowest = max(self.slowest, now - begin)
            self.pause, self._last = max(self.pause, now - self._last), now
            await asyncio.sleep(0.01)

    async def more(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        target = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.acknowledged) < target:  # noqa: ASYNC110 (tasks of this test count)
                await asyncio.sleep(0.01)


class Reader:
    """A member of a group, and the bodies that it got."""

    def __init__(self, address: str, group: str, settings: ClientSettings | None = None) -> None:
        self.got: set[bytes] = set()
        settings = settings or ClientSettings(nameserver=address, instance_name=f"{group}-reader")
        self._consumer = PushConsumer(group, self._take, start_from="first", settings=settings).subscribe(TOPIC)

    async def _take(self, message: ReceivedMessage) -> None:
        self.got.add(message.body)

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._consumer.stop()

    async def has(self, wanted: set[bytes]) -> float:
        """Wait until all of these came; how many seconds that took."""
        begin = time.monotonic()
        await eventually(lambda: wanted <= self.got)
        return time.monotonic() - begin
