"""One request for a page or a change, what it may use, and the registers of pages and changes.

A page is one coroutine that gives one struct: HTML and JSON are made of it. A change is one coroutine that gives the
page to go on with. Both raise AdminError with one sentence. Knows no HTTP and no template's content.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from eruca.admin.client import Admin
from eruca.admin.console.changes import Changes
from eruca.admin.console.forms import Commands, Field, Filled, Form
from eruca.admin.console.watch import Watch
from eruca.admin.errors import BadValue, NoAnswer
from eruca.admin.lookups import ask_each
from eruca.admin.results.answer import Moment, PeerError, errors_of
from eruca.protocol.queues import MessageQueue

T = TypeVar("T")


@dataclass(frozen=True)
class Console:
    """What all pages of one run share."""

    admin: Admin
    watch: Watch
    changes: Changes
    commands: Commands
    """Where the forms find their declarations."""
    environment: Mapping[str, str]
    context: str = ""
    """The name of the cluster, as the operator calls it."""
    write: bool = False
    resets: dict[str, object] = field(default_factory=dict)
    """The resets that were begun, by their ids; the page of resets knows their type."""
    tasks: dict[str, object] = field(default_factory=dict)
    """Dead letters that were begun to be sent back, by their ids; their page knows the type."""
    sent_back: defaultdict[MessageQueue, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The offsets of the dead letters that were sent back, by the queues of letters."""


@dataclass(frozen=True)
class Visit:
    """One request."""

    console: Console
    names: Mapping[str, str]
    """The variable parts of the path."""
    given: Mapping[str, str]
    """What was filled in: the question of a page, the form of a change."""
    peer: str
    """The address of the browser."""

    @property
    def admin(self) -> Admin:
        """The connections to the cluster."""
        return self.console.admin

    def filled(self, form: Form) -> Filled:
        """What was filled in, as the options of the form take it. Raises BadValue."""
        return form.filled(self.console.commands, self.given)

    def fields(
        self, form: Form, *, usual: Mapping[str, str] | None = None, known: Mapping[str, Sequence[str]] | None = None
    ) -> list[Field]:
        """The fields of a form, with what was filled in."""
        return form.fields(self.console.commands, self.given, usual=usual, known=known)

    def confirmed(self, name: str) -> None:
        """Check that the person has typed the name of what is to be changed. Raises BadValue."""
        if self.given.get("confirm", "").strip() != name:
            raise BadValue(f"nothing was changed: type {name} to confirm")

    def changed(self, what: str, before: object, after: object) -> None:
        """Log a change that was made."""
        self.console.changes.add(self.peer, what, before, after)


Find = Callable[[Visit], Awaitable[msgspec.Struct]]
Act = Callable[[Visit], Awaitable[str]]
Load = Callable[[Visit], Awaitable[bytes]]


@dataclass(frozen=True)
class Page:
    """A page: its path, the template that shows it, and the coroutine that finds what is on it."""

    path: str
    template: str
    find: Find


WITHIN = 6.0
"""Seconds for a part of a page: a broker that hangs costs 5."""
PAGES: list[Page] = []
ACTS: dict[str, Act] = {}
FILES: dict[str, Load] = {}


def page(path: str, template: str) -> Callable[[Find], Find]:
    """Register a page; its JSON is found at the same path below ``/api``."""

    def register(find: Find) -> Find:
        PAGES.append(Page(path, template, find))
        return find

    return register


def download(path: str) -> Callable[[Load], Load]:
    """Register bytes that a browser keeps as a file, and never shows."""

    def register(find: Load) -> Load:
        FILES[path] = find
        return find

    return register


def act(path: str) -> Callable[[Act], Act]:
    """Register a change, which a form posts."""

    def register(do: Act) -> Act:
        ACTS[path] = do
        return do

    return register


def now() -> Moment:
    """The time of a page."""
    return Moment.at(time.time_ns() // 1_000_000)


async def part(errors: list[PeerError], name: str, question: Awaitable[T]) -> T | None:
    """A part of a page; None, with the error noted, where it cannot be had in WITHIN seconds."""
    asked = await ask_each({name: _in_time(question)})
    errors += errors_of(asked.errors, "this part of the page is missing")
    return asked.answers.get(name)


async def _in_time(question: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(WITHIN):
            return await question
    except TimeoutError:
        raise NoAnswer(f"no answer in {WITHIN:.0f} s") from None
