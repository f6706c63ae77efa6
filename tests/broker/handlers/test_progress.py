"""How far groups are: 208, 303, 317."""

from eruca.broker.services.runtime import moment
from eruca.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetWrapper,
    QueueTimeSpan,
    SubscriptionGroupConfig,
)
from eruca.protocol.queues import MessageQueue
from tests.support.desk import START, Desk

GROUP, SPANS, ALL = 208, 303, 317


def queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


async def test_offsets_and_lag_of_each_read_queue(desk: Desk) -> None:
    desk.topic("T", 1, read_queue_nums=3)
    desk.store("T", 0, 0, 100, 200)
    desk.commit("g", "T", 2)
    stats = ConsumeStats.decode((await desk.ask(GROUP, {"consumerGroup": "g", "topic": "T"})).body)
    assert stats.offset_table == {
        queue(0): OffsetWrapper(broker_offset=3, consumer_offset=2, last_timestamp=START + 100, pull_offset=2),
        queue(1): OffsetWrapper(pull_offset=0),
        queue(2): OffsetWrapper(pull_offset=0),
    }
    assert (stats.lag(), stats.consume_tps) == (1, 0.0)


async def test_what_members_pulled_and_have_not_consumed_is_in_flight(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, 100, 200)
    member = await desk.consumer("g", "T")
    pull = {**dict.fromkeys(("commitOffset", "suspendTimeoutMillis", "subVersion"), 0), "sysFlag": 4}
    where = {"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 2}
    assert (await member.ask(11, {**where, **pull})).code == 0

    async def told() -> tuple[int, int | None]:
        stats = ConsumeStats.decode((await desk.ask(GROUP, {"consumerGroup": "g", "topic": "T"})).body)
        return stats.offset_table[queue(0)].consumer_offset, stats.offset_table[queue(0)].pull_offset

    assert await told() == (0, 2)
    desk.commit("g", "T", 3)  # by a member that went on
    assert await told() == (3, 3)
    desk.commit("g", "T", 1)
    assert await told() == (1, 2)
    await member.ask(35, {"clientID": "c", "consumerGroup": "g"})
    assert await told() == (1, 1)  # nobody holds anything any more


async def test_all_topics_of_a_group_its_retry_topic_too(desk: Desk) -> None:
    for topic in ("T", "U", "%RETRY%g"):
        desk.topic(topic)
        desk.commit("g", topic, 0)
    desk.commit("g", "Deleted", 3)
    stats = ConsumeStats.decode((await desk.ask(GROUP, {"consumerGroup": "g"})).body)
    assert {each.topic for each in stats.offset_table} == {"T", "U", "%RETRY%g"}


async def test_topics_that_the_online_group_does_not_subscribe_are_left_out(desk: Desk) -> None:
    for topic in ("T", "U"):
        desk.topic(topic)
        desk.commit("g", topic, 0)
    await desk.consumer("g", "U")
    stats = ConsumeStats.decode((await desk.ask(GROUP, {"consumerGroup": "g"})).body)
    assert {each.topic for each in stats.offset_table} == {"U"}


async def test_an_unknown_group_or_topic_has_no_rows(desk: Desk) -> None:
    for fields in ({"consumerGroup": "gone"}, {"consumerGroup": "g", "topic": "Nowhere"}):
        answer = await desk.ask(GROUP, fields)
        assert (answer.code, answer.body) == (0, b'{"consumeTps":0.0,"offsetTable":{}}')


async def test_the_rate_is_that_of_the_last_minute(desk: Desk) -> None:
    desk.topic("T")
    desk.broker.statistics.got("g", "T", 0, 50, 500)
    for second in range(1, 11):
        desk.now = START + second * 1000
        desk.broker.statistics.sample(moment(desk.broker.store.figures(), desk.passed()), desk.now)
    stats = ConsumeStats.decode((await desk.ask(GROUP, {"consumerGroup": "g", "topic": "T"})).body)
    assert stats.consume_tps == 5.0


async def test_every_group_of_the_broker(desk: Desk) -> None:
    desk.topic("T", 2)
    desk.topic("Ordered", 1, order=True)
    desk.store("T", 1, 0, 1, 2)
    desk.store("Ordered", 0, 3)
    for group in ("g", "idle"):
        desk.broker.groups.put(SubscriptionGroupConfig(group_name=group))
    desk.commit("g", "T", 0, 1)
    desk.commit("g", "Ordered", 0)
    body = ConsumeStatsList.decode((await desk.ask(ALL, {"isOrder": "false"})).body)
    found = {name: stats for entry in body.consume_stats_list for name, stats in entry.items()}
    assert body.broker_addr == desk.app.address
    assert body.total_diff == 3
    assert [set(stats.offset_table) for stats in found["g"]] == [{queue(0, "Ordered")}, {queue(0), queue(1)}]
    assert found["idle"] == []
    body = ConsumeStatsList.decode((await desk.ask(ALL, {"isOrder": "true"})).body)
    found = {name: stats for entry in body.consume_stats_list for name, stats in entry.items()}
    assert [set(stats.offset_table) for stats in found["g"]] == [{queue(0, "Ordered")}]
    assert body.total_diff == 1


async def test_the_times_between_which_a_group_consumes(desk: Desk) -> None:
    desk.topic("T", 2)
    desk.store("T", 0, 0, 100, 200, 300)
    desk.commit("g", "T", 2)
    desk.now = START + 1000
    spans = ConsumeTimeSpans.decode((await desk.ask(SPANS, {"topic": "T", "group": "g"})).body)
    busy, empty = spans.consume_time_span_set
    assert busy == QueueTimeSpan(
        message_queue=queue(0),
        min_time_stamp=START,
        min_time_stamp_str=busy.min_time_stamp_str,
        max_time_stamp=START + 300,
        max_time_stamp_str=busy.max_time_stamp_str,
        consume_time_stamp=START + 100,
        consume_time_stamp_str=busy.consume_time_stamp_str,
        delay_time=800,
    )
    assert (busy.min_time_stamp_str or "").endswith(":20:000")
    assert (busy.max_time_stamp_str or "").endswith(":20:300")
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.consume_time_stamp, empty.delay_time) == (-1, -1, -1, 0)


async def test_a_group_without_offsets_is_as_late_as_the_oldest_message(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, 100)
    desk.now = START + 1000
    (span,) = ConsumeTimeSpans.decode(
        (await desk.ask(SPANS, {"topic": "T", "group": "new"})).body
    ).consume_time_span_set
    assert (span.consume_time_stamp, span.delay_time) == (START, 1000)


async def test_times_in_an_unknown_topic(desk: Desk) -> None:
    answer = await desk.ask(SPANS, {"topic": "Nowhere", "group": "g"})
    assert (answer.code, answer.remark) == (17, "topic[Nowhere] not exist")
