"""Members that pull by themselves, of Java and of Eruca, in one group: DefaultMQPullConsumer with a registered topic,
and the schedule service. Each queue has one owner, who is told of it, and goes on where the owner before stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from eruca.client import MessageQueue, PullConsumer, PullScheduleService, PullStatus, PullTaskContext
from eruca.client.consuming.membership import GroupMember
from tests.compat.clients import PATIENCE, JavaClients, Letter, PythonClients, Queue, Seen, _queue_of, _seen, _seen_all
from tests.compat.conftest import Cluster
from tests.support.java import Judge

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]


@pytest.mark.parametrize("kind", ["registered", "scheduled"])
def test_members_of_both_sides_hand_queues_over(
    cluster: Cluster, kind: str, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    name, group = topic(cluster, judge, 5), fresh("group")
    queues = [Queue(name, "broker-a", number) for number in range(5)]
    java = JavaClients(judge)

    with contextlib.ExitStack() as ends, java.producer(fresh("producers"), cluster.address) as producer:

        def send(*numbers: int) -> None:
            for number in numbers:
                for queue in queues:
                    producer.send([Letter(name, b"%d" % number)], "sync", queue)

        theirs = contextlib.ExitStack()
        one: Member = ends.enter_context(python_member(python, group, name, cluster, kind))
        other: Member = theirs.enter_context(java_member(java, group, name, cluster, kind))
        ends.enter_context(theirs)

        shared = averagely(queues, one, other)
        assert [one.share(len(shared[0])), other.share(len(shared[1]))] == shared
        send(*range(8))
        assert in_queues(one.pulled(8 * len(shared[0]))) == each_with(shared[0], *range(8))
        assert in_queues(other.pulled(8 * len(shared[1]))) == each_with(shared[1], *range(8))

        theirs.close()  # Java's offsets were in its memory only
        assert one.share(5) == queues
        send(8)
        assert in_queues(one.pulled(5)) == each_with(queues, 8)

        last: Member = ends.enter_context(java_member(java, group, name, cluster, kind))
        shared = averagely(queues, one, last)
        assert [one.share(len(shared[0])), last.share(len(shared[1]))] == shared
        send(9)
        assert in_queues(one.pulled(len(shared[0]))) == each_with(shared[0], 9)
        assert in_queues(last.pulled(len(shared[1]))) == each_with(shared[1], 9)
        one.leave()
        assert last.share(5) == queues
        send(10)
        assert in_queues(last.pulled(5)) == each_with(queues, 10)

        if kind == "registered":  # who pulls by callbacks may be quicker than Java's last word
            new: Member = ends.enter_context(python_member(python, group, name, cluster, kind))
            shared = averagely(queues, new, last)
            assert [new.share(len(shared[0])), last.share(len(shared[1]))] == shared
            send(11)
            assert in_queues(new.pulled(len(shared[0]))) == each_with(shared[0], 11)
            assert in_queues(last.pulled(len(shared[1]))) == each_with(shared[1], 11)


# ---------------------------------------------------------------------- one face for the members of both sides


class Member(Protocol):
    client_id: str

    def share(self, count: int) -> list[Queue]:
        """Its queues, as soon as there are exactly so many; its listener, if it has one, heard of the same."""

    def pulled(self, at_least: int) -> list[Seen]:
        """What it pulled since it was asked last, as soon as there is so much; offsets are the group's."""

    def leave(self) -> None: ...


class JavaMember:
    def __init__(self, clients: JavaClients, name: str, client_id: str, kind: str) -> None:
        self.client_id = client_id
        self._judge = clients.judge
        self._name = name
        self._kind = kind

    def share(self, count: int) -> list[Queue]:
        found = self._judge.call("share", name=self._name, count=count, timeoutMs=int(PATIENCE * 1000))
        assert self._kind == "scheduled" or found["told"] == found["queues"]
        return [_queue_of(each) for each in found["queues"]]

    def pulled(self, at_least: int) -> list[Seen]:
        answer = self._judge.call("share-pulled", name=self._name, atLeast=at_least, timeoutMs=int(PATIENCE * 1000))
        return _seen_all(answer)

    def leave(self) -> None:
        self._judge.call("stop", name=self._name)


