"""The broker's figures, 28 and 315, and what operators have it delete, 306 and 329."""

import re
from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.config import FlushDiskType
from eruca.broker.services.runtime import moment
from eruca.protocol.bodies import BrokerStatsData, KVTable
from tests.support.desk import START, Desk

FIGURES, STATS, EXPIRED_QUEUES, EXPIRED_LOG = 28, 315, 306, 329
SEND, PULL = 310, 11

KEYS_OF_THE_STORE = """
bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal
putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer getMessageEntireTimeMax putTps getFoundTps getMissTps
getTotalTps getTransferedTps putLatency99 putLatency999 commitLogDiskRatio consumeQueueDiskRatio commitLogMinOffset
commitLogMaxOffset
"""
KEYS_OF_THE_BROKER = """
brokerVersionDesc brokerVersion msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow sendThreadPoolQueueSize
sendThreadPoolQueueCapacity pullThreadPoolQueueSize pullThreadPoolQueueCapacity queryThreadPoolQueueSize
queryThreadPoolQueueCapacity EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity dispatchBehindBytes
pageCacheLockTimeMills sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills
queryThreadPoolQueueHeadWaitTimeMills earliestMessageTimeStamp startAcceptSendRequestTimeStamp
remainTransientStoreBufferNumbs remainHowManyDataToFlush commitLogDirCapacity
"""


async def figures(desk: Desk) -> dict[str, str]:
    answer = await desk.ask(FIGURES)
    assert answer.code == 0
    return KVTable.decode(answer.body).table


async def send(desk: Desk, count: int, *, body: bytes = b"hello") -> None:
    for _ in range(count):
        fields = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": desk.now, "h": 0}
        assert (await desk.ask(SEND, fields, body)).code == 0
    desk.broker.store.drain()


async def pull(desk: Desk, offset: int, *, group: str = "g", code: int = 0) -> None:
    fields = {
        "consumerGroup": group,
        "topic": "T",
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 1,
    }
    assert (await desk.ask(PULL, fields)).code == code


def seconds(desk: Desk, count: int) -> None:
    """Let the statistics see seconds go by."""
    for _ in range(count):
        desk.now += 1000
        desk.broker.statistics.sample(moment(desk.broker.store.figures(), desk.passed()), desk.now)


# ---------------------------------------------------------------------- 28


async def test_every_key_that_tools_know_is_there(desk: Desk) -> None:
    table = await figures(desk)
    for key in (KEYS_OF_THE_STORE + KEYS_OF_THE_BROKER).split():
        assert key in table, key
    assert f"commitLogDiskRatio_{desk.folder}/store/commitlog" in table
    assert (table["brokerVersionDesc"], table["brokerVersion"]) == ("V4_9_7", "407")
    assert table["bootTimestamp"] == str(START)


async def test_the_time_by_the_clock_of_the_broker(desk: Desk) -> None:
    desk.jump(-5000)
    assert (await figures(desk))["currentTimestamp"] == str(START - 5000)


async def test_figures_of_a_broker_that_has_done_nothing(desk: Desk) -> None:
    table = await figures(desk)
    assert table["putMessageTimesTotal"] == "1", "as Apache's, which divides by it"
    assert (table["putMessageSizeTotal"], table["putMessageAverageSize"]) == ("0", "0.0")
    assert (table["earliestMessageTimeStamp"], table["commitLogMaxOffset"]) == ("-1", "0")
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    assert table["remainHowManyDataToFlush"] == "0 B"
    assert re.fullmatch(r"Total : [\d.]+ [KMGTP]iB, Free : [\d.]+ [KMGTP]?i?B\.", table["commitLogDirCapacity"])
    assert 0 < float(table["commitLogDiskRatio"]) <= 1


async def test_figures_follow_what_is_sent_and_pulled(desk: Desk) -> None:
    desk.topic("T")
    await send(desk, 6)
    await pull(desk, 0)
    await pull(desk, 6, code=19)
    table = await figures(desk)
    size = int(table["commitLogMaxOffset"])
    assert (table["putMessageTimesTotal"], table["msgPutTotalTodayNow"]) == ("6", "6")
    assert table["putMessageSizeTotal"] == str(size)
    assert float(table["putMessageAverageSize"]) == pytest.approx(size / 6)
    assert table["msgGetTotalTodayNow"] == "6"
    assert table["earliestMessageTimeStamp"] == str(START)
    assert table["dispatchBehindBytes"] == "0"
    assert table["putMessageDistributeTime"].startswith("[<=0ms]:")


