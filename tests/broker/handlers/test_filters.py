"""Messages chosen by SQL92: the check before (46), expressions of heartbeats and of pulls, waiting, retry topics."""

from __future__ import annotations

import asyncio
import json

import pytest

from eruca.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from tests.support.desk import Desk
from tests.support.peers import Answered, Peer
from tests.support.pulls import PULL, SUBSCRIPTION, SUSPEND, Prepared, bodies, place, pull

HEARTBEAT, LEAVE, CHECK, SLOTS, CONFIGURE = 34, 35, 46, 321, 25
UNSUPPORTED = "The broker does not support consumer to filter message by"
ADVICE = "set enablePropertyFilter=true in its configuration"
NO_CLASSES = f"{UNSUPPORTED} a Java class; subscribe by tags or by SQL92"


@pytest.fixture
async def filtering(prepared: Prepared) -> Desk:
    """A broker with enablePropertyFilter and a topic of six messages with a = 0, …, 5."""

    def enable(desk: Desk) -> None:
        desk.config.enable_property_filter = True

    desk = await prepared(enable)
    desk.topic("T")
    for number in range(6):
        put(desk, number)
    return desk


def put(desk: Desk, number: int, **properties: str) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in {"a": str(number), **properties}.items())
    desk.store("T", 0, 0, body=b"%d" % number, properties=text.encode())


def sql(expression: str, offset: int = 0, flags: int = SUBSCRIPTION, **more: object) -> dict[str, object]:
    """A pull that brings its expression."""
    return pull(offset, flags, subscription=expression, expressionType="SQL92", **more)


async def subscribe(
    desk: Desk, expression: str, version: int = 7, *, kind: str = "SQL92", by_class: bool = False
) -> Peer:
    peer = await desk.peer()
    subscription = SubscriptionData(
        topic="T", sub_string=expression, sub_version=version, expression_type=kind, class_filter_mode=by_class
    )
    beat = HeartbeatData(
        client_id="c",
        consumer_data_set=[
            ConsumerData(group_name="g", message_model="CLUSTERING", subscription_data_set=[subscription])
        ],
    )
    assert (await peer.ask(HEARTBEAT, {}, beat.encode())).code == 0
    return peer


# ---------------------------------------------------------------------- the check before


async def check(desk: Desk, expression: str, kind: str = "SQL92", *, by_class: bool = False) -> tuple[int, str | None]:
    subscription = {"topic": "T", "subString": expression, "expressionType": kind, "classFilterMode": by_class}
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription}).encode()
    answer = await desk.ask(CHECK, {}, body)
    return answer.code, answer.remark


async def test_a_subscription_is_checked_by_compiling_it(filtering: Desk) -> None:
    assert await check(filtering, "a > 5 AND b CONTAINS 'x'") == (0, None)
    sentence = "The SQL92 expression 'a > ' is wrong at position 5: a property or a constant is expected, not the end."
    assert await check(filtering, "a > ") == (23, sentence)
    assert await check(filtering, "A || B", "TAG") == (0, None)
    assert await check(filtering, "x", "GROOVY") == (23, f"{UNSUPPORTED} GROOVY")
    assert await check(filtering, "com.example.Filter", "TAG", by_class=True) == (1, NO_CLASSES)


async def test_nothing_is_compiled_where_filters_are_off(desk: Desk) -> None:
    assert await check(desk, "a > ") == (1, f"{UNSUPPORTED} SQL92; {ADVICE}")
    assert (await desk.ask(CONFIGURE, {}, b"enablePropertyFilter=true")).code == 0
    assert await check(desk, "a > 5") == (0, None)


# ---------------------------------------------------------------------- expressions in pulls


async def test_only_messages_that_match_come(filtering: Desk) -> None:
    answer = await filtering.ask(PULL, sql("a BETWEEN 2 AND 3 OR a = 5"))
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"2", b"3", b"5"], "6")
    answer = await filtering.ask(PULL, sql("a > 1", maxMsgNums=2))
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"2", b"3"], "4")
    assert bodies(await filtering.ask(PULL, sql("a > 1", 4))) == [b"4", b"5"]


