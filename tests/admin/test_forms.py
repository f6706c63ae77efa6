"""The forms of results: every command that has them, in every form, against one broker."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eruca.admin.cli import run
from eruca.admin.command import FORMS, WATCH
from eruca.admin.commands import every, find
from eruca.admin.results.answer import Answer
from eruca.protocol.bodies import TopicConfig
from tests.admin.conftest import Lab

GOLDEN = Path(__file__).parents[1] / "golden" / "mqadmin_schemas"


def _results(name: str) -> tuple[type[msgspec.Struct], ...]:
    found = find(name)
    assert found is not None
    return found.results


CALLS = {
    "topicRoute": ["-t", "T"],
    "topicStatus": ["-t", "T"],
    "topicClusterList": ["-t", "T"],
    "topicList": ["-c"],
    "consumerProgress": ["-g", "g"],
    "statsAll": [],
    "clusterList": [],
    "brokerStatus": ["-c", "DefaultCluster"],
    "getBrokerConfig": ["-c", "DefaultCluster"],
    "getNamesrvConfig": [],
    "brokerConsumeStats": ["-b", "BROKER"],
    "producer": ["-b", "BROKER"],
    "consumerConnection": ["-g", "g"],
    "producerConnection": ["-g", "p", "-t", "T"],
    "getConsumerConfig": ["-g", "g"],
}
"""A call of each command that has forms and changes nothing."""


def _keys(value: Any) -> Any:
    """What a document is made of: figures change from call to call."""
    if isinstance(value, dict):
        return {key: _keys(each) for key, each in value.items()}
    return [_keys(each) for each in value] if isinstance(value, list) else None


def _fits(text: str, kind: type[msgspec.Struct]) -> bool:
    try:
        msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        return False
    return True


async def test_every_form_has_the_same_rows(lab: Lab) -> None:
    await lab.done("updateTopic", "-t", "T", "-r", "2", "-w", "2", "-b", lab.broker)
    await lab.send("T", "one", "two")
    await lab.member("g", "T")
    await lab.producer("p")
    await lab.commit("g", "T", 1, 0)
    for name, options in CALLS.items():
        line = [name, *(lab.broker if option == "BROKER" else option for option in options)]
        forms = {form: (await lab.done(*line, "--output", form)).out for form in FORMS}
        document = json.loads(forms["json"])
        rows = document.get("items", [document])
        assert rows, name
        assert _keys(yaml.safe_load(forms["yaml"])) == _keys(document), name
        assert _keys([json.loads(line) for line in forms["jsonl"].splitlines()]) == _keys(rows), name
        assert len(list(csv.reader(io.StringIO(forms["csv"])))) == 1 + len(rows), name
        for form in ("table", "wide"):
            begun = [line for line in forms[form].splitlines() if not line.startswith(" ")]
            assert len(begun) == 1 + len(rows), (name, form)
        assert len(forms["apache"].splitlines()) == len((await lab.done(*line)).out.splitlines()), name
        assert any(_fits(forms["json"], kind) for kind in _results(name)), name


async def test_a_table_for_people(lab: Lab) -> None:
    await lab.done("updateTopic", "-t", "T", "-r", "1", "-w", "1", "-b", lab.broker)
    done = await lab.done("topicStatus", "-t", "T", "-o", "table")
    assert done.out == (
        "BROKER    QUEUE ID  MIN OFFSET  MAX OFFSET  LAST STORED\nbroker-a         0           0           0  -\n"
    )


async def test_a_table_tells_what_there_is_not_from_what_is_not_known(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one")
    await lab.commit("g", "T", 0)
    rows = (await lab.done("printMsg", "-t", "T", "-o", "table")).rows
    assert rows[0][6] == "TAGS" and rows[1][4] == "-"
    topics = [TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in ("T", "%RETRY%g")]
    await lab.topic("%RETRY%g")
    assert (await lab.done("lag", "g", "-o", "table")).rows[1][:3] == ["g", "0", "1"]
    await lab.register("broker-b", "127.0.0.1:1", *topics)
    known = (await lab.mqadmin("lag", "g", "-o", "table")).out.splitlines()[1]
    assert known.split()[:5] == ["g", "?", ">=", "1", "?"]


async def test_a_table_has_a_line_for_each_of_many_entries(lab: Lab) -> None:
    lines = (await lab.done("getBrokerConfig", "-b", lab.broker, "-o", "table")).out.splitlines()
    assert lines[0].split() == ["ADDRESS", "ENTRIES"]
    assert lines[1].startswith(lab.broker) and len(lines) > 100
    assert all(line.startswith(" ") and line.count("=") >= 1 for line in lines[2:])


async def test_the_variable_chooses_and_the_option_wins(lab: Lab) -> None:
    environment = {"MQADMIN_OUTPUT": "jsonl"}
    assert (await lab.mqadmin("topicList", environment=environment)).out.startswith('{"topic":')
    assert (await lab.mqadmin("topicList", "-o", "apache", environment=environment)).out.startswith("SELF_TEST_TOPIC\n")
    for line, where in ((["-o", "xml"], "option -o (--output)"), ([], "the variable MQADMIN_OUTPUT")):
        done = await lab.mqadmin("topicList", *line, environment={"MQADMIN_OUTPUT": "xml"})
        assert (done.status, done.out) == (2, "")
        assert done.err == f"mqadmin topicList: {where} takes {', '.join(FORMS)}, not 'xml'\n"


@pytest.mark.parametrize("name", sorted(each.name for each in every() if each.results))
async def test_the_schema_of_a_result_changes_by_intent(lab: Lab, name: str) -> None:
    """UPDATE_GOLDEN=1 takes over a change that is meant."""
    text = (await lab.done("schema", name)).out
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert golden.read_text() == text
    for kind in json.loads(text)["$defs"].values():
        assert all(key == key[0].lower() + key[1:] and "_" not in key for key in kind.get("properties", {})), name


def test_every_command_has_a_typed_result_but_those_that_a_person_looks_at() -> None:
    assert [each.name for each in every() if not each.results] == ["top", "console"]


CHANGES = [
    ["updateTopic", "-t", "U", "-c", "DefaultCluster", "-o", "true"],
    ["updateTopicPerm", "-t", "U", "-c", "DefaultCluster", "-p", "6"],
    ["updateOrderConf", "-t", "U", "-m", "get"],
    ["updateOrderConf", "-t", "U", "-m", "delete"],
    ["allocateMQ", "-t", "U", "-i", "one,two"],
    ["updateSubGroup", "-g", "h", "-c", "DefaultCluster"],
    ["sendMessage", "-t", "U", "-p", "text", "-k", "k", "-b", "broker-a", "-i", "0"],
    ["queryMsgByKey", "-t", "U", "-k", "k"],
    ["consumeMessage", "-t", "U"],
    ["printMsg", "-t", "U"],
    ["printMsgByQueue", "-t", "U", "-a", "broker-a", "-i", "0", "-f", "true", "-p", "true"],
    ["sendMsgStatus", "-b", "broker-a", "-c", "1"],
    ["checkMsgSendRT", "-t", "U", "-a", "2"],
    ["skipAccumulatedMessage", "-g", "h", "-t", "U"],
    ["resetOffsetByTime", "-g", "h", "-t", "U", "-s", "now"],
    ["resetOffset", "-g", "h", "-t", "U", "--to", "first", "--wait", "0"],
    ["offsets", "export", "-g", "h"],
    ["export"],
    ["cloneGroupOffset", "-s", "h", "-d", "i", "-t", "U", "--new-group"],
    ["updateKvConfig", "-s", "S", "-k", "k", "-v", "v"],
    ["deleteKvConfig", "-s", "S", "-k", "k"],
    ["updateBrokerConfig", "-b", "BROKER", "-k", "maxTransferCountOnMessageInMemory", "-v", "33"],
    ["cleanExpiredCQ"],
    ["cleanUnusedTopic"],
    ["deleteExpiredCommitLog"],
    ["wipeWritePerm", "-b", "broker-a"],
    ["addWritePerm", "-b", "broker-a"],
    ["exportMetadata", "-c", "DefaultCluster", "-f", "FOLDER"],
    ["exportConfigs", "-c", "DefaultCluster", "-f", "FOLDER"],
    ["deleteSubGroup", "-g", "h", "-c", "DefaultCluster"],
    ["deleteTopic", "-t", "U", "-c", "DefaultCluster"],
]
"""Calls of commands that change something, one after the other."""


async def test_what_was_changed_is_one_document(lab: Lab, tmp_path: Path) -> None:
    await lab.topic("%RETRY%h")
    values = {"BROKER": lab.broker, "FOLDER": str(tmp_path / "export")}
    for name, *options in CHANGES:
        line = [name, *(values.get(option, option) for option in options)]
        done = await lab.mqadmin(*line, "--output", "json")
        document = json.loads(done.out)
        assert done.status == 0, done
        kinds = _results(name)
        rows = document.get("items", [document])
        whole = any(issubclass(kind, Answer) and _fits(done.out, kind) for kind in kinds)
        assert whole or (rows and all(any(_fits(json.dumps(row), kind) for kind in kinds) for row in rows)), name


async def test_a_dry_run_gives_the_moves_of_each_queue(lab: Lab) -> None:
    await lab.topic("T")
    await lab.send("T", "one", "two")
    await lab.commit("g", "T", 2)
    done = await lab.mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "1", "--dry-run", "--output", "jsonl")
    row = json.loads(done.out)
    assert (done.status, row["storedOffset"], row["targetOffset"], row["again"], row["moved"]) == (3, 2, 0, 2, None)
    assert row["target"]["ms"] == 1


async def test_a_schema_of_what_has_none_is_refused(lab: Lab) -> None:
    assert await lab.mqadmin("schema", "shrug") == (2, "", "The sub command shrug not exist.\n")


async def test_what_is_not_known_is_null_and_its_peer_is_named(lab: Lab) -> None:
    await lab.topic("T")
    await lab.register("broker-b", "127.0.0.1:1", TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    done = await lab.mqadmin("topicStatus", "-t", "T", "-o", "json")
    document = json.loads(done.out)
    assert done.status == 5
    assert [each["broker"] for each in document["items"]] == ["broker-a"]
    assert [(each["peer"], each["code"], each["missing"]) for each in document["errors"]] == [
        ("broker-b", None, "its queues are missing")
    ]
    assert done.err.startswith("broker-b: ")


class Screen(io.StringIO):
    """What is printed, and who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._written = asyncio.Event()

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    async def shows(self, words: str, times: int = 1) -> None:
        """Wait until words were printed this number of times."""
        async with asyncio.timeout(30):
            while self.getvalue().count(words) < times:
                self._written.clear()
                await self._written.wait()


