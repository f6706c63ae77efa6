"""Offsets by mqadmin: groups online, offline and without offsets, and clones of a group."""

import pytest

from eruca.protocol.bodies import ResetOffsetBody
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Lab

START = "2020-01-01#00:00:00:000"


async def test_an_online_group_is_moved_by_its_broker(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", "c", queue=1)
    member = await lab.member("G", "T")
    await lab.commit("G", "T", 0, 3)
    done = await lab.done("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "1577836800000")
    assert done.out == (
        "rollback consumer offset by specified group[G], topic[T], force[true], timestamp(string)[1577836800000], "
        "timestamp(long)[1577836800000]\n"
        + f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}\n"
        + "".join(f"{'broker-a':<40}  {queue:<40}  {0:<40}\n" for queue in (0, 1))
    )
    (pushed,) = await member.received(220)
    assert ResetOffsetBody.decode(pushed.body).offset_table == {
        MessageQueue("T", "broker-a", 0): 0,
        MessageQueue("T", "broker-a", 1): 0,
    }
    end = await lab.done("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now")
    assert "timestamp(string)[now], timestamp(long)[-1]" in end.out
    assert [row[1:] for row in end.rows[2:]] == [["0", "0"], ["1", "3"]]
    skipped = await lab.done("skipAccumulatedMessage", "-g", "G", "-t", "T")
    assert skipped.out == end.out.partition("\n")[2]


async def test_an_offline_group_is_moved_by_storing_its_offsets(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", "c", queue=1)
    await lab.commit("G", "T", 0, 3)
    done = await lab.done("resetOffsetByTime", "-g", "G", "-t", "T", "-s", START)
    titles = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset")
    lines = done.out.splitlines()
    assert lines[0].startswith("rollback consumer offset by specified consumerGroup[G], topic[T], force[true], ")
    assert lines[1] == "  ".join(f"{title:<20}" for title in titles)
    assert done.rows[2:] == [["broker-a", "0", "0", "0", "0", "0"], ["broker-a", "1", "3", "3", "0", "0"]]
    assert await lab.committed("G", "T") == {0: 0, 1: 0}
    skipped = await lab.done("skipAccumulatedMessage", "-g", "G", "-t", "T")
    assert skipped.rows == [list(titles), ["broker-a", "0", "0", "0", "0", "0"], ["broker-a", "1", "3", "0", "3", "3"]]
    assert await lab.committed("G", "T") == {0: 0, 1: 3}


async def test_without_force_an_offline_group_moves_only_back(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b", "c")
    await lab.commit("G", "T", 1)
    forward = await lab.done("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now", "-f", "false")
    assert forward.rows[2] == ["broker-a", "0", "3", "1", "3", "1"]
    assert await lab.committed("G", "T") == {0: 1}
    back = await lab.done("resetOffsetByTime", "-g", "G", "-t", "T", "-s", START, "-f", "false")
    assert back.rows[2] == ["broker-a", "0", "3", "1", "0", "0"]
    assert await lab.committed("G", "T") == {0: 0}


async def test_a_young_group_is_told_which_queue_has_no_offset(lab: Lab) -> None:
    await lab.topic("T", 3)
    await lab.member("G", "T")
    await lab.commit("G", "T", 0)
    done = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("mqadmin resetOffsetByTime: THe consumer group <G> not exist (code 1 from ")
    assert "no offset yet for queues 1, 2 of topic T on broker broker-a, so nothing was moved there" in done.err


async def test_a_topic_that_does_not_exist_and_a_time_that_is_none(lab: Lab) -> None:
    gone = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "Nope", "-s", "now")
    assert (gone.status, "No topic route info in name server for the topic: Nope" in gone.err) == (1, True)
    wrong = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "Nope", "-s", "yesterday")
    assert (wrong.status, "'yesterday' is no time" in wrong.err) == (1, True)


@pytest.mark.parametrize("topic", ["T", "U"])
async def test_a_group_is_put_where_another_one_is(lab: Lab, topic: str) -> None:
    await lab.topic("T", 2)
    await lab.topic("U")
    await lab.send("T", "a", "b", "c", queue=1)
    await lab.done("updateTopic", "-b", lab.broker, "-t", "%RETRY%G", "-r", "1", "-w", "1")
    await lab.commit("G", "T", 0, 2)
    done = await lab.done("cloneGroupOffset", "-s", "G", "-d", "H", "-t", topic)
    assert done.out == f"clone group offset success. srcGroup[G], destGroup=[H], topic[{topic}]\n"
    assert await lab.committed("H", "T") == {0: 0, 1: 2}
