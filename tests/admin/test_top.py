"""mqadmin top at a terminal: what it shows, what keys do, and that the terminal is as before at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import termios

import pytest

from eruca.admin.commands.screen import Screen, View
from tests.admin.conftest import Lab
from tests.support.eruca import SCRIPTS
from tests.support.terminals import Terminal, at_a_terminal

VIEWS = (View("a", "as", ("NAME", "SIZE")), View("b", "bs", ("NAME",)))


async def begin(terminal: Terminal, lab: Lab, *options: str) -> asyncio.subprocess.Process:
    """Start ``mqadmin top`` there."""
    environment = {**os.environ, "NAMESRV_ADDR": lab.nameserver, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    return await asyncio.create_subprocess_exec(
        str(SCRIPTS / "mqadmin"),
        "top",
        *options,
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        env=environment,
    )


@pytest.mark.processes
@pytest.mark.parametrize("end", ["q", "interrupt"])
async def test_a_cluster_on_the_screen(lab: Lab, end: str) -> None:
    await lab.topic("T")
    await lab.send("T", "one", "two")
    await lab.member("shop", "T", client_id="10.0.0.1@c")
    await lab.commit("shop", "T", 0)
    with at_a_terminal() as terminal:
        process = await begin(terminal, lab, "-i", "1")
        await terminal.shows("BROKER", "broker-a", "master", "\x1b[?1049h")
        assert termios.tcgetattr(terminal.slave)[3] & termios.ICANON == 0
        terminal.type("g")
        await terminal.shows("GROUP", "shop", "LAST LOOKS")
        terminal.type("m")
        await terminal.shows("10.0.0.1@c", "JAVA")
        terminal.type("t")
        await terminal.shows("TOPIC", "shop")
        assert "SELF_TEST_TOPIC" not in terminal.seen, "those of the system are not shown"
        terminal.type("/zzz\r")
        await terminal.shows("filter zzz")
        terminal.type(" ")
        await terminal.shows("FROZEN")
        if end == "q":
            terminal.type("q")
        else:
            process.send_signal(signal.SIGINT)
        assert await process.wait() == (0 if end == "q" else 130)
        await terminal.shows("\x1b[?1049l")
        assert termios.tcgetattr(terminal.slave) == terminal.before


async def test_without_a_terminal_it_is_refused(lab: Lab) -> None:
    done = await lab.mqadmin("top")
    assert (done.status, "top needs a terminal" in done.err) == (1, True)
    assert (await lab.mqadmin("top", "-i", "0")).status == 2


def test_keys_sort_filter_and_freeze() -> None:
    screen = Screen(VIEWS, "head")
    screen.rows = [("beta", 2), ("alpha", 10), ("gamma", None)]
    assert [row[0] for row in screen.shown()] == ["alpha", "beta", "gamma"]
    screen.press("s")
    assert screen.shown() == [("beta", "2"), ("alpha", "10"), ("gamma", "?")]
    screen.press("r")
    assert [row[0] for row in screen.shown()] == ["alpha", "beta", "gamma"]
    for key in "/MM\x7f":
        screen.press(key)
    assert ([row[0] for row in screen.shown()], screen.state()) == (["gamma"], "sorted by SIZE down   filter M_")
    screen.press("\x1b")
    screen.press(" ")
    assert (len(screen.shown()), screen.state()) == (3, "sorted by SIZE down   FROZEN")
    screen.press("b")
    assert (screen.view.name, screen.rows) == ("bs", [])
    screen.press("q")
    assert screen.ended
