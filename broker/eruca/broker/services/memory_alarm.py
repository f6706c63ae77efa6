"""Sends are refused while the broker has too much memory, and consumers go on, as with RabbitMQ's memory alarm.

Owns the comparison with memoryHighWater, once a second, and the lines at each change. Must not know what takes the
memory. Invariant: sends are suspended exactly while the memory was above the mark at the last look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from eruca.broker.services.admission import Admission
from eruca.protocol.codes import ResponseCode
from eruca.remoting import memory

EVERY = 1.0
"""Seconds between two looks."""
_MEBIBYTE = 1 << 20

log = structlog.get_logger("eruca.broker")


class MemoryAlarm:
    """Suspends the sends of an ``admission``.

    ``high_water`` returns the setting: a share of ``limit`` bytes (``80%``), or bytes; 0 for none.
    """

    def __init__(self, admission: Admission, high_water: Callable[[], str], limit: int | None = None) -> None:
        self.used: Callable[[], int] = memory.used
        """Returns the bytes that the broker has."""
        self.alarms = 0
        """How often sends were suspended."""
        self._admission = admission
        self._high_water = high_water
        self._limit = memory.limit() if limit is None else limit

    @property
    def on(self) -> bool:
        """Whether sends are refused."""
        return ResponseCode.SYSTEM_BUSY in self._admission.suspended

    @property
    def mark(self) -> int:
        """The bytes above which sends are refused; 0 if there is no mark."""
        text = self._high_water()
        if text.endswith("%"):
            return self._limit * int(text[:-1]) // 100
        return int(text)

    def look(self) -> None:
        """Compare, and suspend or resume the sends."""
        mark, used = self.mark, self.used()
        if mark and used > mark:
            memory.give_back()  # what is only kept for later is no reason
            used = self.used()
        figures = {"used_mib": used // _MEBIBYTE, "high_water_mib": mark // _MEBIBYTE}
        if mark and used > mark:
            if not self.on:
                self.alarms += 1
                log.warning("memory_high", **figures, consequence="sends are refused, consumers are served")
            self._admission.suspend(
                f"broker busy, start flow control for a while: its memory ({figures['used_mib']} MiB) is above "
                f"memoryHighWater ({figures['high_water_mib']} MiB); it takes sends again when it is below"
            )
        elif self.on:
            log.info("memory_normal", **figures)
            self._admission.resume()

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(EVERY)