@contextlib.asynccontextmanager
async def watching(lab: Lab, *line: str) -> AsyncIterator[tuple[Screen, Screen]]:
    """Output and errors of a command that is interrupted at the end."""
    out, err = Screen(), Screen()
    task = asyncio.create_task(run(line, {"NAMESRV_ADDR": lab.nameserver}, out, err))
    yield out, err
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_watch_asks_again_until_it_is_interrupted(lab: Lab) -> None:
    async with watching(lab, "topicList", "--watch", "1") as (out, err):
        await out.shows("SELF_TEST_TOPIC", 2)
        assert "\n\nSELF_TEST_TOPIC" in out.getvalue() and err.getvalue() == ""
    async with watching(lab, "topicList", "-o", "jsonl", "--watch", "1") as (out, _):
        await out.shows("SELF_TEST_TOPIC", 2)
        assert "\n\n" not in out.getvalue()


async def test_a_watch_goes_on_after_an_error(lab: Lab) -> None:
    async with watching(lab, "topicStatus", "-t", "T", "--watch", "1", "-o", "csv") as (out, err):
        await err.shows("mqadmin topicStatus: No topic route info")
        await lab.topic("T")
        await out.shows("broker-a,0,0,0,")


WRITES = """
    updateTopic deleteTopic updateTopicPerm updateOrderConf updateBrokerConfig cleanExpiredCQ cleanUnusedTopic
    deleteExpiredCommitLog sendMsgStatus checkMsgSendRT clusterRT exportMetadata exportConfigs exportMetrics
    startMonitoring apply offsets updateSubGroup deleteSubGroup resetOffsetByTime skipAccumulatedMessage resetOffset
    cloneGroupOffset sendMessage tail send move updateKvConfig deleteKvConfig updateNamesrvConfig wipeWritePerm
    addWritePerm updateAclConfig deleteAclConfig updateGlobalWhiteAddr electMaster recreateGroup
"""
"""Commands that change something, write files, or go on by themselves."""


