"""`opentelemetry-instrument`: the entry point is found, and every client of the process is watched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from eruca.client import Hook, Message, Producer, PushConsumer
from eruca.client.hooks import SendContext
from eruca.client.telemetry import NAME, SCHEMA, OpenTelemetry
from eruca.remoting.version import version
from tests.client.conftest import Lab, Seen

pytest.importorskip("opentelemetry.instrumentation", reason="opentelemetry-instrumentation is not installed")


class Instrumented:
    """The process, instrumented, and its spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        [entry] = [each for each in entry_points(group="opentelemetry_instrumentor") if each.name == "eruca"]
        self.instrumentor: Any = entry.load()()

    def spans(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]


@pytest.fixture
def instrumented() -> Iterator[Instrumented]:
    made = Instrumented()
    made.instrumentor.instrument(tracer_provider=made.provider)
    yield made
    if made.instrumentor.is_instrumented_by_opentelemetry:
        made.instrumentor.uninstrument()
    made.provider.shutdown()


async def test_clients_are_watched_without_a_word_in_the_program(
    lab: Lab, seen: Seen, instrumented: Instrumented
) -> None:
    async with (
        Producer("p", nameserver=lab.address) as producer,
        PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"),
    ):
        await producer.send(Message("T", b"x"))
        await seen.reaches(1)
    assert sorted(instrumented.spans()) == ["process T", "send T"]
    span = instrumented.exporter.get_finished_spans()[0]
    assert span.instrumentation_scope is not None
    scope = span.instrumentation_scope
    assert (scope.name, scope.version, scope.schema_url) == (NAME, version(), SCHEMA)

    instrumented.instrumentor.uninstrument()
    instrumented.exporter.clear()
    async with Producer("p", nameserver=lab.address) as producer:
        await producer.send(Message("T", b"x"))
    assert instrumented.spans() == []


async def test_a_client_with_its_own_is_watched_once(lab: Lab, instrumented: Instrumented) -> None:
    async with Producer("p", nameserver=lab.address, hooks=[OpenTelemetry(instrumented.provider)]) as producer:
        await producer.send(Message("T", b"x"))
    assert instrumented.spans() == ["send T"]


async def test_a_refused_send_has_a_span(lab: Lab, instrumented: Instrumented) -> None:
    class Guard(Hook):
        def check_forbidden(self, context: SendContext) -> None:
            raise PermissionError("not this topic")

    async with Producer("p", nameserver=lab.address, hooks=[Guard()]) as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(PermissionError):
                await send(Message("T", b"x"))
    spans = instrumented.exporter.get_finished_spans()
    assert [(span.name, dict(span.attributes or {})["error.type"]) for span in spans] == [
        ("send T", "PermissionError")
    ] * 2


async def test_the_span_of_a_consumption_names_the_broker_and_the_try(
    lab: Lab, seen: Seen, instrumented: Instrumented
) -> None:
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
        await lab.send("T", b"x")
        await seen.reaches(1)
    [span] = instrumented.exporter.get_finished_spans()
    attributes = dict(span.attributes or {})
    assert f"{attributes['server.address']}:{attributes['server.port']}" == lab.cluster.broker.address
    assert attributes["messaging.rocketmq.message.delivery_attempt"] == 1


@pytest.mark.processes
def test_the_command_finds_it() -> None:
    program = (
        "from eruca.client.instrumentor import ErucaInstrumentor\n"
        "print(ErucaInstrumentor().is_instrumented_by_opentelemetry)"
    )
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    run = subprocess.run([command, sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout == "True\n", run.stderr
