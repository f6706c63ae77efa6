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
    await gone_from_the_table(one)
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


async def test_a_topic_that_is_made_again_while_it_is_deleted_has_no_former_messages(group: Group) -> None:
    """By another operator, or a producer, while the others are waited for."""
    one, _ = await with_messages(group)
    asked = asyncio.create_task(one.ask(DELETE, {"topic": "T"}))
    await gone_from_the_table(one)
    assert (await one.ask(MAKE, TOPIC)).code == 0
    assert (await asked).code == 0
    await sent(one, "new", queue=1)
    assert seen(one) == {0: [], 1: [b"new"]}
    await group.stop(1)
    assert seen(await group.led({2})) == {0: [], 1: [b"new"]}


async def test_a_deletion_is_refused_where_new_messages_stand_behind_former_ones(group: Group) -> None:
    one, _ = await with_messages(group)
    asked = asyncio.create_task(one.ask(DELETE, {"topic": "T"}))
    await gone_from_the_table(one)
    one.topic("T", queues=2)
    one.store("T", 0, 0, body=b"new")
    answer = await asked
    assert (answer.code, "1 of its queues have" in (answer.remark or "")) == (1, True), answer
    assert seen(one) == {0: [b"old 0", b"old 1", b"old 2", b"new"], 1: []}
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    assert seen(one) == {0: [], 1: []}


async def test_a_deletion_deletes_nothing_for_another_one_that_the_group_has_not_agreed_to(group: Group) -> None:
    """The topic was made again, and deleted again, while the first deletion waited for the others.

    What it had at first is there still, so the first deletion is no success.
    """
    one, _ = await with_messages(group)
    asked = asyncio.create_task(one.ask(DELETE, {"topic": "T"}))
    await gone_from_the_table(one)
    one.store("T", 0, 0, body=b"new")
    one.broker.deletions.note("T", 0, one.broker.store.replicator.end_offset)
    answer = await asked
    assert (answer.code, "1 of its queues have" in (answer.remark or "")) == (1, True), answer
    assert seen(one) == {0: [b"old 0", b"old 1", b"old 2", b"new"], 1: []}


async def test_a_deletion_is_done_to_its_end_when_its_operator_is_gone(group: Group) -> None:
    one, _ = await with_messages(group)
    operator = await one.peer()
    asked = asyncio.create_task(operator.ask(DELETE, {"topic": "T"}))
    await gone_from_the_table(one)
    asked.cancel()
    await operator.close()
    await until(lambda: one.broker.store.max_offset("T", 0) == 0)
    assert (await one.ask(MAKE, TOPIC)).code == 0
    assert seen(one) == {0: [], 1: []}


async def test_an_offset_that_comes_while_the_others_are_waited_for_goes_with_the_topic(group: Group) -> None:
    one, two = await with_messages(group)
    asked = asyncio.create_task(one.ask(DELETE, {"topic": "T"}))
    await gone_from_the_table(one)
    one.commit("G", "T", 3, 3)
    assert (await asked).code == 0
    assert one.broker.offsets.of("G", "T") == two.broker.offsets.of("G", "T") == {}


async def test_a_topic_is_gone_from_the_disk_before_its_messages_are(group: Group, tmp_path: Path) -> None:
    """A broker that is killed between the two has no topic without the messages that it had."""
    one, _ = await with_messages(group)
    tables = tmp_path / "1" / "store" / "config"
    found: list[bool] = []
    drop = one.broker.store.drop_topic

    def dropped(topic: str, most: int | None = None, *, before: int | None = None) -> int:
        kept = json.loads((tables / "topics.json").read_text())["topicConfigTable"]
        found.append(topic in kept or not (tables / "deletedTopics.json").exists())
        return drop(topic, most, before=before)

    one.broker.store.drop_topic = dropped  # type: ignore[method-assign]
    assert (await one.ask(DELETE, {"topic": "T"})).code == 0
    assert (bool(found), any(found)) == (True, False)


async def test_the_deletion_of_unused_queues_is_confirmed_by_the_group(group: Group) -> None:
    """This broker is no master any more when it has deleted them."""
    one, _ = await with_messages(group)
    one.broker.topics.remove("T")
    drop, tables = one.broker.store.drop_unused, one.broker.tables
    assert tables is not None

    def dropped(used: set[str], most: int | None = None) -> list[str]:
        gone = drop(used, most)
        if gone:
            tables.resign()
        return gone

    one.broker.store.drop_unused = dropped  # type: ignore[method-assign]
    answer = await one.ask(CLEAN)
    assert (answer.code, "do it again" in (answer.remark or "")) == (14, True)


async def gone_from_the_table(one: Desk) -> None:
    """The deletion has begun, and the others are waited for: that may take no longer than a few turns of the loop."""
    async with asyncio.timeout(20):
        while "T" in one.broker.topics:  # noqa: ASYNC110
            await asyncio.sleep(0)


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
