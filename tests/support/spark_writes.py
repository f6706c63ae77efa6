"""Transactional writes without Spark: epochs written as its tasks and driver would, by processes that may be killed.

A process that dies is a fork of this one: it writes an epoch like any other, and kills itself with SIGKILL at a request
to a broker or a name server, before it is sent or after it was answered. Spark would run the epoch again until its
commit returns, and so does whoever uses this.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from eruca.client.errors import ClientError
from eruca.client.sync import PullConsumer
from eruca.protocol.names import REAL_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from eruca.protocol.queues import MessageQueue
from eruca.spark_connector.sink import TaskCommit, commit_write, write_rows
from eruca.spark_connector.sink_options import SinkOptions, read_sink_options
from eruca.spark_connector.write.row_ids import Origin
from tests.support.requests import watch

TASKS = 2
ROWS_A_TASK = 4


def transactional(name_server: str, topic: str, markers: str, **options: str) -> SinkOptions:
    """Options of a transactional stream."""
    given = {"nameServer": name_server, "topic": topic, "markerTopic": markers, **options}
    return read_sink_options({**given, "delivery": "transactional"}, streaming=True)


def bodies_of(epoch: int) -> list[list[str]]:
    """The rows of an epoch, by task."""
    return [[f"{epoch}/{task}/{row}" for row in range(ROWS_A_TASK)] for task in range(TASKS)]


def write_tasks(options: SinkOptions, epoch: int, *, write: str = "query") -> list[TaskCommit]:
    """What the tasks of an epoch do."""
    return [
        write_rows(options, Origin(write, epoch, task), iter([pa.record_batch({"body": rows})]))
        for task, rows in enumerate(bodies_of(epoch))
    ]


def write_epoch(options: SinkOptions, epoch: int) -> None:
    """What Spark does with an epoch."""
    commit_write(options, write_tasks(options, epoch))


def count_requests(options: SinkOptions, epoch: int) -> int:
    """How many requests an epoch takes."""
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1

    with pytest.MonkeyPatch.context() as patch:
        watch(patch, count)
        write_epoch(options, epoch)
    return seen


def write_and_die(options: SinkOptions, epoch: int, request: int, *, answered: bool) -> bool:
    """Write an epoch in a process that is killed at that request; False when it came to its end before."""
    child = os.fork()
    if not child:
        try:
            _die_at(request, answered=answered)
            write_epoch(options, epoch)
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def _die_at(request: int, *, answered: bool) -> None:
    began = came = 0

    def leaving(*_: Any) -> None:
        nonlocal began
        began += 1
        if began == request and not answered:
            os.kill(os.getpid(), signal.SIGKILL)

    def back(*_: Any) -> None:
        nonlocal came
        came += 1
        if came == request and answered:
            os.kill(os.getpid(), signal.SIGKILL)

    watch(pytest.MonkeyPatch(), leaving, back)


def visible(name_server: str, queues: list[MessageQueue], least: int = 0) -> list[tuple[str, str]]:
    """Body and message id of all that consumers see, queue by queue, once it is so much.

    Apache shows a message a moment after it has acknowledged it.
    """
    found: dict[MessageQueue, list[tuple[str, str]]] = {queue: [] for queue in queues}
    places = dict.fromkeys(queues, 0)
    deadline = time.monotonic() + 60
    with PullConsumer(nameserver=name_server) as consumer:
        while True:
            for queue in queues:
                while places[queue] < consumer.max_offset(queue):
                    result = consumer.pull(queue, places[queue], 1024)
                    found[queue] += [(record.body.decode(), record.unique_key or "") for record in result.records]
                    places[queue] = result.next_offset
            if sum(map(len, found.values())) >= least or time.monotonic() > deadline:
                return [each for queue in queues for each in found[queue]]
            time.sleep(0.1)


def assert_epochs(found: list[tuple[str, str]], epochs: list[int], *, honouring: bool) -> None:
    """Each row of these epochs is there once; for consumers that drop message ids they had, if ``honouring``."""
    counted = Counter(body for body, _ in (set(found) if honouring else found))
    wanted = {body: 1 for epoch in epochs for rows in bodies_of(epoch) for body in rows}
    assert {body: count for body, count in counted.items() if count != 1} == {}
    assert sorted(counted) == sorted(wanted)


def wait_until_given_up(name_server: str, topic: str, count: int) -> None:
    """Wait until broker-a has given up so many half messages to a topic; it makes a topic of its own for them."""
    queue = MessageQueue(TRANS_CHECK_MAX_TIME_TOPIC, "broker-a", 0)
    deadline, there, at = time.monotonic() + 120, 0, 0
    with PullConsumer(nameserver=name_server) as consumer:
        while there < count:
            assert time.monotonic() < deadline, f"{there} of {count} half messages were given up"
            try:
                result = consumer.pull(queue, at, suspend=1.0)
            except ClientError:  # the topic is not there yet
                time.sleep(0.1)
                continue
            there += sum(record.properties.get(REAL_TOPIC) == topic for record in result.records)
            at = result.next_offset
