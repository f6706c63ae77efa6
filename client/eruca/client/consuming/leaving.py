"""The orderly end of a consumer, which goes on to its end whoever waits for it, and however long.

Owns who waits: a listener that stops its own consumer does not, as the end waits for that listener; a wait that is
cancelled cuts short what is waited for, the listeners at work, and then the offsets are stored and the group is left
all the same. A member that only half left would keep its queues from all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from eruca.client.bounds import unbounded
from eruca.client.consuming.runners import Runner, called_by


class Leaving:
    """``work``, begun; ``runner`` runs the listeners that it waits for."""

    def __init__(self, work: Coroutine[Any, Any, None], runner: Runner) -> None:
        self._task = asyncio.get_running_loop().create_task(work, context=unbounded())
        self._runner = runner

    async def wait(self) -> None:
        """Return at the end, or at once in a listener. Raises what the work raises."""
        if called_by(self._runner):
            return
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self._runner.hurry()
            await asyncio.shield(self._task)
            raise
