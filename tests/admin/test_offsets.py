"""Offsets by mqadmin: groups online, offline and without offsets, the way back, and clones of a group."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from eruca.admin.client import Admin
from eruca.admin.errors import Partial
from eruca.admin.resets.confirmation import Confirmation
from eruca.admin.resets.plan import Options, decide
from eruca.admin.resets.survey import look, look_at_members
from eruca.client import Message, Producer, PushConsumer, ReceivedMessage
from eruca.protocol import api
from eruca.protocol.api import Endpoint
from eruca.protocol.bodies import (
    Body,
    ConsumerConnection,
    ConsumerOffsets,
    ConsumerRunningInfo,
    ConsumeStats,
    KVTable,
    OffsetWrapper,
    ProcessQueueInfo,
    ResetOffsetBody,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicOffset,
    TopicStatsTable,
)
from eruca.protocol.errors import Refused
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Call, Reply, Router, Routes
from eruca.remoting.server import Server
from tests.admin.conftest import Done, Lab

START = "2020-01-01#00:00:00:000"
ONLINE = ["#brokerName", "#queueId", "#offset"]
OFFLINE = ["#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset"]


class Member:
    """A consumer of Eruca's client that is online."""

    def __init__(self, lab: Lab, group: str, topic: str) -> None:
        self.bodies: list[str] = []
        self._came = asyncio.Condition()
        self.consumer = PushConsumer(group, self._listen, nameserver=lab.nameserver, start_from="first").subscribe(
            topic
        )

    async def _listen(self, message: ReceivedMessage) -> None:
        async with self._came:
            self.bodies.append(message.body.decode())
            self._came.notify_all()

    async def has(self, count: int) -> None:
        async with asyncio.timeout(10), self._came:
            await self._came.wait_for(lambda: len(self.bodies) >= count)


@pytest.fixture
async def member(lab: Lab) -> AsyncIterator[Member]:
    """A member of G in topic T, which has two queues with the messages a, b, c in the second one."""
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", "c", queue=1)
    member = Member(lab, "G", "T")
    async with member.consumer:
        await member.has(3)
        yield member


@pytest.mark.parametrize("online", [False, True])
async def test_queues_that_nobody_reads_stay_as_they_are(lab: Lab, online: bool) -> None:
    await lab.done("updateTopic", "-c", "DefaultCluster", "-t", "W", "-r", "2", "-w", "4")
    for number in range(4):
        await lab.send("W", "one", "two", queue=number)
    await lab.done("updateSubGroup", "-c", "DefaultCluster", "-g", "shop")
    if online:
        await lab.member("shop", "W")
    await lab.commit("shop", "W", 0, 0)
    for line in (
        ("resetOffset", "--to", "last"),
        ("resetOffset", "--to", START),
        ("skipAccumulatedMessage",),
        ("resetOffsetByTime", "-s", START),
    ):
        done = await lab.mqadmin(line[0], "-g", "shop", "-t", "W", *line[1:], "--wait", "0")
        assert done.status in ((0, 5) if online else (0,)), done
        assert (
            "queues 2, 3 of broker-a are written but not read, and left as before; to let consumers read: "
            f"updateTopic -b {lab.broker} -t W --keep -r N"
        ) in done.err


async def reset(lab: Lab, *line: str) -> Done:
    """A reset that must be done, whatever it tells."""
    done = await lab.mqadmin(*line)
    assert done.status == 0, done
    return done


# ------------------------------------------------------------------ online


async def test_an_online_group_is_moved_by_its_broker_and_seen_to_move(lab: Lab, member: Member) -> None:
    done = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", "1577836800000")
    assert done.out == (
        "rollback consumer offset by specified group[G], topic[T], force[true], timestamp(string)[1577836800000], "
        "timestamp(long)[1577836800000]\n"
        + f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}\n"
        + "".join(f"{'broker-a':<40}  {queue:<40}  {0:<40}\n" for queue in (0, 1))
    )
    assert "3 messages come again, 0 unconsumed ones are skipped\n" in done.err
    assert re.search(r"^2 of 2 queues moved \(\d\.\d s\)$", done.err, re.MULTILINE)
    await member.has(6)
    assert member.bodies == ["a", "b", "c"] * 2


