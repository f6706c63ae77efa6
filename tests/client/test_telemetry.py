"""OpenTelemetry: spans by the conventions for messaging, one trace from the producer to the consumer, and figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from eruca.client import (
    ClientSettings,
    Later,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    TransactionProducer,
    TransactionState,
)
from eruca.client.errors import BadConfig, BrokerRefused, TopicNotFound
from eruca.client.telemetry import OpenTelemetry
from tests.client.conftest import Lab, Seen, eventually
from tests.support.scripted import Scripted


class Watching:
    """Keeps what is told to OpenTelemetry."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.hook = OpenTelemetry(self.provider, self.meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def figures(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def watching() -> Iterator[Watching]:
    watching = Watching()
    yield watching
    watching.provider.shutdown()
    watching.meters.shutdown()


async def test_one_trace_from_the_producer_to_the_listener(lab: Lab, watching: Watching) -> None:
    inside: list[int] = []

    async def coroutine(message: ReceivedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    def function(message: ReceivedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    async with Producer("p", nameserver=lab.address, hooks=[watching.hook]) as producer:
        with watching.provider.get_tracer("test").start_as_current_span("order"):
            sent = await producer.send(Message("T", b"body", tags="a", keys=["k1", "k2"]))
        address = await producer.session.master("broker-a")
    for group, listener in (("g1", coroutine), ("g2", function)):
        async with PushConsumer(group, listener, nameserver=lab.address, hooks=[watching.hook]).subscribe("T"):
            await eventually(lambda number=group: len(watching.spans("process T")) == int(number[1]))  # type: ignore[misc]
    [order], [send], processed = watching.spans("order"), watching.spans("send T"), watching.spans("process T")
    assert send.kind is trace.SpanKind.PRODUCER and send.parent == order.context
    host, _, port = address.partition(":")
    assert send.attributes is not None and send.context is not None
    assert dict(send.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": str(sent.queue.queue_id),
        "messaging.client.id": send.attributes["messaging.client.id"],
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "a",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "server.address": host,
        "server.port": int(port),
    }
    for span, group in zip(processed, ("g1", "g2"), strict=True):
        assert span.kind is trace.SpanKind.CONSUMER and span.parent is not None and span.context is not None
        assert span.parent.span_id == send.context.span_id and span.context.trace_id == send.context.trace_id
        assert [link.context.span_id for link in span.links] == [send.context.span_id]
        assert span.attributes is not None and span.attributes["messaging.consumer.group.name"] == group
        assert span.attributes["messaging.operation.type"] == "process"
        assert span.attributes["messaging.rocketmq.consumption_model"] == "clustering"
    assert inside == [span.context.span_id for span in processed if span.context is not None]


async def test_a_batch_is_linked(lab: Lab, watching: Watching, seen: Seen) -> None:
    async def listener(messages: list[ReceivedMessage]) -> Later:
        for message in messages:
            seen.add(message)
        return Later()

    async with Producer("p", nameserver=lab.address, hooks=[watching.hook]) as producer:
        await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
    async with PushConsumer(
        "g", listener, nameserver=lab.address, consume_message_batch_max_size=8, hooks=[watching.hook]
    ).subscribe("T"):
        await eventually(lambda: len(watching.spans("process T")) == 1)
    [send], [process] = watching.spans("send T"), watching.spans("process T")
    assert send.attributes is not None and send.attributes["messaging.batch.message_count"] == 2
    assert send.context is not None and process.parent is None
    assert [link.context.trace_id for link in process.links] == [send.context.trace_id] * 2
    assert not process.status.is_ok and process.attributes is not None
    assert process.attributes["error.type"] == "RECONSUME_LATER"
    traceparent = seen.messages[0].properties["traceparent"]
    assert traceparent.startswith(f"00-{send.context.trace_id:032x}-{send.context.span_id:016x}-")


async def test_a_loop_has_the_context_at_hand(lab: Lab, watching: Watching) -> None:
    async with Producer("p", nameserver=lab.address, hooks=[watching.hook]) as producer:
        await producer.send(Message("T", b"x"))
    async with PushConsumer("g", nameserver=lab.address, hooks=[watching.hook]).subscribe("T") as consumer:
        message = await anext(consumer.messages(auto_ack=False))
        assert not trace.get_current_span().get_span_context().is_valid
        [send] = watching.spans("send T")
        came = trace.get_current_span(watching.hook.context_of(message)).get_span_context()
        assert send.context is not None and came.span_id == send.context.span_id
        message.ack()
    assert len(watching.spans("process T")) == 1


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("reject", [False, True])
async def test_the_span_of_a_dead_letter_has_their_number(
    lab: Lab, watching: Watching, caplog: pytest.LogCaptureFixture, orderly: bool, reject: bool
) -> None:
    async def give_up(message: ReceivedMessage) -> Any:
        if reject:
            return Reject("no such street")
        raise ValueError("no such street")

    await lab.send("T", b"x")
    async with PushConsumer(
        "g",
        give_up,
        nameserver=lab.address,
        start_from="first",
        hooks=[watching.hook],
        orderly=orderly,
        max_reconsume_times=0,
    ).subscribe("T"):
        await eventually(lambda: bool(watching.spans("process T")))
    [span] = watching.spans("process T")
    assert span.attributes is not None and span.attributes["messaging.rocketmq.dead_letters"] == 1
    assert "ended span" not in caplog.text


async def test_what_fails_is_told(server: Scripted, watching: Watching) -> None:
    server.answers.append(13)
    async with Producer("p", nameserver=server.address, hooks=[watching.hook]) as producer:
        with pytest.raises(BrokerRefused):
            await producer.send(Message("T", b"x"))
    [send] = watching.spans("send T")
    assert send.status.status_code is trace.StatusCode.ERROR and send.events[0].name == "exception"
    assert send.attributes is not None and send.attributes["error.type"] == "BrokerRefused"


async def test_a_send_without_a_route_is_told_with_the_time_that_it_took(watching: Watching) -> None:
    async with Scripted() as server, Producer("p", nameserver=server.address, hooks=[watching.hook]) as producer:
        with pytest.raises(TopicNotFound):
            await producer.send(Message("T", b"x"))
    [send], figures = watching.spans("send T"), watching.figures()
    assert send.attributes is not None and send.attributes["error.type"] == "TopicNotFound"
    assert send.start_time is not None and send.end_time is not None and send.start_time < send.end_time
    assert "messaging.client.sent.messages" not in figures, "nothing was sent"
    [point] = figures["messaging.client.operation.duration"]
    assert point.attributes["error.type"] == "TopicNotFound" and point.attributes["messaging.operation.type"] == "send"


async def test_a_batch_has_no_part_in_the_trace_of_who_started_the_consumer(
    lab: Lab, watching: Watching, seen: Seen
) -> None:
    async def listener(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            seen.add(message)

    await lab.producer.send_batch([Message("T", b"1"), Message("T", b"2")])
    with watching.provider.get_tracer("test").start_as_current_span("startup"):
        async with PushConsumer(
            "g", listener, nameserver=lab.address, consume_message_batch_max_size=8, hooks=[watching.hook]
        ).subscribe("T"):
            await eventually(lambda: bool(watching.spans("process T")))
    assert watching.spans("process T")[0].parent is None


async def test_tenants_and_times(lab: Lab, watching: Watching, seen: Seen) -> None:
    settings = ClientSettings(namespace="MQ_INST_1", nameserver=lab.address)
    async with Producer("p", settings=settings, hooks=[watching.hook]) as producer:
        await producer.send(Message("T", b"x", deliver_at=1_700_000_000_000))
        await producer.send(Message("T", b"x", delay=3600))
    async with PushConsumer(
        "g", seen.coroutine, start_from="first", settings=settings, hooks=[watching.hook]
    ).subscribe("T"):
        await eventually(lambda: bool(watching.spans("process T")))
    spans = [*watching.spans("send T"), *watching.spans("process T")]
    assert [(each.attributes or {})["messaging.rocketmq.namespace"] for each in spans] == ["MQ_INST_1"] * 3
    at, after, _ = ((each.attributes or {}).get("messaging.rocketmq.message.delivery_timestamp", 0) for each in spans)
    assert at == 1_700_000_000_000 and isinstance(after, int) and after > time.time() * 1000 + 3_000_000


async def test_transactions_and_figures(lab: Lab, watching: Watching, seen: Seen) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with TransactionProducer("p", check, nameserver=lab.address, hooks=[watching.hook]) as producer:
        await producer.send_in_transaction(Message("T", b"x"), lambda _, __: TransactionState.COMMIT)
        await producer.send(Message("T", b"x", delay_level=1))
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, hooks=[watching.hook]).subscribe("T"):
        await seen.reaches(1)
        await eventually(lambda: bool(watching.spans("process T")))
    [end] = watching.spans("end_transaction T")
    assert end.attributes is not None and end.attributes["messaging.rocketmq.transaction.state"] == "commit"
    kinds = [span.attributes["messaging.rocketmq.message.type"] for span in watching.spans("send T") if span.attributes]
    assert kinds == ["transaction", "delay"]
    figures = watching.figures()
    assert [point.value for point in figures["messaging.client.sent.messages"]] == [2]
    assert [point.count for point in figures["messaging.client.operation.duration"]] == [2]
    [consumed], [process] = figures["messaging.client.consumed.messages"], figures["messaging.process.duration"]
    assert consumed.attributes["messaging.consumer.group.name"] == "g" and process.explicit_bounds[0] == 0.005


def test_without_opentelemetry_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(BadConfig, match=r'not installed: run `pip install "eruca-client\[opentelemetry\]"`'):
        OpenTelemetry()
