"""Topics as operators and slaves ask for them: 17, 21, 202, 215, 300, 305, 316, 351."""

import asyncio
import json
from pathlib import Path

import pytest

from eruca.protocol.bodies import (
    GroupList,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from eruca.protocol.queues import MessageQueue
from tests.broker.services.replication.pairs import until
from tests.broker.test_changes_of_tables import SlowDisk
from tests.support.desk import START, Desk
from tests.support.sends import message

CREATE, ALL, STATS, DELETE, CONSUMERS, SYSTEM, SEND, UNUSED, ONE = 17, 21, 202, 215, 300, 305, 310, 316, 351
ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def wish(topic: str = "T", **changes: object) -> dict[str, object]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 8,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        **changes,
    }


def on_disk(desk: Desk) -> dict[str, object]:
    table: dict[str, object] = json.loads((desk.folder / "store/config/topics.json").read_text())["topicConfigTable"]
    return table


# ---------------------------------------------------------------------- 17


async def test_a_topic_is_created_and_on_disk_before_the_answer(desk: Desk) -> None:
    assert (await desk.ask(CREATE, wish())).code == 0
    assert on_disk(desk)["T"] == {
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    await desk.restart()
    assert desk.broker.topics.get("T") == TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=4)


async def test_a_topic_is_changed_and_its_version_rises(desk: Desk) -> None:
    await desk.ask(CREATE, wish())
    before = desk.broker.topics.version.counter
    assert (await desk.ask(CREATE, wish(perm=4, topicFilterType="MULTI_TAG", topicSysFlag=1))).code == 0
    config = desk.broker.topics.get("T")
    assert config is not None
    assert (config.perm, config.topic_filter_type, config.topic_sys_flag) == (4, "MULTI_TAG", 1)
    assert desk.broker.topics.version.counter == before + 1


async def test_only_the_nameserver_says_what_is_ordered(desk: Desk) -> None:
    assert (await desk.ask(CREATE, wish(order="true"))).code == 0
    assert not desk.broker.topics.is_order("T")
    desk.broker.topics.set_order({"T": "broker-a:4"})
    assert (await desk.ask(CREATE, wish())).code == 0
    assert desk.broker.topics.is_order("T")


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (wish(""), "The specified topic is blank."),
        (wish("a b"), ILLEGAL),
        (wish("../x"), ILLEGAL),
        (wish("x" * 128), "The specified topic is longer than topic max length."),
        (wish("TBW102"), "The topic[TBW102] is conflict with system topic."),
        (wish("Lab"), "The topic[Lab] is conflict with system topic."),
        (wish("rmq_sys_X"), "The topic[rmq_sys_X] is conflict with system topic."),
        (wish(topicFilterType="SOME"), "topicFilterType = [SOME] value invalid"),
        (wish(readQueueNums=-1), "readQueueNums = [-1] is not between 0 and 65536"),
        (wish(writeQueueNums=65537), "writeQueueNums = [65537] is not between 0 and 65536"),
        (wish(perm=8), "perm = [8] is not a sum of 4 (read), 2 (write), 1 (inherit)"),
    ],
)
async def test_what_may_not_be_created(desk: Desk, fields: dict[str, object], remark: str) -> None:
    before = dict(desk.broker.topics.table)
    answer = await desk.ask(CREATE, fields)
    assert (answer.code, answer.remark) == (1, remark)
    assert desk.broker.topics.table == before


async def test_what_cannot_be_written_is_said(desk: Desk) -> None:
    config = desk.folder / "store/config"
    aside = desk.folder / "aside"
    config.rename(aside)
    config.write_text("in the way of the folder")
    try:
        answer = await desk.ask(CREATE, wish())
    finally:
        config.unlink()
        aside.rename(config)
    assert answer.code == 1
    assert (answer.remark or "").startswith("the topic T holds until the broker stops, but cannot be written")
    assert (await desk.ask(CREATE, wish())).code == 0
    assert "T" in on_disk(desk)


# ---------------------------------------------------------------------- 215


async def test_a_deleted_topic_leaves_no_queue_and_no_offset(desk: Desk) -> None:
    desk.topic("T", 2)
    desk.topic("U")
    desk.store("T", 1, 0, 10)
    desk.store("U", 0, 20)
    desk.commit("g", "T", 0, 2)
    desk.commit("g", "U", 1)
    assert (await desk.ask(DELETE, {"topic": "T"})).code == 0
    assert "T" not in desk.broker.topics
    assert "T" not in on_disk(desk)
    assert desk.broker.store.max_offset("T", 1) == 0
    assert not (desk.folder / "store/consumequeue/T").exists()
    assert desk.broker.offsets.of("g", "T") == {}
    assert desk.broker.offsets.of("g", "U") == {0: 1}
    assert desk.broker.store.max_offset("U", 0) == 1
    await desk.restart()
    assert "T" not in desk.broker.topics
    assert desk.broker.store.max_offset("T", 1) == 0
    assert desk.broker.offsets.of("g", "T") == {}


