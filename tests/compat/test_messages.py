"""What is sent is what is received, whoever sends, whoever keeps it, whoever reads."""

from __future__ import annotations

import binascii
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.clients import Clients, How, JavaClients, Letter, PythonClients, Queue, Seen, drain
from tests.compat.conftest import Cluster, Pair
from tests.compat.letters import HOWS, in_order, letters, place
from tests.support.java import Judge

MakeTopic = Callable[[Any, Judge, int], str]


@pytest.mark.parametrize("how", HOWS)
def test_every_field_arrives(pair: Pair, how: How, judge: Judge, topic: MakeTopic, fresh: Callable[[str], str]) -> None:
    name = topic(pair.cluster, judge, 1)
    queue = Queue(name, "broker-a", 0)

    with pair.clients.producer(fresh("producers"), pair.address) as producer:
        sent = producer.send(letters(name), how, queue)
        seen = read(JavaClients(judge), pair.cluster, name, 5, fresh("readers"))

    by_body = {each.body: each for each in seen}
    assert [by_body[each.body].letter for each in letters(name)] == letters(name)
    assert [each.queue_offset for each in seen] == [0, 1, 2, 3, 4]
    assert [each.body_crc for each in seen] == [binascii.crc32(each.body) & 0x7FFFFFFF for each in seen]
    assert {each.store_host for each in seen} == {pair.cluster.broker.address}
    assert {each.reconsume_times for each in seen} == {0}
    assert {each.sys_flag for each in seen} == {0}
    assert [each.log_offset for each in seen[1:]] == [each.log_offset + each.store_size for each in seen[:-1]]
    assert all(each.born_timestamp <= each.store_timestamp for each in seen)
    if how in ("sync", "async"):
        assert {each.status for each in sent} == {"SEND_OK"}
        # Several threads send, so the order is theirs; what the sender was told is true of each.
        for letter, told in zip(letters(name), sent, strict=True):
            stored = by_body[letter.body]
            assert told.message_id == stored.message_id
            assert told.queue_offset == stored.queue_offset
            assert place(told.offset_message_id) == stored.log_offset
    if how in ("sync", "batch"):
        assert [each.letter for each in seen] == letters(name)
    if how == "batch":
        (whole,) = sent
        if pair.clients.name != "java-5.3.3":  # names the messages anew after it has told, on Apache's broker too
            assert whole.message_id.split(",") == [each.message_id for each in seen]
        assert [place(each) for each in whole.offset_message_id.split(",")] == [each.log_offset for each in seen]


def test_both_forms_of_headers(
    cluster: Cluster, headers: str, judge: Judge, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    java = JavaClients(judge)
    name = topic(cluster, judge, 1)
    queue = Queue(name, "broker-a", 0)

    with java.producer(fresh("producers"), cluster.address) as producer:
        for how in HOWS:
            producer.send(letters(name), how, queue)
        seen = read(java, cluster, name, 4 * len(letters(name)), fresh("readers"))

    assert headers in ("JSON", "ROCKETMQ")
    for letter in letters(name):
        assert [each.letter for each in seen if each.body == letter.body] == [letter] * len(HOWS)


def test_both_sides_read_the_same(
    pair: Pair, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name = topic(pair.cluster, judge, 2)

    with pair.clients.producer(fresh("producers"), pair.address) as producer:
        producer.send(letters(name) * 4)

    by_java = read(JavaClients(judge), pair.cluster, name, 20, fresh("readers"))
    by_python = read(python, pair.cluster, name, 20, fresh("readers"))
    assert by_python == by_java


def test_a_large_body_travels_compressed(
    pair: Pair, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name = topic(pair.cluster, judge, 1)
    text = b"".join(b"line %d of a text that can be compressed\n" % n for n in range(5000))

    with pair.clients.producer(fresh("producers"), pair.address) as producer:
        producer.send([Letter(name, text)])

    for reader in (JavaClients(judge), python):
        (seen,) = read(reader, pair.cluster, name, 1, fresh("readers"))
        assert seen.body == text
        assert seen.store_size < len(text) / 3
        assert seen.sys_flag & 1


def read(reader: Clients, cluster: Cluster, name: str, count: int, group: str) -> list[Seen]:
    """All messages of the topic in the order of the log, once there are so many."""
    with reader.puller(group, cluster.address) as puller:
        seen = drain(puller, name)
        deadline = time.monotonic() + 10
        while len(seen) < count and time.monotonic() < deadline:  # one-way sends are on their way
            seen = drain(puller, name)
        assert len(seen) == count
    return in_order(seen)
