"""Above memoryHighWater sends are refused, consumers go on; below it everybody does."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from eruca.broker.services.memory_alarm import MemoryAlarm
from tests.support.desk import Desk
from tests.support.load import pull, send

MEBIBYTE = 1 << 20


class Memory:
    """That of the broker, in the test's hand."""

    def __init__(self, broker_alarm: MemoryAlarm) -> None:
        self.mebibytes = 100
        self._alarm = broker_alarm
        broker_alarm.used = lambda: self.mebibytes * MEBIBYTE

    def becomes(self, mebibytes: int) -> None:
        self.mebibytes = mebibytes
        self._alarm.look()


async def test_sends_are_refused_and_pulls_served_while_the_memory_is_high(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        memory = Memory(desk.broker.memory_alarm)
        desk.config.memory_high_water = str(200 * MEBIBYTE)
        for _ in range(3):  # the last ones by the native step, which knows their form by then
            assert (await send(desk.operator, 0, b"before")).code == 0
        with capture_logs() as said:
            memory.becomes(201)
            for _ in range(2):
                answer = await send(desk.operator, 0, b"meanwhile")
                assert answer.code == 2
                assert answer.remark is not None and "its memory (201 MiB) is above memoryHighWater" in answer.remark
            assert (await pull(desk.operator, 0, 0)).code == 0
            memory.becomes(230)
            assert "230 MiB" in str((await send(desk.operator, 0, b"meanwhile")).remark)
            assert desk.broker.readiness.ready
            memory.becomes(200)
            assert (await send(desk.operator, 0, b"after")).code == 0
        assert [(line["event"], line["used_mib"]) for line in said if line["event"].startswith("memory_")] == [
            ("memory_high", 201),
            ("memory_normal", 200),
        ]
        assert desk.broker.store.max_offset("Torture", 0) == 4
        assert desk.broker.memory_alarm.alarms == 1


async def test_the_mark_is_a_share_of_the_memory_or_a_number_of_bytes_and_may_change(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        config = desk.config
        alarm = MemoryAlarm(desk.broker.admission, lambda: config.memory_high_water, limit=1000 * MEBIBYTE)
        memory = Memory(alarm)
        assert (config.memory_high_water, alarm.mark) == ("80%", 800 * MEBIBYTE)
        memory.becomes(801)
        assert alarm.on
        config.memory_high_water = str(900 * MEBIBYTE)
        alarm.look()
        assert not alarm.on
        memory.becomes(901)
        assert alarm.on
        config.memory_high_water = "0"
        alarm.look()
        assert not alarm.on
