"""A coordination service in this process, its time and its faults in the test's hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from eruca.broker.coordination.port import ABSENT, Entry, HoldEnded, OutcomeUnknown, Put, Unavailable


class FakeCoordinator:
    """As etcd, by the port; held to the same suite (``tests/broker/coordination/test_port``).

    ``away``: nobody is answered. ``lost_answers``: changes that are made, and whose answer is lost.
    """

    def __init__(self) -> None:
        self.away = False
        self.lost_answers = 0
        self._now = 0.0
        self._revision = 1
        self._entries: dict[str, Entry] = {}
        self._held: dict[str, int] = {}
        self._holds: dict[int, tuple[float, float]] = {}
        """Each hold's length and end."""
        self._changed = asyncio.Event()

    def pass_time(self, seconds: float) -> None:
        """Let time pass; holds that end take their keys along."""
        self._now += seconds
        for hold in [hold for hold, (_, end) in self._holds.items() if end <= self._now]:
            self._end(hold)

    def return_again(self) -> None:
        """Answer again."""
        self.away = False
        self._wake()

    @property
    def keys(self) -> frozenset[str]:
        """The keys that are there."""
        return frozenset(self._entries)

    def empty(self) -> None:
        """Lose all keys and holds, as when the disks of etcd were emptied."""
        self._entries.clear()
        self._held.clear()
        self._holds.clear()
        self._revision += 1
        self._wake()

    def backup(self) -> dict[str, Entry]:
        """A copy of the keys that are on no hold."""
        return {key: entry for key, entry in self._entries.items() if key not in self._held}

    def restore(self, backup: Mapping[str, Entry]) -> None:
        """Have the keys of a backup, and no others."""
        self.empty()
        self._entries.update(backup)

    def expire(self, key: str) -> None:
        """End the hold on which a key stands, as when its broker has died."""
        self._end(self._held[key])

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the fake is away")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _end(self, hold: int) -> None:
        if self._holds.pop(hold, None) is not None:
            for key in [key for key, of in self._held.items() if of == hold]:
                del self._held[key], self._entries[key]
            self._revision += 1
            self._wake()

    async def read(self, key: str) -> Entry | None:
        self._answer()
        return self._entries.get(key)

    async def read_all(self, prefix: str) -> dict[str, Entry]:
        self._answer()
        return {key: entry for key, entry in sorted(self._entries.items()) if key.startswith(prefix)}

    async def change(self, seen: Mapping[str, int], puts: Sequence[Put], deletes: Sequence[str] = ()) -> int | None:
        self._answer()
        known = {key: entry.revision for key, entry in self._entries.items()}
        if any(known.get(key, ABSENT) != revision for key, revision in seen.items()):
            return None
        for put in puts:
            if put.hold is not None and put.hold not in self._holds:
                raise HoldEnded(f"the hold {put.hold} is over")
        self._revision += 1
        for put in puts:
            self._entries[put.key] = Entry(put.value, self._revision)
            self._held.pop(put.key, None)
            if put.hold is not None:
                self._held[put.key] = put.hold
        for key in deletes:
            self._entries.pop(key, None)
            self._held.pop(key, None)
        self._wake()
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("the answer was lost")
        return self._revision

    async def hold(self, seconds: int) -> int:
        self._answer()
        self._revision += 1
        self._holds[self._revision] = seconds, self._now + seconds
        return self._revision

    async def renew(self, hold: int) -> None:
        self._answer()
        if hold not in self._holds:
            raise HoldEnded(f"the hold {hold} is over")
        seconds, _ = self._holds[hold]
        self._holds[hold] = seconds, self._now + seconds

    async def release(self, hold: int) -> None:
        self._answer()
        self._end(hold)

    async def watch(self, prefix: str) -> AsyncIterator[None]:
        while True:
            changed = self._changed
            if not self.away:
                yield
            await changed.wait()

    async def close(self) -> None:
        return None


class FakeClient:
    """One of several clients of a fake, which can be cut off from it by itself: ``cut_off``."""

    def __init__(self, fake: FakeCoordinator) -> None:
        self.cut_off = False
        self._fake = fake

    def _there(self) -> FakeCoordinator:
        if self.cut_off:
            raise Unavailable("this client is cut off")
        return self._fake

    async def read(self, key: str) -> Entry | None:
        return await self._there().read(key)

    async def read_all(self, prefix: str) -> dict[str, Entry]:
        return await self._there().read_all(prefix)

    async def change(self, seen: Mapping[str, int], puts: Sequence[Put], deletes: Sequence[str] = ()) -> int | None:
        return await self._there().change(seen, puts, deletes)

    async def hold(self, seconds: int) -> int:
        return await self._there().hold(seconds)

    async def renew(self, hold: int) -> None:
        await self._there().renew(hold)

    async def release(self, hold: int) -> None:
        await self._there().release(hold)

    async def watch(self, prefix: str) -> AsyncIterator[None]:
        async for _ in self._fake.watch(prefix):
            if not self.cut_off:
                yield

    async def close(self) -> None:
        return None
