"""What Apache's mqadmin and Eruca's print about one state of one cluster: line by line, padding included.

For commands that the session of transcript.py leaves out. Each is run by one tool after the other on Apache's clusters
of 4.9.7 and 5.3.3 and on Eruca's; only figures of the moment are masked, and lines in the order of a hash map sorted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.compat.clients import JavaClients, Queue
from tests.compat.columns import comparable, has_its_own_reason, parsed
from tests.compat.conftest import Cluster
from tests.compat.record import rendered
from tests.compat.replicas import wait_for
from tests.compat.series import numbered
from tests.compat.transcript import CLUSTER, Mqadmin, Outcome, eruca_mqadmin, java_mqadmin
from tests.support.eruca import SCRIPTS
from tests.support.java import SHORT_LIFE, Judge, jars, opened_modules, write_logback
from tests.support.processes import Process

BROKER = "broker-a"
FAR = "2020-01-01#00:00:00:000"
MESSAGES = 5


@dataclass
class Scene:
    """A topic of two queues with messages in the first, a group that has consumed them, a producer online."""

    kind: str
    """The fixture of its cluster."""
    cluster: Cluster
    judge: Judge
    topic: str
    group: str
    producers: str
    home: Path

    def both(self, judge: Judge, command: str, *options: str) -> tuple[Outcome, Outcome]:
        """What Apache's mqadmin of a release did, and then Eruca's."""
        line = (command, "-n", self.cluster.address, *options)
        theirs, ours = java_mqadmin(judge)(line), eruca_mqadmin(line)
        assert (theirs.exit, ours.exit, ours.stderr) == (0, 0, ""), (theirs, ours)
        return theirs, ours

    def lines(self, outcome: Outcome) -> list[str]:
        """The lines of standard output as they are compared."""
        (printed,) = parsed(outcome.command, rendered([outcome], self.home)[outcome.command])
        return comparable(printed)


@pytest.fixture(scope="module", params=["apache", "apache5", "eruca"])
def scene(request: pytest.FixtureRequest, judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    cluster: Cluster = request.getfixturevalue(request.param)
    topic, group, producers = f"same-{request.param}", f"same-group-{request.param}", f"same-makers-{request.param}"
    made = java_mqadmin(judge)(("updateTopic", "-n", cluster.address, "-c", CLUSTER, "-t", topic, "-r", "2", "-w", "2"))
    assert made.stdout.startswith("create topic to"), made
    clients = JavaClients(judge)
    with clients.producer(producers, cluster.address) as producer:
        producer.send(numbered(topic, 0, MESSAGES), "sync", Queue(topic, BROKER, 0))
        with clients.member(group, cluster.address, {topic: "*"}) as member:
            assert len(member.received(MESSAGES)) == MESSAGES
            assert member.consumed(MESSAGES) == MESSAGES
        producer.heartbeat()
        yield Scene(request.param, cluster, judge, topic, group, producers, tmp_path_factory.mktemp("same"))


@pytest.fixture(params=["judge", "judge5"], ids=["4.9.7", "5.3.3"])
def either(request: pytest.FixtureRequest) -> Judge:
    """Apache's mqadmin of each release."""
    found: Judge = request.getfixturevalue(request.param)
    return found


ALIKE = {
    "printMsg": "printMsg -t {topic}",
    "printMsg without bodies": "printMsg -t {topic} -d false",
    "printMsg of a tag nobody sent": "printMsg -t {topic} -s NoSuchTag",
    "printMsg of an interval": "printMsg -t {topic} -b " + FAR + " -e " + FAR,
    "printMsgByQueue": "printMsgByQueue -t {topic} -a broker-a -i 0 -p true -d true -f true",
    "printMsgByQueue without bodies": "printMsgByQueue -t {topic} -a broker-a -i 0 -p true",
    "printMsgByQueue of an empty queue": "printMsgByQueue -t {topic} -a broker-a -i 1 -p true -f true",
    "updateOrderConf put": "updateOrderConf -t {topic} -m put -v broker-a:2",
    "updateOrderConf get": "updateOrderConf -t {topic} -m get",
    "cleanExpiredCQ": "cleanExpiredCQ -b {broker}",
    "cleanExpiredCQ of a cluster": "cleanExpiredCQ -c JudgeCluster",
    "cleanUnusedTopic": "cleanUnusedTopic -b {broker}",
    "cleanUnusedTopic of a cluster": "cleanUnusedTopic -c JudgeCluster",
    "deleteExpiredCommitLog": "deleteExpiredCommitLog -b {broker}",
    "updateNamesrvConfig": "updateNamesrvConfig -k orderMessageEnable -v false",
}
"""Lines of a command that must be the same; in this order."""


