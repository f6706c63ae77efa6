"""The transactional sink: killed anywhere, two drivers, brokers that gave half_messages up, what retention took."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eruca.protocol import api
from eruca.remoting import Connection
from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.runtime.clients import ClusterClients
from eruca.spark_connector.sink import abort_write, commit_write, write_rows
from eruca.spark_connector.sink_options import SinkOptions
from eruca.spark_connector.write.half_messages import TransactionEnder
from eruca.spark_connector.write.row_ids import Origin
from tests.support.eruca import ErucaCluster
from tests.support.requests import watch
from tests.support.spark import PRODUCER_GROUP, Topic
from tests.support.spark_writes import (
    assert_epochs,
    bodies_of,
    count_requests,
    transactional,
    visible,
    wait_until_given_up,
    write_and_die,
    write_epoch,
    write_tasks,
)

TORTURE = bool(os.environ.get("ERUCA_TORTURE"))


@pytest.fixture
def markers(cluster: ErucaCluster, topic: Topic) -> Topic:
    made = Topic(cluster, f"{topic.name}_m", 1)
    made.close()
    return made


@pytest.fixture
def options(topic: Topic, markers: Topic) -> SinkOptions:
    return transactional(topic.name_server, topic.name, markers.name)


def test_killed_at_each_request_nothing_is_lost_and_nothing_comes_twice(topic: Topic, options: SinkOptions) -> None:
    requests = count_requests(options, 0)
    epochs = [0]
    for request, answered in itertools.product(range(1, requests + 1), (False, True)):
        epochs.append(len(epochs))
        write_and_die(options, epochs[-1], request, answered=answered)
        write_epoch(options, epochs[-1])

    assert requests > 20
    assert_epochs(visible(topic.name_server, topic.queues), epochs, honouring=False)


def test_killed_again_and_again(topic: Topic, options: SinkOptions) -> None:
    chance = random.Random(int(os.environ.get("ERUCA_SEED", "1")))
    epochs = range(200 if TORTURE else 10)
    for epoch in epochs:
        while write_and_die(options, epoch, chance.randint(1, 60), answered=chance.random() < 0.5):
            pass

    assert_epochs(visible(topic.name_server, topic.queues), list(epochs), honouring=False)


def test_of_two_drivers_the_first_marker_counts(topic: Topic, options: SinkOptions) -> None:
    of_one, of_other = write_tasks(options, 0), write_tasks(options, 0)

    commit_write(options, of_other)
    commit_write(options, of_one)
    commit_write(options, write_tasks(options, 0))

    assert_epochs(visible(topic.name_server, topic.queues), [0], honouring=False)


def test_nothing_of_an_epoch_is_seen_before_it_is_decided(topic: Topic, options: SinkOptions) -> None:
    first, second = write_tasks(options, 0)
    assert visible(topic.name_server, topic.queues) == []

    abort_write(options, [first, None])
    write_epoch(options, 0)
    abort_write(options, [first, second])

    assert_epochs(visible(topic.name_server, topic.queues), [0], honouring=False)


@pytest.mark.parametrize("ordered", [False, True])
def test_connections_that_break_again_and_again(
    topic: Topic, options: SinkOptions, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    """Many requests are under way then, stored or not: none is lost, none is there twice, and keys keep their order."""
    seen: Counter[int] = Counter()

    def breaks(connection: Connection, endpoint: api.Endpoint[Any, Any]) -> None:
        seen[endpoint.code] += 1
        if seen[endpoint.code] in (70, 150, 250):
            connection.abort()

    watch(monkeypatch, answered=breaks)
    rows = {"body": [str(n) for n in range(600)], **({"shardingKey": [n % 3 for n in range(600)]} if ordered else {})}
    commit_write(options, [write_rows(options, Origin("q", 0, 0), iter([pa.record_batch(rows)]))])

    assert min(seen[api.SEND_MESSAGE_V2.code], seen[api.END_TRANSACTION.code]) >= 250
    found = [int(body) for body, _ in visible(topic.name_server, topic.queues)]
    assert sorted(found) == list(range(600))
    for key in range(3 if ordered else 0):
        assert [each for each in found if each % 3 == key] == list(range(key, 600, 3))


def test_a_marker_topic_that_is_not_there_is_named(topic: Topic) -> None:
    with pytest.raises(SinkError, match=r"markerTopic nowhere is not there: make a topic .* -r 1 -w 1"):
        write_epoch(transactional(topic.name_server, topic.name, "nowhere"), 0)


def test_order_of_a_key_in_a_transaction(topic: Topic, options: SinkOptions) -> None:
    rows = pa.record_batch({"body": [str(n) for n in range(300)], "shardingKey": [n % 3 for n in range(300)]})
    commit_write(options, [write_rows(options, Origin("q", 0, 0), iter([rows]))])

    found = [int(body) for body, _ in visible(topic.name_server, topic.queues)]
    for key in range(3):
        assert [each for each in found if each % 3 == key] == list(range(key, 300, 3))


def test_in_a_namespace(cluster: ErucaCluster) -> None:
    """Topic and markers are the tenant's; an epoch that was killed in the middle is found again by its short names."""
    topic, markers = Topic(cluster, "tenant%paid", 2), Topic(cluster, "tenant%paid_m", 1)
    options = transactional(cluster.address, "paid", "paid_m", namespace="tenant")
    requests = count_requests(options, 0)
    for epoch, request in enumerate((requests // 3, requests // 2, requests - 1), 1):
        assert write_and_die(options, epoch, request, answered=True)
        write_epoch(options, epoch)

    assert_epochs(visible(cluster.address, topic.queues), [0, 1, 2, 3], honouring=False)
    topic.close()
    markers.close()


@pytest.fixture
def impatient(tmp_path: Path, fresh_clients: ClusterClients) -> Iterator[ErucaCluster]:
    """A cluster that asks once, soon, and gives a half message up then."""
    properties = {"transactionCheckInterval": "200", "transactionTimeOut": "100", "transactionCheckMax": "1"}
    with ErucaCluster(tmp_path, properties) as cluster:
        yield cluster


def test_what_was_decided_is_committed_though_the_broker_gave_it_up(
    impatient: ErucaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, markers = Topic(impatient, "late", 2), Topic(impatient, "late_m", 1)
    markers.send(0, b"a member of the group shows itself to the broker, which counts its checks then")
    options = transactional(impatient.address, "late", "late_m", producerGroup=PRODUCER_GROUP)

    async def fail(*args: object, **others: object) -> None:
        raise SinkError("the driver dies here")

    with monkeypatch.context() as patch, pytest.raises(SinkError, match="the driver dies here"):
        patch.setattr(TransactionEnder, "commit", fail)
        write_epoch(options, 0)
    wait_until_given_up(impatient.address, "late", sum(map(len, bodies_of(0))))

    assert visible(impatient.address, topic.queues) == []
    write_epoch(options, 0)
    assert_epochs(visible(impatient.address, topic.queues), [0], honouring=False)
    topic.close()
    markers.close()
