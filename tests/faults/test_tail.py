"""mqadmin tail beside a broker that is killed and started again: each message once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from eruca.client import Message, Producer
from tests.support.eruca import SCRIPTS, ErucaBroker, ErucaNameServer

pytestmark = pytest.mark.processes

ALL, FIRST = 10_000, 4_000


async def test_each_of_10000_messages_comes_once_across_a_restart(tmp_path: Path) -> None:
    names = ErucaNameServer(tmp_path / "names")
    broker = ErucaBroker(tmp_path / "broker", names.address)
    line = ["tail", "T", "--from", "first", "--follow", "-c", str(ALL), "-f", "%v\\n", "-n", names.address]
    try:
        async with Producer("p", nameserver=names.address) as producer:

            async def send(begin: int, end: int) -> None:
                await asyncio.gather(*(producer.send(Message("T", b"%d" % each)) for each in range(begin, end)))

            await send(0, FIRST)
            tail = await asyncio.create_subprocess_exec(
                str(SCRIPTS / "mqadmin"), *line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            assert tail.stdout is not None and tail.stderr is not None
            got = [await tail.stdout.readline() for _ in range(FIRST // 2)]
            broker.process.kill()
            away = asyncio.create_task(tail.stderr.readline())
            got += [await tail.stdout.readline() for _ in range(10)]
            assert b"it is asked again" in await away
            broker = ErucaBroker(tmp_path / "broker", names.address)
            await send(FIRST, ALL)
            async with asyncio.timeout(60):
                rest, errors = await tail.communicate()
    finally:
        broker.process.kill()
        names.stop()
    assert (tail.returncode, b"answers again" in errors) == (0, True), errors
    counts = Counter([*(each.rstrip() for each in got), *rest.splitlines()])
    assert set(counts.values()) == {1}
    assert sorted(map(int, counts)) == list(range(ALL))
