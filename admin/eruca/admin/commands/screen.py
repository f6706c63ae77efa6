"""The screen of ``mqadmin top``: one table at a time, and the keys that choose, sort, filter and stop it.

``Screen`` is the state, changed by keys and drawn as text columns; ``keys_of`` gives the keys of a terminal. rich and
termios are imported only here, when the screen begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eruca.admin.errors import AdminError
from eruca.admin.standard_input import pieces_of

if TYPE_CHECKING:
    from rich.console import RenderableType

Cell = str | int | float | None
"""None is what nobody knows."""
HELP = "b brokers  t topics  g groups  m members   s sort  r reverse  / filter  space freeze  q quit"


@dataclass(frozen=True, slots=True)
class View:
    """One table: its titles, and the column that it is sorted by at first."""

    key: str
    name: str
    titles: tuple[str, ...]
    sort: int = 0
    reverse: bool = False


@dataclass(slots=True)
class Screen:
    """What is shown now."""

    views: Sequence[View]
    head: str
    """The line above the table."""
    view: View = field(init=False)
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """Peers that did not answer."""
    frozen: bool = False
    ended: bool = False
    _filter: str = ""
    _typing: bool = False
    _sort: int = 0
    _reverse: bool = False

    def __post_init__(self) -> None:
        self._choose(self.views[0])

    def _choose(self, view: View) -> None:
        self.view, self.rows = view, []
        self._sort, self._reverse = view.sort, view.reverse

    def press(self, key: str) -> None:
        """A key was pressed. An escape ends the filter."""
        if self._typing:
            self._type(key)
        elif key in ("q", "\x03"):
            self.ended = True
        elif key == "s":
            self._sort = (self._sort + 1) % len(self.view.titles)
        elif key == "r":
            self._reverse = not self._reverse
        elif key == " ":
            self.frozen = not self.frozen
        elif key == "/":
            self._typing, self._filter = True, ""
        elif (view := next((each for each in self.views if each.key == key), None)) is not None:
            self._choose(view)

    def _type(self, key: str) -> None:
        if key in ("\r", "\n"):
            self._typing = False
        elif key == "\x1b":
            self._typing, self._filter = False, ""
        elif key in ("\x7f", "\b"):
            self._filter = self._filter[:-1]
        elif key.isprintable():
            self._filter += key

    def shown(self) -> list[tuple[str, ...]]:
        """The rows that pass the filter, in their order, as texts."""
        wanted = self._filter.lower()
        rows = [row for row in self.rows if wanted in " ".join(map(_text, row)).lower()]
        known = [row for row in rows if row[self._sort] is not None]
        unknown = [row for row in rows if row[self._sort] is None]
        known.sort(key=lambda row: _order(row[self._sort]), reverse=self._reverse)
        return [tuple(map(_text, row)) for row in known + unknown]

    def state(self) -> str:
        """The line below the table."""
        parts = [f"sorted by {self.view.titles[self._sort]}{' down' if self._reverse else ''}"]
        parts += [f"filter {self._filter}{'_' if self._typing else ''}"] if self._filter or self._typing else []
        parts += ["FROZEN"] if self.frozen else []
        return "   ".join(parts)

    def drawn(self, height: int) -> RenderableType:
        """For rich: the table with what stands around it, in ``height`` lines."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
        numbers = [
            all(isinstance(row[at], int | float | None) for row in self.rows) for at in range(len(self.view.titles))
        ]
        widest = max((len(_text(row[0])) for row in self.rows), default=0)
        for at, (title, number) in enumerate(zip(self.view.titles, numbers, strict=True)):
            least = None if at else min(widest, 24)
            table.add_column(title, justify="right" if number else "left", no_wrap=True, min_width=least)
        room = max(1, height - 6 - len(self.troubles))
        rows = self.shown()
        for row in rows[:room]:
            table.add_row(*map(Text, row))
        more = f"   {len(rows) - room} more" if len(rows) > room else ""
        lines: list[RenderableType] = [
            Text(f"{self.head}   {self.view.name}{more}", style="bold"),
            table,
            Text(self.state()),
        ]
        lines += [Text(each, style="red", no_wrap=True, overflow="ellipsis") for each in self.troubles]
        return Group(*lines, Text(HELP, style="dim", no_wrap=True, overflow="ellipsis"))


def _text(cell: Cell) -> str:
    if cell is None:
        return "?"
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)


def _order(cell: Cell) -> tuple[bool, float, str]:
    return (False, float(cell), "") if isinstance(cell, int | float) else (True, 0.0, str(cell))


@contextlib.contextmanager
def single_keys(descriptor: int) -> Iterator[None]:
    """Let the terminal give each key at once and show none; it is as before at the end."""
    try:
        import termios
        import tty
    except ImportError:
        raise AdminError("top reads keys as terminals of Unix give them: there are none here") from None
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def keys_of(descriptor: int) -> AsyncIterator[str]:
    """The keys that are pressed at a terminal in ``single_keys``; the last one is ``q`` where the terminal is gone."""
    with contextlib.suppress(OSError):
        async for piece in pieces_of(descriptor):
            for key in piece.decode("utf-8", "ignore"):
                yield key
    yield "q"
