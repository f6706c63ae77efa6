"""The file that says what a cluster shall have: export, diff, apply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from eruca.admin.errors import BadValue
from eruca.admin.results.declared import Declared, DeclaredGroup, DeclaredTopic, difference, parts_of, read
from tests.admin.conftest import Lab

MASTERS = ("broker-a", "broker-b")
FILE = """
[[topics]]
name = "Orders"
readQueueNums = 4
writeQueueNums = 4

[[topics]]
name = "Log"
perm = 4

[[groups]]
name = "shop"
retryMaxTimes = 3

[orderConf]
Orders = "broker-a:4"

[[settings]]
name = "fileReservedTime"
value = 48

[[settings]]
name = "autoCreateTopicEnable"
value = false

[[settings]]
name = "deleteWhen"
value = "04"
"""


def lines(wanted: Declared, found: Declared, *, prune: bool = False) -> list[str]:
    parts = parts_of(wanted, MASTERS), parts_of(found, MASTERS)
    return [str(each) for each in difference(*parts, prune=prune).items]


def test_the_difference_is_by_object_and_broker() -> None:
    wanted = Declared(
        topics=[DeclaredTopic(name="New", brokers=["broker-b"]), DeclaredTopic(name="Other", perm=4)],
        groups=[DeclaredGroup(name="shop")],
        order_conf={"New": "broker-b:8"},
    )
    found = Declared(
        topics=[
            DeclaredTopic(name="Other", brokers=["broker-a"]),
            DeclaredTopic(name="Other", brokers=["broker-b"], perm=4),
            DeclaredTopic(name="Gone", brokers=["broker-b"]),
        ],
        groups=[DeclaredGroup(name="shop"), DeclaredGroup(name="nobody", brokers=["broker-a"])],
        order_conf={"New": "broker-b:4", "Gone": "broker-b:8"},
    )
    changes = [
        "~ order New: orderConf broker-b:4 -> broker-b:8",
        "+ topic New at broker-b",
        "~ topic Other at broker-a: perm 6 -> 4",
    ]
    assert lines(wanted, found) == changes
    gone = ["- group nobody at broker-a", "- order Gone", "- topic Gone at broker-b"]
    assert lines(wanted, found, prune=True) == [*changes, *gone]
    assert lines(wanted, wanted, prune=True) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('topics = [{name = "T", queues = 4}]', "unknown field `queues`"),
        ('topics = [{name = ""}]', "a name is empty"),
        ('topics = [{name = "a b"}]', "'a b': The specified topic contains illegal characters"),
        ('groups = [{name = "a/b"}]', "'a/b': the specified group.* contains illegal characters"),
        ('settings = [{name = "fileReservedTime", value = "abc"}]', "setting fileReservedTime does not take abc"),
        ('settings = [{name = "fileReservedTime", value = true}]', "setting fileReservedTime does not take true"),
        ('settings = [{name = "traceOn", value = 1}]', "setting traceOn does not take 1"),
        ('orderConf = {A = "abc"}', "orderConf of A takes broker:queues;broker:queues"),
        ('topics = [{name = "T", readQueueNums = "4"}]', "Expected `int`, got `str`"),
        ('topics = [{name = "T", readQueueNums = -1}]', "readQueueNums"),
        ('errors = [{peer = "b", code = 1, text = "silent", missing = "all"}]', "a part of a cluster only: silent"),
        ("topics = [", "file.toml: "),
    ],
)
def test_what_is_no_such_file_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        read(text.encode(), "file.toml")


def test_what_stands_for_no_broker_or_twice_is_refused() -> None:
    for brokers, words in ((["broker-x"], "is for broker-x; the cluster's masters"), (["broker-a"], "stands twice")):
        declared = Declared(topics=[DeclaredTopic(name="T"), DeclaredTopic(name="T", brokers=brokers)])
        with pytest.raises(BadValue, match=words):
            parts_of(declared, MASTERS)


async def test_apply_makes_it_so_and_a_second_one_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(FILE)
    changes = "+ order Orders\n+ topic Orders at broker-a\n+ topic Log at broker-a\n+ group shop at broker-a\n"
    changes += "~ setting fileReservedTime at broker-a: value 72 -> 48\n"
    changes += "~ setting autoCreateTopicEnable at broker-a: value true -> false\n"
    for command in (["diff"], ["apply", "--dry-run"]):
        seen = await lab.mqadmin(*command, "-f", str(file))
        assert (seen.status, seen.out) == (3, changes)
    shown = await lab.mqadmin("apply", "-f", str(file), "-o", "json", answers="n\n")
    assert (shown.status, "Make " in shown.err, shown.err.startswith(("+ ", "~ "))) == (1, True, True), shown
    refused = await lab.mqadmin("apply", "-f", str(file), answers="n\n")
    assert (refused.status, refused.err) == (1, "Make 6 changes? [y/N] mqadmin apply: nothing was changed\n")
    applied = await lab.mqadmin("apply", "-f", str(file))
    assert (applied.status, applied.out, applied.err) == (0, f"{changes}6 of 6 changes made\n", "")
    again = await lab.mqadmin("apply", "-f", str(file), "--prune")
    assert (again.status, again.out, again.err) == (0, "nothing is to be changed\n", "")
    assert (await lab.mqadmin("diff", "-f", str(file))).status == 0


async def test_what_export_writes_gives_the_same_cluster_again(lab: Lab, tmp_path: Path) -> None:
    empty, file = tmp_path / "empty.json", tmp_path / "cluster.yaml"
    empty.write_text("{}")
    start = tmp_path / "start.toml"
    start.write_text(FILE)
    await lab.done("apply", "-f", str(start))
    exported = (await lab.done("export", "-o", "yaml")).out
    file.write_text(exported)
    assert yaml.safe_load(exported) == json.loads((await lab.done("export")).out)
    await lab.member("shop", "Orders")
    kept = await lab.mqadmin("apply", "-f", str(empty), "--prune", "--ask")
    assert kept.status == 1 and "group shop: 1 online" in kept.err
    pruned = await lab.mqadmin("apply", "-f", str(empty), "--prune", "--yes")
    assert (pruned.status, pruned.out.splitlines()[-1]) == (0, "6 of 6 changes made")
    assert json.loads((await lab.done("export")).out) == {
        "errors": [],
        "topics": [],
        "groups": [],
        "orderConf": {},
        "settings": [],
    }
    await lab.done("apply", "-f", str(file))
    assert (await lab.done("export", "-o", "yaml")).out == exported


async def test_a_setting_that_is_none_of_a_file_is_refused(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    for name in ("listenPort", "noSuchSetting"):
        file.write_text(f'settings = [{{name = "{name}", value = 1}}]')
        refused = await lab.mqadmin("diff", "-f", str(file))
        assert (refused.status, refused.out) == (2, "")
        assert refused.err.startswith(f"mqadmin diff: broker-a has no setting {name}, or none that apply changes")
    file.write_text('settings = [{name = "fileReservedTime", value = "soon"}]')
    for command in ("diff", "apply"):
        refused = await lab.mqadmin(command, "-f", str(file))
        assert (refused.status, refused.out) == (2, "")
        assert refused.err.endswith("setting fileReservedTime does not take soon\n")
    file.write_text('settings = [{name = "fileReservedTime", value = -5}]')
    wrong = await lab.mqadmin("apply", "-f", str(file))
    assert (wrong.status, wrong.out.splitlines()[-1]) == (5, "0 of 1 changes made")
    assert "fileReservedTime" in wrong.err


async def test_exported_offsets_bring_a_group_back(lab: Lab, tmp_path: Path) -> None:
    await lab.topic("Orders", queues=2)
    await lab.topic("Log")
    for queue in (0, 1):
        await lab.send("Orders", "one", "two", "three", queue=queue)
    await lab.send("Log", "one")
    await lab.done("updateSubGroup", "-c", "DefaultCluster", "-g", "shop")
    await lab.commit("shop", "Orders", 1, 2)
    await lab.commit("shop", "Log", 1)
    await lab.commit("shops", "Orders", 3, 3)
    file = tmp_path / "offsets.json"
    file.write_text((await lab.done("offsets", "export", "-g", "shop")).out)
    rows = [(each["topic"], each["queueId"], each["offset"]) for each in json.loads(file.read_text())["queues"]]
    assert rows == [("Log", 0, 1), ("Orders", 0, 1), ("Orders", 1, 2)]
    await lab.commit("shop", "Orders", 3, 3)
    await lab.commit("shop", "Log", 0)
    back = await lab.mqadmin("resetOffset", "-g", "shop", "--from-file", str(file))
    assert back.status == 0, back
    assert await lab.committed("shop", "Orders") == {0: 1, 1: 2}
    assert await lab.committed("shop", "Log") == {0: 1}
    nobody = await lab.mqadmin("offsets", "export", "-g", "nobody")
    assert (nobody.status, nobody.out) == (4, "")


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("f.json", b'{"topics":[{"name":"\xff"}]}'),
        ("f.json", b'{"topics":[{"name":1e400}]}'),
        ("f.json", b'{"settings":[{"name":"x","value":' + DEEP + b"}]}"),
        ("f.toml", b'a="\xff"'),
        ("f.toml", b"topics=" + DEEP),
        ("f.yaml", b'topics: "\xff"'),
        ("f.yaml", b"topics: " + b"[" * 3000 + b"]" * 3000),
        ("f.yaml", b'topics: !!python/object/apply:os.system ["true"]'),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_a_sentence(name: str, content: bytes) -> None:
    with pytest.raises(BadValue, match=f"^{name}: "):
        read(content, name)
