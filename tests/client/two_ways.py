"""A producer at a scripted broker, by whose short way and ordinary way the same is sent in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from eruca.client import Producer
from eruca.client.network import identity
from eruca.client.producing import lanes, quick
from eruca.client.producing.quick import QuickSend
from eruca.remoting import Connection
from tests.support.scripted import Scripted

NOW = 1_763_767_000.123


class TwoWays:
    """A producer whose ways are counted, its broker, and the connection between them."""

    def __init__(self, names: Scripted, broker: Scripted, producer: Producer) -> None:
        self.names, self.broker, self.producer = names, broker, producer
        self.short = 0
        self.real: asyncio.Transport | None = None
        self._quick = producer._quick
        assert self._quick is not None
        self._quick.start = self._counted(self._quick.start)  # type: ignore[method-assign]
        self._quick.start_batch = self._counted(self._quick.start_batch)  # type: ignore[method-assign]
        self._quick.ordinary = self._discounted(self._quick.ordinary)  # type: ignore[method-assign]

    def _counted(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: object) -> Any:
            future = start(*args)
            self.short += future is not None
            return future

        return counted

    def _discounted(self, ordinary: Callable[..., Any]) -> Callable[..., Any]:
        def discounted(send: QuickSend) -> Any:
            self.short -= send.queue is None
            return ordinary(send)

        return discounted

    def choose(self, way: str) -> None:
        """Let the sends that follow take this way; both begin alike."""
        self.producer._quick = self._quick if way == "short" else None
        self.producer._turns["T"].last = 0
        self.connection._opaque = 1000
        identity.unique_keys()._counter = 0

    @property
    def connection(self) -> Connection:
        connection = self.producer.session.ready(self.broker.address)
        assert connection is not None
        return connection

    async def sends_to_nobody(self) -> list[bytes]:
        """From now on what is sent comes to this list in place of the broker."""
        sent: list[bytes] = []
        self.real = self.connection._transport
        self.connection._transport = Nobody(sent)  # type: ignore[assignment]
        return sent


class Nobody:
    """A transport that only notes what it is given."""

    def __init__(self, sent: list[bytes]) -> None:
        self.write = sent.append

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        return None


async def bytes_of_both(both: TwoWays, start: Callable[[], Sequence[asyncio.Future[Any]]]) -> tuple[bytes, bytes]:
    """What `start` writes by the short way and by the ordinary one; its sends are given up."""
    sent = await both.sends_to_nobody()
    wrote = []
    for way in ("short", "ordinary"):
        sent.clear()
        both.choose(way)
        under_way = start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        wrote.append(b"".join(sent))
        for each in under_way:
            each.cancel()
        both.connection.calls.end()
    return wrote[0], wrote[1]


def stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every send begin at NOW."""
    for where in (quick, lanes, time):
        monkeypatch.setattr(where, "time", lambda: NOW)
