"""The hold of a broker in etcd: begun, renewed each second, begun again when it has ended.

Owns the hold and the moment until which it surely lasts. The keys on it are put again on another hold by
``etcd_calls``. Invariant: a renewal counts from the moment before it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from eruca.broker.coordination.port import Coordinator, HoldEnded, Unavailable

SECONDS = 3
"""How long a hold lasts without a renewal; etcd may take a moment more."""
RENEW_EVERY = 1.0
"""Seconds between two renewals."""

log = structlog.get_logger("eruca.broker.failover")


class Presence:
    """The hold of one broker; ``on_hold`` is called when there is another one. ``monotonic`` gives ms."""

    def __init__(self, coordinator: Coordinator, monotonic: Callable[[], int], every: float = RENEW_EVERY) -> None:
        self.on_hold: Callable[[], object] = bool
        self.hold: int | None = None
        self.leased: tuple[int, int] | None = None
        """When the last renewal that was answered was sent, and for how many ms that holds."""
        self._coordinator = coordinator
        self._monotonic = monotonic
        self._every = every
        self._due = asyncio.Event()
        self.answered = monotonic()
        """When etcd answered last; the beginning, before it did."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._due.clear()
            with suppress(Unavailable):
                await self._renew()
                self.answered = self._monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._due.wait()

    async def _renew(self) -> None:
        sent, held = self._monotonic(), self.hold
        if held is not None:
            try:
                await self._coordinator.renew(held)
            except HoldEnded:
                self.ended()
            else:
                self.leased = (sent, SECONDS * 1000) if self.hold == held else None
                return
        self.hold = await self._coordinator.hold(SECONDS)
        self.leased = sent, SECONDS * 1000
        self.on_hold()

    def ended(self) -> None:
        """The hold is over: begin another one soon."""
        if self.hold is not None:
            log.warning("hold_ended", consequence="its keys are put again")
        self.hold = self.leased = None
        self._due.set()

    async def release(self) -> None:
        """End the hold, so that nobody waits for it to pass; ``run`` is over."""
        if self.hold is not None:
            with suppress(Unavailable):
                await self._coordinator.release(self.hold)
        self.hold = self.leased = None
