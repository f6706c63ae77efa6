"""The life of everything that is started and stopped: ``async with`` does both. Knows nothing of what it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Startable(ABC):
    """Started at the beginning of ``async with``, and stopped at its end, however that is reached."""

    @abstractmethod
    async def start(self) -> None:
        """Begin; what cannot be begun raises."""

    @abstractmethod
    async def stop(self) -> None:
        """End in order. Calling it twice does no harm."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
