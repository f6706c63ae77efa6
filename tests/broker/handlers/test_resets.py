"""222 and 223: a group is put back to a time while its members are online, as each side sees it on its socket."""

import pytest

from eruca.broker.state.offsets import Offsets
from eruca.protocol.bodies import GetConsumerStatusBody, ResetOffsetBody
from eruca.protocol.queues import MessageQueue
from tests.support.desk import START, Desk
from tests.support.peers import Pushed

RESET, STATUS = 222, 223
PUSH_RESET, PUSH_STATUS = 220, 221


def request(timestamp: int, *, force: bool = True, group: str = "g", topic: str = "T") -> dict[str, object]:
    return {"topic": topic, "group": group, "timestamp": timestamp, "isForce": str(force).lower()}


def table(body: bytes) -> dict[int, int]:
    return {queue.queue_id: offset for queue, offset in ResetOffsetBody.decode(body).offset_table.items()}


async def group_of_two_queues(desk: Desk) -> None:
    """Queue 0 has messages at 0, 100, … 900 ms, queue 1 at 0 and 1000; g has consumed all of them."""
    desk.topic("T", 2)
    desk.store("T", 0, *range(0, 1000, 100))
    desk.store("T", 1, 0, 1000)
    desk.commit("g", "T", 10, 2)


async def test_an_online_member_is_told_the_offsets_that_the_operator_is_shown(desk: Desk) -> None:
    await group_of_two_queues(desk)
    member = await desk.consumer("g", "T")
    answer = await desk.ask(RESET, request(START + 320))
    assert answer.code == 0
    assert table(answer.body) == {0: 3, 1: 0}
    (pushed,) = await member.received(PUSH_RESET)
    assert pushed.oneway
    assert pushed.fields == {"topic": "T", "group": "g", "timestamp": str(START + 320), "isForce": "false"}
    assert pushed.body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:3,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:0}}'
    )
    assert desk.broker.offsets.of("g", "T") == {0: 10, 1: 2}, "the members store the new offsets, not the broker"


async def test_every_member_is_told(desk: Desk) -> None:
    await group_of_two_queues(desk)
    members = [await desk.consumer("g", "T", client_id=f"c{number}") for number in range(3)]
    bystander = await desk.consumer("other", "T")
    assert (await desk.ask(RESET, request(START))).code == 0
    for member in members:
        assert table((await member.received(PUSH_RESET))[0].body) == {0: 0, 1: 0}
    assert PUSH_RESET not in [pushed.code for pushed in bystander.pushed]


async def test_of_one_named_queue_the_others_stay(desk: Desk) -> None:
    """As mqadmin 5.3.3 asks with -q: by an offset and time 0, unforced, or by a time."""
    await group_of_two_queues(desk)
    member = await desk.consumer("g", "T")
    for more, goes in (({"offset": 4}, 4), ({"offset": -1}, 0), ({"offset": 10}, 10), ({"timestamp": -1}, 10)):
        answer = await desk.ask(RESET, {**request(0, force=False), "queueId": 0, **more})
        assert (answer.code, table(answer.body)) == (0, {0: goes})
        assert table((await member.received(PUSH_RESET))[0].body) == {0: goes}
    for more in ({"queueId": 0, "offset": 11}, {"queueId": 7, "offset": 0}):
        answer = await desk.ask(RESET, {**request(0, force=False), **more})
        assert answer.code == 1 and answer.remark in (
            "Target offset 11 not in consume queue range [0-10]",
            "the topic T has no queue 7",
        )
    answer = await desk.ask(RESET, {**request(START + 320), "queueId": -1, "offset": -1})
    assert table(answer.body) == {0: 3, 1: 0}, "without a queue, as ever"


async def test_one_named_queue_of_a_group_that_is_offline_is_stored_here(desk: Desk) -> None:
    await group_of_two_queues(desk)
    answer = await desk.ask(RESET, {**request(0, force=False), "queueId": 0, "offset": 4})
    assert (answer.code, table(answer.body)) == (0, {0: 4})
    assert desk.broker.offsets.of("g", "T") == {0: 4, 1: 2}
    saved = Offsets(desk.config.config_folder / "consumerOffset.json")
    saved.load()
    assert saved.of("g", "T") == {0: 4, 1: 2}


