"""mqadmin export, diff, apply and offsets on brokers of both sides: what is applied is there, twice changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.conftest import Cluster
from tests.compat.transcript import Outcome, eruca_mqadmin

MakeName = Callable[[str], str]
pytestmark = pytest.mark.parametrize("side", ["eruca", "apache", "apache5"])


@pytest.fixture
def cluster(request: pytest.FixtureRequest, side: str) -> Cluster:
    """A cluster of Eruca, of Apache's 4.9.7, of Apache's 5.3.3."""
    found: Cluster = request.getfixturevalue(side)
    return found


def test_export_apply_and_export_again_are_equal(cluster: Cluster, tmp_path: Path, fresh: MakeName) -> None:
    topic, group = fresh("declared"), fresh("group")
    where = ("-n", cluster.address, "-c", "JudgeCluster")
    file = tmp_path / "cluster.json"

    def own() -> dict[str, list[dict[str, object]]]:
        found = json.loads(eruca_mqadmin(("export", *where)).stdout)
        ours = {"topics": topic, "groups": group, "settings": "fileReservedTime"}
        return {kind: [each for each in found[kind] if each["name"] == name] for kind, name in ours.items()}

    def applied(state: object) -> Outcome:
        file.write_text(json.dumps(state))
        return eruca_mqadmin(("apply", *where, "-f", str(file)))

    usual = {"settings": [{"name": "fileReservedTime", "value": 72}]}
    applied(usual)
    wanted = {
        "topics": [{"name": topic, "readQueueNums": 3, "writeQueueNums": 2, "perm": 4}],
        "groups": [{"name": group, "retryMaxTimes": 3, "consumeBroadcastEnable": True}],
        "settings": [{"name": "fileReservedTime", "value": 48}],
    }
    made = applied(wanted)
    assert (made.exit, made.stdout.splitlines()[-1]) == (0, "3 of 3 changes made"), made
    assert applied(wanted).stdout == "nothing is to be changed\n"
    exported = own()
    (found,) = exported["topics"]
    assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (3, 2, 4)
    assert [each["value"] for each in exported["settings"]] == [48]

    for line in (("deleteTopic", "-t", topic), ("deleteSubGroup", "-g", group)):
        assert eruca_mqadmin((*line, *where)).exit == 0
    assert applied(usual).exit == 0
    assert own() == {"topics": [], "groups": [], "settings": []}
    assert applied(exported).exit == 0
    assert own() == exported
    assert applied(usual).exit == 0


def test_offsets_come_back_from_a_file(side: str, cluster: Cluster, tmp_path: Path, fresh: MakeName) -> None:
    topic, group = fresh("declared"), fresh("group")
    where = ("-n", cluster.address)
    made = eruca_mqadmin(("updateTopic", *where, "-c", "JudgeCluster", "-t", topic, "-r", "1", "-w", "1"))
    assert made.exit == 0, made
    for body in ("one", "two", "three"):
        assert eruca_mqadmin(("sendMessage", *where, "-t", topic, "-p", body)).exit == 0
    if side == "apache5":  # which stores no offset for a group that it does not have
        refused = eruca_mqadmin(("resetOffset", *where, "-g", group, "-t", topic, "--to", "2", "--new-group"))
        assert (
            refused.exit == 1 and f"create it with mqadmin updateSubGroup -b {cluster.broker.address}" in refused.stderr
        )
        assert eruca_mqadmin(("updateSubGroup", *where, "-c", "JudgeCluster", "-g", group)).exit == 0
    begun = eruca_mqadmin(("resetOffset", *where, "-g", group, "-t", topic, "--to", "2", "--new-group"))
    assert begun.exit == 0, begun
    file = tmp_path / "offsets.json"
    file.write_text(eruca_mqadmin(("offsets", "export", *where, "-g", group)).stdout)
    moved = eruca_mqadmin(("resetOffset", *where, "-g", group, "-t", topic, "--to", "first", "--new-group"))
    assert moved.exit == 0, moved
    back = eruca_mqadmin(("offsets", "import", *where, "--file", str(file), "--new-group"))
    assert back.exit == 0, back
    again = json.loads(eruca_mqadmin(("offsets", "export", *where, "-g", group)).stdout)
    assert again == json.loads(file.read_text())
    assert [(each["topic"], each["offset"]) for each in again["queues"]] == [(topic, 2)]
