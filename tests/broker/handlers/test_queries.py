"""Looking messages up: 12 by key, 33 by place, 321 the units of a queue."""

from collections.abc import Awaitable, Callable

import pytest

from eruca.protocol.bodies import QueryConsumeQueueResponseBody
from eruca.protocol.message import encode_properties, tags_code
from eruca.protocol.record import decode_records
from tests.support.desk import START, Desk

BY_KEY, BY_PLACE, SLOTS = 12, 33, 321


def keyed(keys: str, unique: str = "", tags: str | None = None) -> bytes:
    return encode_properties({"KEYS": keys or None, "UNIQ_KEY": unique or None, "TAGS": tags})


def wish(key: str, **changes: object) -> dict[str, object]:
    return {"topic": "T", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": START + 10**6, **changes}


async def test_messages_are_found_by_any_of_their_keys(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, body=b"one", properties=keyed("order-1 red"))
    desk.store("T", 0, 1, body=b"two", properties=keyed("order-2 red"))
    answer = await desk.ask(BY_KEY, wish("red"))
    assert answer.code == 0
    assert [record.body for record in decode_records(answer.body)] == [b"one", b"two"]
    assert [record.body for record in decode_records((await desk.ask(BY_KEY, wish("order-2"))).body)] == [b"two"]
    assert set(answer.fields) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    assert answer.fields["indexLastUpdateTimestamp"] == str(START + 1)


async def test_at_most_so_many_and_within_the_times(desk: Desk) -> None:
    desk.topic("T")
    for number in range(5):
        desk.store("T", 0, number * 1000, body=b"%d" % number, properties=keyed("k"))
    answer = await desk.ask(BY_KEY, wish("k", maxNum=2))
    assert len(decode_records(answer.body)) == 2
    answer = await desk.ask(BY_KEY, wish("k", beginTimestamp=START + 1000, endTimestamp=START + 3000))
    assert [record.body for record in decode_records(answer.body)] == [b"1", b"2", b"3"]


async def test_a_unique_key_is_looked_up_whatever_the_number(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, body=b"one", properties=keyed("", unique="AC11"))
    answer = await desk.ask(BY_KEY, wish("AC11", maxNum=0, _UNIQUE_KEY_QUERY="true"))
    assert [record.body for record in decode_records(answer.body)] == [b"one"]


async def test_no_message_has_the_key(desk: Desk) -> None:
    answer = await desk.ask(BY_KEY, wish("nothing"))
    assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")
    assert answer.fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


async def test_keys_of_another_topic_are_not_found(desk: Desk) -> None:
    desk.topic("U")
    desk.store("U", 0, 0, properties=keyed("k"))
    assert (await desk.ask(BY_KEY, wish("k"))).code == 22


async def test_a_message_by_its_place(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, body=b"one")
    second = desk.store("T", 0, 1, body=b"two")
    answer = await desk.ask(BY_PLACE, {"offset": second.physical_offset})
    (record,) = decode_records(answer.body, check=True)
    assert (record.body, record.queue_offset, record.store_timestamp) == (b"two", 1, START + 1)


@pytest.mark.parametrize("offset", [3, -1, 10**9, 2**62])
async def test_no_message_begins_there(desk: Desk, offset: int) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    answer = await desk.ask(BY_PLACE, {"offset": offset})
    assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


async def test_the_slots_of_a_queue(desk: Desk) -> None:
    desk.topic("T")
    first = desk.store("T", 0, 0, properties=keyed("", tags="red"))
    second = desk.store("T", 0, 1)
    answer = await desk.ask(SLOTS, {"topic": "T", "queueId": 0, "index": 0, "count": 10})
    body = QueryConsumeQueueResponseBody.decode(answer.body)
    assert (body.min_queue_index, body.max_queue_index) == (0, 2)
    assert [(unit.physic_offset, unit.physic_size, unit.tags_code) for unit in body.queue_data] == [
        (0, first.size, tags_code("red")),
        (second.physical_offset, second.size, 0),
    ]
    assert body.subscription_data is None and body.filter_data is None
    one = await desk.ask(SLOTS, {"topic": "T", "queueId": 0, "index": 1, "count": 1})
    assert len(QueryConsumeQueueResponseBody.decode(one.body).queue_data) == 1


async def test_an_answer_shows_ten_thousand_slots_at_most(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, *range(10_001), body=b"")
    answer = await desk.ask(SLOTS, {"topic": "T", "queueId": 0, "index": 0, "count": 2**31 - 1})
    assert len(QueryConsumeQueueResponseBody.decode(answer.body).queue_data) == 10_000


async def test_slots_with_what_a_group_subscribes(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    fields = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "g"}
    body = QueryConsumeQueueResponseBody.decode((await desk.ask(SLOTS, fields)).body)
    assert body.filter_data == "g@T is not online!"
    await desk.consumer("g", "T")
    body = QueryConsumeQueueResponseBody.decode((await desk.ask(SLOTS, fields)).body)
    assert body.filter_data == "null"
    assert body.subscription_data is not None and body.subscription_data.topic == "T"


async def test_slots_that_are_not_there(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0)
    for index in (1, 99999, -1):
        answer = await desk.ask(SLOTS, {"topic": "T", "queueId": 0, "index": index, "count": 1})
        assert (answer.code, answer.remark, answer.body) == (0, f"Index {index} of 0@T is not exist!", b"")
    answer = await desk.ask(SLOTS, {"topic": "T", "queueId": 7, "index": 0, "count": 1})
    assert (answer.code, answer.remark) == (1, "7@T is not exist!")


async def test_without_an_index_nothing_is_found(
    prepared: Callable[[Callable[[Desk], None]], Awaitable[Desk]],
) -> None:
    def no_index(desk: Desk) -> None:
        desk.config.store.message_index_enable = False

    desk = await prepared(no_index)
    desk.topic("T")
    desk.store("T", 0, 0, properties=keyed("k"))
    assert (await desk.ask(BY_KEY, wish("k"))).code == 22
