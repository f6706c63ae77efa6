"""Backups under load: each holds all that was acknowledged before it began, and a broker goes on with it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.history import History, judge
from tests.support.load import Load, read
from tests.support.lone import LoneBroker
from tests.support.programme import ENOUGH, LONG, chance, rounds

pytestmark = [pytest.mark.processes, ENOUGH]

ERUCA = str(Path(sys.executable).parent / "eruca")
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


@pytest.mark.parametrize("how", ["eruca store backup", "cp -a"])
async def test_backups_of_a_broker_under_load(tmp_path: Path, how: str) -> None:
    random = chance(f"backups/{how}")
    history = History()
    store, folder = tmp_path / "store", tmp_path / "backups"
    broker = await LoneBroker.start(tmp_path, store, SMALL_FILES)
    conf = tmp_path / "broker.conf"
    made: list[tuple[str, History]] = []
    slowest = 0.0
    try:
        async with Load(broker.address, history, padding=300) as load:
            for number in rounds(4, 20, seconds=10, least=3):
                await load.until(load.answers[0] + random.randrange(1, 2000 if LONG else 800))
                promised = frozen(history)
                begin = time.monotonic()
                made.append((await backed_up(how, store, conf, folder, f"{number:02}"), promised))
                slowest = max(slowest, time.monotonic() - begin)
            await load.drained()
        assert set(load.answers) == {0}
        assert judge(history, await read(broker.address)) == []
        made.append((await backed_up(how, store, conf, folder, "at-rest"), frozen(history)))  # to the last record
    finally:
        broker.kill()
    for name, promised in made:
        restored = tmp_path / f"restored-{name}"
        if how == "cp -a":
            shutil.copytree(folder / name, restored)
        else:
            said = await eruca("restore", "-c", conf, "--name", name, folder, restored)
            assert "The store is sound." in said
        again = await LoneBroker.start(tmp_path / f"home-{name}", restored, SMALL_FILES)
        try:
            opened = again.wait_for_line("store_opened")
            assert "store_damaged" not in again.output, opened
            assert judge(promised, await read(again.address)) == []
            async with Load(again.address, promised) as load:
                await load.until(20)
                await load.drained()
        finally:
            assert again.stop() == 0
        shutil.rmtree(restored)
    kept = sum(len(promised.told) for _, promised in made)
    print(
        f"{len(made)} times {how}, {history.acknowledged} acknowledged, {kept} promises judged, slowest {slowest:.2f} s"
    )
    assert kept > 0
