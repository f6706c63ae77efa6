"""A cluster in this process, the command that runs one, and the check of its store."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from eruca.client import Message, Producer, PullConsumer, PushConsumer
from eruca.remoting.listener import PortTaken
from eruca.remoting.settings import BadSetting
from eruca.remoting.sources import assignment
from eruca.standalone.cli import main
from eruca.standalone.cluster import Cluster
from eruca.standalone.settings import cluster_settings
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.stores import open_store, put

pytestmark = pytest.mark.processes


async def test_what_was_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("writers", nameserver=cluster.address) as producer:
        sent = await producer.send(Message("T1", b"hello", keys="k1"))
    async with Cluster(tmp_path) as cluster, PullConsumer(nameserver=cluster.address) as consumer:
        (record,) = (await consumer.pull(sent.queue, 0)).records
        assert (record.body, record.keys) == (b"hello", ["k1"])


async def test_a_taken_port_leaves_nothing_running(tmp_path: Path) -> None:
    async with Cluster(tmp_path / "one") as first:
        second = Cluster(tmp_path / "two", broker_port=first.broker.port)
        with pytest.raises(PortTaken, match=str(first.broker.port)):
            await second.start()
        with pytest.raises(RuntimeError, match="not running"):
            second.address  # noqa: B018


async def test_eruca_standalone_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    options = ["--store", str(tmp_path), "--port", "0", "--broker-port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "eruca.standalone.cli",
        "standalone",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        found = re.match(r"nameserver on (\S+), broker on (\S+), files in", line)
        assert found, line
        async with Producer("writers", nameserver=found[1]) as producer:
            await producer.send(Message("T1", b"hello"))
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("option", ["--port", "--broker-port"])
@pytest.mark.parametrize("port", ["70000", "65536", "-5", "99999999999999999999", "9" * 5000, "x", "", "\u0663"])
def test_what_is_no_port_is_refused_in_one_sentence(tmp_path: Path, option: str, port: str) -> None:
    asked = CliRunner().invoke(main, ["standalone", "--store", str(tmp_path / "files"), option, port])
    assert (asked.exit_code, (tmp_path / "files").exists()) == (2, False)
    refusal = asked.output.splitlines()[-1]
    assert refusal == f"Error: Invalid value for '{option}': {port} is none: a port is a number from 0 to 65535."


@pytest.mark.parametrize("port", [1, 2, 65535])
def test_a_brokers_port_leaves_room_for_its_neighbours(tmp_path: Path, port: int) -> None:
    asked = CliRunner().invoke(main, ["standalone", "--store", str(tmp_path / "files"), "--broker-port", str(port)])
    assert asked.exit_code == 2 and "must leave room for the ports 2 below and 1 above it" in asked.output


@pytest.mark.parametrize("ports", [{"port": 70000}, {"port": -5}, {"broker_port": 65536}, {"broker_port": -1}])
def test_a_cluster_takes_no_port_that_is_none(tmp_path: Path, ports: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a port is a number from 0 to 65535"):
        Cluster(tmp_path, **ports)  # type: ignore[arg-type]


async def test_a_store_is_verified_offline(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("writers", nameserver=cluster.address) as producer:
        for number in range(3):
            await producer.send(Message("T1", b"body %d" % number))
    store = tmp_path / "store"
    sound = CliRunner().invoke(main, ["store", "verify", str(store)])
    assert sound.exit_code == 0, sound.output
    assert "3 records" in sound.output and "The store is sound." in sound.output
    log = next((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        at = file.read(4096).index(b"body 1")
        file.seek(at)
        file.write(b"b0dy")
    damaged = CliRunner().invoke(main, ["store", "verify", str(store)])
    assert damaged.exit_code == 1
    assert "damaged: commitlog/00000000000000000000: " in damaged.output


def test_a_backup_goes_neither_into_its_store_nor_where_no_folder_can_be(tmp_path: Path) -> None:
    root = tmp_path / "store"
    open_store(root).close()
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "file").write_text("")
    for into in (root, root / "backup", root / "commitlog" / "b", tmp_path / "link" / "b"):
        said = CliRunner().invoke(main, ["store", "backup", str(root), str(into)])
        assert said.exit_code == 1 and f"{into} lies in the store, in {root}: name a folder outside" in said.output
    into = tmp_path / "file" / "b"
    said = CliRunner().invoke(main, ["store", "backup", str(root), str(into)])
    refusal = f"eruca store backup: {into} cannot be used (Not a directory): name another place"
    assert (said.exit_code, said.output.strip()) == (1, refusal)
    assert not (root / "backup").exists()


def test_a_bundle_that_is_there_or_cannot_be_made_is_named(tmp_path: Path) -> None:
    there = tmp_path / "there.tar.gz"
    there.write_text("")
    for archive, why in (
        (there, "(File exists): name one that is not there yet"),
        (tmp_path / "no" / "x.tar.gz", "(No such file or directory): make the folder that it is to be in, or name "),
    ):
        said = CliRunner().invoke(main, ["bundle", str(archive)])
        assert said.exit_code == 1 and f"eruca bundle: {archive} cannot be used {why}" in said.output


def test_a_store_with_files_elsewhere_and_of_other_sizes_is_verified_by_its_broker_conf(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "log"
    store = open_store(root, store_path_commit_log=elsewhere)
    put(store, "T1", 0, b"hello", b"KEYS\x01k")
    store.close()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={elsewhere}\nmaxHashSlotNum=50\nmaxIndexNum=60\n")

    alone = CliRunner().invoke(main, ["store", "verify", str(root)])
    assert alone.exit_code == 1 and "holds no store" in alone.output
    told = CliRunner().invoke(main, ["store", "verify", str(root), "-c", str(conf)])
    assert told.exit_code == 0, told.output
    assert "1 records" in told.output and "1 index entries" in told.output and "note:" not in told.output

    conf.write_text("maxIndexNum=many\n")
    refused = CliRunner().invoke(main, ["store", "verify", str(root), "-c", str(conf)])
    assert refused.exit_code == 1 and "maxIndexNum: 'many' is not allowed" in refused.output


def standalone(folder: Path, *options: str, **environment: str) -> Process:
    command = [sys.executable, "-m", "eruca.standalone.cli", "standalone", "--store", str(folder / "files")]
    return Process([*command, "--port", "0", "--broker-port", "0", *options], folder / "output", env=environment)


async def test_settings_of_both_servers_and_of_the_log(tmp_path: Path) -> None:
    options = ["--set", "brokerName=other", "--set", "orderMessageEnable=true", "--set", "logFormat=json"]
    with standalone(tmp_path, *options, ERUCA_LOG_FILE=str(tmp_path / "logs")) as process:
        address = process.wait_for_line("nameserver on").split()[2].rstrip(",")
        async with Producer("writers", nameserver=address) as producer:
            sent = await producer.send(Message("T1", b"hello", properties={"a": "6"}))
        async with PushConsumer("g", nameserver=address, start_from="first").subscribe(
            "T1", "a > 5", expression_type="SQL92"
        ) as consumer:
            async for message in consumer:
                assert message.body == b"hello"
                break
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert sent.queue.broker_name == "other"
    lines = (tmp_path / "logs" / "broker.log").read_text().splitlines()
    assert "broker_registered" in {json.loads(line)["event"] for line in lines}
    assert "broker_registered" not in process.output


async def test_wrong_settings_end_it_with_a_sentence(tmp_path: Path) -> None:
    with standalone(tmp_path, "--set", "brokerNam=x") as process:
        assert process.wait() == 78
        assert "--set: unknown key brokerNam (did you mean brokerName?)" in process.output
    with pytest.raises(BadSetting) as refused:
        cluster_settings([assignment("listenPort=1")])
    assert str(refused.value) == "--set: listenPort follows from the ports of the cluster: leave it out"
    with pytest.raises(BadSetting, match="--set: flushDiskType: 'x' is not allowed"):
        cluster_settings([assignment("flushDiskType=x")])
    with pytest.raises(BadSetting, match="--set takes KEY=VALUE, not 'brokerName'"):
        assignment("brokerName")


def test_variables_count_and_what_the_cluster_decides_does_not() -> None:
    environment = {"ERUCA_LOG_LEVEL": "DEBUG", "ERUCA_LISTEN_PORT": "1", "ERUCA_LOG_LEVL": "x"}
    broker, nameserver, warnings = cluster_settings([], environment=environment)
    assert (broker.log.log_level, nameserver.log.log_level) == ("DEBUG", "DEBUG")
    assert broker.enable_property_filter and broker.server.listen_port == 10911
    assert [each.partition(":")[0] for each in warnings] == ["ERUCA_LOG_LEVL"]


@pytest.mark.parametrize(("step", "what"), [(0, "port"), (1, "HA port"), (-2, "VIP port")])
async def test_a_nameserver_on_a_port_of_its_broker_is_told_at_once(tmp_path: Path, step: int, what: str) -> None:
    port = free_port()
    cluster = Cluster(tmp_path, port=port + step, broker_port=port)
    with pytest.raises(PortTaken, match=f"^port {port + step} is the broker's {what}, too .broker_port {port} takes"):
        await cluster.start()
