"""A master of one kind is followed by a slave of the other: equal logs byte for byte, queues and tables that agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eruca.protocol.bodies import KVTable
from eruca.protocol.record import BatchEntry, Record, decode_records, encode_batch
from tests.compat.clients import Clients, JavaClients, Letter, PythonClients
from tests.compat.transcript import java_mqadmin
from tests.support import raw
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.java import Judge

PULL, QUERY, COMMIT, OFFSET, SEND, SEND_BATCH, CREATE_GROUP, RUNTIME = 11, 12, 15, 14, 310, 320, 200, 28
QUEUES = 4
FILE = 256 << 10
Broker = ApacheBroker | ErucaBroker
NameServer = ApacheNameServer | ErucaNameServer
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE),
    "mappedFileSizeConsumeQueue": "4000",
    "haSendHeartbeatInterval": "500",
    "slaveReadEnable": "true",
}
SLAVE = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"}


def start(kind: str, home: Path, names: str, settings: dict[str, str]) -> Broker:
    if kind == "apache":
        return ApacheBroker("4.9.7", home, names, settings)
    return ErucaBroker(home, names, settings)


PAIRS = [("apache", "eruca", "apache"), ("eruca", "apache", "eruca"), ("apache", "eruca", "eruca")]
"""Kinds of name server, master and slave."""


@pytest.fixture
def names(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A name server of a kind; its address."""
    server: NameServer
    if request.param == "apache":
        server = ApacheNameServer("4.9.7", tmp_path / "names")
    else:
        server = ErucaNameServer(tmp_path / "names")
    yield server.address
    server.stop()


def send(broker: Broker, numbers: range) -> list[int]:
    """Single messages and batches of many sizes; the codes of the answers."""
    codes = []
    for number in numbers:
        fields = {
            "a": "PG",
            "b": "T",
            "c": "TBW102",
            "d": str(QUEUES),
            "e": str(number % QUEUES),
            "f": "0",
            "g": "1700000000000",
            "h": "0",
            "i": f"KEYS\x01k{number}\x02TAGS\x01t",
            "j": "0",
            "k": "false",
            "l": "0",
            "m": "false",
        }
        if number % 20 == 19:
            batch = [BatchEntry(0, text(number, part), b"TAGS\x01t") for part in range(3)]
            header, _ = raw.ask(broker.address, SEND_BATCH, {**fields, "m": "true"}, encode_batch(batch))
        else:
            header, _ = raw.ask(broker.address, SEND, fields, text(number))
        codes.append(header["code"])
    return codes


def text(number: int, part: int = 0) -> bytes:
    return b"message %d/%d;" % (number, part) * (1 + number * 7 % 200)


def pulled(broker: Broker, queue: int) -> list[Record]:
    """All messages that a broker gives out of a queue."""
    records: list[Record] = []
    offset = 0
    while True:
        fields = {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        header, body = raw.ask(broker.address, PULL, fields)
        if header["code"] != 0:
            assert header["code"] == 19, header
            return records
        records += decode_records(body, check=True)
        offset = int(header["extFields"]["nextBeginOffset"])


def log_of(broker: Broker) -> dict[str, bytes]:
    """The commit log files that hold anything; Apache makes files ahead of their use."""
    files = {path.name: path.read_bytes() for path in sorted((broker.store / "commitlog").iterdir())}
    return {name: data for name, data in files.items() if data.strip(b"\0")}


def wait_for(true: Callable[[], bool], what: str, within: float = 30.0) -> None:
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)  # two processes that know nothing of the test


def messages(broker: Broker, queue: int) -> list[tuple[int, bytes]]:
    return [(record.queue_offset, record.body) for record in pulled(broker, queue)]


