"""The wall clock of a broker jumps: what lasts so many seconds lasts them all the same."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.protocol.bodies import ConsumerIdList, KVTable, LockBatchAnswer, LockBatchRequest, ProducerTableInfo
from eruca.protocol.queues import MessageQueue
from tests.support.desk import START, Desk
from tests.support.half_messages import CHECK, GIVEN_UP, HALF, send

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LOCK, MEMBERS, RUNTIME, ALL_PRODUCERS, EXPIRED_LOG = 41, 38, 28, 328, 329
JUMPS = [5 * MINUTE, 4 * DAY, -DAY]
QUEUE = MessageQueue("T", "broker-a", 0)
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


async def locked(desk: Desk, client_id: str) -> list[MessageQueue]:
    """The queues that a client holds after it has asked for the lock."""
    ask = LockBatchRequest(client_id=client_id, consumer_group="g", mq_set=[QUEUE])
    return LockBatchAnswer.decode((await desk.ask(LOCK, body=ask.encode())).body).locked


async def members(desk: Desk) -> list[str]:
    answer = await desk.ask(MEMBERS, {"consumerGroup": "g"})
    return ConsumerIdList.decode(answer.body).consumer_id_list


@pytest.mark.parametrize("jump", JUMPS)
async def test_an_ordered_queue_stays_with_its_owner_until_its_time_is_over(desk: Desk, jump: int) -> None:
    assert await locked(desk, "one") == [QUEUE]

    desk.jump(jump)

    assert await locked(desk, "two") == []
    desk.now += MINUTE
    assert await locked(desk, "two") == []
    desk.now += 1
    assert await locked(desk, "two") == [QUEUE]


@pytest.mark.parametrize("jump", JUMPS)
async def test_only_who_was_silent_for_so_long_loses_its_connection(prepared: Prepared, jump: int) -> None:
    def impatient(desk: Desk) -> None:
        desk.config.channel_expired_timeout = 100

    desk = await prepared(impatient)
    silent = await desk.producer("pg", client_id="silent")
    desk.now += 60
    consumer = await desk.consumer("g", "T", client_id="c1")
    await desk.producer("pg", client_id="p1")

    desk.jump(jump)
    desk.now += 50

    await silent.ended()
    assert await members(desk) == ["c1"]
    assert desk.broker.clients.producer("p1") is not None
    assert (await consumer.ask(34, {}, b'{"clientID":"c1"}')).code == 0


@pytest.mark.parametrize("jump", JUMPS)
async def test_when_a_producer_was_heard_of_is_said_by_the_present_clock(desk: Desk, jump: int) -> None:
    await desk.producer("pg")
    desk.jump(jump)
    desk.now += 7000

    producers = ProducerTableInfo.decode((await desk.ask(ALL_PRODUCERS)).body).data["pg"]

    assert [producer.last_update_timestamp for producer in producers] == [desk.now - 7000]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_transaction_is_as_old_as_the_time_that_has_passed(desk: Desk, jump: int) -> None:
    producer = await desk.producer("PG")
    await send(desk)

    desk.jump(jump)
    await send(desk, "K2")
    desk.now += 5999
    await desk.broker.check_backs.round()
    assert (len(desk.records(HALF)), desk.records(GIVEN_UP)) == (2, [])
    desk.now += 1
    await desk.broker.check_backs.round()

    assert len(await producer.received(CHECK, 2)) == 2


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_transaction_that_was_asked_about_before_the_jump_is_asked_about_again(desk: Desk, jump: int) -> None:
    producer = await desk.producer("PG")
    await send(desk)
    desk.now += 6000
    await desk.broker.check_backs.round()
    await producer.received(CHECK)

    desk.jump(jump)
    desk.now += 1
    await desk.broker.check_backs.round()

    await producer.received(CHECK)
    assert desk.records(GIVEN_UP) == []


@pytest.mark.parametrize("jump", JUMPS)
async def test_the_next_round_of_checks_comes_one_interval_after_the_last(desk: Desk, jump: int) -> None:
    producer = await desk.producer("PG")
    await send(desk)
    await desk.broker.check_backs.keep()

    desk.jump(jump)
    desk.now += MINUTE - 1
    await desk.broker.check_backs.keep()
    assert len(desk.records(HALF)) == 1
    desk.now += 1
    await desk.broker.check_backs.keep()

    await producer.received(CHECK)


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_broker_has_run_for_as_long_as_it_has(desk: Desk, jump: int) -> None:
    desk.jump(jump)
    desk.now += 3 * HOUR

    figures = KVTable.decode((await desk.ask(RUNTIME)).body).table

    assert figures["runtime"] == "[ 0 days, 3 hours, 0 minutes, 0 seconds ]"


# ---------------------------------------------------------------------- retention


def expiring(desk: Desk) -> None:
    """Files go after three days, whatever the hour, when the test says so."""
    settings = desk.config.store
    settings.delete_when = ";".join(f"{hour:02d}" for hour in range(24))
    settings.clean_resource_interval = HOUR
    settings.mapped_file_size_commit_log = 64 * 1024
    settings.mapped_file_size_consume_queue = 20 * 10
    settings.max_index_num = 20
    settings.disk_space_clean_forcibly_ratio = settings.disk_space_warning_level_ratio = 0.999


@pytest.fixture
async def filled(prepared: Prepared) -> Desk:
    """A broker with some files, which are of its start."""
    desk = await prepared(expiring)
    desk.topic("T")
    for number in range(40):
        desk.store("T", 0, number, body=bytes(8192), properties=b"KEYS\x01k%d" % number)
    desk.broker.store.persist()
    made_at_the_start(desk)
    return desk


def made_at_the_start(desk: Desk) -> None:
    for path in files(desk):
        os.utime(path, (START / 1000, START / 1000))


def files(desk: Desk) -> list[Path]:
    return sorted((desk.folder / "store" / "commitlog").iterdir())


async def test_after_four_days_in_a_moment_nothing_is_deleted_for_an_hour(filled: Desk) -> None:
    filled.jump(4 * DAY)
    with capture_logs() as said:
        assert await filled.broker.store.clean() == 0
        filled.now += HOUR - 1
        assert await filled.broker.store.clean() == 0
    assert [(line["event"], line["moved_hours"]) for line in said] == [("clock_jumped", 96.0)]
    before = files(filled)

    filled.now += 1
    with capture_logs() as said:
        count = await filled.broker.store.clean()

    assert count == len(before) - 1 and files(filled) == before[-1:]
    deleted = [line for line in said if line["event"] == "file_deleted"]
    assert [(line["file"], line["age_hours"]) for line in deleted[:count]] == [
        (str(path), 97.0) for path in before[:-1]
    ]
    assert {line["reason"] for line in deleted[:count]} == {
        "older than fileReservedTime (72 h), in an hour of deleteWhen"
    }


async def test_each_file_that_goes_with_them_has_a_line_too(filled: Desk) -> None:
    store = filled.folder / "store"

    def there() -> set[str]:
        return {str(path) for folder in ("consumequeue/T/0", "index") for path in (store / folder).iterdir()}

    before = there()
    filled.now += 4 * DAY

    with capture_logs() as said:
        await filled.broker.store.clean()

    gone = before - there()
    assert {Path(path).parent.name for path in gone} == {"0", "index"}
    lines = {line["file"]: line["reason"] for line in said if line["event"] == "file_deleted"}
    assert {lines[path] for path in gone} == {"all of its messages were deleted"}


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_an_hour_is_no_jump(filled: Desk, jump: int) -> None:
    filled.now += 4 * DAY
    filled.jump(jump)
    assert await filled.broker.store.clean() > 0


async def test_another_jump_begins_the_hour_again(filled: Desk) -> None:
    filled.jump(4 * DAY)
    assert await filled.broker.store.clean() == 0
    filled.now += HOUR - 1
    filled.jump(DAY)
    assert await filled.broker.store.clean() == 0
    filled.now += HOUR - 1
    assert await filled.broker.store.clean() == 0
    filled.now += 1
    assert await filled.broker.store.clean() > 0


async def test_a_day_back_is_a_jump_too(filled: Desk) -> None:
    filled.now += 4 * DAY
    filled.jump(-DAY + 1)
    assert await filled.broker.store.clean() == 0
    filled.now += HOUR
    assert await filled.broker.store.clean() > 0


async def test_a_disk_that_is_too_full_is_cleaned_all_the_same(filled: Desk) -> None:
    filled.jump(4 * DAY)
    assert await filled.broker.store.clean() == 0
    filled.delete_forcibly()

    with capture_logs() as said:
        assert await filled.broker.store.clean() > 0

    reasons = {line["reason"] for line in said if line["event"] == "file_deleted" and "commitlog" in line["file"]}
    assert all("full (diskSpaceCleanForciblyRatio 0%)" in reason for reason in reasons) and reasons


async def test_an_operator_who_deletes_by_hand_hears_why_nothing_goes(filled: Desk) -> None:
    filled.jump(4 * DAY)
    answer = await filled.ask(EXPIRED_LOG)
    assert (answer.code, answer.remark) == (
        1,
        "the clock of the broker's machine moved by 96.0 hours at once, so the age of files is not believed: "
        "check the clock, and ask again in 60 minutes",
    )
    filled.now += HOUR
    assert (await filled.ask(EXPIRED_LOG)).code == 0
    assert len(files(filled)) == 1


async def test_a_broker_that_was_stopped_for_a_week_deletes_what_expired_meanwhile(filled: Desk) -> None:
    await filled.stop()
    made_at_the_start(filled)
    filled.jump(7 * DAY)
    await filled.start()
    assert await filled.broker.store.clean() > 0


async def test_after_a_jump_messages_are_stored_and_read_as_before(filled: Desk) -> None:
    for jump in JUMPS:
        filled.jump(jump)
        await filled.broker.store.clean()
        end = filled.broker.store.max_offset("T", 0)
        filled.store("T", 0, filled.now - START, body=b"after")
        assert filled.broker.store.max_offset("T", 0) == end + 1
    assert [record.body for record in filled.records("T")][-3:] == [b"after"] * 3