async def test_every_read_is_watched() -> None:
    unwatched = {each.name for each in every() if each.results and WATCH not in each.options}
    assert unwatched == {*WRITES.split()}


async def test_a_message_and_a_member_are_watched(lab: Lab) -> None:
    await lab.topic("T")
    (sent,) = await lab.send("T", "one")
    async with watching(lab, "queryMsgByUniqueKey", "-t", "T", "-i", sent, "--watch", "1", "-o", "jsonl") as (out, _):
        await out.shows('"topic":"T"', 2)
    found = lab.broker.rpartition(":")[2]
    stored = f"7F000001{int(found):08X}0000000000000000"
    async with watching(lab, "queryMsgById", "-i", stored, "--watch", "1", "-o", "jsonl") as (out, _):
        await out.shows('"topic":"T"', 2)
    for line in (
        ("queryMsgById", "-i", stored, "-s", "true"),
        ("queryMsgById", "-i", stored, "-g", "g", "-d", "m"),
        ("queryMsgByUniqueKey", "-t", "T", "-i", sent, "-g", "g", "-d", "m"),
        ("consumerStatus", "-g", "g"),
    ):
        done = await lab.mqadmin(*line, "--watch", "1")
        assert (done.status, "option --watch" in done.err) == (2, True), done


async def test_only_reads_are_watched(lab: Lab) -> None:
    assert "--watch" not in str([find(name) for name in ("exportMetrics", "updateTopic")])
    done = await lab.mqadmin("topicList", "--watch", "0")
    assert (done.status, done.err) == (2, "mqadmin topicList: option --watch takes a whole number, 1 or more, not 0\n")