def knows_topic(broker: Broker) -> bool:
    fields = {"topic": "T", "consumerGroup": "G", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
    more = {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
    return bool(raw.ask(broker.address, PULL, {**fields, **more})[0]["code"] in (0, 19))


@pytest.mark.parametrize(("names", "master_kind", "slave_kind"), PAIRS, indirect=["names"])
def test_a_slave_of_the_other_kind_has_the_same_log(
    tmp_path: Path, names: str, master_kind: str, slave_kind: str
) -> None:
    master = start(master_kind, tmp_path / "master", names, SETTINGS)
    slave = start(slave_kind, tmp_path / "slave", names, SLAVE)
    try:
        assert set(send(master, range(20))) == {0}
        wait_for(lambda: log_of(slave) == log_of(master), "the first messages", 60)
        assert set(send(master, range(20, 700))) == {0}
        offset = {"consumerGroup": "G", "topic": "T", "queueId": "2"}
        assert raw.ask(master.address, COMMIT, {**offset, "commitOffset": "77"})[0]["code"] == 0
        wait_for(lambda: log_of(slave) == log_of(master), "equal logs")
        assert len(log_of(master)) >= 3
        wait_for(lambda: knows_topic(slave), "the topic on the slave")
        for queue in range(QUEUES):
            wait_for(lambda queue=queue: messages(slave, queue) == messages(master, queue), "equal queues")  # type: ignore[misc]
        query = {"topic": "T", "key": "k377", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)}
        assert raw.ask(slave.address, QUERY, query)[1] == raw.ask(master.address, QUERY, query)[1] != b""

        def committed() -> bool:
            header, _ = raw.ask(slave.address, OFFSET, offset)
            return bool(header["code"] == 0 and header["extFields"]["offset"] == "77")

        wait_for(committed, "the offset on the slave")
        assert send(slave, range(1)) == [14]

        slave.stop()
        assert set(send(master, range(700, 800))) == {0}
        slave = start(slave_kind, tmp_path / "slave", names, SLAVE)
        wait_for(lambda: log_of(slave) == log_of(master), "equal logs after a restart")
        wait_for(lambda: messages(slave, 1) == messages(master, 1), "equal queues after a restart")
    finally:
        slave.discard()
        master.discard()
    assert log_of(slave) == log_of(master)


@pytest.mark.parametrize(("names", "master_kind", "slave_kind"), PAIRS, indirect=["names"])
def test_what_a_sync_master_acknowledged_is_on_its_killed_slave(
    tmp_path: Path, names: str, master_kind: str, slave_kind: str
) -> None:
    master = start(master_kind, tmp_path / "master", names, {**SETTINGS, "brokerRole": "SYNC_MASTER"})
    slave = start(slave_kind, tmp_path / "slave", names, SLAVE)
    try:
        wait_for(lambda: send(master, range(1)) == [0], "a slave", 60)
        wait_for(lambda: knows_topic(slave), "the topic on the slave")
        first = send(master, range(100, 300))
        slave.process.kill()
        second = send(master, range(300, 301))
        assert set(first) == {0} and second[0] in (11, 12)
        reached = len(messages(master, 1))
    finally:
        slave.discard()
        master.discard()
    alone = start("eruca", tmp_path / "slave", names, {**SETTINGS, "brokerRole": "ASYNC_MASTER"})
    try:
        for queue in range(QUEUES):
            kept = [body for _, body in messages(alone, queue)]
            sent = [text(number) for number in range(100, 300) if number % QUEUES == queue and number % 20 != 19]
            assert set(sent) <= set(kept)
        assert reached == len(messages(alone, 1)) + (1 if 300 % QUEUES == 1 else 0)
    finally:
        alone.stop()


@pytest.mark.parametrize("language", ["java", "python"])
def test_clients_read_from_the_slave_while_the_master_is_dead(
    tmp_path: Path, judge: Judge, python: PythonClients, fresh: Callable[[str], str], language: str
) -> None:
    clients: Clients = JavaClients(judge) if language == "java" else python
    server = ErucaNameServer(tmp_path / "names")
    master = ErucaBroker(tmp_path / "master", server.address, SETTINGS)
    slave = ErucaBroker(tmp_path / "slave", server.address, SLAVE)
    group = fresh("group")

    def position(broker: Broker) -> int:
        fields = [{"consumerGroup": group, "topic": "Replicated", "queueId": str(queue)} for queue in range(8)]
        headers = [raw.ask(broker.address, OFFSET, each)[0] for each in fields]
        return sum(int(header["extFields"]["offset"]) for header in headers if header["code"] == 0)

    try:
        with clients.producer(fresh("producers"), server.address) as producer:
            producer.send([Letter("Replicated", b"%d" % number) for number in range(20)])
            with clients.member(group, server.address, {"Replicated": "*"}) as member:
                assert len(member.received(20)) == 20
                assert member.consumed(20) == 20
            wait_for(lambda: position(slave) == position(master) == 20, "the group's offsets on the slave")
            producer.send([Letter("Replicated", b"%d" % number) for number in range(20, 40)])
            wait_for(lambda: log_of(slave) == log_of(master), "equal logs")
            master.process.kill()
        with clients.member(group, server.address, {"Replicated": "*"}) as member:
            assert {int(each.body) for each in member.received(20)} == set(range(20, 40))
            assert member.consumed(40) == 40
        wait_for(lambda: position(slave) == 40, "what was committed while the master was dead")
    finally:
        slave.stop()
        master.stop()
        server.stop()


@pytest.mark.parametrize("names", ["eruca"], indirect=True)
def test_mqadmin_of_5x_shows_how_the_slaves_stand(tmp_path: Path, names: str, judge5: Judge) -> None:
    master = start("eruca", tmp_path / "master", names, SETTINGS)
    slave = start("eruca", tmp_path / "slave", names, SLAVE)
    mqadmin = java_mqadmin(judge5)
    try:
        send(master, range(50))
        wait_for(lambda: log_of(slave) == log_of(master), "equal logs")
        wait_for(lambda: " OK " in mqadmin(("haStatus", "-b", master.address)).stdout, "a slave in reach")
        end = int(raw_table(master)["commitLogMaxOffset"])
        shown = mqadmin(("haStatus", "-b", master.address)).stdout
        assert f"#MasterCommitLogMaxOffset\t{end}\n#SlaveNum\t1\n#InSyncSlaveNum\t1\n" in shown
        address, acknowledged, behind, _, state, place = shown.splitlines()[-1].split()
        assert address.startswith("127.0.0.1:")
        assert (int(acknowledged), int(behind), state, int(place)) == (end, 0, "OK", end)
        shown = mqadmin(("haStatus", "-b", slave.address)).stdout
        assert f"#MasterAddr\t127.0.0.1:{master.port + 1}\n#CommitLogMaxOffset\t{end}\n" in shown
    finally:
        slave.stop()
        master.stop()


def raw_table(broker: Broker) -> dict[str, str]:
    """The runtime information (28)."""
    table: dict[str, str] = KVTable.decode(raw.ask(broker.address, RUNTIME)[1]).table
    return table