async def test_a_member_that_moves_at_once_is_seen_however_late_mqadmin_looks(lab: Lab, member: Member) -> None:
    """It has consumed and committed all of it again; it counts its resets."""
    async with Admin([lab.nameserver]) as admin:
        survey = await look_at_members(admin, await look(admin, "G", "T"))
        await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "0")
        await member.has(6)
        await lab.commit("G", "T", 0, 3)
        plan = decide(survey, {seen.queue: seen.first for seen in survey.queues}, 0, Options())
        said: list[str] = []
        async with Confirmation(admin, survey, plan) as confirmation:
            await confirmation.wait([seen.queue for seen in survey.queues], 5.0, said.append)
    assert said[0].startswith("2 of 2 queues moved ")


async def test_a_reset_of_another_topic_or_to_another_place_confirms_nothing(lab: Lab, member: Member) -> None:
    async with Admin([lab.nameserver]) as admin:
        survey = await look_at_members(admin, await look(admin, "G", "T"))
        await reset(lab, "resetOffset", "-g", "G", "-t", "T", "--to", "2", "--queue", "broker-a:1")
        await member.has(4)
        await lab.commit("G", "T", 0, 3)
        plan = decide(survey, {seen.queue: seen.first for seen in survey.queues}, 0, Options())
        async with Confirmation(admin, survey, plan) as confirmation:
            with pytest.raises(Partial, match="1 of 2 queues were seen to move"):
                await confirmation.wait([seen.queue for seen in survey.queues], 1.0, print)


async def test_the_end_is_reached_by_skipping(lab: Lab, member: Member) -> None:
    end = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now")
    assert "timestamp(string)[now], timestamp(long)[-1]" in end.out
    assert end.rows[1:] == [ONLINE, ["broker-a", "0", "0"], ["broker-a", "1", "3"]]
    skipped = await reset(lab, "skipAccumulatedMessage", "-g", "G", "-t", "T")
    assert skipped.out == end.out.partition("\n")[2]


async def test_a_member_that_does_not_move_is_told(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", "c", queue=1)
    silent = await lab.member("G", "T")
    await lab.commit("G", "T", 0, 3)
    done = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "1577836800000", "--wait", "1")
    assert done.status == 5
    assert [row[1:] for row in done.rows[2:]] == [["0", "0"], ["1", "0"]]
    assert "1 of 2 queues were seen to move in 1 s, not: broker-a:1 (whose it is, is not known)" in done.err
    assert "no answer from 10.0.0.1@c" in done.err
    (pushed,) = await silent.received(220)
    assert ResetOffsetBody.decode(pushed.body).offset_table == {
        MessageQueue("T", "broker-a", 0): 0,
        MessageQueue("T", "broker-a", 1): 0,
    }


async def test_queues_without_an_offset_get_one_first(lab: Lab) -> None:
    await lab.topic("T", 3)
    await lab.send("T", "a", "b", queue=0)
    member = await lab.member("G", "T")
    await lab.commit("G", "T", 1)
    done = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now", "--wait", "0")
    assert [row[1:] for row in done.rows[2:]] == [["0", "2"], ["1", "0"], ["2", "0"]]
    assert "queues 1, 2 of broker-a had no offset\n" in done.err
    assert "0 messages come again, 1 unconsumed one is skipped, queues without an offset: 2\n" in done.err
    assert await member.received(220)


async def test_offsets_that_nobody_consumes_are_stored(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b")
    member = await lab.member("G", "Other")
    await lab.commit("G", "T", 2)
    done = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", START)
    assert done.rows[1:] == [OFFLINE, ["broker-a", "0", "2", "2", "0", "0"]]
    assert "no member of G subscribes T: its offsets are stored, nobody consumes it now\n" in done.err
    assert await lab.committed("G", "T") == {0: 0}
    assert [pushed.code for pushed in member.pushed if pushed.code == 220] == []


@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        (
            "BROADCASTING",
            "CONSUME_PASSIVELY",
            "G broadcasts: each member keeps its own offsets, in its folder of offsets",
        ),
        ("CLUSTERING", "CONSUME_ACTIVELY", "the members 10.0.0.1@c of G are pull consumers of Java, which ignore"),
    ],
)
async def test_members_that_would_ignore_it_are_told(lab: Lab, model: str, kind: str, words: str) -> None:
    await lab.topic("T")
    await lab.commit("G", "T", 0)
    await lab.member("G", "T", message_model=model, consume_type=kind)
    done = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", START)
    assert (done.status, done.out) == (1, "")
    assert words in done.err


