"""A broker is killed at the n-th step on its disk while it becomes the master, or while it comes back to its group.

A step is a call that changes what a disk has, or brings it there; the kill comes before it. Whatever was written by
then, the group comes together again with all that was acknowledged, and its logs are equal.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.test_failover import judged
from tests.support.etcd import needs_etcd
from tests.support.failover_cluster import FailoverCluster
from tests.support.processes import NotReady
from tests.support.programme import ENOUGH, chance, rounds
from tests.support.sends import message

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow, ENOUGH]

DIES = """
import os, signal

begun, left = os.environ["DIES_IF_THERE_IS"], int(os.environ["DIES_AT"])

def dying(real):
    def step(*args, **options):
        global left
        if left and os.path.exists(begun):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    return step

for name in ("fsync", "fdatasync", "replace", "rename", "link", "unlink", "ftruncate", "pwrite", "mkdir"):
    setattr(os, name, dying(getattr(os, name)))
"""
PROMOTING, JOINING = 30, 80
"""About as many steps as it takes until the first send is stored, or until the broker is in the set."""


class Fate:
    """Where the broker that has this in its environment dies."""

    def __init__(self, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(DIES)
        self._folder = folder
        self._begun = folder
        self._given = 0

    def env(self, step: int) -> dict[str, str]:
        """It dies at this step, counted from ``begin`` on; who had an earlier one lives on."""
        self._given += 1
        self._begun = self._folder / f"begun-{self._given}"
        return {"PYTHONPATH": str(self._folder), "DIES_IF_THERE_IS": str(self._begun), "DIES_AT": str(step)}

    def begin(self) -> None:
        """From now on each step counts."""
        self._begun.touch()

    def end(self) -> None:
        """From now on no step counts."""
        self._begun.unlink(missing_ok=True)


async def survives(group: FailoverCluster, fate: Fate, number: int, aim: asyncio.Task[object]) -> bool:
    """Wait until a broker has died, or something is done; whether it lives on."""
    broker = group.brokers[number]
    while broker.running and not aim.done():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    fate.end()
    try:
        await group.ask(number, 28, {})  # the step that was its last one may be under way
    except (OSError, EOFError, TimeoutError):
        aim.cancel()
        await asyncio.gather(aim, return_exceptions=True)
        for each in group.numbers:
            await group.hang_up(each)
        broker.kill()
        broker.close_pipes()
        return False
    await aim
    return True


async def test_killed_at_any_step_of_its_promotion(tmp_path: Path) -> None:
    dice, deaths = chance("steps of a promotion"), []
    fate = Fate(tmp_path)
    async with FailoverCluster(tmp_path / "group") as group:
        await group.send()
        await group.all_in_set()
        for _ in rounds(2, 100, seconds=15):
            former = await group.master()
            heir, step = 3 - former, dice.randint(1, PROMOTING)
            await asyncio.to_thread(group.brokers[heir].stop)
            await group.hang_up(heir)
            await group.start(heir, fate.env(step))
            await group.all_in_set()
            for _ in range(20):
                await group.send()
            fate.begin()
            group.kill(former)
            if await survives(group, fate, heir, asyncio.create_task(group.send())):
                await group.start(former)
            else:
                deaths.append(step)
                await asyncio.gather(group.start(former), group.start(heir))
            await group.send()
            await group.all_in_set()
        judged(group, await group.logs())
    print(f"{len(group.acknowledged):,} messages; killed at the steps {deaths}")
    assert deaths


async def test_killed_at_any_step_of_coming_back_with_more_than_the_next_master_has(tmp_path: Path) -> None:
    dice, deaths = chance("steps of coming back"), []
    fate = Fate(tmp_path)
    async with FailoverCluster(tmp_path / "group") as group:
        await group.send()
        await group.all_in_set()
        for _ in rounds(2, 100, seconds=15):
            former, step = await group.master(), dice.randint(1, JOINING)
            for _ in range(20):
                await group.send()
            group.brokers[3 - former].signal(signal.SIGSTOP)
            with suppress(TimeoutError):
                await group.ask(former, 310, message(i=""), b"nobody else has this", within=0.3)
            group.kill(former)
            await group.hang_up(former)
            group.brokers[3 - former].signal(signal.SIGCONT)
            await group.send()
            env = fate.env(step)
            fate.begin()
            try:
                await group.start(former, env)
                lives = await survives(group, fate, former, asyncio.create_task(group.all_in_set()))
            except NotReady:
                lives = False
            if not lives:
                deaths.append(step)
                await group.start(former)
                await group.send()
                await group.all_in_set()
        judged(group, await group.logs())
    print(f"{len(group.acknowledged):,} messages; killed at the steps {deaths}")
    assert deaths
