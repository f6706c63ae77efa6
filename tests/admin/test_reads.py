"""Reads while a broker or a nameserver hangs: what is alive is shown, nothing unknown is 0, the rest is named."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eruca.admin.cli import run
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo, TopicConfig
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Lab
from tests.support.ports import free_port
from tests.support.proxy import Proxy
from tests.support.stopwatch import Stopwatch


class Silent(NamedTuple):
    """A server that accepts and never answers."""

    address: str


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    writers = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield Silent(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()
    for writer in writers:
        writer.close()


def one_queue(topic: str) -> TopicConfig:
    return TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)


async def mqadmin(nameservers: str, *line: str) -> tuple[int, str, str, float]:
    out, err = io.StringIO(), io.StringIO()
    with Stopwatch() as watch:
        status = await run(line, {"NAMESRV_ADDR": nameservers}, out, err)
    return status, out.getvalue(), err.getvalue(), watch.seconds


async def test_a_nameserver_that_hangs_costs_half_a_second(lab: Lab, silent: Silent) -> None:
    for number in range(5):
        await lab.topic(f"T{number}")
    status, out, err, took = await mqadmin(f"{silent.address},{lab.nameserver}", "topicList", "-c")
    assert (status, err) == (0, "")
    assert "T4" in out
    assert took < 2.5, "one patience, not one for each question"


async def test_a_change_says_which_nameservers_have_it(lab: Lab, silent: Silent) -> None:
    line = ("updateKvConfig", "-s", "N", "-k", "k", "-v", "v", "--timeout", "1")
    status, out, err, _ = await mqadmin(f"{silent.address},{lab.nameserver}", *line)
    assert (status, out) == (5, "")
    assert err.startswith(f"mqadmin updateKvConfig: only {lab.nameserver} did it: <{silent.address}> did not answer ")


async def test_a_refusal_of_one_nameserver_is_told_beside_the_silence_of_another(lab: Lab, silent: Silent) -> None:
    line = ("updateNamesrvConfig", "-k", "noSuchKey", "-v", "v", "--timeout", "1")
    status, out, err, _ = await mqadmin(f"{silent.address},{lab.nameserver}", *line)
    assert (status, out) == (1, "")
    assert (
        f"<{silent.address}> did not answer " in err and f"unknown key noSuchKey (code 1 from {lab.nameserver})" in err
    )


@pytest.fixture
async def young(tmp_path: Path) -> AsyncIterator[str]:
    """A nameserver that has just started: no broker has registered there yet."""
    nameserver = Nameserver(NamesrvConfig(listen_port=0, bind_address="127.0.0.1", kv_config_path=str(tmp_path / "kv")))
    await nameserver.start()
    yield nameserver.address
    await nameserver.stop()


async def test_a_nameserver_that_has_just_started_does_not_speak_for_the_others(
    lab: Lab, silent: Silent, young: str
) -> None:
    await lab.topic("T")
    info = ConsumerRunningInfo(mq_table={MessageQueue("T", "broker-a", 0): ProcessQueueInfo()})
    await lab.member("g", "T", answering=lambda pushed: (0, info.encode()) if pushed.code == 307 else None)
    await lab.commit("g", "T", 0)
    for line in ("topicRoute -t T", "consumerProgress -g g", "resetOffset -g g -t T --to first --dry-run"):
        status, out, err, took = await mqadmin(f"{young};{silent.address};{lab.nameserver}", *line.split())
        assert (status in (0, 3), "broker-a" in out, err) == (True, True, ""), (line, status, out, err)
        assert took < 2, "one patience"
    unknown = await mqadmin(f"{young};{lab.nameserver}", "topicRoute", "-t", "Tea")
    assert unknown[0] == 4 and "for the topic: Tea" in unknown[2]


async def test_a_reset_looks_at_all_brokers_that_any_nameserver_knows(lab: Lab, silent: Silent, young: str) -> None:
    """One that moved the others alone would say that it is done."""
    await lab.topic("T")
    await lab.commit("g", "T", 0)
    await lab.register("broker-b", silent.address, one_queue("T"), nameserver=young)
    line = ("resetOffset", "-g", "g", "-t", "T", "--to", "first", "--timeout", "1")
    for nameservers in (f"{young};{lab.nameserver}", f"{lab.nameserver};{young}"):
        status, out, err, _ = await mqadmin(nameservers, *line)
        assert (status, out) == (1, "")
        assert "not every broker of T can do it (broker-b: " in err


async def test_a_nameserver_that_is_away_costs_nothing(lab: Lab) -> None:
    status, _, _, took = await mqadmin(f"127.0.0.1:{free_port()};{lab.nameserver}", "topicList")
    assert status == 0
    assert took < 0.5


@pytest.mark.parametrize(("line", "routes"), [("consumerProgress", ["%RETRY%g", "T"]), ("statsAll -t T", ["T"])])
async def test_each_route_is_asked_for_once(lab: Lab, line: str, routes: list[str]) -> None:
    await lab.topic("T")
    await lab.member("g", "T")
    await lab.commit("g", "T", 0)
    proxy = await Proxy(lab.nameserver).start()
    try:
        status, out, _, _ = await mqadmin(proxy.address, *line.split())
    finally:
        await proxy.stop()
    assert (status, "g" in out.split()) == (0, True)
    asked = re.findall(rb'"code":105,"extFields":{"topic":"(.*?)"', proxy.sent[0])
    assert sorted(map(bytes.decode, asked)) == routes


async def test_a_broker_is_no_nameserver(lab: Lab) -> None:
    status, out, err, _ = await mqadmin(lab.broker, "topicList")
    assert (status, out) == (1, "")
    assert err == f"mqadmin topicList: {lab.broker} is no nameserver, but perhaps a broker: see -n\n"


async def test_a_lag_that_is_not_known_is_never_0(lab: Lab, silent: Silent) -> None:
    await lab.topic("T")
    await lab.topic("%RETRY%G")
    await lab.send("T", *"abcde")
    await lab.commit("G", "T", 2)
    await lab.register("broker-b", silent.address, *map(one_queue, ("T", "%RETRY%G", "%RETRY%H")))
    overview = await mqadmin(lab.nameserver, "consumerProgress", "--timeout", "1")
    rows = {line.split()[0]: line for line in overview[1].splitlines()[1:]}
    assert overview[0] == 5
    assert rows["G"].endswith(">= 3 ?")
    assert rows["H"].split()[-2:] == ["?", "?"]
    assert "broker-b: " in overview[2] and "a lag with '?' lacks its queues" in overview[2]
    one = await mqadmin(lab.nameserver, "consumerProgress", "-g", "G", "--timeout", "1")
    assert one[0] == 5
    assert one[1].splitlines()[-1] == "Diff Total: >= 3 ?"
    assert one[2].startswith("broker-b: ") and one[2].endswith(": its queues are missing\n")
    assert one[3] < 6


@pytest.mark.parametrize("line", [("topicStatus", "-t", "T"), ("statsAll", "-t", "T")])
async def test_what_is_alive_is_shown(lab: Lab, silent: Silent, line: tuple[str, ...]) -> None:
    await lab.topic("T")
    await lab.send("T", *"abcde")
    await lab.register("broker-b", silent.address, one_queue("T"))
    status, out, err, took = await mqadmin(lab.nameserver, *line, "--timeout", "1")
    assert status == 5
    assert len(out.splitlines()) == 2
    assert "broker-b: " in err
    assert took < 6
