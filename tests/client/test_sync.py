"""The blocking face: the same calls from threads, and a clear error after a fork."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import eruca.client
from eruca.client import Message, PullTaskContext, SendStatus, sync
from eruca.client.errors import BadMessage, ForkedClient, StateError
from eruca.client.metrics import Prometheus


def test_send_pull_and_offsets(address: str) -> None:
    with sync.Producer("g", nameserver=address) as producer, sync.PullConsumer("g", nameserver=address) as puller:
        result = producer.send(Message("T", b"hello"))
        assert result.status is SendStatus.SEND_OK
        sends = [producer.start_send(Message("T", b"%d" % number)) for number in range(20)]
        assert {send.result(5).status for send in sends} == {SendStatus.SEND_OK}
        producer.send_batch([Message("T", b"a"), Message("T", b"b")])
        producer.send_oneway(Message("T", b"gone"), queue=result.queue)
        producer.send(Message("T", b"end"), queue=result.queue)
        queues = puller.fetch_queues("T")
        assert sum(puller.max_offset(queue) - puller.min_offset(queue) for queue in queues) == 25
        assert puller.pull(result.queue, 0).records[result.offset].body == b"hello"
        puller.update_offset(result.queue, 1)
        assert puller.query_offset(result.queue) == 1


def test_a_send_that_is_started_is_of_the_message_as_it_is_then(address: str) -> None:
    message, properties = Message("T", b""), {"number": ""}
    body: Any = bytearray(1)
    with sync.Producer("g", nameserver=address) as producer, sync.PullConsumer("g", nameserver=address) as puller:
        queue = producer.send(Message("T", b"first")).queue
        for number in range(5):
            message.body = b"%d" % number
            producer.start_send(message, queue=queue)
        for number in range(5, 10):
            body[0] = ord("0") + number
            properties["number"] = str(number)
            producer.start_send(message=Message("T", body, properties=properties), queue=queue)
        producer.flush()
        _, *records = puller.pull(queue, 0).records
    assert [record.body for record in records] == [b"%d" % number for number in range(10)]
    assert [record.properties.get("number") for record in records[5:]] == ["5", "6", "7", "8", "9"]


def test_errors_are_those_of_the_asynchronous_client(address: str) -> None:
    with sync.Producer("g", nameserver=address) as producer:
        with pytest.raises(BadMessage, match="the message body length is zero"):
            producer.send(Message("T", b""))
        with pytest.raises(StateError, match="maybe started once"):
            producer.start()


async def test_a_call_where_an_event_loop_runs_is_warned_of_at_its_line(address: str) -> None:
    """The loop stands still meanwhile. To make a client does not count: modules do so when they are imported."""
    producer = sync.Producer("g", nameserver=address)
    with pytest.warns(RuntimeWarning, match="A blocking client was called where an event loop runs") as warned:
        producer.start()
        producer.send(Message("T", b"x"))
        producer.stop()
    assert len(warned) == 3 and {warning.filename for warning in warned} == {__file__}


def test_a_listener_may_send(address: str) -> None:
    done = threading.Event()
    with sync.Producer("g", nameserver=address) as producer:
        producer.send(Message("T", b"ping"))

        def listener(message: eruca.client.ReceivedMessage) -> None:
            if message.topic == "T":
                producer.send(Message("Answers", b"pong"))
                done.set()

        with sync.PushConsumer("c", listener, nameserver=address).subscribe("T") as consumer:
            assert done.wait(10)
        with sync.PullConsumer(nameserver=address) as puller:
            assert sum(puller.max_offset(queue) for queue in puller.fetch_queues("Answers")) == 1
        consumer.stop()


def test_a_for_loop(address: str) -> None:
    with sync.Producer("g", nameserver=address) as producer:
        for number in range(10):
            producer.send(Message("T", b"%d" % number))
    got = []
    with sync.PushConsumer("c", nameserver=address).subscribe("T") as consumer:
        for message in consumer:
            got.append(message.body)
            if len(got) == 10:
                message.ack()
                break
    assert sorted(got) == [b"%d" % number for number in range(10)]
    with sync.PullConsumer("c", nameserver=address) as puller:
        stored = [puller.query_offset(queue) or 0 for queue in puller.fetch_queues("T")]
        assert sum(stored) == 10


def test_polling(address: str) -> None:
    with sync.Producer("g", nameserver=address) as producer:
        producer.create_topic("T", 1)
        for number in range(30):
            producer.send(Message("T", b"%d" % number))
    with sync.LitePullConsumer("c", nameserver=address, start_from="first").subscribe("T") as consumer:
        assert consumer.is_running
        got = [int(message.body) for message in consumer.poll(10)]
        for batch in consumer.batches():
            got += [int(message.body) for message in batch]
            if len(got) == 20:
                break
        for message in consumer:
            got.append(int(message.body))
            if len(got) == 30:
                break
        assert got == list(range(30))
        (queue,) = consumer.assignment()
        consumer.seek(queue, 25)
        assert [int(message.body) for message in consumer.poll(10)] == [25, 26, 27, 28, 29]
        consumer.commit_sync()
        assert consumer.committed(queue) == 30


def test_callbacks_on_schedule(address: str) -> None:
    with sync.Producer("g", nameserver=address) as producer:
        producer.create_topic("T", 1)
        producer.send(Message("T", b"x"))
    got: list[bytes] = []
    done = threading.Event()

    def callback(queue: eruca.client.MessageQueue, context: PullTaskContext[sync.PullConsumer]) -> None:
        result = context.pull_consumer.pull(queue, len(got))
        got.extend(record.body for record in result.records)
        context.pull_next_delay_time = 0.01
        if got:
            done.set()

    with sync.PullScheduleService("c", nameserver=address).register_pull_task_callback("T", callback) as service:
        assert done.wait(10)
        assert [queue.queue_id for queue in service.queues] == [0]
    assert got == [b"x"]


def test_the_blocking_clients_have_every_call_of_the_others() -> None:
    inner = {"session", "in_flight", "under_way", "offset_store"}
    kinds = ("Producer", "TransactionProducer", "PullConsumer", "PushConsumer", "LitePullConsumer")
    for name in (*kinds, "PullScheduleService"):
        kind, blocking = getattr(eruca.client, name), getattr(sync, name)
        calls = [each for each in dir(kind) if each[0] != "_" and each not in inner]
        calls = [each for each in calls if callable(getattr(kind, each)) or isinstance(getattr(kind, each), property)]
        assert [each for each in calls if not hasattr(blocking, each)] == [] and len(calls) > 12
        assert inspect.signature(blocking) == inspect.signature(kind), "what an editor and help() show"


def test_a_call_in_the_clients_own_loop_would_wait_for_itself(address: str) -> None:
    told: list[str] = []
    done = threading.Event()
    with sync.Producer("g", nameserver=address) as producer:
        producer.send(Message("T", b"x"))

        async def listener(message: eruca.client.ReceivedMessage) -> None:
            try:
                producer.send(Message("T2", b"y"))
            except StateError as error:
                told.append(str(error))
            done.set()

        with sync.PushConsumer("c", listener, nameserver=address).subscribe("T"):
            assert done.wait(10)
    assert "would wait for itself: use the asynchronous client" in told[0]


def test_after_a_fork_the_child_is_told_and_can_begin_anew(address: str) -> None:
    with sync.Producer("g", nameserver=address) as producer:
        producer.send(Message("T", b"parent"))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                producer.send(Message("T", b"child"))
                os.write(writer, b"sent")
            except ForkedClient as error:
                with sync.Producer("g", nameserver=address) as own:
                    own.send(Message("T", b"child's own"))
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        said = os.read(reader, 1000).decode()
        os.close(reader)
        assert said.startswith("This client was made before a fork") and "Make the client in the process" in said
        assert producer.send(Message("T", b"parent still")).status is SendStatus.SEND_OK


def test_a_child_that_leaves_the_block_of_its_parent_ends_as_it_wants(address: str) -> None:
    with sync.Producer("g", nameserver=address) as producer:
        producer.send(Message("T", b"parent"))
        child = os.fork()
        if child == 0:
            try:
                producer.stop()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert producer.send(Message("T", b"parent")).status is SendStatus.SEND_OK


BEFORE, AFTER = "from eruca.client import sync", "atexit.register(close)"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("order", "said"),
    [
        ((BEFORE, AFTER), "sent\nstopped\n"),
        (
            (AFTER, BEFORE),
            "The interpreter is ending, and this client with it: use it before, and stop it by `with`.\nstopped\n",
        ),
    ],
    ids=["imported first", "registered first"],
)
def test_an_exit_function_that_stops_a_client_does_not_hang(address: str, order: tuple[str, str], said: str) -> None:
    program = f"""
