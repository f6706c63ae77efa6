"""FastStream's middlewares for OpenTelemetry and Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from eruca.faststream import RocketMQBroker, TestRocketMQBroker
from eruca.faststream.opentelemetry import RocketMQTelemetryMiddleware
from eruca.faststream.prometheus import RocketMQPrometheusMiddleware
from tests.faststream.conftest import Seen


async def test_spans_of_a_send_and_of_its_handler_are_one_trace() -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    broker = RocketMQBroker(middlewares=[RocketMQTelemetryMiddleware(tracer_provider=provider)])

    @broker.subscriber("orders")
    async def cook(number: int) -> None: ...

    @broker.subscriber("lists", batch=True)
    async def cook_all(numbers: list[int]) -> None: ...

    async with TestRocketMQBroker(broker) as test:
        await test.publish(7, "orders", tags="new", keys="k")
        await test.publish_batch(1, 2, topic="lists")
    found = {span.name: span for span in spans.get_finished_spans()}
    send, handled = found["orders publish"], found["orders process"]
    assert handled.context is not None and send.context is not None
    assert handled.context.trace_id == send.context.trace_id
    assert handled.attributes is not None
    assert handled.attributes["messaging.system"] == "rocketmq"
    assert handled.attributes["messaging.rocketmq.message.tag"] == "new"
    assert found["lists process"].attributes is not None
    assert found["lists process"].attributes["messaging.batch.message_count"] == 2


async def test_messages_are_counted() -> None:
    registry = CollectorRegistry()
    broker = RocketMQBroker(middlewares=[RocketMQPrometheusMiddleware(registry=registry, app_name="shop")])

    @broker.subscriber("orders")
    async def cook(number: int) -> None: ...

    async with TestRocketMQBroker(broker) as test:
        await test.publish(7, "orders")
    labels = {"app_name": "shop", "broker": "rocketmq"}
    assert registry.get_sample_value("faststream_received_messages_total", {**labels, "handler": "orders"}) == 1
    assert (
        registry.get_sample_value(
            "faststream_published_messages_total", {**labels, "destination": "orders", "status": "success"}
        )
        == 1
    )


@pytest.fixture
def access_log() -> Iterator[None]:
    """Afterwards the log of FastStream's brokers is as it was."""
    logger = logging.getLogger("faststream.access.rocketmq")
    handlers, filters = logger.handlers[:], logger.filters[:]
    yield
    logger.handlers[:], logger.filters[:] = handlers, filters


@pytest.mark.usefixtures("access_log")
async def test_the_log_tells_messages_of_one_producer_apart(
    address: str, topic: str, seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = RocketMQBroker(address, group="shop")

    @broker.subscriber(topic)
    async def cook(number: int) -> None:
        seen(number)

    async with broker:
        await broker.start()
        sent = [await broker.publish(number, topic) for number in range(2)]
        await seen.reaches(2)
    lines = capsys.readouterr().out.splitlines()
    for result in sent:
        assert result is not None
        assert [line for line in lines if result.message_id in line and line.endswith("- Received")]
