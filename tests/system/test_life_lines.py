"""What a daemon says of itself: its start, its stop, and what came by itself meanwhile."""

from __future__ import annotations

import asyncio
import json
import platform
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.load import send
from tests.support.lone import LoneBroker
from tests.support.peers import Peer
from tests.support.processes import Process
from tests.support.programme import ENOUGH

pytestmark = [pytest.mark.processes, ENOUGH]


def every(process: Process, event: str) -> list[dict[str, Any]]:
    """The values of all lines of an event."""
    lines = [json.loads(line) for line in process.output.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def said(process: Process, event: str) -> dict[str, Any]:
    """The values of its only line."""
    (found,) = every(process, event)
    return found


async def test_a_broker_says_with_what_it_starts_and_how_it_stops(tmp_path: Path) -> None:
    settings = {"logFormat": "json", "maxTopicNum": "77", "tls.server.keyPassword": "marked-secret"}
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
    try:
        peer = await Peer().connect(broker.address)
        assert (await send(peer, 0, b"one")).code == 0
        beat = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        body = {"clientID": "c", "consumerDataSet": [{**beat, "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}]}
        assert (await peer.ask(34, {}, json.dumps(body).encode())).code == 0
        broker.signal(signal.SIGINT)
        assert await asyncio.to_thread(broker.wait, 20) == 0
        await peer.close()
    finally:
        broker.kill()
    starting = said(broker, "daemon_starting")
    assert (starting["daemon"], starting["pid"]) == ("mqbroker", broker.pid)
    assert (starting["python"], starting["file"]) == (platform.python_version(), str(tmp_path / "broker.conf"))
    assert (starting["acl"], starting["tls"]) == (False, "disabled")
    assert starting["version"] and starting["descriptors"] > 0 and starting["connections"] > 0
    assert "maxTopicNum=77" in starting["settings"] and "autoCreateTopicEnable" not in starting["settings"]
    assert "marked-secret" not in broker.output
    started = said(broker, "daemon_started")
    assert started["address"] == broker.address and str(started["port"]) == broker.address.rpartition(":")[2]
    assert started["ha_port"] == started["port"] + 1
    assert [each.get("template") for each in every(broker, "topic_created")] == ["TBW102", None]
    assert said(broker, "group_created")["group"] == "g"
    assert (said(broker, "signal_received")["signal"], said(broker, "daemon_stopping")["cause"]) == ("SIGINT", "SIGINT")
    stopped = said(broker, "daemon_stopped")
    assert (stopped["connections"], stopped["held_pulls"], stopped["faults"]) == (1, 0, 0)
    assert 0 <= stopped["seconds"] < 20


async def test_a_nameserver_says_the_same(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort=0\nbindAddress=127.0.0.1\nrocketmqHome={tmp_path}\nlogFormat=json\n")
    names = Process([str(Path(sys.executable).parent / "mqnamesrv"), "-c", str(conf)], tmp_path / "out")
    try:
        await asyncio.to_thread(names.wait_for_line, "daemon_started")
        assert await asyncio.to_thread(names.stop) == 0
    finally:
        names.kill()
    assert said(names, "daemon_starting")["settings"].startswith("listenPort=0, bindAddress=127.0.0.1")
    assert said(names, "daemon_started")["port"] > 0
    assert said(names, "daemon_stopping")["cause"] == "SIGTERM"
    assert said(names, "daemon_stopped")["connections"] == 0


async def test_a_loop_that_stands_still_and_a_nameserver_that_is_away_are_few_lines(tmp_path: Path) -> None:
    settings = {"logFormat": "json", "namesrvAddr": "127.0.0.1:1"}
    broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
    try:
        broker.signal(signal.SIGSTOP)
        await asyncio.sleep(1.5)
        broker.signal(signal.SIGCONT)
        await asyncio.to_thread(broker.wait_for_line, "slow_loop")
        assert said(broker, "slow_loop")["seconds"] > 1
        await asyncio.sleep(3)  # another attempt has failed: they come every 2 s
        assert said(broker, "registration_failed")["nameserver"] == "127.0.0.1:1"
    finally:
        broker.kill()
