"""Python's consumers in groups at Apache's brokers of both releases, as Java's members and Java's mqadmin see them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eruca.client import Later, MessageQueue, PushConsumer, ReceivedMessage
from tests.compat.clients import JavaClients, Letter, Member, PythonClients, Queue, drain
from tests.compat.conftest import Real
from tests.compat.lite import PythonLite, lite
from tests.compat.series import numbered, numbers
from tests.compat.transcript import Mqadmin, java_mqadmin
from tests.support.java import Judge

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]
QUEUES = 8


def test_one_of_java_and_two_of_python(real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh) -> None:
    name, group = topic(real.cluster, real.judge, QUEUES), fresh("group")
    java, mqadmin = JavaClients(real.judge), java_mqadmin(real.judge)
    with (
        java.producer(fresh("producers"), real.address) as producer,
        java.member(group, real.address, {name: "*"}) as one,
        python.member(group, real.address, {name: "*"}) as two,
        python.member(group, real.address, {name: "*"}) as three,
    ):
        shares = shared_out(one, two, three)
        for number in range(QUEUES * 15):
            producer.send(numbered(name, number, number + 1), "sync", Queue(name, "broker-a", number % QUEUES))
        members: tuple[Member, ...] = (one, two, three)
        got = [member.received(15 * len(share)) for member, share in zip(members, shares, strict=True)]
        done = [member.consumed(15 * len(share)) for member, share in zip(members, shares, strict=True)]
        again = [each for member in members for each in member.received(0)]

        # As AllocateMessageQueueAveragely does it: members by their ids, and runs of neighbouring queues.
        ids = client_ids(mqadmin, real, group)
        assert len(ids) == 3
        assert sorted(shares) == [[0, 1, 2], [3, 4, 5], [6, 7]]
        java_id = real.judge.call("received", name=one._name, atLeast=0)["clientId"]
        assert shares[0] == [[0, 1, 2], [3, 4, 5], [6, 7]][sorted(ids).index(java_id)]

        assert numbers([each for batch in got for each in batch]) == list(range(QUEUES * 15))
        assert [sorted({each.queue for each in batch}) for batch in got] == shares
        assert (sum(done), again) == (QUEUES * 15, [])

        shown = mqadmin(("consumerStatus", "-n", real.address, "-g", group)).stdout
        assert "Same subscription in the same group of consumer" in shown and "Rebalance OK" in shown
        until_no_lag(mqadmin, real, group, name, shares[1] + shares[2])


@pytest.mark.parametrize("kind", ["push", "lite pull", "pull"])
def test_the_broker_alone_tells_of_another_member(
    kind: str, real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    """By 40: the first member gives up queues and gets them back, though it looks by itself once an hour."""
    name, group, hour = topic(real.cluster, real.judge, 4), fresh("group"), 3600.0

    @contextmanager
    def join() -> Iterator[Callable[[], int]]:
        """One more member; how many queues it has."""
        if kind == "push":
            with python.member(group, real.address, {name: "*"}, rebalance_interval=hour) as push:
                yield lambda: len(push.assigned(0))
        elif kind == "lite pull":
            with lite(python, group, real.address, topics={name: "*"}, look=hour) as polling:
                assert isinstance(polling, PythonLite)
                yield lambda: len(polling.consumer.assignment())
        else:
            with python.puller(group, real.address, rebalance_interval=hour) as puller:
                python.run(puller.consumer.register_message_queue_listener(name, lambda *_: None))
                yield lambda: len(puller.consumer.queues)

    with join() as first:
        until(lambda: first() == 4)
        with join() as second:
            until(lambda: (first(), second()) == (2, 2))
        until(lambda: first() == 4)


def test_tags_with_the_same_hash(real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh) -> None:
    """ "AaAa", "BBBB" and "AaBB" have one hash in Java: brokers let all pass, and the client looks again."""
    name, group = topic(real.cluster, real.judge, 1), fresh("group")
    with (
        JavaClients(real.judge).producer(fresh("producers"), real.address) as producer,
        python.member(group, real.address, {name: "AaAa || Aa"}) as member,
    ):
        for number, tag in enumerate(["AaAa", "BBBB", "AaBB", "Aa", "BB", "AaAa"]):
            producer.send(numbered(name, number, number + 1, tag))
        assert numbers(member.received(3)) == [0, 3, 5]
        assert member.consumed(6) == 6


def test_java_goes_on_with_what_python_rejected(
    real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    name, group = topic(real.cluster, real.judge, 1), fresh("group")
    java = JavaClients(real.judge)
    seen: list[tuple[bytes, int]] = []

    def listener(message: ReceivedMessage) -> Later | None:
        seen.append((message.body, message.reconsume_times))
        levels = {b"dead at once": -1, b"dead after two": 1, b"for Java": 2}
        return Later(delay_level=levels[message.body]) if message.body in levels else None

    letters = [
        Letter(name, body, tags="t", keys=f"k{number}", properties={"país": "España"})
        for number, body in enumerate([b"dead at once", b"dead after two", b"taken", b"for Java"])
    ]
    with java.producer(fresh("producers"), real.address) as producer:
        with pushing(python, real, group, name, listener):
            sent = producer.send(letters)
            until(lambda: (b"dead after two", 1) in seen and (b"for Java", 0) in seen)
        with java.member(group, real.address, {name: "*"}) as member:
            come = member.received(1)
    with java.puller(fresh("readers"), real.address) as puller:
        dead = drain(puller, f"%DLQ%{group}")

    ids = {letter.body: each.message_id for letter, each in zip(letters, sent, strict=True)}
    times = {b"dead at once": [0], b"dead after two": [0, 1], b"taken": [0], b"for Java": [0]}
    assert {body: [count for each, count in seen if each == body] for body in times} == times
    assert [(each.body, each.reconsume_times, each.topic) for each in come] == [(b"for Java", 1, name)]
    assert (come[0].tags, come[0].keys, come[0].message_id) == ("t", "k3", ids[b"for Java"])
    assert come[0].properties["país"] == "España"
    assert {each.body: each.message_id for each in dead} == {
        body: ids[body] for body in (b"dead at once", b"dead after two")
    }
    assert {each.properties["RETRY_TOPIC"] for each in dead} == {name}


def test_positions_beyond_a_queue_are_corrected(
    real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    """As after a broker lost its disk: the group's offset is greater than the end of the queue."""
    name, group = topic(real.cluster, real.judge, 1), fresh("group")
    queue = Queue(name, "broker-a", 0)
    with JavaClients(real.judge).producer(fresh("producers"), real.address) as producer:
        producer.send(numbered(name, 0, 5))
        with python.member(group, real.address, {name: "*"}) as member:  # now the broker knows the group
            assert numbers(member.received(5)) == list(range(5))
        with python.puller(group, real.address) as puller:
            store(python, puller, queue, 1000)
        with python.member(group, real.address, {name: "*"}) as member:
            until(lambda: member.consumed(0, 0) == 5)
            producer.send(numbered(name, 5, 8))
            assert numbers(member.received(3)) == [5, 6, 7]


