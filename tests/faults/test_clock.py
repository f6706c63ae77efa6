"""The clock jumps by an hour and a day, forth and back: offsets and order stay, no message is kept from anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.store.appender import Appender
from tests.support.desk import Desk
from tests.support.history import History, judge
from tests.support.load import QUEUES, Load, read
from tests.support.programme import amount, chance

HOUR = 3_600_000


async def jump(tmp_path: Path, times_over: int) -> None:
    """Jump under load, start again and look, so many times."""
    random = chance("clock")
    history = History()
    desk = Desk(tmp_path)
    await desk.start()
    desk.topic("Torture", QUEUES)
    try:
        times: list[int] = []
        for jump in (HOUR, -HOUR, 24 * HOUR, -48 * HOUR) * times_over:
            async with Load(desk.app.address, history) as load:
                await load.until(100)
                desk.jump(jump + random.randrange(1000))
                await load.until(200)
                await load.drained()
            await desk.restart()
            found = await read(desk.app.address)
            assert judge(history, found) == []
            for queue, messages in found.items():
                assert [offset for offset, _ in messages] == list(range(len(messages)))
                times = [desk.broker.store.store_time("Torture", queue, offset) for offset, _ in messages]
                assert times == sorted(times)
        assert sum(map(len, found.values())) == history.acknowledged
    finally:
        await desk.stop()


async def test_the_clock_jumps_under_load(tmp_path: Path) -> None:
    await jump(tmp_path, amount(1, 5))


async def test_a_store_that_believes_the_clock_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: store times go back with the clock."""
    monkeypatch.setattr(Appender, "last_time", property(lambda self: 0, lambda self, value: None), raising=False)
    with pytest.raises(AssertionError):
        await jump(tmp_path, 1)
