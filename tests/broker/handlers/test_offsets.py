"""Offsets: committed ones, the ends of a queue, and times: 14, 15, 29 to 32, 43, 45, 308, 314."""

from collections.abc import Awaitable, Callable

import pytest

from eruca.protocol.bodies import ConsumerOffsets, CorrectionOffsets, DelayOffsetSerializeWrapper
from tests.support.desk import START, Desk

QUERY, UPDATE, SEARCH, GREATEST, LEAST, EARLIEST = 14, 15, 29, 30, 31, 32
ALL, DELAYS, CORRECTION, CLONE = 43, 45, 308, 314


def of(queue_id: int = 0, topic: str = "T", **more: object) -> dict[str, object]:
    return {"topic": topic, "queueId": queue_id, **more}


# ---------------------------------------------------------------------- 14, 15


async def test_what_was_committed_is_known_and_survives(desk: Desk) -> None:
    answer = await desk.ask(UPDATE, of(consumerGroup="g", commitOffset=42))
    assert (answer.code, answer.body) == (0, b"")
    assert (await desk.ask(QUERY, of(consumerGroup="g"))).fields == {"offset": "42"}
    await desk.restart()
    assert (await desk.ask(QUERY, of(consumerGroup="g"))).fields == {"offset": "42"}


async def test_an_offset_may_go_back_and_beyond_the_queue(desk: Desk) -> None:
    for offset in (42, 3, 10**12):
        await desk.ask(UPDATE, of(consumerGroup="g", commitOffset=offset))
        assert (await desk.ask(QUERY, of(consumerGroup="g"))).fields == {"offset": str(offset)}


async def test_a_one_way_commit_is_not_answered(desk: Desk) -> None:
    desk.operator.tell(UPDATE, of(consumerGroup="g", commitOffset=7))
    desk.operator.tell(UPDATE, of(consumerGroup="a b", commitOffset=7))
    assert (await desk.ask(QUERY, of(consumerGroup="g"))).fields == {"offset": "7"}


@pytest.mark.parametrize(("group", "topic"), [("a b", "T"), ("g", "a@b"), ("g@h", "T"), ("", "T"), ("g", "")])
async def test_offsets_of_illegal_names_are_refused(desk: Desk, group: str, topic: str) -> None:
    answer = await desk.ask(UPDATE, of(topic=topic, consumerGroup=group, commitOffset=1))
    assert answer.code == 1
    assert not desk.broker.offsets.table


async def test_a_new_group_begins_with_a_first_message_that_is_at_hand(desk: Desk) -> None:
    desk.topic("T")
    assert (await desk.ask(QUERY, of(consumerGroup="g"))).fields == {"offset": "0"}
    desk.store("T", 0, 0, 1)
    assert (await desk.ask(QUERY, of(consumerGroup="g"))).fields == {"offset": "0"}
    assert (await desk.ask(QUERY, of(consumerGroup="g", topic="Nowhere"))).fields == {"offset": "0"}


async def test_a_new_group_decides_itself_when_the_first_message_is_far_back(
    prepared: Callable[[Callable[[Desk], None]], Awaitable[Desk]],
) -> None:
    def nothing_in_memory(desk: Desk) -> None:
        desk.config.store.access_message_in_memory_max_ratio = 0

    desk = await prepared(nothing_in_memory)
    desk.topic("T")
    desk.store("T", 0, 0, 1)
    answer = await desk.ask(QUERY, of(consumerGroup="g"))
    assert (answer.code, answer.remark) == (
        22,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    )


async def test_a_new_group_decides_itself_when_the_first_messages_are_gone(
    prepared: Callable[[Callable[[Desk], None]], Awaitable[Desk]],
) -> None:
    desk = await prepared(expired_after_no_time)
    fill_two_files(desk)
    assert (await desk.ask(329)).code == 0
    assert desk.broker.store.min_offset("T", 0) > 0
    assert (await desk.ask(QUERY, of(consumerGroup="g"))).code == 22


def expired_after_no_time(desk: Desk) -> None:
    desk.config.store.file_reserved_time = 0
    desk.config.store.mapped_file_size_commit_log = 64 * 1024


def fill_two_files(desk: Desk) -> None:
    """Messages over more than one file of the log; the clock is put far after the files' own times."""
    desk.topic("T")
    for number in range(20):
        desk.store("T", 0, number, body=bytes(8192))
    desk.now = 4_000_000_000_000


# ---------------------------------------------------------------------- 29 to 32


async def test_the_ends_of_a_queue(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, 1, 2)
    assert (await desk.ask(GREATEST, of())).fields == {"offset": "3"}
    assert (await desk.ask(LEAST, of())).fields == {"offset": "0"}
    assert (await desk.ask(EARLIEST, of())).fields == {"timestamp": str(START)}