def test_what_javas_admin_asks_a_member_of_python(
    real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    """221, 307 and 309, each by way of the broker."""
    name, group = topic(real.cluster, real.judge, 2), fresh("group")
    mqadmin, direct = java_mqadmin(real.judge), list[bytes]()

    def listener(message: ReceivedMessage) -> None:
        direct.append(message.body)
        if message.body == b"bad":
            raise ValueError("not this one")

    with JavaClients(real.judge).producer(fresh("producers"), real.address) as producer:
        sent = producer.send([Letter(name, b"good"), Letter(name, b"bad")])
        with pushing(python, real, group, name, listener, start_from="end"):
            (client,) = client_ids(mqadmin, real, group)
            status = real.judge.call("consume-status", namesrv=real.address, group=group, topic=name)
            offsets = {each["queue"]["queueId"]: each["offset"] for each in status[client]}
            assert {number: offsets[number] for number in (0, 1)} == ends(python, real, name)

            shown = mqadmin(("consumerStatus", "-n", real.address, "-g", group, "-i", client, "-s")).stdout
            assert "PROP_CONSUME_TYPE" in shown and "CONSUME_PASSIVELY" in shown and name in shown
            assert "#Consumer jstack#" in shown and "test_python_members" not in shown.split("jstack")[0]

            answers = {}
            for each, body in zip(sent, ("good", "bad"), strict=True):
                where = () if real.judge.release.startswith("4") else ("-t", name)
                line = ("queryMsgById", "-n", real.address, *where, "-i", each.offset_message_id, "-g", group)
                answers[body] = mqadmin((*line, "-d", client)).stdout
    assert direct == [b"good", b"bad"]
    assert "consumeResult=CR_SUCCESS" in answers["good"]
    assert "consumeResult=CR_THROW_EXCEPTION" in answers["bad"] and "not this one" in answers["bad"]


# ---------------------------------------------------------------------- what is used


@contextmanager
def pushing(
    python: PythonClients, real: Real, group: str, topic: str, listener: Callable[..., Any], **options: Any
) -> Iterator[None]:
    given = {"start_from": "first", "max_reconsume_times": 1, **options}
    consumer = PushConsumer(group, listener, nameserver=real.address, **given).subscribe(topic)
    python.run(consumer.start())
    try:
        yield
    finally:
        python.run(consumer.stop())


def shared_out(*members: Member) -> list[list[int]]:
    """The queues of each member, as soon as each queue has one owner and the shares are even."""
    deadline = time.monotonic() + 60
    while True:
        shares = [sorted(each.number for each in member.assigned(1, 0.1)) for member in members]
        even = max(map(len, shares)) - min(map(len, shares)) <= 1
        if even and sorted(number for share in shares for number in share) == list(range(QUEUES)):
            return shares
        assert time.monotonic() < deadline, f"the queues are shared out as {shares}"


def client_ids(mqadmin: Mqadmin, real: Real, group: str) -> list[str]:
    """The members of a group as mqadmin shows them."""
    shown = mqadmin(("consumerConnection", "-n", real.address, "-g", group)).stdout
    rows = [line.split() for line in shown.splitlines()]
    return [row[0] for row in rows if len(row) == 4 and row[1].startswith("127.0.0.1:")]


def until_no_lag(mqadmin: Mqadmin, real: Real, group: str, topic: str, queues: list[int]) -> None:
    """Wait until mqadmin shows that these queues were consumed; Java's members store their offsets after 10 s only."""
    deadline = time.monotonic() + 30
    while True:
        shown = mqadmin(("consumerProgress", "-n", real.address, "-g", group)).stdout
        rows = [line.split() for line in shown.splitlines() if line.startswith(topic)]
        if [row[3:5] for row in rows if int(row[2]) in queues] == [["15", "15"]] * len(queues):
            return
        assert time.monotonic() < deadline, shown


def ends(python: PythonClients, real: Real, topic: str) -> dict[int, int]:
    with python.puller("asking", real.address) as puller:
        return {each.number: puller.offset(each, "max") for each in puller.queues(topic)}


def store(python: PythonClients, puller: Any, queue: Queue, offset: int) -> None:
    python.run(puller.consumer.update_offset(MessageQueue(queue.topic, queue.broker, queue.number), offset))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.05)
