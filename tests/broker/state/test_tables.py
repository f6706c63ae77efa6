"""Topics, groups and committed offsets: as RocketMQ files them, and what changes in them means."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.broker.state.groups import Groups
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.topics import UNIT, Topics
from eruca.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from eruca.protocol.errors import Refused

NOW = 1_700_000_000_000
TOPICS_OF_ROCKETMQ = """{
\t"dataVersion":{
\t\t"counter":4,
\t\t"timestamp":1699999999999
\t},
\t"topicConfigTable":{
\t\t"T":{
\t\t\t"order":true,
\t\t\t"perm":6,
\t\t\t"readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"T",
\t\t\t"topicSysFlag":1,
\t\t\t"writeQueueNums":4
\t\t}
\t}
}"""
OFFSETS_OF_ROCKETMQ = '{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:6\n\t\t},\n\t\t"%RETRY%g@g":{0:1\n\t\t}\n\t}\n}'


def topics(folder: Path) -> Topics:
    table = Topics(folder / "topics.json", lambda: NOW)
    table.load()
    return table


def groups(folder: Path, *, auto: bool = True) -> Groups:
    table = Groups(folder / "subscriptionGroup.json", lambda: NOW, lambda: auto)
    table.load()
    return table


def offsets(folder: Path) -> Offsets:
    table = Offsets(folder / "consumerOffset.json")
    table.load()
    return table


# ---------------------------------------------------------------------- topics


def test_topics_of_rocketmq_are_read_and_written_in_its_form(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(TOPICS_OF_ROCKETMQ)
    table = topics(tmp_path)
    assert table.version == DataVersion(counter=4, timestamp=1699999999999)
    assert table.get("T") == TopicConfig(
        topic_name="T", read_queue_nums=8, write_queue_nums=4, order=True, topic_sys_flag=UNIT
    )
    table.renew()
    table.save()
    written = (tmp_path / "topics.json").read_text()
    assert written == TOPICS_OF_ROCKETMQ.replace('"counter":4', '"counter":5').replace("1699999999999", str(NOW))


def test_every_change_raises_the_version_and_is_told(tmp_path: Path) -> None:
    table = topics(tmp_path)
    told: list[str] = []
    table.watchers.append(told.append)
    table.add_system("SELF_TEST_TOPIC")
    assert (table.version.counter, told, table.dirty) == (0, [], False)  # made anew at each start
    table.put(TopicConfig(topic_name="T"))
    table.create_if_absent("T", 3)
    table.create_if_absent("U", 3)
    table.set_order({"U": "b:3"})
    table.set_order({"U": "b:3"})
    assert table.remove("T") is not None and table.remove("T") is None
    assert told == ["T", "U", "U", "T"]
    assert table.version == DataVersion(counter=4, timestamp=NOW)
    assert table.is_order("U") and not table.is_order("T")


def test_what_a_file_says_of_a_system_topic_counts(tmp_path: Path) -> None:
    table = topics(tmp_path)
    table.put(TopicConfig(topic_name="BenchmarkTest", read_queue_nums=3, write_queue_nums=3))
    table.save()
    again = Topics(tmp_path / "topics.json", lambda: NOW)
    again.add_system("BenchmarkTest", 1024)
    again.load()
    assert again.table["BenchmarkTest"].read_queue_nums == 3
    assert again.is_system("BenchmarkTest") and again.is_system("rmq_sys_x") and not again.is_system("T")


def test_names_that_no_topic_may_have_are_not_taken_from_files(tmp_path: Path) -> None:
    text = TOPICS_OF_ROCKETMQ.replace('"T":{', '"../../etc":{')
    (tmp_path / "topics.json").write_text(text)
    assert len(topics(tmp_path)) == 0


def test_a_topic_of_a_master_with_too_many_queues_stays_as_it_was(tmp_path: Path) -> None:
    table = topics(tmp_path)
    table.put(TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=4))
    of_master = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=9, timestamp=NOW),
        topic_config_table={
            "T": TopicConfig(topic_name="T", read_queue_nums=2**31 - 1),
            "U": TopicConfig(topic_name="U", write_queue_nums=-1),
            "V": TopicConfig(topic_name="V"),
        },
    )
    with capture_logs() as said:
        table.take_over(of_master)
    assert {name: config.read_queue_nums for name, config in table.table.items()} == {"T": 8, "V": 16}
    assert [(line["event"], line["topic"]) for line in said] == [
        ("topic_not_taken_over", "T"),
        ("topic_not_taken_over", "U"),
    ]
    table.save()
    assert set(topics(tmp_path)) == {"T", "V"}


def test_a_master_may_have_more_topics_and_groups_than_are_made_here(tmp_path: Path) -> None:
    """And so may a file: only new ones are refused."""
    version = DataVersion(counter=9, timestamp=NOW)
    every = {f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(30)}
    topics_of_it = TopicConfigSerializeWrapper(data_version=version, topic_config_table=every)
    named = {f"g{number}": SubscriptionGroupConfig(group_name=f"g{number}") for number in range(30)}
    groups_of_it = SubscriptionGroupWrapper(data_version=version, subscription_group_table=named)
    for _ in range(2):  # taken over, then from the file
        table = Topics(tmp_path / "topics.json", lambda: NOW, lambda: 20)
        members = Groups(tmp_path / "subscriptionGroup.json", lambda: NOW, lambda: True, lambda: 20)
        table.load()
        members.load()
        table.take_over(topics_of_it)
        members.take_over(groups_of_it)
        assert len(table) == 30 and set(named) <= set(members.table)
        table.need_room("T7")
        members.need_room("g7")
        with pytest.raises(Refused, match="this broker has 30 topics, and maxTopicNum allows 20"):
            table.need_room("New")
        with pytest.raises(Refused, match=r"this broker has \d\d groups, and maxSubscriptionGroupNum allows 20"):
            members.find("new")
        table.save()
        members.save()


# ---------------------------------------------------------------------- groups


def test_groups_come_when_they_are_asked_for_and_that_is_allowed(tmp_path: Path) -> None:
    strict = groups(tmp_path, auto=False)
    assert strict.find("g") is None and strict.find("CID_RMQ_SYS_x") is not None
    assert strict.find("TOOLS_CONSUMER") is not None
    table = groups(tmp_path)
    assert table.get("g") is None
    assert table.find("g") == SubscriptionGroupConfig(group_name="g") == table.get("g")
    assert table.find("no name") is None and table.find("") is None and table.find("g" * 256) is None
    table.save()
    assert groups(tmp_path, auto=False).find("g") is not None
    assert table.remove("g") is not None and table.remove("g") is None
    table.save()
    assert groups(tmp_path).get("g") is None


def test_a_group_of_a_master_with_too_many_retry_queues_stays_as_it_was(tmp_path: Path) -> None:
    table = groups(tmp_path)
    table.put(SubscriptionGroupConfig(group_name="g", retry_max_times=3))
    with capture_logs() as said:
        table.take_over(
            SubscriptionGroupWrapper(
                data_version=DataVersion(counter=9, timestamp=NOW),
                subscription_group_table={
                    "g": SubscriptionGroupConfig(group_name="g", retry_queue_nums=65_537),
                    "h": SubscriptionGroupConfig(group_name="h", retry_queue_nums=65_536),
                },
            )
        )
    assert {name: config.retry_max_times for name, config in table.table.items()} == {"g": 3, "h": 16}
    assert [(line["event"], line["group"]) for line in said] == [("group_not_taken_over", "g")]


# ---------------------------------------------------------------------- offsets


def test_offsets_of_rocketmq_are_read_and_written_in_its_form(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text(OFFSETS_OF_ROCKETMQ)
    table = offsets(tmp_path)
    assert table.of("g", "T") == {0: 5, 1: 6} and table.query("g", "%RETRY%g", 0) == 1
    table.commit("g", "T", 1, 6)
    table.save()
    assert (tmp_path / "consumerOffset.json").read_text() == OFFSETS_OF_ROCKETMQ


def test_offsets_that_were_loaded_are_found_and_removed_by_group_and_topic(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1},"U@g":{0:2},"T@h":{0:3},"odd":{0:4}}}')
    table = offsets(tmp_path)
    assert (table.topics_of("g"), table.groups_of("T"), table.least("T")) == ({"T", "U"}, {"g", "h"}, {0: 1})
    table.remove_topic("T")
    table.remove_topic("odd")
    table.remove_group("g")
    assert (dict(table.table), table.topics_of("g"), table.groups_of("T")) == ({}, set(), set())


def test_what_is_asked_of_offsets(tmp_path: Path) -> None:
    table = offsets(tmp_path)
    for group, topic, queue_id, offset in (("g", "T", 0, 9), ("h", "T", 0, 4), ("h", "T", 1, 7), ("g", "U", 0, 1)):
        table.commit(group, topic, queue_id, offset)
    assert table.query("g", "T", 0) == 9 and table.query("g", "T", 1) == table.query("x", "T", 0) == -1
    assert (table.topics_of("g"), table.groups_of("T")) == ({"T", "U"}, {"g", "h"})
    assert table.least("T") == {0: 4, 1: 7} and table.least("T", without={"h"}) == {0: 9}
    table.clone("h", "i", "T")
    table.commit("h", "T", 0, 5)
    assert table.of("i", "T") == {0: 4, 1: 7}
    table.remove("i", "T")
    table.remove_group("g")
    assert table.topics_of("g") == set() and table.groups_of("T") == {"h"}
    table.remove_topic("T")
    assert not table.table
    table.save()
    assert not offsets(tmp_path).table