async def test_what_does_not_match_is_stepped_over(filtering: Desk) -> None:
    assert place(await filtering.ask(PULL, sql("a > 7"))) == (20, "NO_MATCHED_MESSAGE", "6", "0", "6")
    assert place(await filtering.ask(PULL, sql("b = 'x'"))) == (20, "NO_MATCHED_MESSAGE", "6", "0", "6")


async def test_a_message_whose_property_is_no_number_does_not_match(filtering: Desk) -> None:
    filtering.store("T", 0, 0, body=b"odd", properties=b"a\x01many")
    filtering.store("T", 0, 0, body=b"none")
    assert bodies(await filtering.ask(PULL, sql("a >= 0 OR TRUE", 4))) == [b"4", b"5", b"none"]
    assert bodies(await filtering.ask(PULL, sql("a IS NULL", 4))) == [b"none"]


async def test_system_properties_can_be_asked_for(filtering: Desk) -> None:
    put(filtering, 6, TAGS="A", KEYS="k")
    assert bodies(await filtering.ask(PULL, sql("TAGS = 'A' AND KEYS IN ('k')"))) == [b"6"]


async def test_a_wrong_expression_in_a_pull_is_refused(filtering: Desk) -> None:
    answer = await filtering.ask(PULL, sql("a > "))
    assert (answer.code, bodies(answer)) == (23, [])
    assert "The SQL92 expression 'a > ' is wrong at position 5" in (answer.remark or "")


async def test_other_expressions_are_refused(filtering: Desk) -> None:
    answer = await filtering.ask(PULL, pull(subscription="x", expressionType="GROOVY"))
    assert (answer.code, answer.remark) == (1, f"{UNSUPPORTED} GROOVY")


# ---------------------------------------------------------------------- expressions in heartbeats


async def test_the_registered_expression_counts(filtering: Desk) -> None:
    await subscribe(filtering, "a >= 4")
    assert bodies(await filtering.ask(PULL, pull(flags=0))) == [b"4", b"5"]
    await subscribe(filtering, "a = 1", 8)
    assert bodies(await filtering.ask(PULL, pull(flags=0, subVersion=8))) == [b"1"]


async def test_a_wrong_expression_that_was_registered_is_told_to_every_pull(filtering: Desk) -> None:
    await subscribe(filtering, "a > ")
    answer = await filtering.ask(PULL, pull(flags=0))
    remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
    assert (answer.code, answer.remark) == (27, remark)


async def test_a_filter_that_is_older_than_the_pull_is_told(filtering: Desk) -> None:
    await subscribe(filtering, "a > 3", 7)
    known = filtering.broker.filters.get("T", "g")
    assert known is not None
    known.data.client_version = 6
    answer = await filtering.ask(PULL, pull(flags=0))
    assert (answer.code, answer.remark) == (28, "the consumer's consumer filter data not latest")


async def test_classes_are_refused(filtering: Desk) -> None:
    await subscribe(filtering, "com.example.Filter", kind="TAG", by_class=True)
    answer = await filtering.ask(PULL, pull(flags=0))
    assert (answer.code, answer.remark) == (1, NO_CLASSES)


async def test_a_filter_dies_when_the_last_member_leaves_or_is_lost(filtering: Desk) -> None:
    first, second = await subscribe(filtering, "a > 3"), await subscribe(filtering, "a > 3")
    known = filtering.broker.filters.get("T", "g")
    assert known is not None
    fields = {"clientID": "c", "consumerGroup": "g"}
    await first.ask(LEAVE, fields)
    assert not known.dead
    await second.ask(LEAVE, fields)
    assert known.dead
    third = await subscribe(filtering, "a > 3")
    assert not known.dead
    lost = asyncio.Event()
    for connection in filtering.broker.clients.consumers["g"].members:
        connection.on_close(lambda _: lost.set())
    await third.close()
    await lost.wait()
    assert known.dead


