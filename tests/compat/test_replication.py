"""A master of one kind is followed by a slave of the other: equal logs byte for byte, queues and tables that agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eruca.protocol.bodies import KVTable
from tests.compat.clients import Clients, JavaClients, Letter, PythonClients
from tests.compat.replicas import (
    PULL,
    QUEUES,
    SETTINGS,
    SLAVE,
    Broker,
    log_of,
    messages,
    name_server,
    pulled,
    send,
    start,
    text,
    wait_for,
)
from tests.compat.transcript import java_mqadmin
from tests.support import raw
from tests.support.eruca import ErucaBroker, ErucaNameServer
from tests.support.java import Judge
from tests.support.ports import free_broker_port
from tests.support.stores import spoil

QUERY, COMMIT, OFFSET, CREATE_GROUP, RUNTIME, CHANGE = 12, 15, 14, 200, 28, 25
PAIRS = [("apache", "eruca", "apache"), ("eruca", "apache", "eruca"), ("apache", "eruca", "eruca")]
"""Kinds of name server, master and slave."""
MIXES = [*PAIRS, ("eruca", "eruca", "apache"), ("eruca", "apache", "apache"), ("apache", "apache", "eruca")]
"""Every mix; with one kind alone it is that kind's own test."""


@pytest.fixture
def names(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A name server of a kind; its address."""
    server = name_server(request.param, tmp_path / "names")
    yield server.address
    server.stop()


def knows_topic(broker: Broker) -> bool:
    fields = {"topic": "T", "consumerGroup": "G", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
    more = {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
    return bool(raw.ask(broker.address, PULL, {**fields, **more})[0]["code"] in (0, 19))


@pytest.mark.parametrize(("names", "master_kind", "slave_kind"), MIXES, indirect=["names"])
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


@pytest.mark.parametrize(("names", "master_kind"), [("eruca", "apache"), ("apache", "eruca")], indirect=["names"])
def test_our_slave_whose_log_was_damaged_copies_it_again_from_there(
    tmp_path: Path, names: str, master_kind: str
) -> None:
    settings = {**SLAVE, "listenPort": str(free_broker_port())}  # it starts again by itself
    master = start(master_kind, tmp_path / "master", names, SETTINGS)
    slave = start("eruca", tmp_path / "slave", names, settings)
    try:
        assert set(send(master, range(40))) == {0}
        wait_for(lambda: log_of(slave) == log_of(master), "equal logs", 60)
        slave.process.kill()
        spoil(slave.store, pulled(master, 1)[5].physical_offset)
        assert set(send(master, range(40, 60))) == {0}
        slave.discard()
        slave = start("eruca", tmp_path / "slave", names, settings)
        wait_for(lambda: log_of(slave) == log_of(master), "equal logs after the damage", 60)
        wait_for(lambda: messages(slave, 1) == messages(master, 1), "equal queues after the damage")
        assert "damage_cut_off" in slave.process.output
    finally:
        slave.discard()
        master.discard()


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


@pytest.mark.parametrize("names", ["eruca", "apache"], indirect=True)
def test_the_mastership_moves_while_all_run_and_a_slave_of_apaches_goes_along(tmp_path: Path, names: str) -> None:
    """Its slaves learn of the new master with their next registration."""
    often = {"registerNameServerPeriod": "10000"}
    first = start("eruca", tmp_path / "first", names, {**SETTINGS, **often, "brokerRole": "SYNC_MASTER"})
    second = start("eruca", tmp_path / "second", names, {**SLAVE, **often})
    apache = start("apache", tmp_path / "apache", names, {**SLAVE, **often, "brokerId": "2"})
    brokers = (first, second, apache)
    try:
        wait_for(lambda: send(first, range(1)) == [0], "a slave", 60)
        wait_for(lambda: knows_topic(second), "the topic on the slave")
        assert set(send(first, range(100, 200))) == {0}
        wait_for(lambda: log_of(second) == log_of(first) == log_of(apache), "equal logs")
        for broker, settings in (
            (first, b"brokerId=3\nbrokerRole=SLAVE"),
            (second, b"brokerRole=SYNC_MASTER"),
        ):
            header, _ = raw.ask(broker.address, CHANGE, {}, settings)
            assert header["code"] == 0, header
        assert send(first, range(1)) == [14]
        wait_for(lambda: send(second, range(1)) == [0], "a slave of the new master", 60)
        assert set(send(second, range(200, 300))) == {0}
        wait_for(lambda: log_of(first) == log_of(second) == log_of(apache), "equal logs again", 60)
        wait_for(lambda: all(messages(each, 1) == messages(second, 1) for each in brokers), "equal queues")
    finally:
        for broker in brokers:
            broker.stop()
