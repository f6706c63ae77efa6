"""Crashes at any moment: every delayed message comes once, whatever was kept last and whatever the log lost.

The broker runs in this process by the test's clock. A kill is a copy of its folder at that moment, opened by a new
broker. A power failure is such a copy, whose log in addition lost what was written since some moment after the last
mark. Seeded; a failure names its seed.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from eruca.broker.services import delay_recovery
from eruca.broker.services.delays import Delays, Positions
from eruca.broker.store import FileSystem
from eruca.broker.store.cut import intend_cut
from tests.support.desk import START, Desk

pytestmark = pytest.mark.slow

SEND_V2 = 310
TIMER, SCHEDULE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"


async def start(folder: Path, now: int) -> Desk:
    desk = Desk(folder)
    desk.config.store.file_reserved_time = 1  # so that messages move while they wait
    desk.config.store.mapped_file_size_commit_log = 1 << 16
    desk.now = now
    await desk.start()
    desk.topic("T")
    return desk


async def crash(desk: Desk, folder: Path, lost_from: int | None = None) -> Desk:
    """A broker that starts from what the running one has on disk at this moment; the running one is gone."""
    shutil.copytree(desk.folder, folder)
    now, size = desk.now, desk.config.store.mapped_file_size_commit_log
    await desk.stop()
    if lost_from is not None:
        for file in sorted((folder / "store/commitlog").iterdir()):
            keep = lost_from - int(file.name)
            if keep <= 0:
                file.unlink()
            elif keep < size:
                file.write_bytes(file.read_bytes()[:keep] + bytes(size - keep))
    return await start(folder, now)


async def send(desk: Desk, dice: random.Random, number: int) -> None:
    wish = (
        f"DELAY\x01{dice.randint(1, 5)}" if dice.random() < 0.4 else f"TIMER_DELAY_MS\x01{dice.randint(1, 9_000_000)}"
    )
    text = wish if dice.random() < 0.3 else f"UNIQ_KEY\x01{number}\x02{wish}"  # twins that nothing tells apart, too
    fields = dict(zip("abcdefgh", ("pg", "T", "TBW102", 4, 0, 0, START, 0), strict=True))
    body = b"twin" if "UNIQ" not in text else b"%d" % number
    assert (await desk.ask(SEND_V2, {**fields, "i": text}, body)).code == 0


def everything(desk: Desk) -> None:
    """Let all times pass."""
    for _ in range(3):
        for after in range(0, 10_000_001, 1_000_000):
            for _ in range(50):
                if desk.deliver(desk.now - START + after // 10) > desk.now:
                    break


def sent(desk: Desk) -> Counter[bytes]:
    """The messages that the log holds, each once, by what waits of them."""
    found: Counter[bytes] = Counter()
    for queue_id in range(18):
        found.update(record.body for record in desk.records(SCHEDULE, queue_id))
    found.update(record.body for record in desk.records(TIMER) if "TIMER_ROLL_TIMES" not in record.properties)
    return found


def come(desk: Desk) -> Counter[bytes]:
    return Counter(record.body for record in desk.records())


async def live(desk: Desk, dice: random.Random, number: int) -> int:
    """Some time of sending, delivering and keeping."""
    for _ in range(dice.randint(1, 12)):
        what = dice.random()
        if what < 0.5:
            number += 1
            await send(desk, dice, number)
        elif what < 0.9:
            desk.deliver(desk.now - START + dice.choice((1, 500, 5000, 60_000, 1_200_000)))
        else:
            await desk.broker.delays.saved()
    return number


async def crashes(folder: Path, seed: int, *, power: bool) -> tuple[Counter[bytes], Counter[bytes]]:
    """Crash nine times; what came in the end, and what had been sent and was not lost before it was waited for."""
    dice = random.Random(seed)
    desk = await start(folder / "0", START)
    number = 0
    for turn in range(1, 10):
        number = await live(desk, dice, number)
        lost_from = None
        if power:
            store, mark = desk.broker.store, desk.broker.delays._mark.current
            assert mark is not None
            ends = [each.physical_offset + each.size for each in store.records_since(mark.position)]
            lost_from = dice.choice([mark.position, *ends])
        desk = await crash(desk, folder / str(turn), lost_from)
    everything(desk)
    result = come(desk), sent(desk)
    await desk.stop()
    assert power or sum(result[1].values()) == number
    return result


@pytest.mark.parametrize("seed", range(6))
async def test_killed_again_and_again_each_message_comes_once(tmp_path: Path, seed: int) -> None:
    arrived, expected = await crashes(tmp_path, seed, power=False)
    assert arrived == expected and sum(expected.values()) > 10


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_power_failure_each_message_that_is_left_comes_once(tmp_path: Path, seed: int) -> None:
    arrived, expected = await crashes(tmp_path, seed, power=True)
    assert arrived == expected and sum(expected.values()) > 10


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_cut_each_message_that_is_left_comes_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    desk = await start(tmp_path / "0", START)
    number = 0
    for turn in range(1, 6):
        for _ in range(2):
            number = await live(desk, dice, number)
        ends = [0, *(each.physical_offset + each.size for each in desk.broker.store.records_since(0))]
        now, config = desk.now, desk.broker.store.config
        await desk.stop()
        intend_cut(config, dice.choice(ends[-8:]), FileSystem())
        shutil.copytree(desk.folder, tmp_path / str(turn))
        desk = await start(tmp_path / str(turn), now)
    everything(desk)
    assert come(desk) == sent(desk) and sum(sent(desk).values()) > 5
    await desk.stop()


async def test_without_the_mark_timers_still_come_once(tmp_path: Path) -> None:
    dice = random.Random(5)
    desk = await start(tmp_path / "0", START)
    for number in range(30):
        fields = dict(zip("abcdefgh", ("pg", "T", "TBW102", 4, 0, 0, START, 0), strict=True))
        fields["i"] = f"TIMER_DELAY_MS\x01{dice.randint(1, 9_000_000)}"
        assert (await desk.ask(SEND_V2, fields, b"%d" % number)).code == 0
    desk.deliver(4_000_000)
    before = sum(come(desk).values())
    assert 0 < before < 30
    (tmp_path / "0/store/eruca.delays").unlink()
    desk = await crash(desk, tmp_path / "1")
    everything(desk)
    assert come(desk) == sent(desk)
    await desk.stop()


async def test_offsets_that_were_set_back_hold(tmp_path: Path) -> None:
    desk = await start(tmp_path / "0", START)
    fields = dict(zip("abcdefgh", ("pg", "T", "TBW102", 4, 0, 0, START, 0), strict=True))
    await desk.ask(SEND_V2, {**fields, "i": "DELAY\x011"}, b"x")
    desk.deliver(1000)
    await desk.stop()
    file = tmp_path / "0/store/config/delayOffset.json"
    assert b"1:1" in file.read_bytes()
    file.write_bytes(b'{"offsetTable":{1:0}}')
    await desk.start()
    desk.deliver(1000)
    assert come(desk) == {b"x": 2}
    await desk.stop()


@pytest.mark.parametrize("left", [None, b'{"offsetTa'])
async def test_offsets_of_the_older_copy_bring_nothing_again(tmp_path: Path, left: bytes | None) -> None:
    desk = await start(tmp_path / "0", START)
    fields = dict(zip("abcdefgh", ("pg", "T", "TBW102", 4, 0, 0, START, 0), strict=True))
    for number in range(3):
        await desk.ask(SEND_V2, {**fields, "i": "DELAY\x011"}, b"%d" % number)
        desk.deliver(1000 * (number + 1))
        await desk.broker.delays.saved()
    await desk.stop()
    file = tmp_path / "0/store/config/delayOffset.json"
    assert b"1:3" in file.read_bytes() and b"1:2" in (tmp_path / "0/store/config/delayOffset.json.bak").read_bytes()
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    await desk.start()
    desk.deliver(5000)
    assert come(desk) == {b"0": 1, b"1": 1, b"2": 1}
    await desk.stop()


async def test_offsets_that_rocketmq_moved_on_hold(tmp_path: Path) -> None:
    desk = await start(tmp_path / "0", START)
    fields = dict(zip("abcdefgh", ("pg", "T", "TBW102", 4, 0, 0, START, 0), strict=True))
    await desk.ask(SEND_V2, {**fields, "i": "DELAY\x011"}, b"x")
    desk.deliver(1)
    await desk.stop()
    (tmp_path / "0/store/config/delayOffset.json").write_bytes(b'{"offsetTable":{1:1}}')
    await desk.start()
    desk.deliver(1000)
    assert come(desk) == {}
    await desk.stop()


async def test_the_checker_sees_a_broker_that_does_not_read_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_recovery, "_read", lambda *_: None)
    arrived, expected = await crashes(tmp_path, 0, power=False)
    assert arrived != expected


async def test_the_checker_sees_a_broker_that_marks_what_the_log_may_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says of its present deliveries that an earlier log holds them."""
    honest = Delays._positions

    def hasty(self: Delays) -> Positions:
        moment, before = honest(self), self._mark.current
        return moment._replace(mark=moment.mark._replace(position=before.position if before is not None else 0))

    monkeypatch.setattr(Delays, "_positions", hasty)
    wrong = 0
    for seed in range(6):
        arrived, expected = await crashes(tmp_path / str(seed), seed, power=True)
        wrong += arrived != expected
    assert wrong
