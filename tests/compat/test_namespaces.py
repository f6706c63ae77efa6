"""A tenant with clients of both sides: Java's setNamespace and Python's namespace make the same names for brokers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from eruca.client import ClientSettings, Later
from tests.compat.clients import JavaClients, Letter, PythonClients, Queue
from tests.compat.series import split
from tests.compat.transcript import java_mqadmin
from tests.support.apache import ApacheCluster
from tests.support.java import Judge

TENANT = "tenant-1"
QUEUES = 4


def test_members_of_both_sides_in_one_namespace(
    apache: ApacheCluster, apache5: ApacheCluster, judge: Judge, python: PythonClients, fresh: Callable[[str], str]
) -> None:
    """On both releases at once, as Java's members wait a lot."""
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(share_a_namespace, each, judge, python, fresh) for each in (apache, apache5)]:
            done.result()


def share_a_namespace(cluster: ApacheCluster, judge: Judge, python: PythonClients, fresh: Callable[[str], str]) -> None:
    """They share a group, and each goes on with the other's retries and offsets; for brokers all has the long names."""
    short, group, dying, address = fresh("topic"), fresh("group"), fresh("group"), cluster.address
    stored = f"{TENANT}%{short}"
    java, mqadmin = JavaClients(judge), java_mqadmin(judge)
    # By this address its client id stands before Java's, so that it has the one queue of the retry topic.
    settings = ClientSettings(namespace=TENANT, client_ip="127.0.0.1")
    made = mqadmin(("updateTopic", "-n", address, "-b", cluster.broker.address, "-t", stored, "-r", "4", "-w", "4"))
    assert made.exit == 0, made.stderr

    with contextlib.ExitStack() as stack:
        of_java = stack.enter_context(java.producer(fresh("producers"), address, namespace=TENANT))
        of_python = stack.enter_context(python.producer(fresh("producers"), address, settings=settings))
        outside = stack.enter_context(python.puller(f"{TENANT}%{group}", address))
        member = stack.enter_context(java.member(group, address, {short: "*"}, namespace=TENANT, refuse=1))
        leaving = stack.enter_context(contextlib.ExitStack())
        other = leaving.enter_context(python.member(group, address, {short: "*"}, settings=settings))
        other.answers.update({b"dead": Later(delay_level=-1), b"for java": Later(delay_level=2)})
        _, mine = split(member, other)
        assert {each.topic for each in mine} == {short} and len(mine) == 2

        for number in range(20):
            producer = (of_java, of_python)[number % 2]
            producer.send([Letter(short, b"%d" % number)], "sync", Queue(short, "broker-a", number % QUEUES))
        of_java.send([Letter(short, b"dead")], "sync", mine[0])
        seen = member.received(9) + other.received(12)
        assert {each.topic for each in seen} == {short}
        assert {each.properties["INSTANCE_ID"] for each in seen} == {TENANT}
        assert sorted(each.body for each in seen) == sorted([b"dead", *(b"%d" % number for number in range(20))])
        assert sum(each.reconsume_times for each in seen) == 1, "what Java gave back came to Python"

        of_python.send([Letter(short, b"for java")], "sync", mine[0])
        assert [each.body for each in other.received(1)] == [b"for java"]
        leaving.close()
        (back,) = member.received(1)
        assert (back.body, back.topic, back.reconsume_times) == (b"for java", short, 1)
        assert member.received(0) == [], "what Python stored as consumed does not come to Java again"
        queues = [Queue(stored, "broker-a", number) for number in range(QUEUES)]
        wait_until(lambda: sum(outside.offset(queue, "committed") for queue in queues) == 22)

        with java.member(dying, address, {short: "*"}, namespace=TENANT, refuse=1, maxReconsumeTimes=0) as last:
            assert len(last.received(21)) == 21
        of_python_member, of_java_member = (Queue(f"%DLQ%{TENANT}%{name}", "broker-a", 0) for name in (group, dying))
        wait_until(lambda: outside.offset(of_python_member, "max") == 1)
        # On 5.3.3 Java's member gives the one message that it refused back twice now and then.
        wait_until(lambda: outside.offset(of_java_member, "max") >= 1)
        topics = set(mqadmin(("topicList", "-n", address)).stdout.split())
        assert {stored, f"%RETRY%{TENANT}%{group}"} <= topics
        assert not {short, f"%RETRY%{group}", f"%DLQ%{group}", f"%DLQ%{dying}"} & topics


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
