"""Messages that come later by delay level: what is stored, when it comes, and what a restart leaves of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eruca.broker.config import BrokerRole
from eruca.broker.services import delay_levels
from eruca.broker.store import StoreLocked
from eruca.protocol.bodies import DelayOffsetSerializeWrapper, KVTable
from eruca.protocol.record import decode_record
from tests.support.desk import START, Desk

SEND_V2, BATCH, DELAY_OFFSETS, RUNTIME = 310, 320, 45, 28
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


def message(
    level: int | str, topic: str = "T", queue_id: int = 0, more: str = "", **fields: object
) -> dict[str, object]:
    text = f"UNIQ_KEY\x01AC11\x02WAIT\x01true\x02DELAY\x01{level}" + more
    return {
        **dict(zip("abcdefgh", ("pg", topic, "TBW102", 4, queue_id, 0, START - 5, 7), strict=True)),
        "i": text,
        **fields,
    }


# ---------------------------------------------------------------------- what is stored


async def test_a_delayed_message_waits_in_the_queue_of_its_level(desk: Desk) -> None:
    desk.topic("T", queues=4)
    answer = await desk.ask(SEND_V2, message(3, queue_id=2), b"hello")
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "2", "0")
    (waiting,) = desk.records(SCHEDULE, 2)
    assert (waiting.topic, waiting.queue_id, waiting.body, waiting.flag) == (SCHEDULE, 2, b"hello", 7)
    assert waiting.properties_text == (
        b"UNIQ_KEY\x01AC11\x02WAIT\x01true\x02DELAY\x013\x02CLUSTER\x01Lab\x02REAL_TOPIC\x01T\x02REAL_QID\x012"
    )
    unit = desk.broker.store.unit(SCHEDULE, 2, 0)
    assert unit == (waiting.physical_offset, waiting.size, START + 10_000)  # its tag code is when it comes
    assert desk.records(queue_id=2) == []


async def test_a_level_above_the_last_is_the_last(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(99), b"x")
    (waiting,) = desk.records(SCHEDULE, 17)
    assert waiting.properties["DELAY"] == "18"
    assert desk.broker.store.unit(SCHEDULE, 17, 0) == (0, waiting.size, START + 7_200_000)


@pytest.mark.parametrize("level", ["0", "-1", "soon", "9" * 5000])
async def test_what_is_no_level_delays_nothing(desk: Desk, level: str) -> None:
    desk.topic("T")
    assert (await desk.ask(SEND_V2, message(level), b"x")).code == 0
    assert [record.body for record in desk.records()] == [b"x"]


async def test_a_batch_cannot_be_delayed(desk: Desk) -> None:
    desk.topic("T")
    answer = await desk.ask(BATCH, message(3, m="true"), b"")
    assert (answer.code, answer.remark) == (13, "a batch cannot be delayed: send its messages one by one")


async def test_nobody_sends_to_the_waiting_queues_himself(desk: Desk) -> None:
    for topic in (SCHEDULE, "rmq_sys_wheel_timer"):
        answer = await desk.ask(SEND_V2, message(0, topic), b"x")
        assert (answer.code, answer.remark) == (16, f"Sending message to topic[{topic}] is forbidden.")


# ---------------------------------------------------------------------- when it comes


async def test_it_comes_when_it_is_due_and_is_the_same_message(desk: Desk) -> None:
    desk.topic("T", queues=4)
    await desk.ask(SEND_V2, message(1, queue_id=2, j=3), b"hello")
    (waiting,) = desk.records(SCHEDULE, 0)
    assert desk.deliver(999) == START + 1000
    assert desk.records(queue_id=2) == []
    desk.deliver(1000)
    (come,) = desk.records(queue_id=2)
    assert come == waiting._replace(
        topic="T",
        queue_id=2,
        size=waiting.size - len(SCHEDULE) + len("T"),
        physical_offset=waiting.physical_offset + waiting.size,
        store_timestamp=START + 1000,
    )
    assert desk.deliver(2000) == delay_levels.NEVER
    assert len(desk.records(queue_id=2)) == 1


async def test_each_level_has_its_delay_and_its_order(desk: Desk) -> None:
    desk.topic("T")
    for number, level in enumerate((2, 1, 2, 1)):
        await desk.ask(SEND_V2, message(level), b"%d" % number)
    desk.deliver(1000)
    assert [record.body for record in desk.records()] == [b"1", b"3"]
    desk.deliver(5000)
    assert [record.body for record in desk.records()] == [b"1", b"3", b"0", b"2"]


async def test_other_levels_by_configuration(prepared: Prepared) -> None:
    def prepare(desk: Desk) -> None:
        desk.config.store.message_delay_level = "2s 1d"

    desk = await prepared(prepare)
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"a")
    await desk.ask(SEND_V2, message(3), b"b")
    desk.deliver(1999)
    assert desk.records() == []
    desk.deliver(2000)
    assert [record.body for record in desk.records()] == [b"a"]
    desk.deliver(86_400_000)
    assert [record.body for record in desk.records()] == [b"a", b"b"]


async def test_without_levels_everything_comes_at_once(prepared: Prepared) -> None:
    def prepare(desk: Desk) -> None:
        desk.config.store.message_delay_level = ""

    desk = await prepared(prepare)
    desk.topic("T")
    await desk.ask(SEND_V2, message(3), b"now")
    assert [record.body for record in desk.records()] == [b"now"]


async def test_a_clock_that_goes_back_a_day_makes_messages_wait_neither_longer_nor_shorter(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"before")
    desk.turn()
    desk.now += 400
    desk.jump(-86_400_000)
    desk.turn()
    await desk.ask(SEND_V2, message(1), b"after")
    desk.turn()
    desk.now += 599
    desk.turn()
    assert desk.records() == []
    desk.now += 1
    assert desk.turn() == desk.now + 400
    assert [record.body for record in desk.records()] == [b"before"]
    desk.now += 399
    desk.turn()
    assert len(desk.records()) == 1
    desk.now += 1
    desk.turn()
    assert [record.body for record in desk.records()] == [b"before", b"after"]


async def test_nor_does_a_message_come_at_once_when_the_clock_goes_back_a_little(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"x")
    desk.jump(-5)
    desk.turn()
    desk.now += 999
    desk.turn()
    assert desk.records() == []
    desk.now += 6
    desk.turn()
    assert [record.body for record in desk.records()] == [b"x"]


async def test_nobody_knows_how_long_messages_of_an_earlier_run_have_waited_when_the_clock_went_back(
    desk: Desk,
) -> None:
    """They come at once, and no later message is kept behind them."""
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"before")
    await desk.stop()
    desk.jump(-86_400_000)
    await desk.start()
    await desk.ask(SEND_V2, message(1), b"after")
    desk.turn()
    assert [record.body for record in desk.records()] == [b"before"]
    desk.now += 1000
    desk.turn()
    assert [record.body for record in desk.records()] == [b"before", b"after"]


async def test_many_messages_wait_for_their_time_after_the_clock_went_back(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 1, 0)
    desk.jump(-86_400_000)
    for number in range(40):
        await desk.ask(SEND_V2, message(1), b"%d" % number)
        desk.turn()
        desk.now += 10
    assert desk.records() == []
    desk.now += 1000 - 400
    for number in range(40):
        desk.turn()
        assert len(desk.records()) == number + 1
        desk.now += 10


async def test_a_turn_delivers_a_part_and_says_that_there_is_more(desk: Desk) -> None:
    part = delay_levels.AT_ONCE
    desk.topic("T")
    for number in range(2 * part + 1):
        await desk.ask(SEND_V2, message(1), b"%d" % number)
    counts = []
    while desk.deliver(1000) == desk.now:
        counts.append(len(desk.records()))
    assert counts == [part, 2 * part] and len(desk.records()) == 2 * part + 1


async def test_the_half_of_a_transaction_is_not_delivered(desk: Desk) -> None:
    half = b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010"
    astray = b"DELAY\x011"
    for text in (half, astray, b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010"):
        desk.store(SCHEDULE, 0, 0, properties=text)
    assert desk.deliver(1000) == delay_levels.NEVER
    assert desk.records("RMQ_SYS_TRANS_HALF_TOPIC") == []
    assert len(desk.records()) == 1


async def test_a_store_that_takes_nothing_is_tried_again(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"x")
    desk.fill_disk()
    assert desk.deliver(1000) == START + 1000 + delay_levels.AGAIN_AFTER
    desk.fill_disk(full=False)
    desk.deliver(2000)
    assert [record.body for record in desk.records()] == [b"x"]


async def test_the_running_broker_delivers_by_itself(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"x")
    desk.now += 1000
    answer = await desk.ask(
        11,
        {
            **{"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6},
            **{"commitOffset": 0, "suspendTimeoutMillis": 5000, "subVersion": 1, "subscription": "*"},
        },
        within=5,
    )
    assert answer.code == 0 and decode_record(answer.body).body == b"x"


# ---------------------------------------------------------------------- what is kept


async def test_positions_are_told_and_kept(desk: Desk, tmp_path: Path) -> None:
    desk.topic("T")
    for level in (1, 1, 2):
        await desk.ask(SEND_V2, message(level), b"x")
    desk.deliver(1000)
    assert (await desk.ask(DELAY_OFFSETS)).body == b'{"offsetTable":{1:2,2:0}}'
    table = KVTable.decode((await desk.ask(RUNTIME)).body).table
    assert (table["scheduleMessageOffset_1"], table["scheduleMessageOffset_2"]) == ("2,2", "0,1")
    assert "scheduleMessageOffset_3" not in table
    await desk.broker.delays.saved()
    text = (tmp_path / "store/config/delayOffset.json").read_bytes()
    assert text == b'{\n\t"offsetTable":{1:2,2:0\n\t}\n}'
    assert DelayOffsetSerializeWrapper.decode(text).offset_table == {1: 2, 2: 0}


async def test_what_came_due_during_a_stop_comes_after_it_and_once(desk: Desk) -> None:
    desk.topic("T")
    for level in (1, 2, 2):
        await desk.ask(SEND_V2, message(level), b"%d" % level)
    desk.deliver(1000)
    await desk.stop()
    desk.now += 60_000
    await desk.start()
    desk.deliver(61_000)
    assert [record.body for record in desk.records()] == [b"1", b"2", b"2"]


async def test_positions_are_saved_only_after_the_log_they_speak_of(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"x")
    desk.deliver(1000)
    await desk.broker.delays.saved()
    figures = desk.broker.store.figures()
    assert figures.flushed_offset == figures.max_offset


async def test_positions_of_a_log_that_does_not_reach_the_disk_are_not_saved(desk: Desk, tmp_path: Path) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"x")
    desk.deliver(1000)
    desk.disk.broken = True
    await desk.broker.delays.saved()
    assert not (tmp_path / "store/config/delayOffset.json").exists()


async def test_a_slave_delivers_nothing_and_notes_nothing(prepared: Prepared, tmp_path: Path) -> None:
    mark = tmp_path / "store/eruca.delays"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(b"of its days as a master")

    def prepare(desk: Desk) -> None:
        desk.config.store.broker_role = BrokerRole.SLAVE
        desk.config.broker_id = 1

    desk = await prepared(prepare)
    running = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
    assert "Delays.run" not in running and "repeated" in running
    await desk.restart()
    assert not mark.exists()


async def test_a_broker_that_could_not_start_notes_nothing(desk: Desk, tmp_path: Path) -> None:
    """It has not read what another one, or an earlier run, noted."""
    mark = tmp_path / "store/eruca.delays"
    desk.topic("T")
    await desk.ask(SEND_V2, message(1), b"x")
    desk.deliver(1000)
    await desk.broker.delays.saved()
    before = mark.read_bytes()
    with pytest.raises(StoreLocked):
        await Desk(tmp_path).start()
    assert mark.read_bytes() == before
