"""mqadmin export, diff and apply on brokers of both sides: what is applied is there, and twice changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.compat.conftest import Cluster
from tests.compat.transcript import eruca_mqadmin

MakeName = Callable[[str], str]


def test_export_apply_and_export_again_are_equal(cluster: Cluster, tmp_path: Path, fresh: MakeName) -> None:
    topic, group = fresh("declared"), fresh("group")
    where = ("-n", cluster.address, "-c", "JudgeCluster")

    def own() -> dict[str, list[dict[str, object]]]:
        found = json.loads(eruca_mqadmin(("export", *where)).stdout)
        return {kind: [each for each in found[kind] if each["name"] in (topic, group)] for kind in ("topics", "groups")}

    wanted = {
        "topics": [{"name": topic, "readQueueNums": 3, "writeQueueNums": 2, "perm": 4}],
        "groups": [{"name": group, "retryMaxTimes": 3, "consumeBroadcastEnable": True}],
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(wanted))
    made = eruca_mqadmin(("apply", *where, "-f", str(file)))
    assert (made.exit, made.stdout.splitlines()[-1]) == (0, "2 of 2 changes made"), made
    assert eruca_mqadmin(("apply", *where, "-f", str(file))).stdout == "nothing is to be changed\n"
    exported = own()
    (found,) = exported["topics"]
    assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (3, 2, 4)
    file.write_text(json.dumps(exported))

    for line in (("deleteTopic", "-t", topic), ("deleteSubGroup", "-g", group)):
        assert eruca_mqadmin((*line, *where)).exit == 0
    assert own() == {"topics": [], "groups": []}
    assert eruca_mqadmin(("apply", *where, "-f", str(file))).exit == 0
    assert own() == exported
