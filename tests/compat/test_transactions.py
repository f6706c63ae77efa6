"""Transactions of Apache's Java clients: on Apache's broker as the measure, on Eruca's, and from one to the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.clients import JavaClients
from tests.compat.conftest import Cluster, start
from tests.compat.transactions import SOON, Deal, dealer
from tests.support.java import Judge

MakeTopic = Callable[[Cluster, Judge, int], str]
COMMIT, ROLLBACK, UNKNOWN, THROW = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW", "THROW"


@pytest.fixture(params=["apache_asking", "eruca_asking"])
def asking(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster, asking soon."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["judge", "judge5"])
def java(request: pytest.FixtureRequest) -> Judge:
    """Clients of 4.9.7 and of 5.3.3."""
    found: Judge = request.getfixturevalue(request.param)
    return found


def test_every_outcome(
    asking: Cluster, java: Judge, judge: Judge, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name = topic(asking, judge, 2)
    deals = [
        Deal(name, b"committed", COMMIT),
        Deal(name, b"rolled back", ROLLBACK),
        Deal(name, b"committed when asked", UNKNOWN, COMMIT),
        Deal(name, b"committed when asked again", UNKNOWN, f"{UNKNOWN} {COMMIT}"),
        Deal(name, b"rolled back when asked", UNKNOWN, ROLLBACK),
        Deal(name, b"failed, yet committed", THROW, COMMIT),
        Deal(name, b"immune for a while", UNKNOWN, COMMIT, immunity=2),
    ]
    clients = JavaClients(java)

    with clients.member(fresh("members"), asking.address, {name: "deal"}) as member:
        with dealer(java, fresh("dealers"), asking.address, name) as producer:
            sent = producer.send(deals)
            received = member.received(5)
            asked = producer.asked(6)
        again = member.received(1, timeout=0)

    assert [each["status"] for each in sent] == ["SEND_OK"] * len(deals)
    assert [each["local"] for each in sent] == [COMMIT, ROLLBACK, *[UNKNOWN] * 5]
    bodies = Counter(each.body for each in [*received, *again])
    assert set(bodies) == {each.body for each in deals if b"rolled back" not in each.body}
    if asking.name == "eruca":
        assert set(bodies.values()) == {1}
    questions = Counter(each.body for each in asked)
    assert questions.keys() == {each.body for each in deals[2:]}
    assert questions[b"committed when asked again"] >= 2
    ids = {each.body: told["msgId"] for each, told in zip(deals, sent, strict=True)}
    assert {(each.topic, each.body, each.transaction) for each in asked} == {
        (name, body, ids[body]) for body in questions
    }
    for each in received:
        assert (each.topic, each.tags, each.keys, each.message_id) == (name, "deal", "key", ids[each.body])
        assert (each.properties["user"], each.sys_flag) == ("kept", 8)
        if asking.name == "eruca" or each.body == b"committed":  # Apache's put-back loses the flag
            assert each.flag == 7


def test_another_member_of_the_group_answers(
    asking: Cluster, judge: Judge, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, group = topic(asking, judge, 1), fresh("dealers")
    with (
        JavaClients(judge).member(fresh("members"), asking.address, {name: "*"}) as member,
        dealer(judge, group, asking.address, name) as other,
    ):
        with dealer(judge, group, asking.address, name) as gone:
            gone.send([Deal(name, b"of a producer that ends", UNKNOWN, COMMIT, immunity=2)])
        (question, *_) = other.asked(1)
        received = member.received(1)

    assert question.body == b"of a producer that ends"
    assert [each.body for each in received] == [question.body]


SIDES = [("apache", "eruca"), ("eruca", "apache"), ("eruca", "eruca")]


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize(("first", "second"), SIDES)
def test_the_other_side_goes_on(first: str, second: str, end: str, judge: Judge, tmp_path: Path) -> None:
    """What one broker left undecided the other asks about; what was decided stays decided."""
    name, group = "Deals", "dealers"
    deals = [Deal(name, b"open %d" % n, UNKNOWN, f"{UNKNOWN} {UNKNOWN} {COMMIT}", immunity=3600) for n in range(3)]
    deals += [Deal(name, b"asked about %d" % n, UNKNOWN, f"{UNKNOWN} {UNKNOWN} {COMMIT}") for n in range(3)]
    deals += [Deal(name, b"committed %d" % n, COMMIT) for n in range(3)]
    deals += [Deal(name, b"rolled back %d" % n, ROLLBACK) for n in range(3)]
    with start(first, tmp_path, SOON) as cluster:
        line = ["updateTopic", "-n", cluster.address, "-b", cluster.broker.address, "-t", name, "-r", "1", "-w", "1"]
        assert judge.call("admin", line=line)["stdout"].startswith("create topic")
        with dealer(judge, group, cluster.address, name) as producer:
            producer.send(deals)
            asked = producer.answered(deals[3:6], UNKNOWN)
        assert {each.body for each in asked} == {each.body for each in deals[3:6]}
        if end == "SIGKILL":
            cluster.broker.process.kill()
        cluster.stop()

    with (
        start(second, tmp_path, SOON) as cluster,
        JavaClients(judge).member("all", cluster.address, {name: "*"}) as member,
    ):
        with dealer(judge, group, cluster.address, name) as producer:
            asked = producer.answered(deals[3:6], COMMIT)
        received = [*member.received(6), *member.received(1, timeout=0)]

    assert {each.body for each in asked} == {each.body for each in deals[3:6]}
    bodies = Counter(each.body for each in received)
    assert set(bodies) == {each.body for each in deals[3:9]}
    if "apache" not in (first, second):
        assert set(bodies.values()) == {1}
