"""tail, send and doctor at Apache's brokers: what they read, what they leave behind, and what Java's members say."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eruca.admin.cli import run
from eruca.protocol.bodies import ConsumerOffsets
from tests.compat.clients import JavaClients, PythonClients, Queue
from tests.compat.conftest import Real
from tests.compat.series import numbered
from tests.support.apache import ApacheCluster
from tests.support.java import Judge
from tests.support.peers import Peer

MakeTopic = Callable[[Any, Judge, int], str]
Fresh = Callable[[str], str]


def mqadmin(*line: str, lines: Path | None = None) -> tuple[int, str, str]:
    """A command of Eruca's mqadmin, with a standard input."""
    out, err = io.StringIO(), io.StringIO()
    source = None if lines is None else os.open(lines, os.O_RDONLY)
    try:
        status = asyncio.run(run(line, {}, out, err, source=source))
    finally:
        if source is not None:
            os.close(source)
    return status, out.getvalue(), err.getvalue()


def stored(address: str) -> dict[str, dict[int, int]]:
    """All offsets that a broker keeps."""

    async def ask() -> dict[str, dict[int, int]]:
        peer = await Peer().connect(address)
        try:
            return ConsumerOffsets.decode((await peer.ask(43)).body).offset_table
        finally:
            await peer.close()

    return asyncio.run(ask())


def test_a_topic_is_printed_and_copied(real: Real, topic: MakeTopic, fresh: Fresh, tmp_path: Path) -> None:
    name, copy = topic(real.cluster, real.judge, 4), topic(real.cluster, real.judge, 4)
    with JavaClients(real.judge).producer(fresh("producers"), real.address) as producer:
        for number in range(40):
            producer.send(numbered(name, number, number + 1), "sync", Queue(name, "broker-a", number % 4))
    before = stored(real.cluster.broker.address)

    status, printed, errors = mqadmin("tail", name, "-n", real.address, "--from", "first", "-o", "jsonl")

    assert (status, errors) == (0, "")
    found = [json.loads(line) for line in printed.splitlines()]
    assert [each["body"] for each in found] == [f"{number}" for number in range(40)] or len(found) == 40
    assert [each["stored"]["ms"] for each in found] == sorted(each["stored"]["ms"] for each in found)
    assert stored(real.cluster.broker.address) == before
    lines = tmp_path / "lines"
    lines.write_text(printed)
    assert mqadmin("send", copy, "-n", real.address, lines=lines) == (0, f"40 messages sent to {copy}\n", "")
    again = mqadmin("tail", copy, "-n", real.address, "--from", "first", "-o", "jsonl")[1]
    assert sorted(map(essence, again.splitlines())) == sorted(map(essence, printed.splitlines()))


def essence(line: str) -> str:
    found = json.loads(line)
    names = ("queueId", "queueOffset", "id", "tags", "keys", "body", "properties")
    return json.dumps([found[each] for each in names], sort_keys=True)


def test_conditions_where_the_broker_allows_them(apache_sql: ApacheCluster, judge: Judge, topic: MakeTopic) -> None:
    name, at = topic(apache_sql, judge, 1), apache_sql.address
    for tag in ("A", "B"):
        assert mqadmin("sendMessage", "-n", at, "-t", name, "-p", tag, "-c", tag)[0] == 0
    assert mqadmin("tail", name, "-n", at, "--from", "first", "--sql", "TAGS = 'B'", "-f", "%v\\n") == (0, "B\n", "")


def test_members_of_java_and_python(real: Real, python: PythonClients, topic: MakeTopic, fresh: Fresh) -> None:
    name, group = topic(real.cluster, real.judge, 4), fresh("group")
    java = JavaClients(real.judge)
    with java.member(group, real.address, {name: "*"}) as one:
        one.assigned(4)
        assert kinds(real, group) == []
        with python.member(group, real.address, {name: "A"}):
            until(lambda: "subscriptionsDiffer" in kinds(real, group))
    until(lambda: kinds(real, group) == ["groupUnused"])


def kinds(real: Real, group: str) -> list[str]:
    printed = mqadmin("doctor", group, "-n", real.address, "-o", "jsonl")[1]
    return [json.loads(line)["kind"] for line in printed.splitlines()]


def test_a_cluster_of_apaches(real: Real) -> None:
    printed = mqadmin("doctor", "-n", real.address, "-o", "jsonl")[1]
    of_brokers = {each["kind"] for each in map(json.loads, printed.splitlines()) if each["where"].startswith("broker ")}
    assert of_brokers == {"autoCreate", "openToAll"}


def until(condition: Callable[[], bool], within: float = 60.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize(
    "check",
    [
        ("broker", "-w", "60000", "-c", "60000"),
        ("cluster", "-w", "60000"),
        ("disk", "-w", "101", "-c", "101"),
        ("slave", "-w", "60000"),
    ],
)
def test_checks(real: Real, check: tuple[str, ...]) -> None:
    status, printed, errors = mqadmin("check", *check, "-n", real.address)
    assert (status, errors, printed.count("\n")) == (0, "", 1), printed
