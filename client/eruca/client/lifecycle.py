"""Startable: what is started and stopped, also by ``async with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from eruca.client.errors import StateError


class Startable(ABC):
    """Starts at the beginning of ``async with`` and stops at its end, also after an error."""

    @abstractmethod
    async def start(self) -> None:
        """Start; raises if that is impossible."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop in order. Further calls have no effect."""

    def __repr__(self) -> str:
        return f"<{named(self)}{self._details}>"

    @property
    def _details(self) -> str:
        """What follows the name in ``repr``."""
        return ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


TO_START = "call start() or use `async with` first, or `with` in eruca.client.sync"


def not_running(kind: str, *, stopped: bool) -> StateError:
    """The error of a call that needs a client at work; ``kind`` is "consumer", "producer" or "RPC"."""
    if stopped:
        return StateError(f"The {kind} was stopped, and starts once only: make a new one to go on.")
    if kind == "producer":
        return StateError(f"The producer service state not OK: {TO_START}.")
    if kind == "RPC":
        return StateError(f"The RPC is not started: {TO_START}.")
    return StateError(f"The {kind} not running, please start it first.")


def named(client: object) -> str:
    """The name of a client in texts: its class and its group, if it has one."""
    group = getattr(client, "group", None)
    return type(client).__name__ if group is None else f"{type(client).__name__} {group}"
