"""What the sink's tasks and driver do, on Apache's brokers: batches, and transactions that are killed anywhere.

Apache delivers twice what it is told twice to commit, so here the consumer drops message ids that it has had.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from eruca.spark_connector.errors import SinkError
from eruca.spark_connector.sink import write_rows
from eruca.spark_connector.sink_options import read_sink_options
from eruca.spark_connector.write.half_messages import TransactionEnder
from eruca.spark_connector.write.row_ids import Origin
from tests.support.apache import ApacheCluster
from tests.support.spark import Topic
from tests.support.spark_writes import (
    ROWS_A_TASK,
    TASKS,
    assert_epochs,
    count_requests,
    transactional,
    visible,
    wait_until_given_up,
    write_and_die,
    write_epoch,
)

IMPATIENT = {"transactionCheckInterval": "1000", "transactionTimeOut": "500", "transactionCheckMax": "1"}


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def impatient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """A broker that asks once about a half message, soon, and gives it up then."""
    with ApacheCluster(request.param, tmp_path_factory.mktemp("impatient"), IMPATIENT) as cluster:
        yield cluster


def test_batches_are_stored_once_and_keys_in_order(impatient: ApacheCluster) -> None:
    topic = Topic(impatient, "batches", 4)
    options = read_sink_options({"nameServer": impatient.address, "topic": "batches"}, streaming=True)
    rows = pa.record_batch({"body": [str(n) for n in range(5000)], "shardingKey": [n % 9 for n in range(5000)]})

    write_rows(options, Origin("query", 0, 0), iter([rows, rows.select(["body"])]))

    found = Counter(body for body, _ in visible(impatient.address, topic.queues, 10_000))
    assert found == {str(n): 2 for n in range(5000)}
    keyed = pa.record_batch({"body": [f"k{n}" for n in range(5000)], "shardingKey": [n % 9 for n in range(5000)]})
    write_rows(options, Origin("query", 1, 0), iter([keyed]))
    order = [int(body[1:]) for body, _ in visible(impatient.address, topic.queues, 15_000) if body[0] == "k"]
    for key in range(9):
        assert [n for n in order if n % 9 == key] == list(range(key, 5000, 9))
    topic.close()


def test_killed_at_any_request_nothing_is_lost_and_nothing_comes_twice(impatient: ApacheCluster) -> None:
    topic, markers = Topic(impatient, "killed", 4), Topic(impatient, "killed_m", 1)
    options = transactional(impatient.address, "killed", "killed_m")
    requests = count_requests(options, 0)
    epochs = [0]

    for request, answered in itertools.product(range(1, requests + 1), (False, True)):
        epochs.append(len(epochs))
        write_and_die(options, epochs[-1], request, answered=answered)
        write_epoch(options, epochs[-1])

    found = visible(impatient.address, topic.queues, len(epochs) * TASKS * ROWS_A_TASK)
    print(f"{len(epochs)} epochs, {len(found) - len(set(found))} messages delivered twice under their old id")
    assert_epochs(found, epochs, honouring=True)
    topic.close()
    markers.close()


def test_what_was_decided_is_committed_though_the_broker_gave_it_up(
    impatient: ApacheCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, markers = Topic(impatient, "late", 2), Topic(impatient, "late_m", 1)
    options = transactional(impatient.address, "late", "late_m")

    async def fail(*args: object, **others: object) -> None:
        raise SinkError("the driver dies here")

    with monkeypatch.context() as patch, pytest.raises(SinkError, match="the driver dies here"):
        patch.setattr(TransactionEnder, "commit", fail)
        write_epoch(options, 0)
    wait_until_given_up(impatient.address, "late", TASKS * ROWS_A_TASK)

    assert visible(impatient.address, topic.queues) == []
    write_epoch(options, 0)
    assert_epochs(visible(impatient.address, topic.queues, TASKS * ROWS_A_TASK), [0], honouring=True)
    topic.close()
    markers.close()
