"""What commands changed, place by place."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from eruca.admin.results.answer import WIDE, Result
from eruca.protocol.bodies import Body

Value = str | int | float | bool | None
Action = Literal["put", "delete", "clean", "write"]


class Act(Result, frozen=True, kw_only=True, rename="camel"):
    """A change at one place: a server, a cluster, the nameservers, a file."""

    action: Action
    kind: str
    """What was changed: ``topic``, ``group``, ``setting``, …"""
    name: str
    """Its name, empty where all of a kind were meant."""
    place: str
    done: bool = True
    """Whether it is known to be done."""
    settings: Annotated[dict[str, Value | list[str]], WIDE] = msgspec.field(default_factory=dict)
    """What it has now, as far as the command set it."""


def settings_of(config: Body) -> dict[str, Value | list[str]]:
    """The fields of a configuration by their names on the wire."""
    found: dict[str, Value | list[str]] = msgspec.to_builtins(config)
    return found


class WritePermission(Result, frozen=True, kw_only=True, rename="camel"):
    """What became of the write permission of a broker at one nameserver."""

    nameserver: str
    broker: str
    write: bool
    """Whether its topics may be written to."""
    topics: int | None
    """How many changed; None where the nameserver did not do it."""


def is_made(result: msgspec.Struct | None) -> bool | None:
    """Whether a change at one place was made; None for what is no change."""
    if isinstance(result, Act):
        return result.done
    return result.topics is not None if isinstance(result, WritePermission) else None