async def test_rates_over_ten_sixty_and_six_hundred_seconds(desk: Desk) -> None:
    desk.topic("T")
    seconds(desk, 1)
    first = await figures(desk)
    assert (first["putTps"], first["getTotalTps"]) == ("  ", "0.0 0.0 0.0")
    await send(desk, 20)
    await pull(desk, 0)
    seconds(desk, 10)
    table = await figures(desk)
    assert table["putTps"] == "2.0  "
    assert table["getTransferedTps"] == "2.0  "
    assert table["getFoundTps"] == "0.1  "
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 11 seconds ]"
    seconds(desk, 600)
    assert len((await figures(desk))["putTps"].split(" ")) == 3


async def test_a_store_that_takes_nothing_says_why(desk: Desk) -> None:
    assert "storeRefusal" not in await figures(desk)
    desk.fill_disk()
    assert "free space" in (await figures(desk))["storeRefusal"]


def waits_over_ten_ms(table: dict[str, str]) -> int:
    counts = [int(part.rpartition(":")[2]) for part in table["putMessageDistributeTime"].split()]
    return sum(counts[2:])


async def test_sends_that_waited_for_the_disk_are_told_apart(
    prepared: Callable[[Callable[[Desk], None]], Awaitable[Desk]],
) -> None:
    def flush_before_answering(desk: Desk) -> None:
        desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
        desk.config.store.sync_flush_timeout = 30

    desk = await prepared(flush_before_answering)
    desk.topic("T")
    await send(desk, 2)
    before = waits_over_ten_ms(await figures(desk))
    with desk.disk.held():
        fields = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": desk.now, "h": 0}
        assert (await desk.ask(SEND, fields, b"slow")).code == 10
    table = await figures(desk)
    assert int(table["putMessageEntireTimeMax"]) >= 29
    assert waits_over_ten_ms(table) == before + 1


# ---------------------------------------------------------------------- 315


async def test_a_counter_by_topic_group_and_queue(desk: Desk) -> None:
    desk.topic("T")
    await send(desk, 20)
    await pull(desk, 0)
    seconds(desk, 10)
    for name, key, total in (
        ("TOPIC_PUT_NUMS", "T", 20),
        ("QUEUE_PUT_NUMS", "T@0", 20),
        ("GROUP_GET_NUMS", "T@g", 20),
        ("QUEUE_GET_NUMS", "T@0@g", 20),
        ("BROKER_PUT_NUMS", "Lab", 20),
        ("BROKER_GET_NUMS", "Lab", 20),
    ):
        answer = await desk.ask(STATS, {"statsName": name, "statsKey": key})
        assert answer.code == 0, name
        minute = BrokerStatsData.decode(answer.body).stats_minute
        assert (minute.sum, minute.tps) == (total, total / 10), name


async def test_a_counter_that_is_not_there(desk: Desk) -> None:
    for name, key in (("TOPIC_PUT_NUMS", "zzz"), ("NO_SUCH_NUMS", "T")):
        answer = await desk.ask(STATS, {"statsName": name, "statsKey": key})
        assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")


# ---------------------------------------------------------------------- 306, 329


async def test_expired_files_and_then_their_queues_are_deleted(
    prepared: Callable[[Callable[[Desk], None]], Awaitable[Desk]],
) -> None:
    def expire_at_once(desk: Desk) -> None:
        desk.config.store.file_reserved_time = 0
        desk.config.store.mapped_file_size_commit_log = 64 * 1024

    desk = await prepared(expire_at_once)
    desk.topic("Old")
    desk.topic("T")
    desk.store("Old", 0, 0)
    for number in range(20):
        desk.store("T", 0, number, body=bytes(8192))
    assert (await desk.ask(EXPIRED_LOG)).code == 0
    assert (await figures(desk))["commitLogMinOffset"] == "0", "the files are younger than the clock"
    desk.now = 4_000_000_000_000
    assert (await desk.ask(EXPIRED_LOG)).code == 0
    assert int((await figures(desk))["commitLogMinOffset"]) > 0
    assert desk.broker.store.topics() == {"Old", "T"}
    assert (await desk.ask(EXPIRED_QUEUES)).code == 0
    assert desk.broker.store.topics() == {"T"}
    assert desk.broker.store.max_offset("T", 0) == 20
