"""What all results are made of.

JSON keys are the camelCase names of the fields. A figure is a number, and null where it is not known; a time is ms and
ISO 8601 with its zone; the peers that did not answer stand in ``errors``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from eruca.admin.errors import AdminError, PeerRefused
from eruca.admin.text import local

WIDE = msgspec.Meta(extra={"wide": True})
"""Marks a field that the form ``table`` leaves out and ``wide`` shows: ``Annotated[int, WIDE]``."""
NONE = msgspec.Meta(extra={"none": True})
"""Marks a field of which null says that there is none; in any other one null says that it is not known."""
R = TypeVar("R")


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of what a command found or did."""


class Moment(Result, frozen=True, kw_only=True, rename="camel"):
    """A point of time."""

    ms: int
    """Since 1970."""
    iso: str
    """ISO 8601 with its zone: that of this machine, or of ``--tz``."""

    @classmethod
    def at(cls, ms: int) -> Moment:
        """A time of a server's; one that no calendar has gets the number as its text."""
        try:
            return cls(ms=ms, iso=local(ms).isoformat(timespec="milliseconds"))
        except (OverflowError, ValueError, OSError):
            return cls(ms=ms, iso=str(ms))

    @classmethod
    def known(cls, ms: int | None) -> Moment | None:
        """As ``at``; None for the values by which servers say that there was none, 0 and below."""
        return None if ms is None or ms <= 0 else cls.at(ms)


class PeerError(Result, frozen=True, kw_only=True, rename="camel"):
    """A peer, or a part of the question, without an answer."""

    peer: str
    code: int | None
    """The response code of a refusal; None where no answer came."""
    text: str
    missing: str
    """What is missing for it."""

    def __str__(self) -> str:
        return f"{self.peer}: {self.text}: {self.missing}"


def indented(result: msgspec.Struct) -> str:
    """A result as JSON for people and files."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()


def errors_of(errors: Mapping[str, AdminError], missing: str) -> list[PeerError]:
    """The errors of peers, by name, each with what is missing for it."""
    return [
        PeerError(
            peer=peer, code=error.code if isinstance(error, PeerRefused) else None, text=str(error), missing=missing
        )
        for peer, error in sorted(errors.items())
    ]


class Answer(Result, frozen=True, kw_only=True, rename="camel"):
    """The whole result of a command that is one object."""

    errors: list[PeerError] = []


class Table(Answer, Generic[R], frozen=True, kw_only=True, rename="camel"):
    """The whole result of a command that is a list of objects of one kind, perhaps with what holds for all of them."""

    items: list[R]
