"""Each command with the name of what is not there, or with what is no name: its exit status and a sentence."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shlex
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca.admin.catalogue import names
from eruca.admin.cli import run
from eruca.admin.errors import Status
from eruca.admin.examples import examples_of
from tests.admin.conftest import Done, Lab, running_lab

UNKNOWN = {
    "topic": {"Orders": "Nothing", "OrdersCopy": "Nothing"},
    "group": {"shop": "nobody", "billing": "nobody", "payers": "nobody"},
    "cluster": {"DefaultCluster": "Nowhere"},
    "broker": {"broker-a": "broker-x"},
    "member": {"10.0.0.1@a": "10.9.9.9@z"},
    "id": {"AC11000100002A9F0000000000000000": "LOST", "AC110001000018B4AAC2000000000000": "7F000001"},
}
"""For each kind of name: the words of the examples, and what stands in their place."""
GO_ON = {"console", "startMonitoring", "top", "apply", "diff"}
"""They serve until they are interrupted, need a terminal or a file."""
MAKES = {
    "topic": {"updateTopic", "updateOrderConf -m put", "updateKvConfig", "doctor"},
    "group": {"updateSubGroup"},
    "cluster": set[str](),
    "broker": set[str](),
    "member": {"allocateMQ"},
    "id": set[str](),
}
"""Commands that make what is not there, or for which the word is no name of something that is there."""
JUDGES = {"check": Status(3)}
"""A check that cannot know is UNKNOWN."""


def lines_with(kind: str, lab: Lab) -> list[list[str]]:
    """The examples of commands that name something of a kind, with a name that is not there."""
    places = UNKNOWN[kind]
    here = f"7F000001{int(lab.broker.rpartition(':')[2]):08X}"
    ids = {"LOST": f"{here}00000000000FFFFF", "AC11000100002A9F0000000000000000": f"{here}0000000000000000"}
    found = {}
    for name in names():
        for example in examples_of(name):
            words = shlex.split(example.line.partition(" --watch")[0].replace(" --follow", ""))
            line = [places.get(word, word) for word in words]
            made = {words[0], " ".join([words[0], *words[3:5]])} & MAKES[kind]
            if line != words and name not in GO_ON and not made and "--from-file" not in line:
                line = [ids.get(word, word).replace("10.0.0.1:10911", lab.broker) for word in line]
                found[" ".join(line)] = line
    return list(found.values())


async def with_input(lab: Lab, line: list[str]) -> Done:
    """Run a command; a line waits at its standard input."""
    out, err = io.StringIO(), io.StringIO()
    source, end = os.pipe()
    try:
        os.write(end, b'{"body": "text"}\n' if "--json" in line else b"a line\n")
        os.close(end)
        variables = {"NAMESRV_ADDR": lab.nameserver, "XDG_STATE_HOME": str(lab.home), "HOME": str(lab.home)}
        return Done(await run(line, variables, out, err, source=source), out.getvalue(), err.getvalue())
    finally:
        for thread in threading.enumerate():
            if thread.name == "standard input":  # it would read from the next pipe that has this number
                await asyncio.to_thread(thread.join)
        os.close(source)


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Lab]:
    async with running_lab(tmp_path, makes_topics=False) as lab:
        yield lab


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_what_is_not_there_is_not_found(strict: Lab, kind: str) -> None:
    lab = strict
    await lab.topic("Orders")
    await lab.send("Orders", "one")
    await lab.member("shop", "Orders", client_id="10.0.0.1@a")
    await lab.commit("shop", "Orders", 1)
    lines = lines_with(kind, lab)
    assert len(lines) > 1
    wrong = []
    for line in lines:
        done = await with_input(lab, line)
        if done.status != JUDGES.get(line[0], Status.NOT_FOUND) or not (done.err or line[0] in JUDGES):
            wrong.append(f"{done.status} {' '.join(line)}: {done.err.strip()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        ("queryMsgById", "-i", "zzz"),
        ("queryMsgById", "-i", ""),
        ("queryMsgById", "-i", " , "),
        ("topicList", "-n", ""),
        ("printMsg", "-t", "Orders", "-b", "now", "-e", "-1h"),
        ("printMsgByQueue", "-t", "Orders", "-a", "broker-a", "-i", "0", "-b", "now", "-e", "-1h"),
        ("consumerProgress", "-g", "shop", "-s", "maybe"),
        ("tail", "Orders", "-t", "Other"),
        ("tail", "Orders", "--from", "-5"),
        ("lag", "shop", "-g", "other"),
        ("sendMessage", "-t", "Orders", "-p", "text", "-b", "broker-a", "-i", "99999999999"),
        ("topicList", "-n", " ; "),
        ("printMsgByQueue", "-t", "Orders", "-a", "broker-a", "-i", "-1"),
        ("queryMsgById", "-i", "7F00000100002A9F"),
        ("sendMessage", "-t", "Orders", "-p", "text", "-i", "0"),
        ("consumeMessage", "-t", "Orders", "-c", "0"),
        ("consumeMessage", "-t", "Orders", "-i", "0"),
        ("consumeMessage", "-t", "Orders", "-b", "broker-a", "-o", "0"),
        ("consumeMessage", "-t", "Orders", "-s", "2100-01-01 00:00"),
        ("consumeMessage", "-t", "Orders", "-s", "17:30", "-e", "yesterday 17:30"),
        ("updateAclConfig", "-c", "DefaultCluster", "-a", "", "-s", "a-secret-key"),
        ("printMsgByQueue", "-t", "Orders", "-a", "broker-a", "-i", "0", "-p", "true", "-d", "true", "-c", "klingon"),
    ],
    ids=lambda line: " ".join(line[:1] + line[-2:]),
)
async def test_what_nobody_can_mean_is_a_wrong_line(lab: Lab, line: tuple[str, ...]) -> None:
    await lab.topic("Orders")
    await lab.send("Orders", "one")
    done = await lab.mqadmin(*line)
    assert (done.status, done.err.startswith(f"mqadmin {line[0]}: ")) == (Status.USAGE, True), done


@pytest.mark.parametrize(
    "line",
    [
        ("resetOffset", "-g", "shop", "-t", "Orders", "--to", "first", "--queue", "nobroker:0"),
        ("resetOffset", "-g", "shop", "-t", "Orders", "--to", "first", "--queue", "broker-a:0,broker-a:99"),
        ("resetOffsetByTime", "-g", "shop", "-t", "Orders", "-s", "now", "-b", "BROKER", "-q", "99", "-o", "0"),
        ("printMsgByQueue", "-t", "Orders", "-a", "broker-a", "-i", "99", "-p", "true"),
        ("consumeMessage", "-t", "Orders", "-b", "broker-a", "-i", "99"),
        ("queryMsgByOffset", "-t", "Orders", "-b", "broker-a", "-i", "99", "-o", "0"),
        ("sendMsgStatus", "-b", "nobroker", "-c", "1"),
    ],
    ids=lambda line: " ".join(line[:1] + line[-2:]),
)
@pytest.mark.parametrize("dry", [False, True])
async def test_queues_and_brokers_that_are_not_there(lab: Lab, line: tuple[str, ...], dry: bool) -> None:
    await lab.topic("Orders")
    await lab.send("Orders", "one")
    await lab.commit("shop", "Orders", 1)
    own = [lab.broker if each == "BROKER" else each for each in line]
    done = await lab.mqadmin(*own, *(["--dry-run"] if dry and line[0].startswith("reset") else []))
    assert (done.status, done.out) == (Status.NOT_FOUND, ""), done
    assert done.err.startswith(f"mqadmin {line[0]}: ")
    assert await lab.committed("shop", "Orders") == {0: 1}
    assert "nobroker" not in (await lab.done("topicList")).out.split()


async def test_what_was_not_there_is_not_said_to_be_done(lab: Lab) -> None:
    for line in (
        ("deleteTopic", "-c", "DefaultCluster", "-t", "Nothing"),
        ("deleteSubGroup", "-c", "DefaultCluster", "-g", "nobody"),
        ("deleteSubGroup", "-b", lab.broker, "-g", "nobody"),
        ("deleteKvConfig", "-s", "space", "-k", "key"),
        ("updateOrderConf", "-t", "Nothing", "-m", "delete"),
    ):
        done = await lab.mqadmin(*line, "-o", "jsonl")
        assert done.status == Status.NOT_FOUND, done
        acts = [json.loads(each) for each in done.out.splitlines()]
        assert acts and {(each["action"], each["done"]) for each in acts} == {("delete", False)}, done


async def test_a_group_that_nobody_knows_beside_one_that_is_there(lab: Lab) -> None:
    await lab.topic("Orders")
    await lab.member("shop", "Orders")
    done = await lab.mqadmin("lag", "shop", "nobody")
    assert (done.status, [row[:3] for row in done.rows[1:]]) == (5, [["nobody", "0", "?"], ["shop", "1", "0"]]), done


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("statsAll -t Order", "the nameserver knows no topic Order; did you mean Orders?"),
        ("resetOffset -g shop -t Orders --to group:none", "see where it has one with mqadmin consumerProgress -g none"),
        ("resetOffset -g shop -t Orders --to -1", "give first, last, a time or an offset"),
        ("resetOffsetByTime -g shop -t Orders -s 0 -b 127.0.0.1:1 -q 0", "mqadmin clusterList shows the addresses"),
    ],
)
async def test_the_sentence_says_what_to_do(lab: Lab, line: str, words: str) -> None:
    await lab.topic("Orders")
    await lab.done("updateSubGroup", "-c", "DefaultCluster", "-g", "shop")
    done = await lab.mqadmin(*line.split())
    assert done.status in (1, 4) and words in done.err, done