@pytest.mark.parametrize("name", ALIKE)
def test_same_lines(scene: Scene, name: str) -> None:
    words = ALIKE[name].format(topic=scene.topic, broker=scene.cluster.broker.address).split()
    theirs, ours = scene.both(scene.judge, *words)
    # printMsg goes through the queues in the order of a hash set.
    order = sorted if words[0] == "printMsg" else list
    assert order(scene.lines(ours)) == order(scene.lines(theirs))


@pytest.mark.parametrize("name", ALIKE)
def test_lines_of_5x(scene: Scene, judge5: Judge, name: str) -> None:
    """5.3.3's mqadmin prints the same words about both clusters; it shows a message's properties in another order."""
    words = ALIKE[name].format(topic=scene.topic, broker=scene.cluster.broker.address).split()
    line = (words[0], "-n", scene.cluster.address, *words[1:])
    newer, ours = java_mqadmin(judge5)(line), eruca_mqadmin(line)
    assert (newer.exit, newer.stderr, ours.exit, ours.stderr) == (0, "", 0, ""), (newer, ours)

    def words_of(outcome: Outcome) -> list[str]:
        return sorted(word for text in scene.lines(outcome) for word in re.split(r"[ ,{}]+", text))

    assert words_of(ours) == words_of(newer)


def test_the_same_line_about_an_order_configuration_that_goes(scene: Scene, judge: Judge, judge5: Judge) -> None:
    at = ("updateOrderConf", "-n", scene.cluster.address, "-t", scene.topic, "-m")
    said = []
    for mqadmin in (eruca_mqadmin, java_mqadmin(judge), java_mqadmin(judge5)):
        assert eruca_mqadmin((*at, "put", "-v", "broker-a:2")).exit == 0
        done = mqadmin((*at, "delete"))
        assert (done.exit, done.stderr) == (0, ""), done
        said.append(scene.lines(done))
    assert said[0] == said[1] == said[2]


PLAIN = {
    "brokerStatus": "",
    "getBrokerConfig": "",
    "updateBrokerConfig": "-k fileReservedTime -v 72",
    "updateSubGroup": "-g {group}-b",
    "updateTopicPerm": "-t {topic} -p 6",
    "deleteSubGroup": "-g {group}-b",
    "exportMetadata": "-t -f {home}/both",
}
"""Commands of which Apache's takes -b where -c is given, too."""
GROUPED = {
    "updateTopic": "-t {topic}",
    "updateAclConfig": "-a key -s secret",
    "deleteAclConfig": "-a key",
    "updateGlobalWhiteAddr": "-g 127.0.0.1",
    "clusterAclConfigVersion": "",
    "getAclConfig": "",
}
"""Commands of which Apache's takes exactly one of -b and -c."""


@pytest.mark.parametrize("command", PLAIN)
def test_a_broker_counts_before_a_cluster(scene: Scene, command: str) -> None:
    address = scene.cluster.broker.address
    options = PLAIN[command].format(topic=scene.topic, group=scene.group, home=scene.home).split()
    line = (command, "-n", scene.cluster.address, "-b", address, "-c", "NoSuchCluster", *options)
    theirs, ours = java_mqadmin(scene.judge)(line), eruca_mqadmin(line)
    # Apache's has deleted the group already, and does not say of any that it was not there.
    done = 4 if command == "deleteSubGroup" else 0
    assert (theirs.exit, theirs.stderr, ours.exit) == (0, "", done), (theirs, ours)
    assert ours.stderr.splitlines()[0].endswith("(--clusterName) does not count beside -b")
    if command in ("brokerStatus", "getBrokerConfig"):
        separator = ":" if command == "brokerStatus" else "="
        theirs_keys, ours_keys = (
            {each.partition(separator)[0] for each in outcome.stdout.splitlines()} for outcome in (theirs, ours)
        )
        assert {each for each in theirs_keys - ours_keys if not has_its_own_reason(each)} == set()
    else:
        assert scene.lines(ours) == scene.lines(theirs)


