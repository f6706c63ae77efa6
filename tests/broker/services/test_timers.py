"""Messages with a delay of their own, as 5.x clients ask for it: what waits, when it comes, how long it may lie."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.services import delay_levels, timers
from eruca.protocol.bodies import KVTable
from tests.support.desk import START, Desk

SEND_V2, RUNTIME = 310, 28
TIMER = "rmq_sys_wheel_timer"
DAY = 86_400_000
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


def message(wish: str, value: object, *, topic: str = "T", queue_id: int = 0, more: str = "") -> dict[str, object]:
    fields = dict(zip("abcdefgh", ("pg", topic, "TBW102", 4, queue_id, 0, START - 5, 7), strict=True))
    return {**fields, "i": f"UNIQ_KEY\x01AC11\x02WAIT\x01true\x02{wish}\x01{value}\x02TAGS\x01t{more}"}


async def send(desk: Desk, delay: int, body: bytes = b"x") -> None:
    assert (await desk.ask(SEND_V2, message("TIMER_DELAY_MS", delay), body)).code == 0


def bodies(desk: Desk, topic: str = "T") -> list[bytes]:
    return [record.body for record in desk.records(topic)]


# ---------------------------------------------------------------------- what waits


@pytest.mark.parametrize(
    ("wish", "value"),
    [("TIMER_DELAY_MS", 90_000), ("TIMER_DELAY_SEC", 90), ("TIMER_DELIVER_MS", START + 90_000)],
)
async def test_a_message_waits_for_its_time(desk: Desk, wish: str, value: int) -> None:
    desk.topic("T", queues=4)
    answer = await desk.ask(SEND_V2, message(wish, value, queue_id=2), b"hello")
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "2", "0")
    (waiting,) = desk.records(TIMER)
    assert waiting.properties_text.decode() == (
        f"UNIQ_KEY\x01AC11\x02WAIT\x01true\x02{wish}\x01{value}\x02TAGS\x01t\x02CLUSTER\x01Lab"
        f"\x02TIMER_OUT_MS\x01{START + 90_000}\x02REAL_TOPIC\x01T\x02REAL_QID\x012"
    )
    assert desk.broker.store.unit(TIMER, 0, 0) == (waiting.physical_offset, waiting.size, START + 90_000)
    assert desk.deliver(89_999) == START + 90_000
    assert desk.records(queue_id=2) == []
    desk.deliver(90_000)
    (come,) = desk.records(queue_id=2)
    assert come.properties_text.decode() == (
        f"UNIQ_KEY\x01AC11\x02WAIT\x01true\x02{wish}\x01{value}\x02TAGS\x01t\x02CLUSTER\x01Lab"
        f"\x02TIMER_OUT_MS\x01{START + 90_000}\x02TIMER_ORIGIN\x010@{waiting.physical_offset}@{START}"
    )
    assert (come.body, come.flag, come.born_timestamp, come.born_host) == (b"hello", 7, START - 5, waiting.born_host)
    assert come.store_timestamp == START + 90_000
    unit = desk.broker.store.unit("T", 2, 0)
    assert unit is not None and unit[2] == ord("t")


async def test_the_waiting_queue_is_a_topic_that_stays(desk: Desk) -> None:
    desk.topic("T")
    assert TIMER not in desk.broker.topics
    await send(desk, 60_000)
    config = desk.broker.topics.get(TIMER)
    assert config is not None and config.write_queue_nums == 1 and desk.broker.topics.is_system(TIMER)
    assert (await desk.ask(316)).code == 0  # clean unused topics
    desk.deliver(60_000)
    assert bodies(desk) == [b"x"]


@pytest.mark.parametrize(("wish", "value"), [("TIMER_DELAY_MS", 0), ("TIMER_DELAY_SEC", -5), ("TIMER_DELIVER_MS", 7)])
async def test_a_time_that_has_passed_is_now(desk: Desk, wish: str, value: int) -> None:
    desk.topic("T")
    assert (await desk.ask(SEND_V2, message(wish, value), b"now")).code == 0
    assert bodies(desk) == [b"now"] and desk.records(TIMER) == []


@pytest.mark.parametrize(
    ("wish", "value", "remark"),
    [
        (
            "TIMER_DELAY_MS",
            40 * DAY + 1,
            "TIMER_DELAY_MS 3456000001 delays the message by 3456000001 ms, the longest delay is 3456000000 ms "
            "(timerMaxDelaySec): send it with a shorter delay",
        ),
        ("TIMER_DELAY_SEC", "soon", "TIMER_DELAY_SEC is 'soon'; write a whole number"),
        ("TIMER_DELIVER_MS", "9" * 5000, f"TIMER_DELIVER_MS is '{'9' * 40}'; write a whole number"),
    ],
)
async def test_a_delay_that_cannot_be_is_refused(desk: Desk, wish: str, value: object, remark: str) -> None:
    desk.topic("T")
    answer = await desk.ask(SEND_V2, message(wish, value), b"x")
    assert (answer.code, answer.remark) == (13, remark)
    assert desk.broker.store.figures().puts == 0


async def test_the_longest_delay_can_be_set_at_run_time(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(25, {}, b"timerMaxDelaySec=60\n")
    assert (await desk.ask(SEND_V2, message("TIMER_DELAY_SEC", 60), b"x")).code == 0
    assert (await desk.ask(SEND_V2, message("TIMER_DELAY_SEC", 61), b"x")).code == 13


async def test_a_level_goes_before_a_delay_of_its_own(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(SEND_V2, message("TIMER_DELAY_MS", 5, more="\x02DELAY\x012"), b"x")
    (waiting,) = desk.records("SCHEDULE_TOPIC_XXXX", 1)
    assert "TIMER_DELAY_MS" not in waiting.properties and desk.records(TIMER) == []


async def test_properties_leave_room_for_what_is_noted(desk: Desk) -> None:
    desk.topic("T")
    answer = await desk.ask(SEND_V2, message("TIMER_DELAY_MS", 5, more="\x02KEYS\x01" + "k" * 32_560), b"x")
    assert (answer.code, answer.remark) == (
        13,
        "a message that is delayed may have 32639 bytes of properties: send fewer",
    )


# ---------------------------------------------------------------------- when it comes


async def test_messages_come_in_the_order_of_their_times(desk: Desk) -> None:
    desk.topic("T")
    delays = [3 * DAY, 50, 61_000, 59_000, 40 * DAY, 50, 7_200_000]
    for delay in delays:
        await send(desk, delay, str(delay).encode())
    for now in (49, 50, 59_000, 61_000, 7_200_000, 3 * DAY, 40 * DAY):
        while desk.deliver(now) <= desk.now:
            pass
        due = sorted(delay for delay in delays if delay <= now)
        assert bodies(desk) == [str(delay).encode() for delay in due]


async def test_when_to_look_again(desk: Desk) -> None:
    desk.topic("T")
    assert desk.deliver(0) == delay_levels.NEVER
    await send(desk, 50)
    assert desk.deliver(1) == START + 50
    await send(desk, 10 * DAY)
    desk.deliver(50)
    again = desk.deliver(51)
    assert START + 10 * DAY - 62_000 <= again <= START + 10 * DAY - 2_000


async def test_a_turn_delivers_a_part(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "READ_AT_ONCE", 4)
    desk.topic("T")
    count = 2 * timers.AT_ONCE + 1
    for number in range(count):
        await send(desk, 1000, b"%03d" % number)
    while desk.deliver(1000) == desk.now:
        pass
    assert sorted(bodies(desk)) == [b"%03d" % number for number in range(count)]


async def test_a_store_that_takes_nothing_is_tried_again(desk: Desk) -> None:
    desk.topic("T")
    await send(desk, 1000)
    desk.fill_disk()
    assert desk.deliver(1000) == START + 1000 + delay_levels.AGAIN_AFTER
    desk.fill_disk(full=False)
    desk.deliver(2000)
    desk.deliver(2001)
    assert bodies(desk) == [b"x"]


async def test_slots_without_a_time_or_a_goal_are_passed_over(desk: Desk) -> None:
    desk.topic("T")
    desk.store(TIMER, 0, 0, properties=b"TAGS\x01t")
    desk.store(TIMER, 0, 0, properties=b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010")
    await send(desk, 1000)
    desk.deliver(1000)
    assert bodies(desk) == [b"x"] and desk.broker.delays.timers.settled.first == 3


async def test_slots_that_rocketmq_wrote_come_at_their_time_too(desk: Desk) -> None:
    """Its units hold the hash of the tag instead of the time."""
    desk.topic("T")
    await send(desk, 70_000)
    await desk.stop()
    (path,) = (desk.folder / "store" / "consumequeue" / TIMER / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(12)
        file.write(ord("t").to_bytes(8, "big"))
    await desk.start()
    unit = desk.broker.store.unit(TIMER, 0, 0)
    assert unit is not None and unit[2] == ord("t")
    for now in (0, 69_999):
        desk.deliver(now)
        assert bodies(desk) == []
    desk.deliver(70_000)
    assert bodies(desk) == [b"x"]


async def test_how_many_wait_is_told(desk: Desk) -> None:
    desk.topic("T")
    await send(desk, 1000)
    await send(desk, 2000)
    desk.deliver(1000)
    table = KVTable.decode((await desk.ask(RUNTIME)).body).table
    assert table["timerCongestNum"] == "1"


# ---------------------------------------------------------------------- outliving the log


async def test_a_message_that_lies_long_moves_to_the_end_of_the_log(desk: Desk) -> None:
    desk.topic("T")
    await send(desk, 10 * DAY, b"far")
    await send(desk, 60_000, b"near")
    desk.deliver(60_000)
    desk.deliver(54 * 3_600_000 - 1000)
    assert len(desk.records(TIMER)) == 2
    desk.deliver(54 * 3_600_000)  # three quarters of fileReservedTime
    moved = desk.records(TIMER)[2]
    assert (moved.properties["TIMER_ROLL_TIMES"], moved.properties["TIMER_ORIGIN"]) == ("1", f"0@0@{START}")
    assert (moved.body, moved.properties["TIMER_OUT_MS"]) == (b"far", str(START + 10 * DAY))
    desk.deliver(2 * 54 * 3_600_000)
    assert desk.records(TIMER)[3].properties["TIMER_ROLL_TIMES"] == "2"
    for hour in range(109, 240):
        desk.deliver(hour * 3_600_000)
    assert bodies(desk) == [b"near"]
    desk.deliver(10 * DAY)
    desk.deliver(10 * DAY + 5000)
    assert bodies(desk) == [b"near", b"far"]


async def test_forty_days_while_the_log_is_deleted_behind_it(prepared: Prepared) -> None:
    def prepare(desk: Desk) -> None:
        desk.config.store.mapped_file_size_commit_log = 4096

    desk = await prepared(prepare)
    desk.topic("T")
    desk.topic("Other")
    await send(desk, 40 * DAY, b"patient")
    seen: list[int] = []
    for hour in range(0, 960, 6):
        desk.store("Other", 0, hour * 3_600_000, body=bytes(900))
        desk.broker.store.drain()
        desk.deliver(hour * 3_600_000)
        await desk.broker.delays.saved()
        await clean(desk)
        seen.append(desk.broker.store.figures().min_offset)
        assert bodies(desk) == []
    assert seen[-1] > 20 * 4096  # the part it was sent in is long gone
    desk.deliver(40 * DAY)
    assert bodies(desk)[-1:] == [b"patient"]


async def clean(desk: Desk) -> int:
    """One round of retention, whatever the hour, the files as old as their newest records are by the test's clock."""
    store = desk.broker.store
    times = [(each.physical_offset, each.store_timestamp) for each in store.records_since(store.figures().min_offset)]
    for path in (desk.folder / "store" / "commitlog").iterdir():
        end = int(path.name) + desk.config.store.mapped_file_size_commit_log
        newest = max((time for offset, time in times if offset < end), default=0)
        os.utime(path, ns=(newest * 1_000_000, newest * 1_000_000))
    return await store.clean(by_hand=True)


