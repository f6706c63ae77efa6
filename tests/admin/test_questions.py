"""Ctrl-C at a question ends mqadmin at once, and what is typed after it changes nothing."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.admin.conftest import Lab
from tests.support.eruca import SCRIPTS
from tests.support.terminals import Terminal, at_a_terminal


async def begin(terminal: Terminal, lab: Lab, *line: str) -> asyncio.subprocess.Process:
    """Type a command line at a terminal that is the process's own, so that its Ctrl-C interrupts it."""
    environment = {**os.environ, "NAMESRV_ADDR": lab.nameserver, "XDG_STATE_HOME": str(lab.home)}
    return await asyncio.create_subprocess_exec(
        "setsid",
        "--ctty",
        "--wait",
        str(SCRIPTS / "mqadmin"),
        *line,
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        env=environment,
    )


LINES = {
    "a change of a group": ("updateSubGroup", "-g", "shop", "-c", "DefaultCluster"),
    "a change of a topic": ("updateTopic", "-t", "T", "-c", "DefaultCluster"),
    "a deletion": ("deleteTopic", "-t", "T", "-c", "DefaultCluster"),
    "a time": ("resetOffsetByTime", "-g", "shop", "-t", "T", "-s", "1700000000"),
}


@pytest.mark.processes
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
async def test_ctrl_c_at_a_question(lab: Lab, line: tuple[str, ...]) -> None:
    await lab.topic("T", 2)
    await lab.done("updateSubGroup", "-g", "shop", "-c", "DefaultCluster", "-r", "3")
    await lab.member("shop", "T")
    await lab.commit("shop", "T", 0, 0)
    before = [await lab.mqadmin(*look) for look in (("getConsumerConfig", "-g", "shop"), ("topicRoute", "-t", "T"))]
    with at_a_terminal() as terminal:
        process = await begin(terminal, lab, *line)
        await terminal.shows("[y/N] ")
        terminal.type("\x03")
        assert await asyncio.wait_for(process.wait(), 20) == 130
        terminal.type("y\n")
        await terminal.shows("y")
    after = [await lab.mqadmin(*look) for look in (("getConsumerConfig", "-g", "shop"), ("topicRoute", "-t", "T"))]
    assert after == before
