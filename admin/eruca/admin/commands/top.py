"""The command that shows a cluster on a screen, as it is now, until a key ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from eruca.admin.client import Admin
from eruca.admin.command import Job, command
from eruca.admin.commands.screen import Cell, Screen, View, keys_of, single_keys
from eruca.admin.errors import AdminError
from eruca.admin.lookups import ask_each
from eruca.admin.posix import Option
from eruca.admin.results.answer import PeerError
from eruca.admin.results.brokers import brokers
from eruca.admin.results.groups import members
from eruca.admin.results.history import History, blocks
from eruca.admin.results.lags import lags, span
from eruca.admin.results.progress import groups_in_short, traffic
from eruca.admin.text import harmless, seconds_text
from eruca.protocol.names import is_system_topic
from eruca.remoting.clock import now_ms

_MIB = 1 << 20
_Found = tuple[list[tuple[Cell, ...]], list[PeerError]]
_Ask = Callable[[Admin, History], Awaitable[_Found]]


async def _brokers(admin: Admin, history: History) -> _Found:
    found = await brokers(admin)
    ends = {each.broker: each.log_end for each in found.items if each.broker_id == 0}
    rows: list[tuple[Cell, ...]] = []
    for each in found.items:
        master = ends.get(each.broker)
        behind = None if master is None or each.log_end is None else max(0, master - each.log_end) / _MIB
        rows.append(
            (
                each.broker,
                "master" if each.broker_id == 0 else f"slave {each.broker_id}",
                each.address,
                each.sends.per_second if each.sends else None,
                each.pulls.per_second if each.pulls else None,
                each.dispatch_behind,
                "" if each.broker_id == 0 else behind,
                None if each.disk_used is None else each.disk_used * 100,
            )
        )
    return rows, found.errors


async def _topics(admin: Admin, history: History) -> _Found:
    found = await traffic(admin)
    rows: list[tuple[Cell, ...]] = [
        (
            each.topic,
            each.group or "",
            each.sent.per_second if each.sent.complete else None,
            (each.consumed.per_second if each.consumed.complete else None) if each.consumed else "",
            each.sent.last_day if each.sent.complete else None,
            each.lag.known if each.lag and each.lag.complete else ("" if each.group is None else None),
        )
        for each in found.items
        if not is_system_topic(each.topic)
    ]
    return rows, found.errors


async def _groups(admin: Admin, history: History) -> _Found:
    found = await lags(admin, (), history)
    rows: list[tuple[Cell, ...]] = [
        (
            each.group,
            each.members,
            each.lag.known if each.lag and each.lag.complete else None,
            each.change_per_second if each.change_per_second is not None else "",
            span(each.seconds_to_zero),
            blocks(each.last[-30:]),
        )
        for each in found.items
    ]
    return rows, found.errors


async def _members(admin: Admin, history: History) -> _Found:
    found = await groups_in_short(admin)
    asked = await ask_each({each.group: members(admin, each.group) for each in found.items if each.members})
    rows: list[tuple[Cell, ...]] = [
        (
            each.client_id,
            group,
            each.address,
            each.language or "",
            each.version,
            ", ".join(sorted(one.topic for one in answer.subscriptions if not one.topic.startswith("%RETRY%"))),
        )
        for group, answer in asked.answers.items()
        for each in answer.items
    ]
    return rows, found.errors


_VIEWS: dict[str, tuple[View, _Ask]] = {
    "brokers": (
        View("b", "brokers", ("BROKER", "ROLE", "ADDRESS", "IN/S", "OUT/S", "QUEUED B", "BEHIND", "DISK%")),
        _brokers,
    ),
    "topics": (View("t", "topics", ("TOPIC", "GROUP", "IN/S", "OUT/S", "IN 24H", "LAG"), 2, True), _topics),
    "groups": (View("g", "groups", ("GROUP", "ONLINE", "LAG", "CHANGE/S", "TO ZERO", "LAST LOOKS"), 2, True), _groups),
    "members": (View("m", "members", ("CLIENT", "GROUP", "ADDRESS", "LANGUAGE", "VERSION", "TOPICS")), _members),
}


@command(
    "top",
    Option("i", "interval", "seconds from look to look; default 2", kind="number", least=1),
)
async def top(job: Job) -> None:
    """28, 208, 315 and 203 in each round, of what the screen shows."""
    interval = job.number("i", 2)
    if job.screen is None:
        raise AdminError("top needs a terminal; elsewhere take lag, clusterList or statsAll with --watch")
    screen = Screen([view for view, _ in _VIEWS.values()], f"mqadmin top   {seconds_text(now_ms())}")
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with single_keys(job.screen), Live(console=console, screen=True, auto_refresh=False) as live:

        def draw() -> None:
            live.update(screen.drawn(console.size.height), refresh=True)

        changed = asyncio.Event()
        looks = asyncio.create_task(_look(job.admin, screen, interval, changed, draw))
        try:
            async for key in keys_of(job.screen):
                before = screen.view
                screen.press(key)
                if screen.ended:
                    return
                if screen.view is not before:
                    changed.set()
                draw()
        finally:
            looks.cancel()
            with suppress(asyncio.CancelledError):
                await looks


async def _look(admin: Admin, screen: Screen, interval: int, changed: asyncio.Event, draw: Callable[[], None]) -> None:
    """Ask again and again for what is shown; at once for another view."""
    history = History()
    while True:
        view = screen.view
        if not screen.frozen:
            try:
                rows, errors = await _VIEWS[view.name][1](admin, history)
                troubles = [f"{each.peer}: {each.text}" for each in errors]
            except AdminError as error:
                rows, troubles = screen.rows, [str(error)]
            if screen.view is view and not screen.frozen:
                screen.rows = [tuple(harmless(cell) if isinstance(cell, str) else cell for cell in row) for row in rows]
                screen.troubles = [harmless(each) for each in troubles]
                screen.head = f"mqadmin top   {seconds_text(now_ms())}"
        draw()
        with suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await changed.wait()
        changed.clear()