async def test_deleting_what_is_not_there_is_no_error(desk: Desk) -> None:
    assert (await desk.ask(DELETE, {"topic": "Nowhere"})).code == 0


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("SCHEDULE_TOPIC_XXXX", "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
        ("broker-a", "The topic[broker-a] is conflict with system topic."),
        ("..", ILLEGAL),
        (" ", "The specified topic is blank."),
    ],
)
async def test_what_may_not_be_deleted(desk: Desk, topic: str, remark: str) -> None:
    answer = await desk.ask(DELETE, {"topic": topic})
    assert (answer.code, answer.remark) == (1, remark)


async def test_retry_and_dead_letter_topics_may_be_deleted(desk: Desk) -> None:
    desk.topic("%RETRY%g")
    assert (await desk.ask(DELETE, {"topic": "%RETRY%g"})).code == 0
    assert "%RETRY%g" not in desk.broker.topics


async def test_queues_of_topics_that_are_gone_can_be_dropped(desk: Desk) -> None:
    desk.topic("T")
    desk.topic("U")
    desk.store("T", 0, 0)
    desk.store("U", 0, 1)
    desk.broker.topics.remove("T")
    assert desk.broker.store.topics() == {"T", "U"}
    assert (await desk.ask(UNUSED)).code == 0
    assert desk.broker.store.topics() == {"U"}


# ---------------------------------------------------------------------- reading


async def test_all_topics_come_with_their_version(desk: Desk) -> None:
    desk.topic("T", 3)
    answer = await desk.ask(ALL)
    wrapper = TopicConfigSerializeWrapper.decode(answer.body)
    assert wrapper.data_version == desk.broker.topics.version
    assert wrapper.topic_config_table["T"].read_queue_nums == 3
    assert "TBW102" in wrapper.topic_config_table


async def test_one_topic(desk: Desk) -> None:
    desk.topic("T", 3)
    assert TopicConfig.decode((await desk.ask(ONE, {"topic": "T"})).body).write_queue_nums == 3
    answer = await desk.ask(ONE, {"topic": "Nowhere"})
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: Nowhere")


async def test_system_topics_are_listed(desk: Desk) -> None:
    names = TopicList.decode((await desk.ask(SYSTEM)).body).topic_list
    assert {"TBW102", "SELF_TEST_TOPIC", "Lab", "broker-a", "Lab_REPLY_TOPIC"} <= set(names)
    assert "T" not in names


async def test_the_state_of_the_write_queues(desk: Desk) -> None:
    desk.topic("T", 2)
    desk.store("T", 1, 0, 10, 250)
    answer = await desk.ask(STATS, {"topic": "T"})
    assert TopicStatsTable.decode(answer.body).offset_table == {
        MessageQueue("T", "broker-a", 0): TopicOffset(),
        MessageQueue("T", "broker-a", 1): TopicOffset(max_offset=3, last_update_timestamp=START + 250),
    }
    assert b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"lastUpdate' in answer.body


async def test_the_state_of_an_unknown_topic(desk: Desk) -> None:
    answer = await desk.ask(STATS, {"topic": "Nowhere"})
    assert (answer.code, answer.remark) == (17, "topic[Nowhere] not exist")


async def test_who_consumes_is_who_subscribes_or_has_offsets(desk: Desk) -> None:
    desk.topic("T")
    await desk.consumer("online", "T")
    await desk.consumer("elsewhere", "U")
    desk.commit("offline", "T", 1)
    assert GroupList.decode((await desk.ask(CONSUMERS, {"topic": "T"})).body).group_list == ["offline", "online"]
    assert GroupList.decode((await desk.ask(CONSUMERS, {"topic": "Nowhere"})).body).group_list == []


def test_the_folder_is_what_these_tests_think(tmp_path: Path) -> None:
    assert Desk(tmp_path).config.config_folder == tmp_path / "store/config"


async def test_a_topic_that_a_producer_makes_again_at_once_has_no_former_messages(desk: Desk) -> None:
    desk.topic("T", 2)
    desk.store("T", 0, 1, 2, body=b"former")
    disk = SlowDisk(desk)
    deleting = asyncio.create_task(desk.ask(DELETE, {"topic": "T"}))
    await until(lambda: disk.writes)

    sending = asyncio.create_task((await desk.peer()).ask(SEND, message(), b"new"))
    await until(lambda: "T" in desk.broker.topics)
    disk.go_on()

    assert (await deleting).code == (await sending).code == 0
    assert [record.body for record in desk.records("T")] == [b"new"]