async def test_filters_are_kept_over_a_restart(filtering: Desk) -> None:
    await subscribe(filtering, "a > 3")
    await filtering.restart()
    known = filtering.broker.filters.get("T", "g")
    assert known is not None and known.dead and known.expression.text == "a > 3"
    filtered = json.loads((filtering.folder / "store" / "config" / "consumerFilter.json").read_text())
    bits = filtered["filterDataByTopic"]["T"]["groupFilterData"]["g"]["bloomFilterData"]
    assert (bits["bitNum"], len(bits["bitPos"])) == (112, 3)


async def test_a_look_at_a_queue_shows_the_filter(filtering: Desk) -> None:
    await subscribe(filtering, "a > 3")
    fields = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "g"}
    shown = json.loads((await filtering.ask(SLOTS, fields)).body)
    assert json.loads(shown["filterData"])["expression"] == "a > 3"
    assert shown["filterData"].startswith('{\n\t"bloomFilterData":{')


# ---------------------------------------------------------------------- waiting


async def held(desk: Desk, expression: str, millis: int = 15_000) -> asyncio.Task[Answered]:
    fields = sql(expression, 6, SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=millis)
    task = asyncio.create_task(desk.ask(PULL, fields))
    await settled(desk)
    assert len(desk.broker.holds) == 1
    return task


async def settled(desk: Desk) -> None:
    """What was asked before on this connection is answered or waits."""
    await asyncio.create_task(desk.ask(30, {"topic": "T", "queueId": 0}))


async def test_a_held_pull_sleeps_on_when_what_came_does_not_match(filtering: Desk) -> None:
    task = await held(filtering, "a > 7")
    for number in (6, 7):
        put(filtering, number)
        await settled(filtering)
        assert len(filtering.broker.holds) == 1 and not task.done()
    put(filtering, 8)
    answer = await task
    assert (bodies(answer), answer.fields["nextBeginOffset"]) == ([b"8"], "9")
    assert len(filtering.broker.holds) == 0


async def test_a_held_pull_that_met_nothing_steps_over_what_came(filtering: Desk) -> None:
    task = await held(filtering, "a > 7", 100)
    put(filtering, 6)
    answer = await task
    assert answer.code in (19, 20) and answer.fields["nextBeginOffset"] == "7"


async def test_a_stop_ends_the_wait(filtering: Desk) -> None:
    task = await held(filtering, "a > 7")
    put(filtering, 6)
    await settled(filtering)
    await filtering.app.stop()
    assert (await task).fields["nextBeginOffset"] == "7"


# ---------------------------------------------------------------------- retry topics


async def test_messages_that_come_again_are_filtered_where_that_is_wanted(prepared: Prepared) -> None:
    def enable(desk: Desk) -> None:
        desk.config.enable_property_filter = True
        desk.config.filter_support_retry = True

    desk = await prepared(enable)
    desk.topic("%RETRY%g")
    for body in (b"RETRY_TOPIC\x01T\x02a\x014", b"RETRY_TOPIC\x01T\x02a\x015", b"RETRY_TOPIC\x01U\x02a\x014"):
        desk.store("%RETRY%g", 0, 0, body=body[-3:], properties=body)
    await subscribe(desk, "a > 4")
    fields = pull(topic="%RETRY%g")
    assert len(bodies(await desk.ask(PULL, fields))) == 2
    desk.config.filter_support_retry = False
    assert len(bodies(await desk.ask(PULL, fields))) == 3


async def test_a_pull_by_a_large_expression_looks_at_fewer_messages(filtering: Desk) -> None:
    for number in range(6, 100):
        put(filtering, number)
    never = " OR ".join(["a = 1000"] * 1000)
    assert place(await filtering.ask(PULL, sql(never))) == (20, "NO_MATCHED_MESSAGE", "32", "0", "100")
    assert place(await filtering.ask(PULL, sql("a = 1000"))) == (20, "NO_MATCHED_MESSAGE", "100", "0", "100")