@pytest.mark.parametrize("command", [*PLAIN, *GROUPED])
def test_neither_broker_nor_cluster(scene: Scene, command: str) -> None:
    """Nothing is done; Apache's prints its usage or nothing, Eruca's always its usage, and ends with 2."""
    options = {**PLAIN, **GROUPED}[command].format(topic=scene.topic, group=scene.group, home=scene.home).split()
    line = (command, "-n", scene.cluster.address, *options)
    theirs, ours = java_mqadmin(scene.judge)(line), eruca_mqadmin(line)
    assert theirs.exit == (1 if command in GROUPED else 0)
    assert (ours.exit, ours.stdout.startswith("usage:")) == (2, True)
    assert ours.stderr == f"mqadmin {command}: one of -b and -c is required\n"
    if theirs.stdout:
        assert scene.lines(ours) == scene.lines(theirs)


@pytest.mark.parametrize("command", GROUPED)
def test_both_broker_and_cluster(scene: Scene, command: str) -> None:
    options = GROUPED[command].format(topic=scene.topic).split()
    both = ("-b", scene.cluster.broker.address, "-c", CLUSTER)
    line = (command, "-n", scene.cluster.address, *both, *options)
    theirs, ours = java_mqadmin(scene.judge)(line), eruca_mqadmin(line)
    assert (theirs.exit, ours.exit) == (1, 2)
    assert scene.lines(ours) == scene.lines(theirs) != []


def test_lag_of_a_broker(scene: Scene, either: Judge) -> None:
    """Rows of the scene's topic, and the title."""
    for options in ((), ("-l", "1000000"), ("-o", "true")):
        theirs, ours = (
            [each for each in scene.lines(outcome) if each.startswith(("#", scene.topic))]
            for outcome in scene.both(either, "brokerConsumeStats", "-b", scene.cluster.broker.address, *options)
        )
        assert sorted(ours) == sorted(theirs)


def test_producers(scene: Scene, either: Judge) -> None:
    def own(outcome: Outcome) -> list[str]:
        lines = [each for each in outcome.stdout.splitlines() if f"({scene.producers})" in each]
        return [re.sub(r"lastUpdateTimestamp=\d+", "lastUpdateTimestamp=...", each) for each in lines]

    theirs, ours = scene.both(either, "producer", "-b", scene.cluster.broker.address)
    assert own(ours) == own(theirs) != []


def test_response_times(scene: Scene, either: Judge) -> None:
    """Columns, and the queues in turn; the time itself and the ids differ."""

    def masked(outcome: Outcome) -> list[str]:
        text = re.sub(r"(true +)\d+$", r"\1...", outcome.stdout, flags=re.MULTILINE)
        text = re.sub(r"(Avg RT: )[\d.]+", r"\1...", text)
        # Java's client begins at a queue by chance.
        return sorted(re.sub(r"^(broker-a +)\d", r"\1N", line) for line in text.splitlines())

    theirs, ours = scene.both(either, "checkMsgSendRT", "-t", scene.topic, "-a", "4", "-s", "16")
    assert masked(ours) == masked(theirs)
    assert re.findall(r"^broker-a +(\d)", ours.stdout, re.MULTILINE) == ["0", "1", "0", "1"]


def test_statuses_of_sends(scene: Scene, either: Judge) -> None:
    """5.3.3's has one property more, of delayed messages."""

    def masked(outcome: Outcome) -> list[str]:
        text = re.sub(r"rt=\d+ms", "rt=...", outcome.stdout)
        text = re.sub(r"\b[0-9A-F]{32}\b", "ID", text).replace(", recallHandle=null]", "]")
        return re.sub(r"(queueId|queueOffset)=\d+", r"\1=N", text).splitlines()

    theirs, ours = scene.both(either, "sendMsgStatus", "-b", BROKER, "-c", "3", "-s", "16")
    assert masked(ours) == masked(theirs)
    assert len(masked(ours)) == 3


