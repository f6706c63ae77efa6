"""Messages chosen by SQL92: what Apache's broker does for Java's clients, Eruca's does, and the same for Python's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eruca.client.errors import UsageError
from tests.compat.clients import Clients, JavaClients, Letter, Pulled, PythonClients, Queue
from tests.compat.conftest import FILTERING, Cluster, Pair
from tests.compat.transcript import java_mqadmin
from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge, JudgeError

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]

MESSAGES: list[dict[str, str]] = [
    {"a": "5", "b": "x"},
    {"a": "6", "b": "it's"},
    {"a": "-1", "b": "-"},
    {"a": "5.5"},
    {"a": "many", "b": "x"},
    {"b": "x"},
    {"a": "2147483648", "c": "true"},
    {"a": "007", "b": "你好"},
    {},
]
EXPRESSIONS = [
    "a > 5",
    "a > 5.0",
    "a >= 5 AND b = 'x'",
    "a BETWEEN 5 AND 6",
    "a NOT BETWEEN 5 AND 6",
    "b IN ('x', 'it''s', '你好')",
    "b NOT IN ('x')",
    "a IS NULL",
    "a IS NOT NULL AND NOT b IS NULL",
    "a = 7 OR a = 'many'",
    "b = 'x' OR a > 5",
    "c = TRUE",
    "c <> FALSE",
    "a > 2147483647L",
    "TAGS = 'red'",
    "KEYS = 'k3'",
    "TRUE",
    "FALSE",
    "a",
    "a > 100000000000",
    "a = 5 nothing more is read",
]
WRONG = ["a > ", "a = NULL", "a BETWEEN 7 AND 3", "a != 5", "5", "b > 'x'"]


@pytest.fixture(scope="module")
def eruca_sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    with ErucaCluster(tmp_path_factory.mktemp("eruca-sql"), FILTERING) as cluster:
        yield cluster


CLIENTS = {"java4": "judge", "java5": "judge5", "python": "python"}


@pytest.fixture(params=[f"{cluster}-{clients}" for cluster in ("apache", "eruca") for clients in CLIENTS])
def filtering(request: pytest.FixtureRequest) -> Pair:
    cluster, name = request.param.split("-")
    found = request.getfixturevalue(CLIENTS[name])
    clients: Clients = found if isinstance(found, PythonClients) else JavaClients(found)
    return Pair(request.param, request.getfixturevalue(f"{cluster}_sql"), clients)


def letters(topic: str) -> list[Letter]:
    return [
        Letter(topic, b"%d" % number, tags="red" if number % 3 == 0 else "", keys=f"k{number}", properties=properties)
        for number, properties in enumerate(MESSAGES)
    ]


def numbers(messages: list[Any]) -> list[int]:
    return sorted(int(each.body) for each in messages)


# ---------------------------------------------------------------------- pulling


def pulls(cluster: Cluster, clients: Clients, topic: str, fresh: Fresh, expressions: list[str]) -> dict[str, Pulled]:
    """What one pull by each expression brings from a queue that holds all of MESSAGES."""
    queue = Queue(topic, "broker-a", 0)
    with clients.producer(fresh("producers"), cluster.address) as producer:
        for letter in letters(topic):
            producer.send([letter], "sync", queue)
    with clients.puller(fresh("group"), cluster.address) as puller:
        return {text: puller.pull(queue, 0, text, sql=True) for text in expressions}


@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_each_expression_brings_what_apache_brings(
    request: pytest.FixtureRequest,
    release: str,
    apache_sql: ApacheCluster,
    eruca_sql: ErucaCluster,
    judge: Judge,
    topic: MakeTopic,
    fresh: Fresh,
) -> None:
    clients = JavaClients(judge if release == "4.9.7" else request.getfixturevalue("judge5"))
    brought = []
    for cluster in (apache_sql, eruca_sql):
        name = topic(cluster, judge, 1)
        found = pulls(cluster, clients, name, fresh, EXPRESSIONS)
        brought.append({text: (got.status, got.next_offset, numbers(got.messages)) for text, got in found.items()})
    assert brought[1] == brought[0]


def test_a_wrong_expression_inside_a_pull(
    apache_sql: ApacheCluster, eruca_sql: ErucaCluster, judge: Judge, topic: MakeTopic, fresh: Fresh
) -> None:
    """Apache's broker gives every message, Eruca's refuses as Apache's check of a subscription does."""
    clients = JavaClients(judge)
    given = pulls(apache_sql, clients, topic(apache_sql, judge, 1), fresh, WRONG)
    assert [numbers(got.messages) for got in given.values()] == [list(range(len(MESSAGES)))] * len(WRONG)
    name = topic(eruca_sql, judge, 1)
    for wrong in WRONG:
        with pytest.raises(JudgeError, match="The SQL92 expression") as refused:
            pulls(eruca_sql, clients, name, fresh, [wrong])
        assert refused.value.code == 23


