"""Pulling: 11 and 361; the checks in their order, every outcome of a read, and long polling."""

from __future__ import annotations

import asyncio
import json
from time import monotonic

import pytest
from structlog.testing import capture_logs

from eruca.broker.handlers.clients import MOST_TAGS
from eruca.broker.handlers.pull import LONGEST_SUBSCRIPTION
from eruca.broker.services.ports import VIP
from eruca.protocol.bodies import SubscriptionGroupConfig
from eruca.protocol.message import java_hash
from eruca.protocol.record import decode_records
from tests.support.desk import Desk
from tests.support.pairs import eventually
from tests.support.peers import Answered
from tests.support.pulls import COMMIT, LITE, PULL, SEND_V2, SUBSCRIPTION, SUSPEND, Prepared, bodies, place, pull

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


# ---------------------------------------------------------------------- outcomes


async def test_messages_come_as_they_are_stored(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, *range(5), body=b"hello")
    for code in (PULL, LITE):
        answer = await desk.ask(code, pull(2))
        assert place(answer) == (0, "FOUND", "5", "0", "5")
        assert bodies(answer) == [b"hello"] * 3
        assert [record.queue_offset for record in decode_records(answer.body)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("offset", "outcome"),
    [
        (-1, (21, "OFFSET_TOO_SMALL", "0", "0", "3")),
        (3, (19, "OFFSET_OVERFLOW_ONE", "3", "0", "3")),
        (4, (21, "OFFSET_OVERFLOW_BADLY", "3", "0", "3")),
    ],
)
async def test_an_offset_outside_of_the_queue(desk: Desk, offset: int, outcome: tuple[object, ...]) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, 1, 2)
    assert place(await desk.ask(PULL, pull(offset))) == outcome