@pytest.mark.parametrize("name", ["../x", "a\0b", "", "g" * 256])
async def test_a_name_that_no_group_or_topic_may_have_is_refused_and_nothing_is_stored(desk: Desk, name: str) -> None:
    """With a named queue the broker stores the offset itself when nobody is online."""
    await group_of_two_queues(desk)
    before = desk.broker.offsets.encode()
    for more in ({"group": name}, {"topic": name}):
        answer = await desk.ask(RESET, {**request(0, force=False), "queueId": 0, "offset": 4, **more})
        assert answer.code == 1 and "the specified" in (answer.remark or "").lower()
    assert desk.broker.offsets.encode() == before


async def test_without_force_nobody_goes_forward(desk: Desk) -> None:
    await group_of_two_queues(desk)
    desk.commit("g", "T", 2, 1)
    await desk.consumer("g", "T")
    answer = await desk.ask(RESET, request(START + 500, force=False))
    assert table(answer.body) == {0: 2, 1: 0}
    answer = await desk.ask(RESET, request(START + 500, force=True))
    assert table(answer.body) == {0: 5, 1: 0}


async def test_without_force_members_keep_the_queues_that_do_not_move(desk: Desk) -> None:
    await group_of_two_queues(desk)
    desk.commit("g", "T", 10, 0)
    member = await desk.consumer("g", "T")
    answer = await desk.ask(RESET, request(START + 900, force=False))
    assert table(answer.body) == {0: 9, 1: 0}
    (pushed,) = await member.received(PUSH_RESET)
    assert table(pushed.body) == {0: 9}
    assert table((await desk.ask(RESET, request(-1, force=False))).body) == {0: 10, 1: 0}
    assert (await desk.ask(RESET, request(START))).code == 0
    assert [table(each.body) for each in await member.received(PUSH_RESET)] == [{0: 0, 1: 0}]


async def test_minus_one_is_the_end(desk: Desk) -> None:
    await group_of_two_queues(desk)
    desk.commit("g", "T", 0, 0)
    await desk.consumer("g", "T")
    assert table((await desk.ask(RESET, request(-1))).body) == {0: 10, 1: 2}


async def test_each_write_queue_counts_and_no_other(desk: Desk) -> None:
    await group_of_two_queues(desk)
    desk.topic("T", 2, write_queue_nums=1)
    await desk.consumer("g", "T")
    assert table((await desk.ask(RESET, request(START))).body) == {0: 0}


async def test_a_time_before_all_and_after_all(desk: Desk) -> None:
    await group_of_two_queues(desk)
    await desk.consumer("g", "T")
    assert table((await desk.ask(RESET, request(START - 999_999))).body) == {0: 0, 1: 0}
    answer = await desk.ask(RESET, request(START + 999_999))
    assert table(answer.body) == {0: 9, 1: 1}, "the last message, not the end, as Apache's broker"


async def test_an_empty_queue_is_put_to_zero(desk: Desk) -> None:
    desk.topic("T", 1)
    desk.commit("g", "T", 0)
    await desk.consumer("g", "T")
    assert table((await desk.ask(RESET, request(START))).body) == {0: 0}


async def test_cpp_members_alone_get_the_list_form(desk: Desk) -> None:
    await group_of_two_queues(desk)
    native = await desk.consumer("g", "T", client_id="cpp", peer=await desk.peer("CPP", 333))
    java = await desk.consumer("g", "T", client_id="java")
    go = await desk.consumer("g", "T", client_id="go", peer=await desk.peer("GO", 317))
    answer = await desk.ask(RESET, request(-1))
    assert answer.body.startswith(b'{"offsetTable":{{')
    assert (await native.received(PUSH_RESET))[0].body == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":10,"queueId":0,"topic":"T"},'
        b'{"brokerName":"broker-a","offset":2,"queueId":1,"topic":"T"}]}'
    )
    for member in (java, go):
        assert (await member.received(PUSH_RESET))[0].body == answer.body


async def test_an_unknown_topic_is_refused(desk: Desk) -> None:
    answer = await desk.ask(RESET, request(START, topic="Nowhere"))
    assert (answer.code, answer.remark) == (
        1,
        "[reset-offset] reset offset failed, no topic in this broker. topic=Nowhere",
    )


async def test_every_queue_needs_a_committed_offset(desk: Desk) -> None:
    await group_of_two_queues(desk)
    desk.broker.offsets.remove_group("g")
    desk.commit("g", "T", 4)
    member = await desk.consumer("g", "T")
    answer = await desk.ask(RESET, request(START))
    assert (answer.code, answer.remark) == (1, "THe consumer group <g> not exist")
    await desk.ask(38, {"consumerGroup": "g"})
    assert PUSH_RESET not in [pushed.code for pushed in member.pushed]


