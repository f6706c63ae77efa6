"""Apache's mqadmin and Eruca's, on Apache's cluster and on Eruca's: the same session, the same columns."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from tests.compat.columns import Printed, comparable, has_its_own_reason, keys, parsed
from tests.compat.conftest import Cluster, start
from tests.compat.record import GOLDEN, rendered
from tests.compat.replicas import wait_for
from tests.compat.transcript import Mqadmin, Outcome, eruca_mqadmin, java_mqadmin, session
from tests.support import raw
from tests.support.java import Judge

RUNTIME_INFO = 28

ASKING_OTHERWISE = {
    *("updateTopic", "updateTopicPerm", "deleteTopic", "topicStatus", "topicRoute", "updateSubGroup", "deleteSubGroup"),
    *("getConsumerConfig", "consumerProgress", "consumerConnection", "consumerStatus", "brokerStatus"),
    *("queryMsgByUniqueKey", "queryMsgByOffset", "resetOffsetByTime"),
}
"""Commands whose 5.x form sends other requests or fields (351, 352, attributes, ``pullOffset``, topics with ids)."""


def transcript(cluster: Cluster, mqadmin: Mqadmin, judge: Judge) -> dict[str, list[Printed]]:
    """What each command printed in a session on a fresh cluster, by command."""
    # In its first second Apache's broker answers 28 with an exception.
    wait_for(lambda: raw.ask(cluster.broker.address, RUNTIME_INFO)[0]["code"] == 0, "the broker's figures")
    outcomes = []
    for outcome in session(mqadmin, judge, cluster.address, cluster.broker.address):
        outcomes.append(outcome)
        for path in re.findall(r"Message Body Path: +(\S+)", outcome.stdout):
            Path(path).unlink(missing_ok=True)
    return {command: parsed(command, text) for command, text in rendered(outcomes, cluster.home).items()}


def golden() -> dict[str, list[Printed]]:
    """What Apache's mqadmin printed on Apache's cluster when it was recorded."""
    return {file.stem: parsed(file.stem, file.read_text()) for file in sorted(GOLDEN.glob("*.txt"))}


@pytest.mark.parametrize("kind", ["apache", "eruca"])
def test_apaches_mqadmin(kind: str, judge: Judge, tmp_path: Path) -> None:
    with start(kind, tmp_path) as cluster:
        printed = transcript(cluster, java_mqadmin(judge), judge)

    assert printed.keys() == golden().keys()
    for command, expected in golden().items():
        for was, now in zip(expected, printed[command], strict=True):
            assert (now.options, now.exit) == (was.options, was.exit), command
            same_keys_or_lines(was, now, on_eruca=kind == "eruca")
            assert codes(now.stderr) == codes(was.stderr), f"{command} {was.options}"


def test_apaches_mqadmin_of_5x(judge5: Judge, tmp_path: Path) -> None:
    """It prints more columns and asks more; what 4.9.7 can do and cannot do on Eruca is the same for it.

    All commands take more than a minute: without ERUCA_TORTURE=1 only those that ask otherwise than in 4.9.7 are run.
    """
    commands = set(golden()) if "ERUCA_TORTURE" in os.environ else ASKING_OTHERWISE
    with start("eruca", tmp_path) as cluster:
        printed = transcript(cluster, only(commands, java_mqadmin(judge5)), judge5)

    for command, expected in golden().items():
        # 5.x wants the topic for queryMsgById, too, which 4.9 does not take.
        if command == "queryMsgById" or command not in commands:
            continue
        for was, now in zip(expected, printed[command], strict=True):
            assert (now.exit, now.failed) == (was.exit, was.failed), f"{command} {was.options}: {now.stderr}"


@pytest.mark.parametrize("kind", ["apache", "eruca"])
def test_erucas_mqadmin(kind: str, judge: Judge, tmp_path: Path) -> None:
    with start(kind, tmp_path) as cluster, contextlib.chdir(tmp_path):  # consumerStatus writes files where it is
        printed = transcript(cluster, eruca_mqadmin, judge)
        files_make_the_same_cluster(cluster, tmp_path)

    assert printed.keys() == golden().keys()
    for command, expected in golden().items():
        for was, now in zip(expected, printed[command], strict=True):
            assert now.options == was.options
            if was.failed:
                # Apache prints a stack trace and exits 0; here it is one sentence, and the exit status tells.
                assert now.exit in (1, 2, 4) and now.stdout == "", f"{command} {was.options}"
                assert len(now.stderr.splitlines()) == 1, now.stderr
                assert codes(now.stderr) <= codes(was.stderr)
            else:
                # A wrong command line ends with 2 here.
                assert now.exit == 2 * was.exit, f"{command} {was.options}: {now.stderr}"
                # Without the trace of a member, an offset beyond a message does not say that it was consumed.
                now = dataclasses.replace(now, stdout=now.stdout.replace("trackType=PASSED", "trackType=CONSUMED"))
                same_keys_or_lines(was, now, on_eruca=kind == "eruca")


def files_make_the_same_cluster(cluster: Cluster, folder: Path) -> None:
    """What export writes gives an emptied cluster the same topics, groups and order configurations again."""

    def done(*line: str, status: int = 0) -> str:
        outcome = eruca_mqadmin((line[0], "-n", cluster.address, *line[1:]))
        assert outcome.exit == status, outcome
        return outcome.stdout

    exported = done("export")
    file, empty = folder / "cluster.json", folder / "empty.json"
    file.write_text(exported)
    empty.write_text("{}")
    assert json.loads(exported)["topics"] and json.loads(exported)["orderConf"]
    assert done("apply", "-f", str(file), "--prune") == "nothing is to be changed\n"
    done("apply", "-f", str(empty), "--prune")
    left = json.loads(done("export"))
    assert (left["topics"], left["orderConf"]) == ([], {})  # the member that is about to stop may bring its group again
    done("diff", "-f", str(file), status=3)
    done("apply", "-f", str(file))
    assert done("export") == exported
    assert done("apply", "-f", str(file), "--prune") == "nothing is to be changed\n"


def only(commands: set[str], mqadmin: Mqadmin) -> Mqadmin:
    """An mqadmin that runs these commands, and nothing for all others."""
    return lambda line: mqadmin(line) if line[0] in commands else Outcome(line, "", "", 0)


def same_keys_or_lines(was: Printed, now: Printed, *, on_eruca: bool) -> None:
    expected = keys(was)
    if expected is None:
        assert comparable(now) == comparable(was), f"{was.command} {was.options}"
        return
    missing = expected - (keys(now) or set())
    if on_eruca:
        missing = {key for key in missing if not has_its_own_reason(key)}
    assert missing == set(), f"{was.command} {was.options}"


def codes(text: str) -> set[str]:
    """The response codes that an error tells."""
    return set(re.findall(r"(?:CODE: ?|\(code )(\d+)", text))
