"""Topics that a group has deleted: what they had does not come back with another master, and what came since stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.broker.elected import KEYS, Group
from tests.broker.services.replication.pairs import until
from tests.support.desk import Desk
from tests.support.sends import message

SEND, MAKE, DELETE, CLEAN = 310, 17, 215, 316
TOPIC = {
    **{"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"},
    **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
}


async def test_a_topic_that_is_made_again_at_the_next_master_has_no_former_messages(group: Group) -> None:
    one, two = await with_messages(group)
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    assert two.broker.store.max_offset("T", 0) == 3
    await group.stop(1)
    assert await group.led({2}) is two
    assert (await two.ask(MAKE, TOPIC)).code == 0
    assert [two.broker.store.max_offset("T", queue) for queue in (0, 1)] == [0, 0]
    await sent(two, "new", queue=0)
    assert seen(two) == {0: [b"new"], 1: []}


async def test_neither_where_it_was_made_again_before_nor_where_brokers_were_started_again(group: Group) -> None:
    one, _ = await with_messages(group)
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    assert (await one.ask(MAKE, TOPIC)).code == 0
    await sent(one, "new", queue=0)
    await group.stop(2)
    assert await group.led({1}) is one
    two = await group.start(2)
    assert await group.led({1, 2}) is one
    await group.stop(1)
    assert await group.led({2}) is two
    assert seen(two) == {0: [b"new"], 1: []}
    await sent(two, "newer", queue=1)
    one = await group.start(1)
    assert await group.led({1, 2}) is two
    await group.stop(2)
    assert await group.led({1}) is one
    assert seen(one) == {0: [b"new"], 1: [b"newer"]}


async def test_a_message_that_comes_while_the_others_are_waited_for_goes_with_the_topic(group: Group) -> None:
    """A delayed one, or a committed transaction's: they are stored whether their topic is there or not."""
    one, two = await with_messages(group)
    asked = asyncio.create_task(one.ask(DELETE, {"topic": "T"}))
    await until(lambda: "T" not in one.broker.topics)
    one.store("T", 0, 0, body=b"late")
    assert (await asked).code == 0
    await group.stop(1)
    assert await group.led({2}) is two
    assert (await two.ask(MAKE, TOPIC)).code == 0
    assert seen(two) == {0: [], 1: []}


async def test_a_deletion_of_what_the_master_does_not_have_any_more_counts_for_others(group: Group) -> None:
    """As where the topic was deleted before these brokers were a group."""
    one, two = await with_messages(group)
    one.broker.topics.remove("T")
    one.broker.store.drop_topic("T")
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    await group.stop(1)
    assert await group.led({2}) is two
    assert (await two.ask(MAKE, TOPIC)).code == 0
    assert seen(two) == {0: [], 1: []}


async def test_a_deletion_that_the_group_has_not_agreed_to_costs_no_message(group: Group) -> None:
    """Broker 1 deletes a topic alone; broker 2, which has it still, is elected, and later broker 1 again."""
    one, _ = await with_messages(group)
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    one.broker.registration.is_sure = lambda: True
    one.config.store.slave_timeout = 500
    assert (await one.ask(DELETE, {"topic": "T"})).code == 14
    await group.stop(1)
    group.etcd.return_again()
    group.etcd.expire(KEYS.master)
    two = await group.start(2)
    assert await group.led({2}) is two
    await group.start(1)
    assert await group.led({1, 2}) is two
    await group.stop(2)
    one = await group.led({1})
    assert "T" in one.broker.topics
    assert seen(one) == {queue: [b"old 0", b"old 1", b"old 2"] for queue in (0, 1)}


async def test_queues_of_topics_that_are_gone_are_deleted_where_the_group_has_agreed(group: Group) -> None:
    """316, at the master and at a broker that follows; then where nobody confirms."""
    one, two = await with_messages(group)
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    assert (await two.ask(CLEAN)).code == (await one.ask(CLEAN)).code == 0
    assert (one.broker.store.max_offset("T", 0), two.broker.store.max_offset("T", 0)) == (0, 3)
    assert (await one.ask(MAKE, TOPIC)).code == 0
    await sent(one, "new", queue=0)
    group.etcd.away = True  # so that the lost one stays in the set
    await group.stop(2)
    one.broker.registration.is_sure = lambda: True
    one.config.store.slave_timeout = 500
    assert (await one.ask(DELETE, {"topic": "T"})).code == 14
    assert (await one.ask(CLEAN)).code == 14
    assert one.broker.store.max_offset("T", 0) == 1


async def test_a_broker_that_is_in_no_group_knows_of_no_deletions(group: Group, tmp_path: Path) -> None:
    one = await group.start(1)
    assert await group.led({1}) is one
    assert (await one.ask(MAKE, TOPIC)).code == 0
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    await group.stop(1)
    files = tmp_path / "1" / "store" / "config"
    assert (files / "deletedTopics.json").exists()
    await group.start(1, enable_controller_mode=False)
    assert list(files.glob("deletedTopics*")) == []


async def test_offsets_behind_the_end_of_a_log_that_lost_its_end_are_lowered(group: Group, tmp_path: Path) -> None:
    one = await group.start(1)
    assert await group.led({1}) is one
    assert (await one.ask(MAKE, TOPIC)).code == 0
    await group.stop(1)
    file = tmp_path / "1" / "store" / "config" / "deletedTopics.json"
    file.write_text(json.dumps({"deletedTopics": {"T": 1 << 40}}))
    one = await group.start(1)
    assert await group.led({1}) is one
    await sent(one, "kept", queue=0)
    await group.stop(1)
    assert json.loads(file.read_text())["deletedTopics"].get("T", 0) < 1 << 40
    one = await group.start(1)
    assert await group.led({1}) is one
    assert seen(one)[0] == [b"kept"]


async def with_messages(group: Group) -> tuple[Desk, Desk]:
    """Two brokers in the set, the first leads, with a topic that has three messages in each of two queues."""
    one, two = await group.start(1), await group.start(2)
    one.config.store.slave_timeout = 10_000
    assert await group.led({1, 2}) is one
    assert (await one.ask(MAKE, TOPIC)).code == 0
    for queue in (0, 1):
        for n in range(3):
            await sent(one, f"old {n}", queue=queue)
    return one, two


async def sent(desk: Desk, body: str, *, queue: int) -> None:
    assert (await desk.ask(SEND, message(queue_id=queue), body.encode())).code == 0


def seen(desk: Desk) -> dict[int, list[bytes]]:
    return {queue: [record.body for record in desk.records("T", queue)] for queue in (0, 1)}
