"""What Apache's mqadmin and Eruca's write to files about one cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compat.clients import JavaClients, Queue
from tests.compat.conftest import Cluster
from tests.compat.series import numbered
from tests.compat.transcript import Mqadmin, eruca_mqadmin, java_mqadmin
from tests.support.java import Judge

MOVING = {"normalInTps", "normalOutTps", "totalNormalInTps", "totalNormalOutTps", "exportTime"}
"""Figures that change between two commands."""


def exported(mqadmin: Mqadmin, folder: Path, file: str, *line: str) -> Any:
    """What a command wrote, with keys in the file's order; it said so."""
    done = mqadmin((*line, "-f", str(folder)))
    assert (done.stdout.strip(), done.exit) == (f"export {folder}/{file} success", 0), done
    return json.loads((folder / file).read_text(), object_pairs_hook=dict)


def shape(value: Any) -> Any:
    """Keys in their order and values, but for moving figures, of which the type."""
    if isinstance(value, dict):
        return [(key, type(each) if key in MOVING else shape(each)) for key, each in value.items()]
    return value


def test_metrics(
    cluster: Cluster,
    judge: Judge,
    tmp_path: Path,
    fresh: Callable[[str], str],
    topic: Callable[[Any, Judge, int], str],
) -> None:
    name, group = topic(cluster, judge, 1), fresh("group")
    clients = JavaClients(judge)
    with (
        clients.producer(fresh("producers"), cluster.address) as producer,
        clients.member(group, cluster.address, {name: "*"}) as member,
    ):
        producer.send(numbered(name, 0, 3), "sync", Queue(name, "broker-a", 0))
        assert len(member.received(3)) == 3
        line = ("exportMetrics", "-n", cluster.address, "-c", "JudgeCluster")
        theirs = exported(java_mqadmin(judge), tmp_path / "theirs", "metrics.json", *line)
        ours = exported(eruca_mqadmin, tmp_path / "ours", "metrics.json", *line)
    for each in (theirs, ours):  # sets
        each["evaluateReport"]["broker-a"]["runtimeVersion"]["clientInfo"].sort()
    assert shape(ours) == shape(theirs)
    assert "JAVA%V4_9_7" in ours["evaluateReport"]["broker-a"]["runtimeVersion"]["clientInfo"]
