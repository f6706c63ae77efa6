"""One of two brokers is away or hangs: what is alive is shown, what is not known is never 0, who is silent is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from eruca.protocol.bodies import TopicConfig
from tests.admin.conftest import Done, Lab
from tests.support.stopwatch import Stopwatch

READS = {
    "topicStatus": ["-t", "T"],
    "consumerProgress": ["-g", "g"],
    "consumerProgress ": [],
    "statsAll": ["-t", "T"],
    "clusterList": [],
    "clusterList ": ["-m"],
    "brokerStatus": ["-c", "DefaultCluster"],
    "getBrokerConfig": ["-c", "DefaultCluster"],
    "getConsumerConfig": ["-g", "g"],
    "exportMetrics": ["-c", "DefaultCluster", "-f", "FOLDER"],
    "queryMsgByKey": ["-t", "T", "-k", "key"],
    "producerConnection": ["-g", "p", "-t", "T"],
}
"""Calls that ask every broker; a blank tells two of one command apart."""


@pytest.fixture(params=["away", "hanging"])
async def silent(request: pytest.FixtureRequest, lab: Lab) -> AsyncIterator[str]:
    """The address of broker-b, which has queues of T and of the group's retry topic: nobody there, or no answer."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    if request.param == "away":
        server.close()
        await server.wait_closed()
    await lab.topic("T")
    await lab.send("T", "one", "two", keys="key")
    await lab.member("g", "T")
    await lab.producer("p")
    await lab.commit("g", "T", 1)
    topics = [
        TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in ("T", "%RETRY%g", "%DLQ%g")
    ]
    await lab.register("broker-b", address, *topics)
    yield address
    server.close()
    for writer in held:
        writer.close()


@pytest.mark.parametrize("command", READS)
async def test_a_part_is_shown_as_a_part(lab: Lab, silent: str, command: str) -> None:
    options = [str(lab.home / "out") if each == "FOLDER" else each for each in READS[command]]

    async def run(*more: str) -> Done:
        return await lab.mqadmin(command.strip(), *options, *more, "--timeout", "1")

    with Stopwatch() as watch:
        done = await run()
    assert watch.seconds < 6
    assert done.status == 5, done
    assert "broker-b" in done.err or silent in done.err
    assert len(done.out.splitlines()) >= 1
    if "-o" in (await lab.mqadmin("help", command.strip())).out and command != "queryMsgByKey":
        document = json.loads((await run("-o", "json")).out)
        assert document["items"] and document["errors"]
        assert {each["peer"] for each in document["errors"]} <= {"broker-b", silent}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (("updateBrokerConfig", "-c", "DefaultCluster", "-k", "fileReservedTime", "-v", "48"), 5),
        (("cleanExpiredCQ", "-c", "DefaultCluster"), 5),
        (("doctor", "nobody"), 5),
        (("consumerConnection", "-g", "nobody"), 5),
        (("move", "g", "-t", "T"), 124),
        (("check", "lag", "-g", "g"), 3),
        (("tail", "T"), 5),
    ],
    ids=lambda value: " ".join(value[:1]) if isinstance(value, tuple) else "",
)
async def test_what_is_done_or_known_at_one_only(lab: Lab, silent: str, line: tuple[str, ...], status: int) -> None:
    with Stopwatch() as watch:
        done = await lab.mqadmin("--timeout", "1", *line)
    expected = 1 if status == 124 and "in time" not in done.err else status
    assert (done.status, "broker-b" in done.out + done.err or silent in done.out + done.err) == (expected, True), done
    assert watch.seconds < 6


async def test_a_sum_that_lacks_a_broker_says_so(lab: Lab, silent: str) -> None:
    of_group = await lab.mqadmin("consumerProgress", "-g", "g", "--timeout", "1")
    assert "Diff Total: >= 1 ?" in of_group.out
    of_all = await lab.mqadmin("consumerProgress", "--timeout", "1")
    assert [row[-3:] for row in of_all.rows if row[0] == "g"] == [[">=", "1", "?"]]
    load = await lab.mqadmin("clusterList", "--timeout", "1")
    assert [row[4:] for row in load.rows if row[1] == "broker-b"] == [["?"] * 6]


@pytest.mark.parametrize("line", [("consumerProgress",), ("statsAll",), ("queryMsgByUniqueKey", "-t", "T", "-i", "ID")])
async def test_a_command_that_asks_in_steps_waits_once(lab: Lab, silent: str, line: tuple[str, ...]) -> None:
    (sent,) = await lab.send("T", "three")
    with Stopwatch() as watch:
        done = await lab.mqadmin(*(sent if each == "ID" else each for each in line), "--timeout", "2")
    assert done.status == 5, done
    assert watch.seconds < 3.9


async def test_a_broker_that_hangs_costs_five_seconds(lab: Lab, silent: str) -> None:
    with Stopwatch() as watch:
        done = await lab.mqadmin("consumerProgress", "-g", "g")
    assert (done.status, "Diff Total: >= 1 ?" in done.out) == (5, True), done
    assert watch.seconds < 6
