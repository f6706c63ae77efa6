"""Figures for Prometheus."""

from __future__ import annotations

import asyncio
import math
import re
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eruca.client import (
    Later,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    QueueLag,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from eruca.client.errors import BadConfig, BrokerRefused, TopicNotFound
from eruca.client.metrics import Prometheus
from tests.client.conftest import Lab, eventually
from tests.support.examples import DOCS
from tests.support.scripted import Scripted

RESULTS = ("SEND_OK", "ONEWAY", "ERROR")


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"rocketmq_client_{name}", labels)


async def test_what_is_sent(lab: Lab) -> None:
    registry = CollectorRegistry()
    async with Producer("p", nameserver=lab.address, hooks=[Prometheus(registry)]) as producer:
        await producer.send(Message("T", b"12345"))
        await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        await producer.send_oneway(Message("T", b"1"))
    async with Scripted() as server:
        server.knows("T", server)
        server.answers.append(13)
        async with Producer("p", nameserver=server.address, hooks=[Prometheus(registry)]) as producer:
            with pytest.raises(BrokerRefused):
                await producer.send(Message("T", b"1"))
    sent = {each: value(registry, "sent_messages_total", group="p", topic="T", result=each) for each in RESULTS}
    assert sent == {"SEND_OK": 3, "ONEWAY": 1, "ERROR": 1}
    assert value(registry, "send_seconds_count", group="p", topic="T") == 4


async def test_what_no_nameserver_knows_counts_as_an_error() -> None:
    registry = CollectorRegistry()
    async with Scripted() as server, Producer("p", nameserver=server.address, hooks=[Prometheus(registry)]) as producer:
        with pytest.raises(TopicNotFound):
            await producer.send(Message("Nowhere", b"12345"))
    assert value(registry, "sent_messages_total", group="p", topic="Nowhere", result="ERROR") == 1
    assert not value(registry, "sent_bytes_total", group="p", topic="Nowhere")


async def test_what_is_consumed_and_what_waits(lab: Lab) -> None:
    release = asyncio.Event()

    async def listener(message: ReceivedMessage) -> Later | None:
        await release.wait()
        return Later() if message.body == b"later" else None

    registry = CollectorRegistry()
    metrics = Prometheus(registry)
    await lab.send("T", b"ok", b"ok", b"later", b"ok")
    consumer = PushConsumer("g", listener, nameserver=lab.address, hooks=[metrics]).subscribe("T")
    metrics.watch(consumer)
    async with consumer:
        await eventually(lambda: value(registry, "waiting_messages", group="g", topic="T") == 4)
        assert (value(registry, "waiting_bytes", group="g", topic="T") or 0) > 100
        release.set()
        await eventually(lambda: value(registry, "consume_seconds_count", group="g", topic="T") == 4)
    assert value(registry, "consumed_messages_total", group="g", topic="T", result="SUCCESS") == 3
    assert value(registry, "consumed_messages_total", group="g", topic="T", result="FAILED") == 1


async def test_transactions(lab: Lab) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    registry = CollectorRegistry()
    hooks = [Prometheus(registry)]
    async with TransactionProducer("p", check, nameserver=lab.address, hooks=hooks) as producer:
        await producer.send_in_transaction(Message("T", b"x"), lambda _, __: TransactionState.COMMIT)
    assert value(registry, "transactions_total", group="p", topic="T", state="COMMIT") == 1


def test_an_unknown_lag_is_not_a_number() -> None:
    registry = CollectorRegistry()
    queue = MessageQueue("T", "broker-a", 0)
    labels = {"group": "g", "topic": "T", "broker": "broker-a", "queue": "0"}
    metrics = Prometheus(registry)
    metrics.show_lag("g", [QueueLag(queue, 10, 4, 2.5)])
    assert (value(registry, "lag_messages", **labels), value(registry, "lag_seconds", **labels)) == (6, 2.5)
    metrics.show_lag("g", [QueueLag(queue, 10, None, None)])
    assert math.isnan(value(registry, "lag_messages", **labels) or 0)
    assert b'rocketmq_client_lag_seconds{broker="broker-a",group="g",queue="0",topic="T"} NaN' in generate_latest(
        registry
    )


def test_without_prometheus_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(BadConfig, match="not installed: run `pip install"):
        Prometheus()


def test_the_metrics_are_those_of_the_page() -> None:
    registry = CollectorRegistry()
    Prometheus(registry)
    names = {family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()}
    assert names == set(re.findall(r"`(rocketmq_client_\w+)`", (DOCS / "observability.md").read_text()))