async def test_a_broadcasting_group_has_no_offsets_here(desk: Desk) -> None:
    await group_of_two_queues(desk)
    await desk.consumer("everyone", "T", model="BROADCASTING")
    answer = await desk.ask(RESET, request(START, group="everyone"))
    assert (answer.code, answer.remark) == (1, "THe consumer group <everyone> not exist")


async def test_nobody_online_is_found_out_last(desk: Desk) -> None:
    await group_of_two_queues(desk)
    answer = await desk.ask(RESET, request(START))
    assert (answer.code, answer.remark) == (
        206,
        f"Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: {START}",
    )
    answer = await desk.ask(RESET, request(START, group="young"))
    assert answer.code == 1, "missing offsets come first"


async def test_a_member_that_is_too_old_keeps_all_from_being_told(desk: Desk) -> None:
    await group_of_two_queues(desk)
    able = await desk.consumer("g", "T", client_id="able")
    await desk.consumer("g", "T", client_id="old", peer=await desk.peer(version=27))
    answer = await desk.ask(RESET, request(START))
    assert (answer.code, answer.remark) == (1, "the client does not support this feature. version=V3_0_6")
    await able.ask(38, {"consumerGroup": "g"})
    assert PUSH_RESET not in [pushed.code for pushed in able.pushed]


async def test_a_member_of_version_28_is_told(desk: Desk) -> None:
    await group_of_two_queues(desk)
    member = await desk.consumer("g", "T", peer=await desk.peer(version=28))
    assert (await desk.ask(RESET, request(START))).code == 0
    await member.received(PUSH_RESET)


@pytest.mark.parametrize("missing", ["topic", "group", "timestamp", "isForce"])
async def test_a_missing_field_is_named(desk: Desk, missing: str) -> None:
    fields = request(START)
    del fields[missing]
    answer = await desk.ask(RESET, fields)
    assert answer.code == 1
    assert missing in (answer.remark or "")


# ---------------------------------------------------------------------- 223


def holding(offset: int, queue_id: int = 0) -> GetConsumerStatusBody:
    return GetConsumerStatusBody(message_queue_table={MessageQueue("T", "broker-a", queue_id): offset})


async def test_members_tell_the_offsets_they_hold(desk: Desk) -> None:
    seen: list[Pushed] = []

    def first(pushed: Pushed) -> tuple[int, bytes]:
        seen.append(pushed)
        return 0, holding(5).encode()

    await desk.consumer("g", "T", client_id="first", peer=await desk.peer(answering=first))
    await desk.consumer(
        "g", "T", client_id="second", peer=await desk.peer(answering=lambda _: (0, holding(7, 1).encode()))
    )
    answer = await desk.ask(STATUS, {"topic": "T", "group": "g"})
    assert answer.code == 0
    assert GetConsumerStatusBody.decode(answer.body).consumer_table == {
        "first": {MessageQueue("T", "broker-a", 0): 5},
        "second": {MessageQueue("T", "broker-a", 1): 7},
    }
    asked = next(pushed for pushed in seen if pushed.code == PUSH_STATUS)
    assert asked.fields == {"topic": "T", "group": "g"}


async def test_one_client_may_be_asked_for(desk: Desk) -> None:
    for name in ("first", "second"):
        await desk.consumer(
            "g", "T", client_id=name, peer=await desk.peer(answering=lambda _: (0, holding(5).encode()))
        )
    answer = await desk.ask(STATUS, {"topic": "T", "group": "g", "clientAddr": "second"})
    assert list(GetConsumerStatusBody.decode(answer.body).consumer_table) == ["second"]


async def test_a_member_that_fails_is_left_out(desk: Desk) -> None:
    await desk.consumer("g", "T", client_id="well", peer=await desk.peer(answering=lambda _: (0, holding(5).encode())))
    await desk.consumer("g", "T", client_id="ill", peer=await desk.peer(answering=lambda _: (1, b"")))
    answer = await desk.ask(STATUS, {"topic": "T", "group": "g"})
    assert list(GetConsumerStatusBody.decode(answer.body).consumer_table) == ["well"]


async def test_an_offline_group_has_no_status(desk: Desk) -> None:
    answer = await desk.ask(STATUS, {"topic": "T", "group": "gone"})
    assert (answer.code, answer.remark) == (1, "No Any Consumer online in the consumer group: [gone]")


async def test_an_old_member_has_no_status(desk: Desk) -> None:
    await desk.consumer("g", "T", peer=await desk.peer(version=1))
    answer = await desk.ask(STATUS, {"topic": "T", "group": "g"})
    assert answer.code == 1
    assert (answer.remark or "").startswith("the client does not support this feature. version=V3_0_0_")
