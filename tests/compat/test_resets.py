"""resetOffsetByTime while Java's and Eruca's consumers share a group online: who is told, what comes again."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.compat.clients import JavaClients, Letter, Member, PythonClients, Queue, Seen
from tests.compat.conftest import Cluster
from tests.compat.transcript import Mqadmin, Outcome, java_mqadmin
from tests.support.apache import ApacheCluster
from tests.support.eruca import SCRIPTS, ErucaCluster
from tests.support.java import Judge
from tests.support.stopwatch import Stopwatch

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]
QUEUES = 4
EACH = 10


@dataclass
class Group:
    """A group with one member of each side, two queues each."""

    name: str
    java: Member
    python: Member

    def received(self) -> list[Seen]:
        return self.java.received(0) + self.python.received(0)

    def wait_for(self, count: int, timeout: float = 40) -> list[Seen]:
        """What both got, once it is so many; fewer when the time is over."""
        seen: list[Seen] = []
        deadline = time.monotonic() + timeout
        while len(seen) < count and time.monotonic() < deadline:
            seen += self.java.received(1, 0.2) + self.python.received(1, 0.2)
        return seen


def test_members_of_both_sides_feel_a_reset(
    apache: ApacheCluster, eruca: ErucaCluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    """On the brokers of both sides at once, as Java's members wait a lot."""
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(feel_a_reset, each, judge, python, topic, fresh) for each in (apache, eruca)]:
            done.result()


def feel_a_reset(cluster: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh) -> None:
    """Two groups at once: one is reset by Apache's mqadmin, the other by Eruca's."""
    name = topic(cluster, judge, QUEUES)
    queues = [Queue(name, "broker-a", number) for number in range(QUEUES)]
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(JavaClients(judge).producer(fresh("producers"), cluster.address))
        groups = {
            mqadmin: stack.enter_context(members(fresh("group"), cluster, judge, python, name))
            for mqadmin in (java_mqadmin(judge), eruca_mqadmin)
        }
        for n in range(QUEUES * EACH):
            producer.send([Letter(name, b"%d" % n)], "sync", queues[n % QUEUES])
        for group in groups.values():
            first = group.wait_for(QUEUES * EACH)
            assert bodies(first) == set(range(QUEUES * EACH))
        middle = sorted(each.store_timestamp for each in first)[QUEUES * EACH // 2]
        wait_until_committed(python, cluster, groups, queues)

        moved = {mqadmin: reset(mqadmin, cluster, group, name, str(middle)) for mqadmin, group in groups.items()}

        with python.puller(fresh("asking"), cluster.address) as puller:
            by_time = {queue.number: puller.offset(queue, "time", middle) for queue in queues}
        assert all(0 < offset < EACH for offset in by_time.values())
        for mqadmin, group in groups.items():
            assert moved[mqadmin] == by_time
            again = group.wait_for(sum(EACH - offset for offset in by_time.values()))
            promised = {(queue, offset) for queue, start in by_time.items() for offset in range(start, EACH)}
            assert sorted((each.queue, each.queue_offset) for each in again) == sorted(promised)
            assert [each for each in again if each not in first_of(first, again)] == []

        moved = {mqadmin: reset(mqadmin, cluster, group, name, "now") for mqadmin, group in groups.items()}

        for mqadmin, group in groups.items():
            assert moved[mqadmin] == {number: EACH for number in range(QUEUES)}
            assert group.received() == []


def test_a_broker_of_5_3_3_resets_on_its_side(
    apache5: ApacheCluster, judge: Judge, judge5: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    """It tells no member; the next pull is answered with 21, and a member of Python goes on from there at once."""
    name, group = topic(apache5, judge, 1), fresh("group")
    queue = Queue(name, "broker-a", 0)
    with (
        JavaClients(judge).producer(fresh("producers"), apache5.address) as producer,
        python.member(group, apache5.address, {name: "*"}) as member,
        python.puller(group, apache5.address) as puller,
    ):
        producer.send([Letter(name, b"%d" % n) for n in range(EACH)], "sync", queue)
        first = member.received(EACH)
        assert bodies(first) == set(range(EACH))
        deadline = time.monotonic() + 30
        while puller.offset(queue, "committed") < EACH:
            assert time.monotonic() < deadline, "the member did not commit what it consumed"
            time.sleep(0.1)
        middle = first[EACH // 2].store_timestamp
        line = ("resetOffsetByTime", "-n", apache5.address, "-g", group, "-t", name, "-s", str(middle))
        done = java_mqadmin(judge5)(line)
        assert done.exit == 0, done.stderr
        start = puller.offset(queue, "time", middle)
        assert start < EACH

        with Stopwatch() as watch:
            producer.send([Letter(name, b"%d" % EACH)], "sync", queue)  # ends the pull that waits at the broker
            again = member.received(EACH + 1 - start)
        print(f"went on {watch.seconds:.3f} s after the message that ended the waiting pull")
        assert watch.seconds < 3, "Java's consumers wait for 10 s"
        assert [each.queue_offset for each in again] == list(range(start, EACH + 1))


def eruca_mqadmin(line: tuple[str, ...]) -> Outcome:
    """Eruca's mqadmin as an operator runs it."""
    done = subprocess.run([SCRIPTS / "mqadmin", *line], capture_output=True, text=True, timeout=60)
    return Outcome(line, done.stdout, done.stderr, done.returncode)


@contextlib.contextmanager
def members(name: str, cluster: Cluster, judge: Judge, python: PythonClients, topic: str) -> Iterator[Group]:
    with (
        JavaClients(judge).member(name, cluster.address, {topic: "*"}) as java,
        python.member(name, cluster.address, {topic: "*"}) as other,
    ):
        deadline = time.monotonic() + 60
        while [len(java.assigned(2)), len(other.assigned(2))] != [2, 2]:
            assert time.monotonic() < deadline, "the two members did not share the four queues"
        yield Group(name, java, other)


def wait_until_committed(
    python: PythonClients, cluster: Cluster, groups: dict[Mqadmin, Group], queues: list[Queue]
) -> None:
    """A reset needs an offset of each queue at the broker; Java's consumers store theirs after 10 s."""
    for group in groups.values():
        # A puller of Eruca sends no heartbeat, so it asks for the group without being a member.
        with python.puller(group.name, cluster.address) as puller:
            deadline = time.monotonic() + 30
            while any(puller.offset(queue, "committed") < EACH for queue in queues):
                assert time.monotonic() < deadline, f"{group.name} did not commit what it consumed"
                time.sleep(0.1)


def reset(mqadmin: Mqadmin, cluster: Cluster, group: Group, topic: str, moment: str) -> dict[int, int]:
    """The offsets that the command printed, by queue."""
    done = mqadmin(("resetOffsetByTime", "-n", cluster.address, "-g", group.name, "-t", topic, "-s", moment))
    assert done.exit == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("broker-a")]
    return {int(queue): int(offset) for _, queue, offset in rows}


def first_of(first: list[Seen], again: list[Seen]) -> list[Seen]:
    """The messages of the first time that came again; a message that comes again is the same to the byte."""
    places = {(each.queue, each.queue_offset) for each in again}
    return [each for each in first if (each.queue, each.queue_offset) in places]


def bodies(messages: list[Seen]) -> set[int]:
    return {int(each.body) for each in messages}