import atexit, sys
from eruca.client import Message
from eruca.client.errors import StateError

def close():
    try:
        producer.send(Message("T", b"the last one"))
        print("sent")
    except StateError as error:
        print(error)
    producer.stop()
    print("stopped")

{order[0]}
{order[1]}
producer = sync.Producer("g", nameserver=sys.argv[1])
producer.start()
producer.send(Message("T", b"one"))
"""
    command = [sys.executable, "-c", program, address]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == said


def test_clients_can_be_told_from_one_another() -> None:
    address = "127.0.0.1:1"
    clients: list[object] = [
        eruca.client.Producer("g", nameserver=address),
        eruca.client.PushConsumer("g", nameserver=address),
        sync.Producer("g", nameserver=address),
        sync.LitePullConsumer("g", nameserver=address),
        eruca.client.App(nameserver=address),
    ]
    assert [repr(each) for each in clients] == [
        "<Producer g>",
        "<PushConsumer g: nothing subscribed; not started>",
        "<sync.Producer g>",
        "<sync.LitePullConsumer g: nothing subscribed; not started>",
        "<App>",
    ]


def test_a_consumer_shows_its_topics_and_what_it_is_doing(address: str) -> None:
    with sync.Producer("p", nameserver=address) as producer:
        producer.send(eruca.client.Message("T", b"x"))
    consumer = sync.PushConsumer("g", print, nameserver=address).subscribe("T").subscribe("Later")
    assert repr(consumer) == "<sync.PushConsumer g: Later, T; not started>"
    with consumer:
        assert repr(consumer) == "<sync.PushConsumer g: Later, T; running with 4 queues>"
    assert repr(consumer) == "<sync.PushConsumer g: Later, T; stopped>"


def test_hooks_and_lag(address: str) -> None:
    registry = CollectorRegistry()
    metrics, done = Prometheus(registry), threading.Event()
    with sync.Producer("p", nameserver=address) as producer:
        producer.add_hook(metrics)
        producer.send(Message("T", b"x"))
    consumer = sync.PushConsumer("g", lambda message: done.set(), nameserver=address, trace=True).subscribe("T")
    consumer.add_hook(metrics)
    metrics.watch(consumer)
    with consumer:
        assert done.wait(20)
    assert sum(row.difference or 0 for row in sync.lag("g", "T", nameserver=address)) == 0
    labels = {"group": "g", "topic": "T"}
    assert registry.get_sample_value("rocketmq_client_consume_seconds_count", labels) == 1
    assert registry.get_sample_value("rocketmq_client_sent_bytes_total", {"group": "p", "topic": "T"}) == 1


def test_a_program_that_does_nothing_else_waits_for_the_stop(address: str) -> None:
    with sync.PushConsumer("g", lambda message: None, nameserver=address).subscribe("T") as consumer:
        ended = threading.Thread(target=consumer.wait)
        ended.start()
        consumer.stop()
        ended.join(10)
        assert not ended.is_alive()