def test_words_of_5x_filter_too(eruca_sql: ErucaCluster, judge5: Judge, topic: MakeTopic, fresh: Fresh) -> None:
    expressions = ["b CONTAINS 't'''", "b STARTSWITH 'it'", "b NOT ENDSWITH 'x'", "a STARTSWITH '5' AND b CONTAINS 'x'"]
    name = topic(eruca_sql, judge5, 1)
    found = pulls(eruca_sql, JavaClients(judge5), name, fresh, expressions)
    assert [numbers(got.messages) for got in found.values()] == [[1], [1], [1, 2, 7], [0]]


# ---------------------------------------------------------------------- consuming


def test_a_member_gets_what_matches(filtering: Pair, judge: Judge, topic: MakeTopic, fresh: Fresh) -> None:
    name, group = topic(filtering.cluster, judge, 1), fresh("group")
    clients, address = filtering.clients, filtering.address

    with (
        clients.producer(fresh("producers"), address) as producer,
        clients.member(group, address, {name: "a > 5 AND b IS NOT NULL"}, sql=True) as member,
    ):
        producer.send(letters(name))
        assert numbers(member.received(2)) == [1, 7]
        for number in range(20):
            producer.send([Letter(name, b"%d" % number, properties={"a": str(number), "b": "x"})])
        assert numbers(member.received(14)) == list(range(6, 20))
        assert member.consumed(29) == 29
        assert member.received(0) == []


def test_a_member_of_python_at_a_broker_of_5(
    apache5: ApacheCluster, judge5: Judge, python: PythonClients, topic: MakeTopic, fresh: Fresh
) -> None:
    name, wanted = topic(apache5, judge5, 1), "a > 5 AND b IS NOT NULL"
    line = ("updateBrokerConfig", "-n", apache5.address, "-b", apache5.broker.address, "-k", "enablePropertyFilter")
    mqadmin = java_mqadmin(judge5)
    assert "success" in mqadmin((*line, "-v", "true")).stdout
    try:
        with (
            JavaClients(judge5).producer(fresh("producers"), apache5.address) as producer,
            python.member(fresh("group"), apache5.address, {name: wanted}, sql=True) as member,
            python.puller(fresh("group"), apache5.address) as puller,
        ):
            producer.send(letters(name))
            assert numbers(member.received(2)) == [1, 7]
            assert numbers(puller.pull(Queue(name, "broker-a", 0), 0, wanted, sql=True).messages) == [1, 7]
            assert member.consumed(len(MESSAGES)) == len(MESSAGES)
    finally:
        mqadmin((*line, "-v", "false"))


def test_a_member_with_a_wrong_expression_does_not_start(
    filtering: Pair, judge: Judge, topic: MakeTopic, fresh: Fresh
) -> None:
    name = topic(filtering.cluster, judge, 1)
    with (
        pytest.raises((JudgeError, UsageError)) as refused,
        filtering.clients.member(fresh("group"), filtering.address, {name: "a > "}, sql=True),
    ):
        pass
    if isinstance(refused.value, JudgeError):
        assert refused.value.code == 23
    if filtering.name.startswith("eruca"):
        assert "The SQL92 expression 'a > ' is wrong at position 5" in str(refused.value)


def test_a_broker_without_filters_says_so(cluster: Cluster, judge: Judge, topic: MakeTopic, fresh: Fresh) -> None:
    name = topic(cluster, judge, 1)
    with (
        pytest.raises(JudgeError, match="The broker does not support consumer to filter message by SQL92") as refused,
        JavaClients(judge).member(fresh("group"), cluster.address, {name: "a > 5"}, sql=True),
    ):
        pass
    assert refused.value.code == 1


# ---------------------------------------------------------------------- the file


def test_both_file_the_same(
    apache_sql: ApacheCluster, eruca_sql: ErucaCluster, judge: Judge, fresh: Fresh, topic: MakeTopic
) -> None:
    name, group = topic(apache_sql, judge, 1), fresh("group")
    both = []
    for cluster in (apache_sql, eruca_sql):
        judge.call("admin", line=["updateTopic", "-n", cluster.address, "-b", cluster.broker.address, "-t", name])
        file = cluster.broker.store / "config" / "consumerFilter.json"
        with JavaClients(judge).member(group, cluster.address, {name: "a > 5 OR b = 'x'"}, sql=True):
            cluster.broker.process.wait_until(partial(is_filed, file, name, group), "filter in the file")
        mine = filed(file, name, group)
        assert mine["bornTime"] > 0 and mine["clientVersion"] > 0 and not mine["dead"]
        both.append({**mine, "bornTime": 0, "clientVersion": 0})
    assert both[0] == both[1]


def is_filed(file: Path, topic: str, group: str) -> bool:
    return bool(filed(file, topic, group))


def filed(file: Path, topic: str, group: str) -> dict[str, Any]:
    """What consumerFilter.json holds of a group; nothing while it is not there or half written."""
    try:
        filters = json.loads(file.read_text())["filterDataByTopic"]
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    found: dict[str, Any] = filters.get(topic, {}).get("groupFilterData", {}).get(group, {})
    return found