async def test_an_empty_queue(desk: Desk) -> None:
    desk.topic("T")
    assert place(await desk.ask(PULL, pull(0))) == (19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")
    assert place(await desk.ask(PULL, pull(5))) == (21, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")


async def test_a_corrected_offset_is_told_in_a_topic(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    await desk.ask(PULL, pull(9))
    desk.broker.store.drain()
    answer = await desk.ask(PULL, pull(topic="OFFSET_MOVED_EVENT"))
    (record,) = decode_records(answer.body)
    assert (record.tags, record.keys) == ("g", ["g"])
    assert json.loads(record.body) == {
        "consumerGroup": "g",
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
        "offsetNew": 1,
        "offsetRequest": 9,
    }


async def test_corrected_offsets_are_reported_once_a_queue_in_10_seconds_and_answered_each_time(desk: Desk) -> None:
    desk.topic("T", queues=2)
    desk.store("T", 0, 0)

    async def told(queue_id: int) -> tuple[object, int]:
        before = desk.broker.store.figures().max_offset
        with capture_logs() as said:
            answer = await desk.ask(PULL, pull(9, queueId=queue_id))
        assert (desk.broker.store.figures().max_offset > before) is (said != [])
        return place(answer)[0], [line["event"] for line in said].count("offset_moved")

    assert [await told(0), await told(0), await told(1), await told(0)] == [(21, 1), (21, 0), (21, 1), (21, 0)]
    desk.jump(60_000)
    assert await told(0) == (21, 0), "a jump of the wall clock is no time"
    desk.now += 10_000
    assert await told(0) == (21, 1)


async def test_at_most_as_many_as_asked_for_and_1024(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, *range(1030))
    assert len(bodies(await desk.ask(PULL, pull(maxMsgNums=3)))) == 3
    assert len(bodies(await desk.ask(PULL, pull(maxMsgNums=1000)))) == 1000
    assert len(bodies(await desk.ask(PULL, pull(maxMsgNums=5000)))) == 1024


async def test_an_answer_has_256_kib_of_records_at_most(desk: Desk) -> None:
    desk.topic("T")
    for _ in range(30):
        desk.store("T", 0, 0, body=bytes(10_000))
    assert len(bodies(await desk.ask(PULL, pull(maxMsgNums=1000)))) == 25


async def test_the_limit_of_an_answer_is_the_operators(prepared: Prepared) -> None:
    def two(desk: Desk) -> None:
        desk.config.store.max_transfer_count_on_message_in_memory = 2

    desk = await prepared(two)
    desk.topic("T")
    desk.store("T", 0, *range(5))
    assert len(bodies(await desk.ask(PULL, pull()))) == 2


# ---------------------------------------------------------------------- tags


async def test_only_messages_with_the_tags_that_are_wanted(desk: Desk) -> None:
    desk.topic("T")
    for tag in ("A", "B", "C", "A"):
        desk.store("T", 0, 0, body=tag.encode(), properties=b"TAGS\x01" + tag.encode())
    assert bodies(await desk.ask(PULL, pull(subscription="A || C"))) == [b"A", b"C", b"A"]
    assert bodies(await desk.ask(PULL, pull(subscription=""))) == [b"A", b"B", b"C", b"A"]
    none = await desk.ask(PULL, pull(subscription="Z"))
    assert place(none) == (20, "NO_MATCHED_MESSAGE", "4", "0", "4")


async def test_without_the_flag_the_heartbeat_decides(desk: Desk) -> None:
    desk.topic("T")
    for tag in ("A", "B"):
        desk.store("T", 0, 0, body=tag.encode(), properties=b"TAGS\x01" + tag.encode())
    assert "g" not in desk.broker.clients.consumers
    answer = await desk.ask(PULL, pull(flags=0))
    assert (answer.code, answer.remark) == (24, "the consumer's group info not exist" + FAQ)
    await desk.consumer("g", "Other")
    answer = await desk.ask(PULL, pull(flags=0))
    assert (answer.code, answer.remark) == (24, "the consumer's subscription not exist" + FAQ)
    await desk.consumer("g", "Other", "T", client_id="d")
    assert len(bodies(await desk.ask(PULL, pull(flags=0, subscription="nothing of this counts")))) == 2
    found = desk.broker.clients.consumers["g"].subscriptions["T"]
    found.sub_string, found.code_set = "B", {java_hash("B")}
    assert bodies(await desk.ask(PULL, pull(flags=0))) == [b"B"]


async def test_a_consumer_that_knows_more_than_the_broker_waits(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    await desk.consumer("g", "T")
    answer = await desk.ask(PULL, pull(flags=0, subVersion=8))
    assert (answer.code, answer.remark) == (25, "the consumer's subscription not latest")
    assert (await desk.ask(PULL, pull(flags=0, subVersion=7))).code == 0
    assert (await desk.ask(PULL, pull(flags=0, subVersion=0))).code == 0


async def test_expressions_that_cannot_be_used(desk: Desk) -> None:
    desk.topic("T")
    answer = await desk.ask(PULL, pull(subscription="a > 5", expressionType="SQL92"))
    assert (answer.code, answer.remark) == (
        1,
        "The broker does not support consumer to filter message by SQL92; "
        "set enablePropertyFilter=true in its configuration",
    )
    answer = await desk.ask(PULL, pull(subscription="||"))
    assert (answer.code, answer.remark) == (23, "parse the consumer's subscription failed")
    assert (await desk.ask(PULL, pull(subscription="", expressionType="SQL92"))).code == 23
    desk.config.enable_property_filter = True
    desk.store("T", 0, 0)
    for wrong in ("price >", "5", "a = NULL"):
        answer = await desk.ask(PULL, pull(subscription=wrong, expressionType="SQL92"))
        assert (answer.code, answer.body) == (23, b"")
        assert f"The SQL92 expression '{wrong}' is wrong at position" in str(answer.remark)
    fields = pull()
    del fields["subVersion"]
    assert (await desk.ask(PULL, fields)).code == 1


# ---------------------------------------------------------------------- checks


async def test_the_checks_come_in_their_order(prepared: Prepared) -> None:
    def strict(desk: Desk) -> None:
        desk.config.auto_create_subscription_group = False

    desk = await prepared(strict)
    await desk.ask(25, {}, b"brokerPermission=2\n")
    answer = await desk.ask(PULL, pull())
    assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] pulling message is forbidden")

    await desk.ask(25, {}, b"brokerPermission=6\n")
    answer = await desk.ask(PULL, pull())
    assert (answer.code, answer.remark) == (26, f"subscription group [g] does not exist, {FAQ}")

    group = SubscriptionGroupConfig(group_name="g", consume_enable=False)
    desk.broker.groups.put(group)
    answer = await desk.ask(PULL, pull())
    assert (answer.code, answer.remark) == (16, "subscription group no permission, g")

    group.consume_enable = True
    answer = await desk.ask(PULL, pull())
    assert (answer.code, answer.remark) == (17, f"topic[T] not exist, apply first please! {FAQ}")

    desk.topic("T", queues=2, perm=2)
    answer = await desk.ask(PULL, pull())
    assert (answer.code, answer.remark) == (16, "the topic[T] pulling message is forbidden")

    desk.topic("T", queues=2)
    for queue_id in (-1, 2):
        answer = await desk.ask(PULL, pull(queueId=queue_id))
        assert (answer.code, answer.fields) == (1, {})
        assert answer.remark == (
            f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[2] "
            f"consumer:[/{desk.operator.address}]"
        )
    assert (await desk.ask(PULL, pull(queueId=1))).code == 19


async def test_a_group_that_may_not_broadcast(desk: Desk) -> None:
    desk.topic("T")
    desk.broker.groups.put(SubscriptionGroupConfig(group_name="g", consume_broadcast_enable=False))
    await desk.consumer("g", "T", model="BROADCASTING")
    answer = await desk.ask(PULL, pull(flags=0))
    assert (answer.code, answer.remark) == (16, "the consumer group[g] can not consume by broadcast way")


async def test_a_group_comes_by_pulling(desk: Desk) -> None:
    desk.topic("T")
    await desk.ask(PULL, pull(consumerGroup="young"))
    assert desk.broker.groups.get("young") == SubscriptionGroupConfig(group_name="young")
    assert (await desk.ask(PULL, pull(consumerGroup="not a name"))).code == 26


# ---------------------------------------------------------------------- committing on the way


async def test_a_pull_commits_what_it_says(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    await desk.ask(PULL, pull(0, SUBSCRIPTION, commitOffset=5))
    assert desk.broker.offsets.query("g", "T", 0) == -1
    await desk.ask(PULL, pull(0, SUBSCRIPTION | COMMIT, commitOffset=5))
    assert desk.broker.offsets.query("g", "T", 0) == 5


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("||".join(map(str, range(MOST_TAGS))), 19),
        ("||".join(map(str, range(MOST_TAGS + 1))), 23),
        ("t" * LONGEST_SUBSCRIPTION, 19),
        ("t" * (LONGEST_SUBSCRIPTION + 1), 23),
    ],
)
async def test_the_subscription_in_a_pull_is_bounded(desk: Desk, text: str, code: int) -> None:
    desk.topic("T")
    assert (await desk.ask(PULL, pull(0, SUBSCRIPTION, subscription=text))).code == code


async def test_a_pull_with_a_long_subscription_is_held_while_there_is_room(desk: Desk) -> None:
    desk.topic("T")
    texts = ["||".join(f"{number}tag{tag}" for tag in range(9000)) for number in range(20)]
    held = [asyncio.create_task(desk.ask(PULL, pull(0, SUBSCRIPTION | SUSPEND, subscription=text))) for text in texts]
    done, waiting = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
    refused = next(iter(done)).result()
    assert refused.code == 2 and "their subscriptions are too long to be kept" in str(refused.remark)
    await eventually(lambda: sum(each.done() for each in held) + len(desk.broker.holds) == len(texts))
    assert 1 <= len(desk.broker.holds) * len(texts[0]) <= 1 << 20
    desk.broker.holds.close()
    assert {(await each).code for each in waiting} <= {2, 19}


# ---------------------------------------------------------------------- long polling


async def hold(desk: Desk, count: int = 1, **more: object) -> list[asyncio.Task[Answered]]:
    """Pulls that are held: they are, when a later request on the same connection is answered."""
    fields = pull(**{"flags": SUBSCRIPTION | SUSPEND, **more})  # type: ignore[arg-type]
    tasks = [asyncio.create_task(desk.ask(PULL, fields)) for _ in range(count)]
    await asyncio.create_task(desk.ask(30, {"topic": "T", "queueId": 0}))
    assert len(desk.broker.holds) == count
    return tasks


async def test_a_held_pull_is_answered_when_a_message_comes(desk: Desk) -> None:
    desk.topic("T")
    held = await hold(desk, 3)
    producer = await desk.peer()
    fields = dict(zip("abcdefgh", ("pg", "T", "TBW102", 4, 0, 0, 1, 0), strict=True))
    assert (await producer.ask(SEND_V2, fields, b"news")).code == 0
    for answer in await asyncio.gather(*held):
        assert (answer.code, bodies(answer)) == (0, [b"news"])
    assert len(desk.broker.holds) == 0


async def test_a_held_pull_waits_for_its_own_queue_and_tags(desk: Desk) -> None:
    desk.topic("T", queues=2)
    (held,) = await hold(desk, subscription="A")
    desk.store("T", 1, 0, properties=b"TAGS\x01A")
    desk.store("T", 0, 0, properties=b"TAGS\x01B")
    assert len(desk.broker.holds) == 1
    desk.store("T", 0, 0, body=b"mine", properties=b"TAGS\x01A")
    assert bodies(await held) == [b"mine"]


async def test_a_held_pull_ends_by_itself(desk: Desk) -> None:
    desk.topic("T")
    began = monotonic()
    answer = await desk.ask(PULL, pull(flags=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=30))
    assert place(answer) == (19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0")
    assert monotonic() - began >= 0.03


async def test_what_did_not_match_while_it_was_held_is_not_looked_at_again(desk: Desk) -> None:
    desk.topic("T")
    (held,) = await hold(desk, suspendTimeoutMillis=500, subscription="A")
    desk.store("T", 0, 0, 1, properties=b"TAGS\x01B")
    assert place(await held) == (20, "NO_MATCHED_MESSAGE", "2", "0", "2")


async def test_short_polling_where_long_polling_is_off(prepared: Prepared) -> None:
    def short(desk: Desk) -> None:
        desk.config.long_polling_enable = False
        desk.config.short_polling_time_mills = 20

    desk = await prepared(short)
    desk.topic("T")
    began = monotonic()
    answer = await desk.ask(PULL, pull(flags=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=60_000))
    assert answer.code == 19
    assert 0.02 <= monotonic() - began < 60


async def test_a_lost_connection_leaves_no_hold(desk: Desk) -> None:
    desk.topic("T")
    (held,) = await hold(desk)
    assert len(desk.broker.holds) == 1
    held.cancel()
    await desk.operator.close()
    await eventually(lambda: len(desk.broker.holds) == 0)
    desk.operator = await desk.peer()
    assert (await desk.operator.ask(30, {"topic": "T", "queueId": 0})).code == 0


async def test_a_connection_holds_1024_pulls_and_the_next_is_told_to_come_later(desk: Desk) -> None:
    desk.topic("T")
    await hold(desk, 1024)
    fields = pull(flags=SUBSCRIPTION | SUSPEND)
    refused = await desk.ask(PULL, fields)
    assert (refused.code, "1024 pulls of this connection are held already" in (refused.remark or "")) == (2, True)
    other = await desk.peer()
    held = asyncio.create_task(other.ask(PULL, fields))
    await eventually(lambda: len(desk.broker.holds) == 1025)
    desk.store("T", 0, 0, body=b"news")
    assert bodies(await held) == [b"news"]


async def test_a_stop_answers_held_pulls(desk: Desk) -> None:
    desk.topic("T")
    (held,) = await hold(desk)
    await desk.app.stop()
    assert (await held).code == 19


async def test_a_topic_that_goes_while_a_pull_is_held(desk: Desk) -> None:
    desk.topic("T")
    (held,) = await hold(desk, suspendTimeoutMillis=30)
    desk.broker.topics.remove("T")
    assert (await held).code == 17


async def test_the_vip_port_serves_no_pulls(desk: Desk) -> None:
    desk.topic("T")
    vip = await type(desk.operator)().connect(f"127.0.0.1:{desk.app.port + VIP}")
    answer = await vip.ask(PULL, pull())
    assert (answer.code, answer.remark) == (3, " request type 11 not supported")
    assert (await vip.ask(30, {"topic": "T", "queueId": 0})).code == 0
    await vip.close()