async def test_what_comes_is_what_the_table_says(lab: Lab) -> None:
    """For any place that one can ask for, of some queues or all of them."""
    random, queues = Random(17), range(4)
    await lab.topic("T", len(queues))
    times = [0]
    async with Producer("p", nameserver=lab.nameserver) as producer:
        for number in range(40):
            queue = MessageQueue("T", "broker-a", random.choice(queues))
            await producer.send(Message("T", f"{queue.queue_id} {number}".encode()), queue=queue)
            await asyncio.sleep(0.002)
            times.append(time.time_ns() // 1_000_000)
    member = Member(lab, "G", "T")
    async with member.consumer:
        await member.has(40)
        sent = sorted(member.bodies, key=lambda body: int(body.split()[1]))
        of = {queue: [body for body in sent if body.startswith(f"{queue} ")] for queue in queues}
        for _ in range(15):
            member.bodies.clear()
            some = random.sample(queues, random.randint(1, len(queues)))
            place = random.choice(["first", "last", f"-{random.randint(1, 9)}", str(random.choice(times[1:]))])
            only = ",".join(f"broker-a:{queue}" for queue in some)
            line = random.choice([("--queue", only), ()])
            done = await reset(lab, "resetOffset", "-g", "G", "-t", "T", "--to", place, *line)
            promised = [body for _, queue, offset in done.rows[1:] for body in of[int(queue)][int(offset) :]]
            assert {int(queue) for _, queue, _ in done.rows[1:]} == set(some if line else queues)
            await member.has(len(promised))
            assert sorted(member.bodies) == sorted(promised), (place, line)


# ------------------------------------------------------------------ offline


async def test_an_offline_group_is_moved_by_storing_its_offsets(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", "c", queue=1)
    await lab.commit("G", "T", 0, 3)
    done = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", START)
    lines = done.out.splitlines()
    assert lines[0].startswith("rollback consumer offset by specified consumerGroup[G], topic[T], force[true], ")
    assert lines[1] == "  ".join(f"{title:<20}" for title in OFFLINE)
    assert done.rows[2:] == [["broker-a", "0", "0", "0", "0", "0"], ["broker-a", "1", "3", "3", "0", "0"]]
    assert await lab.committed("G", "T") == {0: 0, 1: 0}
    skipped = await reset(lab, "skipAccumulatedMessage", "-g", "G", "-t", "T")
    assert skipped.rows == [OFFLINE, ["broker-a", "0", "0", "0", "0", "0"], ["broker-a", "1", "3", "0", "3", "3"]]
    assert await lab.committed("G", "T") == {0: 0, 1: 3}


async def test_without_force_an_offline_group_moves_only_back(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b", "c")
    await lab.commit("G", "T", 1)
    forward = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now", "-f", "false")
    assert forward.rows[2] == ["broker-a", "0", "3", "1", "3", "1"]
    assert await lab.committed("G", "T") == {0: 1}
    back = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", START, "-f", "false")
    assert back.rows[2] == ["broker-a", "0", "3", "1", "0", "0"]
    assert await lab.committed("G", "T") == {0: 0}


async def test_a_group_that_nobody_knows_is_not_found(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b")
    await lab.commit("Orders", "T", 1)
    await lab.done("updateSubGroup", "-b", lab.broker, "-g", "Orders")
    line = ("resetOffsetByTime", "-g", "Order", "-t", "T", "-s", "now")
    wrong = await lab.mqadmin(*line)
    assert (wrong.status, wrong.out) == (4, "")
    assert "no broker of T knows the consumer group Order, so nothing was moved; --new-group" in wrong.err
    assert "did you mean Orders?" in wrong.err
    assert await lab.committed("Order", "T") == {}
    await reset(lab, *line, "--new-group")
    assert await lab.committed("Order", "T") == {0: 2, 1: 0}


async def test_a_topic_that_does_not_exist(lab: Lab) -> None:
    gone = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "Nope", "-s", "now")
    assert (gone.status, "No topic route info in name server for the topic: Nope" in gone.err) == (4, True)


# ------------------------------------------------------------------ before and after


async def test_a_dry_run_changes_nothing(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", "a", "b", "c", queue=1)
    await lab.commit("G", "T", 0, 2)
    done = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", START, "--dry-run")
    assert (done.status, done.err) == (3, "")
    assert done.out.startswith("group G, topic T, to 2020-01-01 00:00:00.000 ")
    assert done.out.splitlines()[0].endswith(", members: none online")
    titles = "#minOffset #maxOffset #storedOffset #targetOffset #messageThere #again #skipped #member"
    assert done.rows[1] == ["#brokerName", "#queueId", *titles.split()]
    assert done.rows[2] == ["broker-a", "0", "0", "0", "0", "0", "-", "0", "0", "-"]
    assert done.rows[3][:6] + done.rows[3][-3:] == ["broker-a", "1", "0", "3", "2", "0", "2", "0", "-"]
    assert done.out.splitlines()[1] == (
        "#brokerName  #queueId  #minOffset  #maxOffset  #storedOffset  #targetOffset  #messageThere            "
        "#again  #skipped  #member"
    )
    assert done.out.splitlines()[-1] == "again 2, skipped 0, queues without an offset 0"
    assert await lab.committed("G", "T") == {0: 0, 1: 2}
    await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", START)
    nothing = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", START, "--dry-run")
    assert nothing.status == 0


async def test_a_time_after_the_last_message_is_told(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a", "b")
    await lab.commit("G", "T", 2)
    after = str(time.time_ns() // 1_000_000 + 1)
    await asyncio.sleep(0.01)
    for line, words in (
        (("resetOffsetByTime", "-s", after), "after the last message of every queue, which comes again\n"),
        (("resetOffset", "--to", after), "after the last message of every queue\n"),
    ):
        done = await lab.mqadmin(*line, "-g", "G", "-t", "T", "--dry-run")
        assert done.out.endswith(words), done.out


async def test_of_several_topics_none_moves_before_all_were_seen(lab: Lab) -> None:
    for topic in ("T", "U"):
        await lab.topic(topic)
        await lab.send(topic, *"abc")
        await lab.commit("G", topic, 3)
    await lab.topic("V")
    await lab.send("V", "a")
    refused = await lab.mqadmin("resetOffset", "-g", "G", "-t", "T,V", "--to", "2")
    assert (refused.status, "broker-a:0 has the offsets 0 to 1, not 2" in refused.err) == (2, True)
    assert await lab.committed("G", "T") == {0: 3}
    await lab.member("G", "U")
    await reset(lab, "resetOffset", "-g", "G", "--all-topics", "--to", "first", "--wait", "0")
    assert await lab.committed("G", "T") == {0: 0}, "also a topic that no member subscribes"


async def test_a_failure_at_one_of_several_topics_says_which_have_moved(lab: Lab) -> None:
    """The member of U hears of the reset and does nothing."""
    for topic in "TUV":
        await lab.topic(topic)
        await lab.send(topic, *"abc")
        await lab.commit("G", topic, 3)
    await lab.member("G", "U")
    failed = await lab.mqadmin("resetOffset", "-g", "G", "-t", "T,U,V", "--to", "first", "--wait", "1")
    assert failed.status == 5, failed
    assert "mqadmin resetOffset: topic U: 0 of 1 queues were seen to move in 1 s, not: broker-a:0" in failed.err
    assert failed.err.endswith("; not begun: V\n")
    assert [await lab.committed("G", topic) for topic in "TV"] == [{0: 0}, {0: 3}]


async def test_a_broker_that_only_members_know_is_missing(lab: Lab) -> None:
    """It has left the nameserver, and members have queues there still."""
    await lab.topic("T")
    await lab.send("T", *"abc")
    await lab.commit("G", "T", 3)
    held = {MessageQueue("T", name, 0): ProcessQueueInfo(commit_offset=3) for name in ("broker-a", "broker-b")}
    info = ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}, mq_table=held)
    await lab.member("G", "T", answering=lambda pushed: (0, info.encode()) if pushed.code == 307 else None)
    line = ("resetOffset", "-g", "G", "-t", "T", "--to", "first", "--wait", "0")
    refused = await lab.mqadmin(*line)
    assert (refused.status, refused.out) == (1, "")
    assert "broker-b: its members have queues there, and no nameserver knows it any more" in refused.err
    assert await lab.committed("G", "T") == {0: 3}
    part = await lab.mqadmin(*line, "--partial")
    assert (part.status, "not moved: broker-b (" in part.err) == (5, True)


async def test_a_place_may_be_a_file(lab: Lab) -> None:
    await lab.topic("T", 2)
    for queue in (0, 1):
        await lab.send("T", *"abcd", queue=queue)
    await lab.commit("G", "T", 4, 4)
    lab.home.mkdir(exist_ok=True)
    file = lab.home / "places.txt"
    file.write_text("T broker-a:1 2\n")
    await reset(lab, "resetOffset", "-g", "G", "-t", "T", "--to", str(file))
    assert await lab.committed("G", "T") == {0: 4, 1: 2}
    nothing = await lab.mqadmin("resetOffset", "-g", "G", "-t", "T", "--to", "no/such/file")
    assert (nothing.status, "no/such/file cannot be read" in nothing.err) == (1, True)


async def test_a_queue_of_a_file_that_is_not_there_is_told(lab: Lab) -> None:
    """A way back whose broker has left brings back a part only."""
    await lab.topic("T")
    await lab.send("T", *"abcd")
    await lab.commit("G", "T", 4)
    lab.home.mkdir(exist_ok=True)
    file = lab.home / "places.txt"
    file.write_text("T broker-a:0 2\nT broker-a:7 1\nT broker-z:0 1\n")
    line = ("resetOffset", "-g", "G", "--from-file", str(file), "--wait", "0")
    refused = await lab.mqadmin(*line)
    assert (refused.status, refused.out) == (4, "")
    assert "nothing was moved: T has no queue broker-a:7, broker-z:0 that consumers read" in refused.err
    assert await lab.committed("G", "T") == {0: 4}
    part = await lab.mqadmin(*line, "--partial")
    assert part.status == 5 and "not moved: broker-a:7 (there is no such queue); broker-z:0 (" in part.err, part
    assert await lab.committed("G", "T") == {0: 2}


async def test_what_is_left_out_of_one_topic_does_not_keep_the_next_one(lab: Lab) -> None:
    for topic in "TU":
        await lab.topic(topic)
        await lab.send(topic, *"abcd")
        await lab.commit("G", topic, 4)
    lab.home.mkdir(exist_ok=True)
    file = lab.home / "places.txt"
    file.write_text("T broker-a:0 2\nT broker-z:0 1\nU broker-a:0 3\n")
    part = await lab.mqadmin("offsets", "import", "-g", "G", "--file", str(file), "--wait", "0", "--partial")
    assert part.status == 5 and "not moved: broker-z:0 of T (there is no such queue)" in part.err, part
    assert [await lab.committed("G", topic) for topic in "TU"] == [{0: 2}, {0: 3}]


async def test_choices_that_exclude_one_another_are_refused(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", *"abcd")
    await lab.commit("G", "T", 4)
    lab.home.mkdir(exist_ok=True)
    file = lab.home / "places.txt"
    file.write_text("T broker-a:0 2\n")
    for line, status, said in [
        (("-t", "T", "--all-topics", "--to", "first"), 2, "give one of -t, --all-topics and a file"),
        (("--all-topics", "--from-file", str(file)), 2, "give one of -t, --all-topics and a file"),
        (("-t", "V", "--from-file", str(file)), 4, "nothing was moved: the file has no offset of V"),
        (("-t", "T", "--to", "first", "--queue", "broker-a:0", "--with-retries"), 2, "leave out --queue"),
    ]:
        refused = await lab.mqadmin("resetOffset", "-g", "G", *line)
        assert (refused.status, refused.out) == (status, "") and said in refused.err, refused
    assert await lab.committed("G", "T") == {0: 4}


async def test_offsets_that_no_file_keeps_are_printed(lab: Lab) -> None:
    await lab.topic("T", 2)
    await lab.send("T", *"abcd")
    await lab.commit("G", "T", 3)
    lab.home.mkdir(exist_ok=True)
    (lab.home / "mqadmin").write_text("no folder")
    done = await lab.mqadmin("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now")
    assert done.status == 0, done
    assert "cannot be kept in " in done.err
    assert done.err.splitlines()[-1] == "T broker-a:0 3", "a line that --from-file takes"


async def test_the_way_back_gives_every_offset_back(lab: Lab) -> None:
    await lab.topic("T", 3)
    for queue in range(3):
        await lab.send("T", *"abcd", queue=queue)
    await lab.commit("G", "T", 1, 2, 3)
    done = await reset(lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now")
    assert await lab.committed("G", "T") == {0: 4, 1: 4, 2: 4}
    told = re.search(r"^the way back: mqadmin (resetOffset -g G --from-file (\S+))$", done.err, re.MULTILINE)
    assert told is not None and told[2].startswith(str(lab.home / "mqadmin" / "undo"))
    await reset(lab, *told[1].split())
    assert await lab.committed("G", "T") == {0: 1, 1: 2, 2: 3}


async def test_ten_digits_are_asked_about(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "a")
    await lab.commit("G", "T", 1)
    line = ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "1795369251")
    refused = await lab.mqadmin(*line, answers="n\n")
    assert refused.status == 1 and "1795369251 are seconds? As ms, they are 1970-01-2" in refused.err
    assert await lab.committed("G", "T") == {0: 1}
    assert (await lab.mqadmin(*line, answers="y\n")).status == 0
    assert await lab.committed("G", "T") == {0: 0}
    assert (await lab.mqadmin(*line, "--yes")).status == 0


# ------------------------------------------------------------------ places


async def test_a_group_is_put_at_any_place(lab: Lab) -> None:
    await lab.topic("T", 2)
    for queue in range(2):
        await lab.send("T", *"abcdef", queue=queue)
    await lab.commit("G", "T", 3, 3)
    await lab.commit("H", "T", 1, 5)

    async def at(*line: str) -> dict[int, int]:
        await reset(lab, "resetOffset", "-g", "G", "-t", "T", *line)
        return await lab.committed("G", "T")

    assert await at("--to", "first") == {0: 0, 1: 0}
    assert await at("--to", "last") == {0: 6, 1: 6}
    assert await at("--to", "-2") == {0: 4, 1: 4}
    assert await at("--to", "+1") == {0: 5, 1: 5}
    assert await at("--to", "+9") == {0: 6, 1: 6}
    assert await at("--to", "2", "--queue", "broker-a:1") == {0: 6, 1: 2}
    assert await at("--to", "group:H") == {0: 1, 1: 5}
    assert await at("--to", "-1h") == {0: 0, 1: 0}
    (lab.home / "offsets").write_text("# topic broker:queue offset\nT broker-a:0 4\n")
    assert await at("--from-file", str(lab.home / "offsets")) == {0: 4, 1: 0}
    beyond = await lab.mqadmin("resetOffset", "-g", "G", "-t", "T", "--to", "7")
    assert (beyond.status, "broker-a:0 has the offsets 0 to 6, not 7" in beyond.err) == (2, True)
    assert await lab.committed("G", "T") == {0: 4, 1: 0}


async def test_a_time_is_the_first_message_at_or_after_it(lab: Lab) -> None:
    await lab.topic("T")
    times = []
    for body in "abcde":
        await lab.send("T", body)
        times.append(time.time_ns() // 1_000_000 + 1)
        await asyncio.sleep(0.02)
    await lab.commit("G", "T", 0)
    for number, moment in enumerate(times):
        await reset(lab, "resetOffset", "-g", "G", "-t", "T", "--to", str(moment))
        assert await lab.committed("G", "T") == {0: number + 1}


async def test_a_time_is_that_also_for_members(lab: Lab, member: Member) -> None:
    """The broker alone would move them to the message nearest to the time, which is older."""
    await asyncio.sleep(0.5)
    before = time.time_ns() // 1_000_000 - 400
    await lab.send("T", "d", queue=1)
    await member.has(4)
    member.bodies.clear()
    done = await reset(lab, "resetOffset", "-g", "G", "-t", "T", "--to", str(before))
    assert ["broker-a", "1", "3"] in done.rows
    await member.has(1)
    assert member.bodies == ["d"]


async def test_one_queue_of_an_online_group_is_moved(lab: Lab, member: Member) -> None:
    await lab.send("T", "x", queue=0)
    await member.has(4)
    done = await reset(lab, "resetOffset", "-g", "G", "-t", "T", "--to", "1", "--queue", "broker-a:1")
    assert done.rows == [ONLINE, ["broker-a", "1", "1"]]
    await member.has(6)
    assert member.bodies[4:] == ["b", "c"]
    again = await reset(
        lab, "resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now", "-b", lab.broker, "-q", "1", "-o", "2"
    )
    assert again.out.splitlines()[-1] == "reset consumer offset to 2"
    await member.has(7)
    assert member.bodies[6:] == ["c"]


async def test_what_is_no_place_is_answered_with_all_forms_of_places(lab: Lab) -> None:
    done = await lab.mqadmin("resetOffset", "-g", "G", "-t", "T", "--to", "begin")
    assert (done.status, done.out) == (2, "")
    assert "option --to takes first, last, a time, an offset (such as 4100), +N or -N messages, group:OTHER" in done.err
    assert "'begin' is no time: give ms since 1970, now, " in done.err


async def test_all_topics_of_a_group_are_moved(lab: Lab) -> None:
    await lab.topic("%RETRY%G")
    for topic in ("T", "U"):
        await lab.topic(topic)
        await lab.send(topic, "a", "b")
        await lab.commit("G", topic, 2)
    await reset(lab, "resetOffset", "-g", "G", "--all-topics", "--to", "first")
    assert [await lab.committed("G", topic) for topic in ("T", "U")] == [{0: 0}, {0: 0}]


async def test_messages_that_wait_for_another_try_are_told_and_moved_on_demand(lab: Lab) -> None:
    await lab.topic("T")
    await lab.topic("%RETRY%G")
    await lab.send("%RETRY%G", "r", "s")
    await lab.commit("G", "T", 0)
    told = await reset(lab, "skipAccumulatedMessage", "-g", "G", "-t", "T")
    assert "not touched: 2 messages in %RETRY%G, and delayed ones (see --with-retries)\n" in told.err
    wrong = await lab.mqadmin("resetOffset", "-g", "G", "-t", "T", "--to", "+1", "--with-retries")
    assert (wrong.status, wrong.out) == (2, ""), "nothing has moved before it is told"
    await reset(lab, "skipAccumulatedMessage", "-g", "G", "-t", "T", "--with-retries")
    assert await lab.committed("G", "%RETRY%G") == {0: 2}


# ------------------------------------------------------------------ clones


@pytest.mark.parametrize("topic", ["T", "U"])
async def test_a_group_is_put_where_another_one_is(lab: Lab, topic: str) -> None:
    await lab.topic("T", 2)
    await lab.topic("U")
    await lab.send("T", "a", "b", "c", queue=1)
    await lab.done("updateTopic", "-b", lab.broker, "-t", "%RETRY%G", "-r", "1", "-w", "1")
    await lab.commit("G", "T", 0, 2)
    line = ("cloneGroupOffset", "-s", "G", "-d", "H", "-t", topic)
    assert (await lab.mqadmin(*line)).status == 4
    done = await lab.done(*line, "--new-group")
    assert done.out == f"clone group offset success. srcGroup[G], destGroup=[H], topic[{topic}]\n"
    assert await lab.committed("H", "T") == {0: 0, 1: 2}


refusing: Routes[None] = Routes()
"""A broker with one queue of T, in which G has an offset; it stores no other one."""
QUEUE_OF_B = MessageQueue("T", "broker-b", 0)
ANSWERS: dict[Endpoint[Any, Any], Body] = {
    api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(),
    api.GET_ALL_CONSUMER_OFFSET: ConsumerOffsets(offset_table={"T@G": {0: 0}}),
    api.GET_TOPIC_STATS_INFO: TopicStatsTable(offset_table={QUEUE_OF_B: TopicOffset()}),
    api.GET_CONSUMER_CONNECTION_LIST: ConsumerConnection(),
    api.GET_CONSUME_STATS: ConsumeStats(offset_table={QUEUE_OF_B: OffsetWrapper()}),
}
for endpoint, body in ANSWERS.items():

    @refusing.on(endpoint)
    def answer(_: None, call: Call[Any], body: Body = body) -> Reply:
        return Reply(body=body.encode())


refusals: list[str] = []
"""What the next requests for its runtime info are refused with: a 4.9 broker does so in its first second."""


@refusing.on(api.GET_BROKER_RUNTIME_INFO)
def runtime(_: None, call: Call[Any]) -> Reply:
    if refusals:
        raise Refused(1, refusals.pop())
    return Reply(body=KVTable().encode())


@refusing.on(api.UPDATE_CONSUMER_OFFSET)
def refuse(_: None, call: Call[Any]) -> Reply:
    raise Refused(1, "the disk is full")


@pytest.fixture
async def other() -> AsyncIterator[str]:
    """The address of that broker."""
    server = Server(Router(None, [refusing]))
    await server.start("127.0.0.1", 0)
    yield f"127.0.0.1:{server.port}"
    await server.stop()


@pytest.mark.parametrize("there", [True, False], ids=["a part", "nothing"])
async def test_a_clone_that_a_broker_did_not_take_is_told(lab: Lab, other: str, there: bool) -> None:
    topic = "T" if there else "U"
    await lab.topic("T")
    await lab.topic("%RETRY%G")
    await lab.commit("G", "T", 0)
    queues = [TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in (topic, "%RETRY%G")]
    await lab.register("broker-b", other, *queues)
    done = await lab.mqadmin("cloneGroupOffset", "-s", "G", "-d", "H", "-t", topic, "--new-group")
    if there:
        assert (done.status, done.out) == (5, "")
        assert "only 1 of 2 offsets were copied, the others not: broker-b: the disk is full (code 1" in done.err
        assert await lab.committed("H", "T") == {0: 0}
    else:
        assert (done.status, done.out) == (1, "")
        assert "nothing is known to have been copied: broker-b: the disk is full" in done.err


async def test_a_broker_that_has_counted_nothing_yet_is_asked_again(lab: Lab, other: str) -> None:
    await lab.topic("T")
    await lab.commit("G", "T", 0)
    await lab.register("broker-b", other, TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    refusals.append("java.util.NoSuchElementException")
    seen = await lab.mqadmin("resetOffset", "-g", "G", "-t", "T", "--to", "first", "--dry-run")
    assert seen.status == 0 and "broker-b" in seen.out, seen
    assert not refusals


async def test_a_clone_names_the_brokers_that_it_leaves_out(lab: Lab, other: str) -> None:
    await lab.topic("T")
    await lab.topic("U")
    await lab.topic("%RETRY%G")
    await lab.commit("G", "T", 0)
    await lab.register("broker-b", other, TopicConfig(topic_name="%RETRY%G", read_queue_nums=1, write_queue_nums=1))
    done = await lab.mqadmin("cloneGroupOffset", "-s", "G", "-d", "H", "-t", "U", "--new-group")
    assert (done.status, done.err) == (0, "not copied: the offsets at broker-b, which U is not on\n")


async def test_a_group_whose_members_would_undo_it_gets_no_clone(lab: Lab) -> None:
    await lab.topic("T")
    await lab.topic("%RETRY%G")
    await lab.commit("G", "T", 0)
    await lab.member("H", "T")
    done = await lab.mqadmin("cloneGroupOffset", "-s", "G", "-d", "H", "-t", "T")
    assert (done.status, done.out) == (1, "")
    assert "nothing was copied: 10.0.0.1@c of H consume T and would overwrite the offsets; stop them" in done.err
    assert await lab.committed("H", "T") == {}
