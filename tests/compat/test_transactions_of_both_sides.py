"""Python's and Java's producers of transactions in one group: each answers for the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from eruca.client import Message, ReceivedMessage, TransactionProducer, TransactionResult, TransactionState
from tests.compat.clients import JavaClients, PythonClients
from tests.compat.conftest import Cluster
from tests.compat.transactions import SOON, Deal, dealer
from tests.support.apache import ApacheCluster
from tests.support.java import Judge

MakeTopic = Callable[[Cluster, Judge, int], str]


@pytest.fixture(scope="module")
def apache5_asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    with ApacheCluster("5.3.3", tmp_path_factory.mktemp("apache5-asking"), SOON) as cluster:
        yield cluster


@pytest.fixture(params=["apache_asking", "apache5_asking", "eruca_asking"])
def asking(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster, and each release of Apache's, asking soon."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


async def send_all(producer: TransactionProducer, messages: list[tuple[Message, TransactionState]]) -> list[str]:
    results: list[TransactionResult] = []
    for message, outcome in messages:
        results.append(await producer.send_in_transaction(message, lambda *_, it=outcome: it))
    return [each.transaction_id for each in results]


def test_each_answers_for_the_other(
    asking: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, group = topic(asking, judge, 1), fresh("dealers")
    asked: dict[str, bytes] = {}

    def check(message: ReceivedMessage) -> TransactionState:
        asked[message.message_id] = message.body
        return TransactionState.COMMIT

    producer = TransactionProducer(group, check, nameserver=asking.address)
    python.run(producer.start())
    with JavaClients(judge).member(fresh("members"), asking.address, {name: "*"}) as member:
        try:
            with dealer(judge, group, asking.address, name) as java:
                (sent,) = java.send([Deal(name, b"Java's", "UNKNOW", "ROLLBACK_MESSAGE", immunity=2)])
            first = member.received(1)  # Java's producer is gone, Python's answers
            python.run(
                send_all(
                    producer,
                    [
                        (Message(name, b"of Python, rolled back"), TransactionState.ROLLBACK),
                        (Message(name, b"of Python", tags="t", keys="k"), TransactionState.COMMIT),
                        (
                            Message(
                                name,
                                b"Python's",
                                properties={"checks": "COMMIT_MESSAGE", "CHECK_IMMUNITY_TIME_IN_SECONDS": "3"},
                            ),
                            TransactionState.UNKNOWN,
                        ),
                    ],
                )
            )
        finally:
            python.run(producer.stop())
        with dealer(judge, group, asking.address, name) as java:
            rest = member.received(2)
            questions = java.asked(1)

    assert [each.body for each in first] == [b"Java's"]
    assert asked == {sent["msgId"]: b"Java's"}
    assert sorted(each.body for each in rest) == [b"Python's", b"of Python"]
    # 5.x notes a decision some seconds later, and may ask again about what was decided.
    assert {each.body for each in questions} - {b"Java's"} == {b"Python's"}
