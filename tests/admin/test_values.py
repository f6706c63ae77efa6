"""Values are judged before work begins: every option of every command refuses what is none, and asks nobody."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eruca.admin.cli import run
from eruca.admin.command import Command
from eruca.admin.commands import every
from eruca.admin.posix import Option, overruled
from tests.admin.conftest import Lab

COMMANDS: dict[str, Command] = {each.name: each for each in every()}
PLAIN = {"number": "1", "boolean": "true", "time": "0", "address": "127.0.0.1:1", "file": "none.json", "place": "first"}
HUGE = "9" * 19
"""More than any number of Java's."""


def wrong_values(option: Option) -> list[str]:
    """Some that it does not take."""
    if option.kind == "number":
        bounds = [] if option.is_decimal else [str(option.least - 1), str(option.most + 1), HUGE, "1.5", "1_0"]
        return ["abc", "", *bounds]
    if option.kind in ("boolean", "time", "place") or option.choices:
        return ["abc", ""]
    return []


def plain_values(command: Command, beside: Option) -> dict[str, str]:
    """What else a line must have, besides an option."""
    found = {beside.key: ""}
    for option in command.options:
        group = [each.key for each in command.options if option.group and each.group == option.group]
        if option.key not in found and (option.required or (group and not any(key in found for key in group))):
            found[option.key] = PLAIN.get(option.kind, (*option.choices, "T")[0])
    assert not overruled(command.options, found)
    return {key: value for key, value in found.items() if key != beside.key}


def lines() -> Iterator[list[str]]:
    """A command line for each wrong value of each option, which is right but for that."""
    for command in COMMANDS.values():
        for option in command.options:
            if option.key == "h" or not option.takes_value:
                continue
            for value in wrong_values(option):
                words = [command.name]
                for key, plain in plain_values(command, option).items():
                    words += [f"-{key}" if any(each.letter == key for each in command.options) else f"--{key}", plain]
                yield [*words, f"-{option.letter}" if option.letter else f"--{option.name}", value]


@pytest.fixture
async def nobody() -> AsyncIterator[tuple[str, list[str]]]:
    """A nameserver that only notes who connects."""
    asked: list[str] = []

    def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(str(writer.get_extra_info("peername")))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_a_wrong_value_is_refused_before_anybody_is_asked(
    nobody: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address, asked = nobody
    failed, count = [], 0
    for line in lines():
        out, err = io.StringIO(), io.StringIO()
        async with asyncio.timeout(10):
            status = await run(line, {"NAMESRV_ADDR": address, "HOME": str(tmp_path)}, out, err)
        count += 1
        if status != (COMMANDS[line[0]].statuses.failure or 2) or asked:
            failed.append((line, status, err.getvalue()))
        asked.clear()
    assert count > 200 and not failed, failed


async def test_sizes_that_no_memory_has(lab: Lab) -> None:
    await lab.topic("T")
    for line in (
        ("sendMsgStatus", "-b", "broker-a", "-c", "1", "--messageSize", "99999999999"),
        ("checkMsgSendRT", "-t", "T", "-a", "1", "--size", "9999999999999"),
        ("clusterRT", "-a", "1", "--size", "9999999999999"),
    ):
        done = await lab.mqadmin(*line)
        assert (done.status, done.out) == (2, "")
        assert done.err == (
            f"mqadmin {line[0]}: option -s ({line[-2]}) takes a whole number, 16777216 or less, not {line[-1]}\n"
        )


async def test_rounds_without_a_pause(lab: Lab) -> None:
    for interval in ("0", "-1"):
        done = await lab.mqadmin("clusterRT", "-i", interval)
        assert (done.status, done.out) == (2, "")
        assert (
            done.err == f"mqadmin clusterRT: option -i (--interval) takes a whole number, 1 or more, not {interval}\n"
        )
