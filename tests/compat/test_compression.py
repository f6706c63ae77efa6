"""Compressed bodies in every format: Java reads ours, and we read Java's, with the Spark source too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from eruca.client import ClientSettings, Message, MessageQueue, Producer, PullConsumer, ReceivedMessage
from eruca.protocol.compression import BITS, KINDS, Kind
from eruca.spark_connector.read.decoder import Decoder
from eruca.spark_connector.read.spans import Chunk
from tests.compat.clients import JavaClients, JavaProducer, Letter, PythonClients, Queue, drain
from tests.compat.conftest import Cluster
from tests.support.java import Judge

MakeTopic = Callable[[Any, Judge, int], str]
TEXT = "The quick brown fox, Größe 大きさ 🥬. ".encode() * 9000
"""Larger than one block of an LZ4 frame."""


@pytest.fixture(params=["judge", "judge5"])
def java(request: pytest.FixtureRequest) -> Judge:
    """Java's clients of 4.9.7 and 5.3.3: both know the three formats."""
    found: Judge = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_java_reads_ours(
    kind: Kind, java: Judge, apache: Cluster, judge: Judge, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name = topic(apache, judge, 1)
    settings = ClientSettings(nameserver=apache.address, compression=kind)
    async with Producer(fresh("producers"), settings=settings) as producer:
        await producer.send(Message(name, TEXT, tags="T"))

    with JavaClients(java).puller(fresh("readers"), apache.address) as puller:
        (seen,) = drain(puller, name)

    assert seen.body == TEXT
    assert seen.sys_flag & 0x700 == BITS[kind] & 0x700


@pytest.mark.parametrize("kind", KINDS)
async def test_we_read_javas(
    kind: Kind, java: Judge, apache: Cluster, judge: Judge, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name = topic(apache, judge, 1)
    made = fresh("producer")
    java.call("producer", name=made, group=fresh("producers"), namesrv=apache.address, compressType=kind.upper())
    try:
        JavaProducer(java, made).send([Letter(name, TEXT)], queue=Queue(name, "broker-a", 0))
    finally:
        java.call("stop", name=made)

    queue = MessageQueue(name, "broker-a", 0)
    async with PullConsumer(nameserver=apache.address) as puller:
        pulled = await puller.pull(queue, 0)
    (record,) = pulled.records
    assert record.sys_flag == BITS[kind]
    assert ReceivedMessage(record, queue).body == TEXT
    batch = Decoder(pa.schema([("body", pa.binary())])).decode([Chunk(queue, pulled.body, 1)])
    assert batch.column("body").to_pylist() == [TEXT]


@pytest.mark.parametrize("side", ["ours", "Java's"])
def test_each_format_and_none_at_a_broker_of_5(
    side: str, apache5: Cluster, judge5: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    """Push consumers of the other side read each body as it was sent."""
    name, java = topic(apache5, judge5, 1), JavaClients(judge5)
    senders, readers = (python, java) if side == "ours" else (java, python)
    plain = TEXT[:3000]  # below the size from which bodies are compressed
    with readers.member(fresh("group"), apache5.address, {name: "*"}) as member:
        for kind in KINDS:
            settings = ClientSettings(nameserver=apache5.address, compression=kind)
            option = {"settings": settings} if side == "ours" else {"compressType": kind.upper()}
            with senders.producer(fresh("producers"), apache5.address, **option) as producer:
                producer.send([Letter(name, TEXT, tags=kind)])
        with senders.producer(fresh("producers"), apache5.address) as producer:
            producer.send([Letter(name, plain, tags="plain")])
        # Java's listener runs in several threads.
        seen = sorted(member.received(4), key=lambda each: each.queue_offset)
    bits = {kind: BITS[kind] & 0x700 for kind in KINDS} | {"plain": 0}
    assert [(each.tags, each.body == (plain if each.tags == "plain" else TEXT)) for each in seen] == [
        (tag, True) for tag in bits
    ]
    assert {each.tags: each.sys_flag & 0x700 for each in seen} == bits