@pytest.mark.parametrize("options", [(), ("-p", "true", "-m", "room-1")], ids=["table", "log"])
def test_response_times_of_a_cluster(scene: Scene, options: tuple[str, ...], tmp_path: Path) -> None:
    """Both tools go on until they are ended; of each the first round counts."""
    line = ("clusterRT", "-n", scene.cluster.address, "-c", CLUSTER, "-a", "5", "-s", "16", "-i", "60", *options)
    java = (
        *("java", *SHORT_LIFE, *opened_modules(), f"-Duser.home={tmp_path}", f"-Drocketmq.home.dir={tmp_path}"),
        *(f"-Drmq.logback.configurationFile={write_logback(tmp_path, 'tools')}", "-cp", f"{jars('4.9.7')}/*"),
        "org.apache.rocketmq.tools.command.MQAdminStartup",
    )

    def first_round(name: str, *command: str) -> list[str]:
        with Process([*command, *line], tmp_path / f"{name}.out") as process:
            process.wait_until(lambda: re.search(rf"{BROKER}\b.*\n", process.output) is not None, "a round")
            lines = [each for each in process.output.splitlines() if each.startswith(("#", CLUSTER)) or "|" in each]
        lines = [re.sub(r"(?<=broker-a) +[\d.]+ +", lambda rt: f"[{len(rt[0])}]", each, count=1) for each in lines]
        lines = [re.sub(r"(?<=broker-a)\|.*?[\d.]+", "...", each, count=1) for each in lines]
        return [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", each) for each in lines]

    theirs = first_round("theirs", *java)
    assert first_round("ours", str(SCRIPTS / "mqadmin")) == theirs
    assert any(BROKER in each for each in theirs)


def test_clone_of_offsets(scene: Scene, judge5: Judge) -> None:
    copy = f"{scene.group}-copy"
    scene.both(scene.judge, "updateSubGroup", "-b", scene.cluster.broker.address, "-g", copy)
    # 5.3.3's asks 351, which brokers of 4.9.7 do not know.
    for judge in (scene.judge, judge5) if scene.kind != "apache" else (scene.judge,):
        theirs, ours = scene.both(judge, "cloneGroupOffset", "-s", scene.group, "-d", copy, "-t", scene.topic)
        assert ours.stdout.strip() == theirs.stdout.strip() != "", theirs.stderr


def test_exported_offsets(scene: Scene) -> None:
    """Apache's has no such command; its broker answers as Eruca's."""

    def exported() -> dict[tuple[str, int], int]:
        done = eruca_mqadmin(("offsets", "export", "-n", scene.cluster.address, "-g", scene.group))
        return {(each["topic"], each["queueId"]): each["offset"] for each in json.loads(done.stdout)["queues"]}

    wait_for(lambda: exported()[scene.topic, 0] == MESSAGES, "the offset that the member commits each few seconds")


def test_allocation(scene: Scene, either: Judge) -> None:
    """The same form; Apache's shares queues in the order of a hash map, which is not that of members."""
    theirs, ours = (
        json.loads(each.stdout) for each in scene.both(either, "allocateMQ", "-t", scene.topic, "-i", "a,b")
    )

    def queues(shared: Any) -> list[str]:
        return sorted(json.dumps(each, sort_keys=True) for share in shared["result"].values() for each in share)

    assert {name: len(share) for name, share in ours["result"].items()} == {"a": 1, "b": 1}
    assert (ours.keys(), ours["result"].keys()) == (theirs.keys(), theirs["result"].keys())
    assert queues(ours) == queues(theirs)


def content(mqadmin: Mqadmin, folder: Path, file: str, *line: str) -> Any:
    done = mqadmin((*line, "-f", str(folder)))
    assert done.stdout.strip() == f"export {folder}/{file} success", done
    read = json.loads((folder / file).read_text())
    read.pop("exportTime", None)
    read.get("dataVersion", {}).pop("stateVersion", None)  # of 5.x: 4.9.7's leaves it out
    return read


EXPORTS: dict[str, tuple[str, Callable[[Scene], tuple[str, ...]]]] = {
    "all": ("metadata.json", lambda scene: ("exportMetadata", "-c", CLUSTER)),
    "topics of a cluster": ("topic.json", lambda scene: ("exportMetadata", "-c", CLUSTER, "-t")),
    "groups of a cluster": ("subscriptionGroup.json", lambda scene: ("exportMetadata", "-c", CLUSTER, "-g")),
    "topics of a broker": ("topic.json", lambda scene: ("exportMetadata", "-b", scene.cluster.broker.address, "-t")),
    "those of retries": (
        "topic.json",
        lambda scene: ("exportMetadata", "-b", scene.cluster.broker.address, "-t", "-s"),
    ),
    "groups": ("subscriptionGroup.json", lambda scene: ("exportMetadata", "-b", scene.cluster.broker.address, "-g")),
    "configs": ("configs.json", lambda scene: ("exportConfigs", "-c", CLUSTER)),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_files(scene: Scene, name: str, judge5: Judge, tmp_path: Path) -> None:
    file, line = EXPORTS[name]
    words = line(scene)
    words = (words[0], "-n", scene.cluster.address, *words[1:])
    # 4.9.7's does not end where a broker lacks a setting, and those of 5.3.3 lack one.
    judge = judge5 if file == "configs.json" else scene.judge
    theirs = content(java_mqadmin(judge), tmp_path / "theirs", file, *words)
    ours = content(eruca_mqadmin, tmp_path / "ours", file, *words)
    assert ours == theirs
