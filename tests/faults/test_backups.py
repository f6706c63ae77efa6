"""Backups under load: each holds all that was acknowledged before it began, and a broker goes on with it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.support.history import History, judge
from tests.support.load import Load, read
from tests.support.lone import LoneBroker
from tests.support.programme import ENOUGH, LONG, chance, rounds

pytestmark = [pytest.mark.processes, ENOUGH]

ERUCA = str(Path(sys.executable).parent / "eruca")
AT_REST = "at-rest"
SMALL_FILES = {"mappedFileSizeCommitLog": "262144", "cleanResourceInterval": "200"}


async def eruca(*arguments: str | Path) -> str:
    """What a command of `eruca store` says."""
    command = [ERUCA, "store", *map(str, arguments)]
    done = await asyncio.to_thread(partial(subprocess.run, command, capture_output=True, text=True, timeout=120))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def frozen(history: History) -> History:
    """The promises so far; what is sent from now on is no stranger."""
    return History(sent=history.sent, told=dict(history.told), acknowledged=history.acknowledged)


async def backed_up(how: str, store: Path, conf: Path, folder: Path, name: str) -> str:
    """Make a backup of a store; the name that it has in the folder."""
    before = inside(folder)
    if how == "cp -a":
        await asyncio.to_thread(partial(subprocess.run, ["cp", "-a", store, folder / name], check=True))
    else:
        assert ": commit log from 0 to " in await eruca("backup", "-c", conf, store, folder)
    (made,) = inside(folder) - before
    return made


def inside(folder: Path) -> set[str]:
    folder.mkdir(exist_ok=True)
    return {each.name for each in folder.iterdir()}


class Made(NamedTuple):
    """A backup: its name, and what was promised before it began."""

    name: str
    promised: History


Spoil = Callable[[Path], None]
"""Changes the copy of a store."""


async def under_load(tmp_path: Path, how: str, random: Random, spoil: Spoil | None = None) -> list[Made]:
    """Backups of a broker that takes messages, the last one when it has nothing to do.

    ``spoil`` changes each of them; then each begins when some messages have come that it need not have.
    """
    history = History()
    store, folder = tmp_path / "store", tmp_path / "backups"
    broker = await LoneBroker.start(tmp_path, store, SMALL_FILES)
    made: list[Made] = []
    slowest = 0.0

    async def back_up(name: str, load: Load | None = None) -> None:
        promised = frozen(history)
        if spoil is not None and load is not None:
            await load.until(load.answers[0] + 50)
        called = await backed_up(how, store, tmp_path / "broker.conf", folder, name)
        if spoil is not None:
            spoil(folder / called)
        made.append(Made(called, promised))

    try:
        async with Load(broker.address, history, padding=300) as load:
            for number in rounds(4, 20, seconds=10, least=3):
                await load.until(load.answers[0] + random.randrange(1, 2000 if LONG else 800))
                begin = time.monotonic()
                await back_up(f"{number:02}", load)
                slowest = max(slowest, time.monotonic() - begin)
            await load.drained()
        assert set(load.answers) == {0}
        assert judge(history, await read(broker.address)) == []
        await back_up(AT_REST)  # to the last record
    finally:
        broker.kill()
    print(f"{len(made)} times {how}, {history.acknowledged} acknowledged, slowest {slowest:.2f} s")
    return made


async def faults_of(tmp_path: Path, how: str, made: Made) -> list[str]:
    """What a broker on the restored backup lacks; it takes new messages, and stops in order."""
    restored = tmp_path / f"restored-{made.name}"
    if how == "cp -a":
        shutil.copytree(tmp_path / "backups" / made.name, restored)
    else:
        conf = tmp_path / "broker.conf"
        said = await eruca("restore", "-c", conf, "--name", made.name, tmp_path / "backups", restored)
        assert "The store is sound." in said
    again = await LoneBroker.start(tmp_path / f"home-{made.name}", restored, SMALL_FILES)
    try:
        opened = again.wait_for_line("store_opened")
        assert "store_damaged" not in again.output, opened
        faults = judge(made.promised, await read(again.address))
        async with Load(again.address, made.promised) as load:
            await load.until(20)
            await load.drained()
    finally:
        assert again.stop() == 0
    shutil.rmtree(restored)
    return faults


@pytest.mark.parametrize("how", ["eruca store backup", "cp -a"])
async def test_backups_of_a_broker_under_load(tmp_path: Path, how: str) -> None:
    backups = await under_load(tmp_path, how, chance(f"backups/{how}"))
    kept = sum(len(each.promised.told) for each in backups)
    print(f"{kept} promises judged")
    assert kept > 0
    for each in backups:
        assert await faults_of(tmp_path, how, each) == []


def without_its_end(store: Path) -> None:
    """Take the last record from a copy of a store, as if it had been made a moment too early."""
    path = max(each for each in (store / "commitlog").iterdir() if any(each.read_bytes()[:4]))
    log = bytearray(path.read_bytes())
    at, length = 0, int.from_bytes(log[:4], "big")
    while following := int.from_bytes(log[at + length : at + length + 4], "big"):
        at, length = at + length, following
    log[at : at + length] = bytes(length)
    path.write_bytes(log)


async def test_a_backup_that_lacks_its_end_is_found_out_at_rest(tmp_path: Path) -> None:
    """Under load the last record of a backup is one that nobody was promised yet: only the last backup tells."""
    *busy, at_rest = await under_load(tmp_path, "cp -a", chance("backups/cut"), without_its_end)
    for each in busy:
        assert await faults_of(tmp_path, "cp -a", each) == []
    (fault,) = await faults_of(tmp_path, "cp -a", at_rest)
    assert fault.startswith("lost: ")