async def test_a_file_in_which_a_message_waits_is_kept_until_it_has_moved(prepared: Prepared) -> None:
    def prepare(desk: Desk) -> None:
        desk.config.store.mapped_file_size_commit_log = 4096
        desk.config.store.file_reserved_time = 0

    desk = await prepared(prepare)
    desk.topic("T")
    await send(desk, DAY, b"kept")
    for number in range(10):
        desk.store("Other", 0, number, body=bytes(900))
    desk.deliver(10)
    await desk.broker.delays.saved()
    desk.now += 1000
    assert await clean(desk) == 0
    assert desk.broker.store.held_back > 0
    desk.deliver(1100)  # it moves, for its file is wanted
    assert [each.properties.get("TIMER_ROLL_TIMES") for each in desk.records(TIMER)] == [None, "1"]
    assert await clean(desk) == 0  # not before that is on disk
    await desk.broker.delays.saved()
    assert await clean(desk) > 0
    desk.deliver(DAY)
    desk.deliver(DAY + 1)
    assert bodies(desk) == [b"kept"]


async def test_a_file_in_which_a_level_waits_is_kept_unless_the_disk_is_crowded(prepared: Prepared) -> None:
    def prepare(desk: Desk) -> None:
        desk.config.store.mapped_file_size_commit_log = 4096
        desk.config.store.file_reserved_time = 0

    desk = await prepared(prepare)
    desk.topic("T")
    text = "DELAY\x0118"
    await desk.ask(SEND_V2, {**message("TIMER_DELAY_MS", 1), "i": text}, b"later")
    for number in range(10):
        desk.store("Other", 0, number, body=bytes(900))
    desk.deliver(10)
    await desk.broker.delays.saved()
    desk.now += 1000
    assert await clean(desk) == 0 and desk.broker.store.held_back > 0
    desk.delete_forcibly()
    assert await clean(desk) > 0