class PythonMember:
    def __init__(self, clients: PythonClients, group: str, topic: str, cluster: Cluster, kind: str) -> None:
        self._clients = clients
        self._seen: list[Seen] = []
        self._told: list[MessageQueue] | None = None
        self._client: PullConsumer | PullScheduleService
        if kind == "registered":
            self._client = PullConsumer(group, nameserver=cluster.address)
            clients.run(self._client.register_message_queue_listener(topic, self._listen))
            clients.run(self._client.start())
            assert self._client.share is not None
            member: GroupMember[Any] = self._client.share.membership
        else:
            service = self._client = PullScheduleService(group, nameserver=cluster.address)
            service.register_pull_task_callback(topic, self._call)
            clients.run(service.start())
            member = service.membership
        assert member.session is not None
        self.client_id = member.session.client_id

    async def _listen(self, topic: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
        self._told = mine

    async def _call(self, queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        await self._pull(context.pull_consumer, queue)
        context.pull_next_delay_time = 0.02

    async def _pull(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        result = await consumer.pull(queue, await consumer.query_offset(queue) or 0)
        if result.status is PullStatus.FOUND:
            self._seen += [_seen(each, each.body, each.topic) for each in result.records]
        await consumer.update_offset(queue, result.next_offset)

    def share(self, count: int) -> list[Queue]:
        deadline = time.monotonic() + PATIENCE
        while len(mine := self._client.queues) != count or self._told not in (None, mine):
            assert time.monotonic() < deadline, f"has {mine}, was told {self._told}"
            time.sleep(0.02)
        return [Queue(each.topic, each.broker_name, each.queue_id) for each in mine]

    def pulled(self, at_least: int) -> list[Seen]:
        deadline = time.monotonic() + PATIENCE
        while len(self._seen) < at_least and time.monotonic() < deadline:
            if isinstance(self._client, PullConsumer):
                for queue in self._client.queues:
                    self._clients.run(self._pull(self._client, queue))
            else:
                time.sleep(0.02)
        seen, self._seen = self._seen, []
        return seen

    def leave(self) -> None:
        self._clients.run(self._client.stop())


@contextlib.contextmanager
def python_member(
    clients: PythonClients, group: str, topic: str, cluster: Cluster, kind: str
) -> Iterator[PythonMember]:
    member = PythonMember(clients, group, topic, cluster, kind)
    try:
        yield member
    finally:
        member.leave()


@contextlib.contextmanager
def java_member(clients: JavaClients, group: str, topic: str, cluster: Cluster, kind: str) -> Iterator[JavaMember]:
    name = clients._name("sharing")
    client_id = clients.judge.call(
        "sharing", name=name, group=group, topic=topic, namesrv=cluster.address, scheduled=kind == "scheduled"
    )
    member = JavaMember(clients, name, client_id, kind)
    try:
        yield member
    finally:
        member.leave()


def averagely(queues: list[Queue], one: Member, other: Member) -> list[list[Queue]]:
    """As AllocateMessageQueueAveragely: the first by client id has the first queues, and the odd one."""
    first, second = queues[:3], queues[3:]
    return [first, second] if one.client_id < other.client_id else [second, first]


def each_with(queues: list[Queue], *numbers: int) -> dict[Queue, list[int]]:
    return {queue: list(numbers) for queue in queues}


def in_queues(seen: list[Seen]) -> dict[Queue, list[int]]:
    found: dict[Queue, list[int]] = {}
    for each in seen:
        found.setdefault(Queue(each.topic, "broker-a", each.queue), []).append(int(each.body))
    return found
