"""Messages that consumers give back: when they come again, how often, and where they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.config import FlushDiskType
from eruca.broker.services.runtime import moment
from eruca.broker.store.results import Put
from eruca.protocol.bodies import SubscriptionGroupConfig
from eruca.protocol.record import Record
from tests.support.desk import START, Desk
from tests.support.pairs import eventually

SEND_BACK, SEND_V2 = 36, 310
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


def sent(desk: Desk, properties: bytes = b"UNIQ_KEY\x01AC11\x02TAGS\x01t\x02CLUSTER\x01Lab") -> Put:
    desk.topic("T")
    return desk.store("T", 0, 0, body=b"hello", properties=properties)


def back(put: Put | Record, level: int = 0, **more: object) -> dict[str, object]:
    return {"group": "g", "offset": put.physical_offset, "delayLevel": level, "originTopic": "T", **more}


def only(records: list[Record]) -> Record:
    (record,) = records
    return record


# ---------------------------------------------------------------------- what is stored


async def test_a_message_given_back_waits_and_then_comes_to_the_retry_topic(desk: Desk) -> None:
    put = sent(desk)
    answer = await desk.ask(SEND_BACK, back(put, originMsgId="AC11", unitMode="false", maxReconsumeTimes=16))
    assert (answer.code, answer.remark, answer.fields, answer.body) == (0, None, {}, b"")
    waiting = only(desk.records(SCHEDULE, 2))
    port = int(desk.app.address.rpartition(":")[2])
    assert waiting.properties == {
        "UNIQ_KEY": "AC11",
        "TAGS": "t",
        "CLUSTER": "Lab",
        "RETRY_TOPIC": "T",
        "WAIT": "false",
        "ORIGIN_MESSAGE_ID": f"7F000001{port:08X}{put.physical_offset:016X}",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert (waiting.reconsume_times, waiting.body, waiting.born_timestamp) == (1, b"hello", START)
    desk.deliver(9_999)
    assert desk.records("%RETRY%g") == []
    desk.deliver(10_000)
    come = only(desk.records("%RETRY%g"))
    assert (come.properties_text, come.body) == (waiting.properties_text, b"hello")
    assert (come.reconsume_times, come.store_timestamp) == (1, START + 10_000)
    config = desk.broker.topics.get("%RETRY%g")
    assert config is not None and (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


async def test_one_that_is_larger_than_maxmessagesize_of_today_comes_again_all_the_same(desk: Desk) -> None:
    """It was accepted: here it waits, is delivered, and is given back once more."""
    put = desk.store(desk.topic("T"), 0, 0, body=b"x" * 200_000)
    desk.config.store.max_message_size = 100_000
    await desk.restart()
    assert (await desk.ask(SEND_BACK, back(put))).code == 0
    desk.deliver(10_000)
    again = only(desk.records("%RETRY%g"))
    assert (len(again.body), again.reconsume_times) == (200_000, 1)
    assert (await desk.ask(SEND_BACK, back(again))).code == 0


async def test_each_time_it_waits_a_level_longer_and_in_the_end_it_is_a_dead_letter_at_once(desk: Desk) -> None:
    put: Put | Record = sent(desk)
    levels = []
    first = None
    for times in range(16):
        assert (await desk.ask(SEND_BACK, back(put, maxReconsumeTimes=16))).code == 0
        level = 3 + times
        waiting = only(desk.records(SCHEDULE, min(level, 18) - 1))
        levels.append(int(waiting.properties["DELAY"]))
        desk.deliver(desk.now - START + 7_200_000)
        put = desk.records("%RETRY%g")[-1]
        first = first or put.properties["ORIGIN_MESSAGE_ID"]
        assert (put.reconsume_times, put.properties["ORIGIN_MESSAGE_ID"]) == (times + 1, first)
        assert put.properties["RETRY_TOPIC"] == "T"
    assert levels == [*range(3, 19)]
    assert (await desk.ask(SEND_BACK, back(put, maxReconsumeTimes=16))).code == 0
    letter = only(desk.records("%DLQ%g"))
    assert (letter.body, letter.reconsume_times, letter.properties["DELAY"]) == (b"hello", 17, "0")
    assert (letter.properties["RETRY_TOPIC"], letter.properties["ORIGIN_MESSAGE_ID"]) == ("T", first)
    config = desk.broker.topics.get("%DLQ%g")
    assert config is not None and (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


@pytest.mark.parametrize(("level", "queue"), [(1, 0), (7, 6), (40, 17)])
async def test_the_consumer_may_choose_the_level(desk: Desk, level: int, queue: int) -> None:
    await desk.ask(SEND_BACK, back(sent(desk), level))
    assert only(desk.records(SCHEDULE, queue)).properties["DELAY"] == str(queue + 1)


async def test_a_level_below_zero_makes_a_dead_letter(desk: Desk) -> None:
    await desk.ask(SEND_BACK, back(sent(desk), -1))
    letter = only(desk.records("%DLQ%g"))
    assert (letter.properties["DELAY"], letter.reconsume_times) == ("0", 1)
    assert "REAL_TOPIC" not in letter.properties


async def test_a_delay_of_its_own_does_not_come_again(desk: Desk) -> None:
    put = sent(desk, b"TIMER_DELAY_MS\x0160000\x02TIMER_OUT_MS\x011700000060000")
    await desk.ask(SEND_BACK, back(put, -1))
    assert len(desk.records("%DLQ%g")) == 1


# ---------------------------------------------------------------------- how often


@pytest.mark.parametrize(
    ("version", "asked", "times", "dead"),
    [
        (407, {"maxReconsumeTimes": 3}, 2, False),
        (407, {"maxReconsumeTimes": 3}, 3, True),
        (407, {"maxReconsumeTimes": 0}, 0, True),
        (407, {}, 4, False),
        (407, {}, 5, True),
        (120, {"maxReconsumeTimes": 3}, 4, False),  # clients before 3.4.9 have no say
        (120, {"maxReconsumeTimes": 30}, 5, True),
    ],
)
async def test_the_greatest_number_is_the_clients_or_the_groups(
    desk: Desk, version: int, asked: dict[str, int], times: int, dead: bool
) -> None:
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=5))
    desk.topic("T")
    put = desk.broker.store.appender.put(
        "T", 0, b"x", b"", born_timestamp=1, born_host=bytes(8), store_host=bytes(8), reconsume_times=times
    )
    peer = await desk.peer(version=version)
    assert (await peer.ask(SEND_BACK, back(put, **asked))).code == 0
    assert len(desk.records("%DLQ%g")) == dead


async def test_several_retry_queues_are_all_used(desk: Desk) -> None:
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=3))
    put = sent(desk)
    for _ in range(40):
        await desk.ask(SEND_BACK, back(put, 1))
    assert {record.properties["REAL_QID"] for record in desk.records(SCHEDULE, 0)} == {"0", "1", "2"}
    config = desk.broker.topics.get("%RETRY%g")
    assert config is not None and config.write_queue_nums == 3


async def test_a_group_without_retry_queues_wants_nothing_again(desk: Desk) -> None:
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=0))
    put = sent(desk)
    before = desk.broker.store.figures().puts
    assert (await desk.ask(SEND_BACK, back(put))).code == 0
    assert desk.broker.store.figures().puts == before and "%RETRY%g" not in desk.broker.topics


async def test_an_unknown_group_comes_by_itself_where_it_may(desk: Desk) -> None:
    put = sent(desk)
    assert (await desk.ask(SEND_BACK, back(put))).code == 0
    assert desk.broker.groups.get("g") is not None
    desk.config.auto_create_subscription_group = False
    answer = await desk.ask(SEND_BACK, {**back(put), "group": "other"})
    assert (answer.code, answer.remark) == (26, f"subscription group not exist, other {FAQ}")


async def test_unit_mode_marks_the_retry_topic(desk: Desk) -> None:
    await desk.ask(SEND_BACK, back(sent(desk), unitMode="true"))
    config = desk.broker.topics.get("%RETRY%g")
    assert config is not None and config.topic_sys_flag == 2


async def test_returns_are_counted_for_the_topic_they_came_from(desk: Desk) -> None:
    put = sent(desk)
    await desk.ask(SEND_BACK, back(put, 1))
    desk.deliver(1000)
    await desk.ask(SEND_BACK, back(only(desk.records("%RETRY%g")), 1))
    for second in range(11):
        figures, after = desk.broker.store.figures(), 1000 * second
        desk.broker.statistics.sample(moment(figures, desk.passed() + after), desk.now + after)
    spans = desk.broker.statistics.spans("SNDBCK_PUT_NUMS", "T@g")
    assert spans is not None and spans[0].sum == 2


# ---------------------------------------------------------------------- refusals


async def test_refusals(desk: Desk) -> None:
    put = sent(desk)
    wrong = put.physical_offset + 1
    for offset in (wrong, -1, 1 << 40):
        answer = await desk.ask(SEND_BACK, {**back(put), "offset": offset})
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
    long = "g" * 124
    answer = await desk.ask(SEND_BACK, {**back(put), "group": long})
    assert (answer.code, answer.remark) == (1, "The specified topic is longer than topic max length.")
    desk.topic("%RETRY%g", perm=4)
    answer = await desk.ask(SEND_BACK, back(put))
    assert (answer.code, answer.remark) == (16, "the topic[%RETRY%g] sending message is forbidden")
    desk.config.broker_permission = 4
    answer = await desk.ask(SEND_BACK, back(put))
    assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] sending message is forbidden")
    assert desk.broker.store.figures().puts == 1


async def test_properties_that_grew_too_long(desk: Desk) -> None:
    put = sent(desk, b"KEYS\x01" + b"k" * 32_750)
    answer = await desk.ask(SEND_BACK, back(put))
    assert (answer.code, answer.remark) == (1, "PROPERTIES_SIZE_EXCEEDED")


async def test_a_store_that_takes_nothing(desk: Desk) -> None:
    put = sent(desk)
    desk.fill_disk()
    answer = await desk.ask(SEND_BACK, back(put))
    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")
    desk.fill_disk(full=False)
    desk.broker.accepting = False
    answer = await desk.ask(SEND_BACK, back(put))
    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")


async def test_a_broker_that_is_no_master_any_more_when_the_message_is_read_makes_no_topic(desk: Desk) -> None:
    put = sent(desk)
    broker = desk.broker
    shown = broker.store.shown

    async def read(physical_offset: int, *, in_queue: bool) -> bytes | None:
        data = await shown(physical_offset, in_queue=in_queue)
        broker.accepting = False
        return data

    broker.store.shown = read  # type: ignore[method-assign, assignment]
    answer = await desk.ask(SEND_BACK, back(put, -1))
    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")
    assert [topic for topic in broker.topics if topic.startswith("%DLQ%")] == []


async def test_under_sync_flush_the_answer_comes_after_the_disk(prepared: Prepared) -> None:
    def sync(desk: Desk) -> None:
        desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
        desk.config.store.sync_flush_timeout = 500

    desk = await prepared(sync)
    put = sent(desk)
    desk.broker.store.flush()
    assert (await desk.ask(SEND_BACK, back(put, 1))).code == 0
    assert desk.broker.store.figures().flush_behind_bytes == 0
    with desk.disk.held():
        assert (await desk.ask(SEND_BACK, back(put, 1))).code == 0  # stored, and the disk is only slow
    await eventually(lambda: desk.broker.store.figures().flush_behind_bytes == 0)
    desk.disk.broken = True
    answer = await desk.ask(SEND_BACK, back(put, 1))
    assert (answer.code, answer.remark) == (1, "FLUSH_DISK_TIMEOUT")


# ---------------------------------------------------------------------- sent to the retry topic as a new message


def anew(times: int, most: int) -> dict[str, object]:
    text = f"RETRY_TOPIC\x01T\x02RECONSUME_TIME\x01{times}\x02MAX_RECONSUME_TIMES\x01{most}\x02DELAY\x01{3 + times}"
    fields = dict(zip("abcdefgh", ("CLIENT_INNER_PRODUCER", "%RETRY%g", "TBW102", 1, 0, 0, START, 0), strict=True))
    return {**fields, "i": text, "j": times, "l": most}


async def test_a_message_sent_to_the_retry_topic_waits_too(desk: Desk) -> None:
    desk.broker.groups.find("g")
    desk.topic("%RETRY%g")
    assert (await desk.ask(SEND_V2, anew(2, 3), b"again")).code == 0
    assert only(desk.records(SCHEDULE, 4)).properties["REAL_TOPIC"] == "%RETRY%g"


async def test_with_its_retries_used_up_it_is_a_dead_letter_at_once(desk: Desk) -> None:
    desk.broker.groups.find("g")
    desk.topic("%RETRY%g")
    assert (await desk.ask(SEND_V2, anew(3, 3), b"enough")).code == 0
    letter = only(desk.records("%DLQ%g"))
    assert (letter.body, letter.properties["DELAY"], letter.reconsume_times) == (b"enough", "0", 3)
    assert "REAL_TOPIC" not in letter.properties
    assert desk.records(SCHEDULE, 5) == []
