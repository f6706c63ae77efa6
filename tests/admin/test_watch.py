"""lag, check: what monitoring and people see."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from eruca.admin.results.history import History, blocks
from eruca.admin.results.lags import span
from eruca.protocol.bodies import TopicConfig
from tests.admin.conftest import Done, Lab
from tests.admin.test_forms import watching


@pytest.fixture
async def behind(lab: Lab) -> Lab:
    """A group with a member and two messages that it has not consumed."""
    await lab.topic("T")
    await lab.send("T", "one", "two", "three")
    await lab.member("g", "T")
    await lab.commit("g", "T", 1)
    return lab


def test_a_history_has_a_trend_and_a_line() -> None:
    history = History(3)
    assert (history.trend("g"), history.values("g")) == (None, [])
    for at, value in enumerate((400.0, None, 200.0, 100.0)):
        history.add("g", float(at), value)
    assert history.values("g") == [None, 200.0, 100.0]
    assert history.trend("g") == -100.0
    assert blocks([0, 50, None, 100]) == "▁▅ █" and blocks([0, 0]) == "▁▁" and blocks([]) == ""


def test_spans() -> None:
    assert [span(each) for each in (None, 0, 119, 120, 7200, 172_800)] == [
        "-",
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "2 days",
    ]


async def test_the_lag_of_groups(behind: Lab) -> None:
    await behind.member("h", "T", client_id="10.0.0.2@c")
    rows = (await behind.done("lag")).rows
    assert [row[:3] for row in rows] == [["#Group", "#Online", "#Lag"], ["g", "1", "2"], ["h", "1", "0"]]
    assert [row[0] for row in (await behind.done("lag", "h")).rows[1:]] == ["h"]
    (one,) = json.loads((await behind.done("lag", "g", "-o", "json")).out)["items"]
    assert (one["lag"], one["changePerSecond"], one["last"]) == ({"known": 2, "complete": True}, None, [2.0])
    unknown = await behind.mqadmin("lag", "shrug")
    assert (unknown.status, "no broker knows the consumer group shrug" in unknown.err) == (4, True)


async def test_the_lag_while_it_is_watched(behind: Lab) -> None:
    async with watching(behind, "lag", "g", "h", "--watch", "1", "-o", "jsonl") as (out, _):
        await out.shows('"group":"g"')
        await behind.send("T", "four", "five")
        await out.shows('"known":4')
    last = next(json.loads(line) for line in out.getvalue().splitlines() if '"known":4' in line)
    assert last["changePerSecond"] > 0 and last["last"][0] == 2.0 and last["last"][-1] == 4.0


async def check(lab: Lab, status: int, *line: str) -> str:
    done = await lab.mqadmin("check", *line)
    assert (done.status, done.err, done.out.count("\n")) == (status, "", 1), done
    return done.out


async def test_lag(behind: Lab) -> None:
    assert (
        await check(behind, 0, "lag", "-g", "g") == "LAG OK - group g: 2 messages not consumed | 'lag'=2;1000;10000;0\n"
    )
    assert (await check(behind, 1, "lag", "-g", "g", "-w", "2", "-c", "3")).startswith("LAG WARNING - ")
    assert (await check(behind, 2, "lag", "-g", "g", "-w", "1", "-c", "2")).startswith("LAG CRITICAL - ")
    assert (await check(behind, 3, "lag", "-g", "shrug")).startswith("LAG UNKNOWN - ")


async def test_members(behind: Lab) -> None:
    assert await check(behind, 0, "members", "-g", "g") == "MEMBERS OK - group g: 1 member online | 'members'=1;1;1;0\n"
    assert (await check(behind, 1, "members", "-g", "g", "-w", "2")).startswith("MEMBERS WARNING - ")
    await behind.topic("%RETRY%h")
    assert (await check(behind, 2, "members", "-g", "h")).startswith("MEMBERS CRITICAL - group h: 0 members online")


async def test_topic(behind: Lab) -> None:
    assert (await check(behind, 0, "topic", "-t", "T")).startswith(
        "TOPIC OK - topic T: 1 queue to write, the last message "
    )
    assert (await check(behind, 2, "topic", "-t", "T", "-c", "0")).startswith("TOPIC CRITICAL - ")
    assert (await check(behind, 2, "topic", "-t", "None")).startswith("TOPIC CRITICAL - ")


async def test_brokers(lab: Lab) -> None:
    assert (await check(lab, 0, "broker", "-w", "60000", "-c", "60000")).startswith(
        "BROKER OK - 1 of 1 brokers answer | 'time_broker-a:0'="
    )
    assert (await check(lab, 2, "broker", "-b", "nobody")) == "BROKER CRITICAL - no broker nobody is registered\n"
    assert await check(lab, 0, "cluster") == "CLUSTER OK - 1 nameserver and 1 broker | 'missing'=0;1;1;0\n"
    assert (await check(lab, 2, "disk", "-w", "0", "-c", "0")).startswith("DISK CRITICAL - broker-a:0: ")
    assert (await check(lab, 0, "disk", "-w", "101", "-c", "101")).startswith("DISK OK - ")
    assert await check(lab, 0, "slave") == "SLAVE OK - there is no slave\n"
    await lab.register("broker-b", "127.0.0.1:1", TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    assert (await check(lab, 2, "cluster")).startswith("CLUSTER CRITICAL - 1 nameserver and 2 brokers, no answer of ")
    assert (await check(lab, 2, "broker")).startswith("BROKER CRITICAL - 1 of 2 brokers answer; broker-b:0: ")
    await lab.register("broker-c", "127.0.0.1:1", broker_id=1)
    assert "'slave_broker-c:1'=U;67108864;268435456;0" in await check(lab, 3, "slave")


async def test_a_broker_that_refuses_every_send(behind: Lab) -> None:
    store = behind.cluster.broker.broker.store
    store.config.disk_space_warning_level_ratio = -1.0
    store.check_disk()
    for line in (("broker",), ("topic", "-t", "T")):
        said = await check(behind, 2, *line)
        assert "refuses sends: " in said and "free space" in said
    doctor = await behind.mqadmin("doctor", "-o", "jsonl")
    (found,) = [each for each in map(json.loads, doctor.out.splitlines()) if each["kind"] == "brokerRefusesSends"]
    assert (found["broker"], "every send is refused" in found["what"]) == ("broker-a", True)


async def test_a_broker_that_is_not_there_is_named(lab: Lab) -> None:
    assert await check(lab, 3, "disk", "-b", "nobody") == "DISK UNKNOWN - no broker nobody is registered\n"
    assert await check(lab, 3, "slave", "-b", "nobody") == "SLAVE UNKNOWN - no broker nobody is registered\n"
    assert await check(lab, 3, "slave", "-b", "broker-a") == "SLAVE UNKNOWN - there is no slave of broker broker-a\n"


async def test_a_cluster_that_nobody_reaches_is_unknown(lab: Lab) -> None:
    for line in (("lag", "-g", "g"), ("members", "-g", "g"), ("broker",), ("cluster",), ("disk",), ("slave",)):
        done = await lab.mqadmin("check", *line, "-n", "127.0.0.1:1")
        assert (done.status, " UNKNOWN - " in done.out) == (3, True), done


async def test_wrong_questions(lab: Lab) -> None:
    for line, words in (
        ((), "<what> is missing: give it as the first word, or with --what"),
        (("shrug",), "<what> takes lag, broker, cluster, disk, slave, members, topic, not 'shrug'"),
        (("lag",), "give the consumer group with -g"),
        (("topic",), "give the topic with -t"),
        (("lag", "-g", "g", "-w", "many"), "takes a number, not 'many'"),
        (("lag", "-g", "g", "-w", "nan"), "takes a number, not 'nan'"),
        (("lag", "-g", "g", "-c", "inf"), "takes a number, not 'inf'"),
        (("lag", "-g", "g", "-w", "10", "-c", "5"), "the critical bound 5 (-c) is below the warning bound 10 (-w)"),
        (("members", "-g", "g", "-w", "1", "-c", "2"), "the critical bound 2 (-c) is above the warning bound 1 (-w)"),
    ):
        done = await lab.mqadmin("check", *line)
        assert (done.status, words in done.err) == (3, True), done
        assert done.out.startswith("UNKNOWN - ") and words in done.out.splitlines()[0], done


async def test_whatever_fails_is_unknown_and_in_the_line_that_a_monitor_shows(lab: Lab, tmp_path: Path) -> None:
    context = {"MQADMIN_CONTEXT": "nowhere", "XDG_CONFIG_HOME": str(tmp_path)}
    for line, environment in (
        (("lag", "-g", "g", "--timeout", "soon"), {}),
        (("lag", "-g", "g", "-n", "a b:9876"), {}),
        (("lag", "--no-such-option"), {}),
        (("lag", "-g", "g"), context),
    ):
        done = await lab.mqadmin("check", *line, environment=environment)
        (shown,) = done.out.splitlines()
        assert done.status == 3 and shown.startswith("UNKNOWN - "), done
        assert done.err.startswith("mqadmin check: "), done


async def test_help_says_the_statuses_of_a_check(lab: Lab) -> None:
    page = (await lab.done("help", "check")).out
    assert page.endswith("Exit status:\n   0    OK\n   1    WARNING\n   2    CRITICAL\n   3    UNKNOWN\n")


async def test_the_form_of_prometheus(behind: Lab) -> None:
    done: Done = await behind.mqadmin("check", "lag", "-g", "g", "-o", "prometheus")
    assert done.out.splitlines()[-1] == 'mqadmin_check_lag{check="lag",subject="g",of=""} 2'
    disk = (await behind.mqadmin("check", "disk", "-o", "prometheus")).out
    assert 'mqadmin_check_disk_ratio{check="disk",subject="",of="broker-a:0"} 0.' in disk
    other = await behind.mqadmin("topicList", "-o", "prometheus")
    assert (other.status, "takes apache, table" in other.err) == (2, True)
    if (tool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed")
    for text in (done.out, disk):
        process = await asyncio.create_subprocess_exec(tool, "check", "metrics", stdin=-1, stdout=-1, stderr=-2)
        printed, _ = await process.communicate(text.encode())
        assert b"error" not in printed, printed
