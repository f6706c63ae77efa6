"""Java's and Python's members of one broadcasting group: each gets everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.compat.clients import JavaClients, Letter, PythonClients
from tests.compat.conftest import Cluster
from tests.support.java import Judge

MakeTopic = Callable[[Cluster, Judge, int], str]


def test_members_of_both_sides_get_everything(
    each_cluster: Cluster,
    judge: Judge,
    python: PythonClients,
    topic: MakeTopic,
    fresh: Callable[[str], str],
    tmp_path: Path,
) -> None:
    name, group = topic(each_cluster, judge, 2), fresh("group")
    java = JavaClients(judge)
    with (
        java.producer(fresh("producers"), each_cluster.address) as producer,
        java.member(group, each_cluster.address, {name: "*"}, model="BROADCASTING") as first,
        python.member(group, each_cluster.address, {name: "*"}, broadcast=True, offset_folder=tmp_path) as second,
    ):
        assert len(first.assigned(2)) == len(second.assigned(2)) == 2
        producer.send([Letter(name, b"%d" % n) for n in range(10)])
        mine, other = first.received(10), second.received(10)
    assert sorted(each.body for each in mine) == sorted(each.body for each in other) == [b"%d" % n for n in range(10)]
    (file,) = tmp_path.rglob("offsets.json")
    assert file.parts[-2] == group

    with python.member(group, each_cluster.address, {name: "*"}, broadcast=True, offset_folder=tmp_path) as again:
        with java.producer(fresh("producers"), each_cluster.address) as producer:
            producer.send([Letter(name, b"later")])
        assert [each.body for each in again.received(1)] == [b"later"]
