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

    def __repr__(self) -> str:
        return f"<{named(self)}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def named(client: object) -> str:
    """A client as people tell it from another one: its class and its group, where it has one."""
    group = getattr(client, "group", None)
    return type(client).__name__ if group is None else f"{type(client).__name__} {group}"