async def test_a_queue_that_is_not_there_is_empty(desk: Desk) -> None:
    for topic, queue_id in (("T", 9), ("Nowhere", 0)):
        assert (await desk.ask(GREATEST, of(queue_id, topic))).fields == {"offset": "0"}
        assert (await desk.ask(LEAST, of(queue_id, topic))).fields == {"offset": "0"}
        assert (await desk.ask(EARLIEST, of(queue_id, topic))).fields == {"timestamp": "-1"}
        assert (await desk.ask(SEARCH, of(queue_id, topic, timestamp=START))).fields == {"offset": "0"}


@pytest.mark.parametrize(
    ("after", "offset"),
    [(-1000, 0), (0, 0), (100, 1), (149, 1), (150, 1), (151, 2), (200, 2), (299, 2), (301, 3), (9999, 3)],
)
async def test_a_time_finds_the_nearest_message(desk: Desk, after: int, offset: int) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, 100, 200, 400)
    assert (await desk.ask(SEARCH, of(timestamp=START + after))).fields == {"offset": str(offset)}


async def test_of_equal_times_one_is_found_as_by_halving(desk: Desk) -> None:
    desk.topic("T")
    desk.store("T", 0, 0, 50, 50, 50, 50, 50, 100)
    assert (await desk.ask(SEARCH, of(timestamp=START + 50))).fields == {"offset": "3"}


# ---------------------------------------------------------------------- 43, 45, 308, 314


async def test_a_slave_reads_every_offset(desk: Desk) -> None:
    desk.commit("g", "T", 5, 6)
    answer = await desk.ask(ALL)
    assert answer.body == b'{"offsetTable":{"T@g":{0:5,1:6}}}'
    assert ConsumerOffsets.decode(answer.body).offset_table == {"T@g": {0: 5, 1: 6}}


async def test_no_delay_level_was_delivered_yet(desk: Desk) -> None:
    answer = await desk.ask(DELAYS)
    assert (answer.code, answer.body) == (0, b'{"offsetTable":{}}')
    assert DelayOffsetSerializeWrapper.decode(answer.body).offset_table == {}


async def test_the_least_offset_of_all_groups(desk: Desk) -> None:
    desk.topic("T", 2)
    desk.commit("g", "T", 9, 4)
    desk.commit("h", "T", 7, 8)
    desk.commit("slow", "T", 1, 1)
    answer = await desk.ask(CORRECTION, {"topic": "T", "compareGroup": "g", "filterGroups": "slow,other"})
    assert answer.body == b'{"correctionOffsets":{0:7,1:4}}'
    answer = await desk.ask(CORRECTION, {"topic": "T", "compareGroup": "g"})
    assert CorrectionOffsets.decode(answer.body).correction_offsets == {0: 1, 1: 1}
    assert desk.broker.offsets.of("slow", "T") == {0: 1, 1: 1}


async def test_offsets_are_cloned_and_on_disk(desk: Desk) -> None:
    desk.topic("T", 2)
    desk.topic("U")
    desk.commit("g", "T", 9, 4)
    desk.commit("g", "U", 3)
    assert (await desk.ask(CLONE, {"srcGroup": "g", "destGroup": "h", "topic": "T"})).code == 0
    assert desk.broker.offsets.of("h", "T") == {0: 9, 1: 4}
    assert desk.broker.offsets.of("h", "U") == {}
    assert (await desk.ask(CLONE, {"srcGroup": "g", "destGroup": "i"})).code == 0
    assert (desk.broker.offsets.of("i", "T"), desk.broker.offsets.of("i", "U")) == ({0: 9, 1: 4}, {0: 3})
    assert b"T@h" in (desk.folder / "store/config/consumerOffset.json").read_bytes()
    desk.commit("g", "T", 10, 10)
    assert desk.broker.offsets.of("h", "T") == {0: 9, 1: 4}, "a copy, not the same"


async def test_clones_leave_out_what_an_online_group_does_not_subscribe(desk: Desk) -> None:
    desk.topic("T")
    desk.topic("U")
    desk.commit("g", "T", 1)
    desk.commit("g", "U", 1)
    await desk.consumer("g", "U")
    await desk.ask(CLONE, {"srcGroup": "g", "destGroup": "h"})
    assert desk.broker.offsets.topics_of("h") == {"U"}
    await desk.ask(CLONE, {"srcGroup": "g", "destGroup": "h", "offline": "true"})
    assert desk.broker.offsets.topics_of("h") == {"T", "U"}


async def test_a_clone_needs_a_legal_name(desk: Desk) -> None:
    assert (await desk.ask(CLONE, {"srcGroup": "g", "destGroup": "a@b"})).code == 1
