"""Request-reply: 324 and 325 push the answer to the client that asked (326), and store it."""

from __future__ import annotations

import asyncio

import pytest

from eruca.broker.handlers import replies
from eruca.protocol.bodies import HeartbeatData, ProducerData
from tests.support.desk import START, Desk
from tests.support.peers import Answering, Peer
from tests.support.sends import LONG, message

REPLY, REPLY_V2, PUSH = 324, 325, 326
TOPIC = "Lab_REPLY_TOPIC"
TEXT = "MSG_TYPE\x01reply\x02CORRELATION_ID\x01c-1\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000"


def answer(**more: object) -> dict[str, object]:
    return message(TOPIC, **{"i": TEXT, **more})  # type: ignore[arg-type]


async def asker(desk: Desk, answering: Answering | None = lambda _: (0, b""), client_id: str = "asker") -> Peer:
    """A client that waits for answers."""
    peer = await desk.peer(answering=answering)
    beat = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name="askers")])
    assert (await peer.ask(34, {}, beat.encode())).code == 0
    return peer


async def test_an_answer_is_pushed_to_the_client_that_asked_and_stored(desk: Desk) -> None:
    client = await asker(desk)

    told = await desk.ask(REPLY_V2, answer(h=7, j=1), b"the answer")

    (pushed,) = await client.received(PUSH)
    assert (pushed.body, pushed.oneway) == (b"the answer", False)
    assert pushed.fields == {
        **{"producerGroup": "pg", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"},
        **{"queueId": "0", "sysFlag": "0", "bornTimestamp": str(START), "flag": "7", "reconsumeTimes": "1"},
        **{"unitMode": "false", "bornHost": desk.operator.address, "storeHost": desk.app.address},
        **{"storeTimestamp": str(START), "properties": f"{TEXT}\x02PUSH_REPLY_TIME\x01{START}"},
    }
    record = desk.records(TOPIC)[0]
    assert (record.body, record.properties_text, record.flag) == (b"the answer", TEXT.encode(), 7)
    assert (told.code, told.remark) == (0, None)
    assert told.fields == {
        **{"msgId": record.offset_message_id, "queueId": "0", "queueOffset": "0"},
        **{"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"},
    }


async def test_long_names_mean_the_same(desk: Desk) -> None:
    client = await asker(desk)

    told = await desk.ask(REPLY, {LONG[name]: value for name, value in answer().items()}, b"x")

    assert told.code == 0
    assert [pushed.body for pushed in await client.received(PUSH)] == [b"x"]


async def test_without_storing_the_place_is_nowhere(desk: Desk) -> None:
    desk.config.store_reply_message_enable = False
    await asker(desk)

    told = await desk.ask(REPLY_V2, answer(), b"x")

    assert (told.code, told.fields["msgId"], told.fields["queueOffset"]) == (0, "0", "0")
    assert desk.broker.store.figures().puts == 0


async def test_an_answer_to_a_client_that_is_gone_is_stored_and_refused(desk: Desk) -> None:
    told = await desk.ask(REPLY_V2, answer(), b"x")

    assert (told.code, told.remark) == (1, "push reply message fail, channel of <asker> not found.")
    assert told.fields["msgId"] == desk.records(TOPIC)[0].offset_message_id


async def test_an_answer_to_nobody_is_refused(desk: Desk) -> None:
    told = await desk.ask(REPLY_V2, answer(i="CORRELATION_ID\x01c"), b"x")

    assert (told.code, told.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")


async def test_an_answer_that_the_client_does_not_take_is_refused(desk: Desk) -> None:
    await asker(desk, answering=lambda _: (1, b""))

    told = await desk.ask(REPLY_V2, answer(), b"x")

    assert (told.code, told.remark) == (1, "push reply message to askerfail.")
    assert desk.records(TOPIC)[0].body == b"x"


async def test_a_silent_client_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PUSHED_WITHIN", 0.2)
    client = await asker(desk, answering=None)

    waiting = asyncio.ensure_future(desk.ask(REPLY_V2, answer(), b"x"))
    await client.received(PUSH)
    assert not waiting.done()

    assert (await waiting).remark == "push reply message to askerfail."


async def test_a_client_that_ends_meanwhile_does_not_keep_the_other_waiting(desk: Desk) -> None:
    client = await asker(desk, answering=None)
    waiting = asyncio.ensure_future(desk.ask(REPLY_V2, answer(), b"x"))
    await client.received(PUSH)

    await client.close()

    assert (await waiting).remark == "push reply message to askerfail."


async def test_the_connection_that_was_heard_of_last_is_the_client(desk: Desk) -> None:
    first, second = await asker(desk), await asker(desk)
    await first.close()

    assert (await desk.ask(REPLY_V2, answer(), b"x")).code == 0

    assert len(await second.received(PUSH)) == 1


async def test_a_client_that_left_its_group_gets_nothing(desk: Desk) -> None:
    client = await asker(desk)
    assert (await client.ask(35, {"clientID": "asker", "producerGroup": "askers"})).code == 0

    told = await desk.ask(REPLY_V2, answer(), b"x")

    assert told.remark == "push reply message fail, channel of <asker> not found."
    assert client.pushed == []


async def test_a_compressed_answer_stays_one(desk: Desk) -> None:
    client = await asker(desk)

    await desk.ask(REPLY_V2, answer(f=0x301), b"zz")

    assert (await client.received(PUSH))[0].fields["sysFlag"] == str(0x301)
    assert desk.records(TOPIC)[0].sys_flag == 0x301


async def test_an_answer_passes_the_checks_of_a_send(desk: Desk) -> None:
    told = await desk.ask(REPLY_V2, answer(b="SELF_TEST_TOPIC"), b"x")

    assert (told.code, told.remark) == (16, "Sending message to topic[SELF_TEST_TOPIC] is forbidden.")
    assert told.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
