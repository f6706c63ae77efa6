"""Transactions that were given up, and opened again or decided since: Apache's broker goes on with them, or follows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from eruca.broker.services.given_up import REOPENED
from eruca.protocol.record import Record, decode_records
from tests.compat.clients import JavaClients
from tests.compat.conftest import start
from tests.compat.replicas import PULL, SETTINGS, SLAVE, Broker, log_of, wait_for
from tests.compat.replicas import start as start_one
from tests.compat.transactions import SOON, Deal, dealer
from tests.support import raw
from tests.support.eruca import ErucaNameServer
from tests.support.half_messages import COMMIT, END, GIVEN_UP, HALF, OP, RESUME, ROLLBACK
from tests.support.java import Judge

OFFSET = 14
NAME, GROUP = "Deals", "dealers"
COMMITTED, UNKNOWN = "COMMIT_MESSAGE", "UNKNOW"


def records(broker: Broker, topic: str) -> list[Record]:
    """What stands in a topic of the broker's own, the first few."""
    fields = {"consumerGroup": "G", "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    more = {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
    header, body = raw.ask(broker.address, PULL, {**fields, **more})
    return decode_records(body) if header["code"] == 0 else []


def end(broker: Broker, half: Record, decision: int) -> int:
    """End a transaction as its producer does; the code of the answer."""
    where = {"tranStateTableOffset": str(half.queue_offset), "commitLogOffset": str(half.physical_offset)}
    fields = {"producerGroup": GROUP, "msgId": str(half.unique_key), "commitOrRollback": str(decision), **where}
    header, _ = raw.ask(broker.address, END, fields)
    return int(header["code"])


def resume(broker: Broker, body: bytes) -> int:
    """Have a transaction that was given up checked again; the code of the answer."""
    (record,) = (each for each in records(broker, GIVEN_UP) if each.body == body)
    header, _ = raw.ask(broker.address, RESUME, {"msgId": record.offset_message_id})
    return int(header["code"])


def test_apache_goes_on_where_given_up_transactions_were_decided_or_opened_again(judge: Judge, tmp_path: Path) -> None:
    deals = [
        Deal(NAME, b"stays given up", UNKNOWN),
        Deal(NAME, b"committed late", UNKNOWN),
        Deal(NAME, b"rolled back late", UNKNOWN),
        Deal(NAME, b"opened again", UNKNOWN, f"{UNKNOWN} {UNKNOWN} {UNKNOWN} {COMMITTED}"),
        Deal(NAME, b"opened again by Apache's successor", UNKNOWN, f"{UNKNOWN} {UNKNOWN} {UNKNOWN} {COMMITTED}"),
    ]
    with start("eruca", tmp_path, {**SOON, "transactionCheckMax": "2"}) as cluster:
        line = ["updateTopic", "-n", cluster.address, "-b", cluster.broker.address, "-t", NAME, "-r", "1", "-w", "1"]
        assert judge.call("admin", line=line)["stdout"].startswith("create topic")
        with dealer(judge, GROUP, cluster.address, NAME) as producer:
            producer.send(deals)
            halves = {bytes(each.body): each for each in records(cluster.broker, HALF)[: len(deals)]}
            wait_for(lambda: len(records(cluster.broker, GIVEN_UP)) == len(deals), "all are given up")
        with dealer(judge, GROUP, cluster.address, NAME) as producer:
            open_ = Deal(NAME, b"open", UNKNOWN, f"{UNKNOWN} {COMMITTED}", immunity=5)
            producer.send([open_])
        assert end(cluster.broker, halves[b"committed late"], COMMIT) == 0
        assert end(cluster.broker, halves[b"rolled back late"], ROLLBACK) == 0
        assert resume(cluster.broker, b"opened again") == 0
        cluster.stop()
        (log,) = log_of(cluster.broker).values()
    assert [(each.topic, each.queue_id) for each in decode_records(log.rstrip(b"\0"))].count((OP, REOPENED)) == 3

    with start("apache", tmp_path, SOON) as cluster:
        with (
            JavaClients(judge).member("all", cluster.address, {NAME: "*"}) as member,
            dealer(judge, GROUP, cluster.address, NAME) as producer,
        ):
            asked = producer.answered([open_, deals[3]], COMMITTED)
            received = member.received(3)
            assert member.consumed(3) >= 3
        assert {each.body for each in asked} == {b"open", b"opened again"}
        said = (tmp_path / "broker.log").read_text()  # Apache's end has errors of its own
        assert " ERROR " not in said, said
        cluster.stop()
    bodies = Counter(each.body for each in received)
    assert bodies.keys() == {b"open", b"opened again", b"committed late"} and bodies[b"committed late"] == 1

    with (
        start("eruca", tmp_path, SOON) as cluster,
        JavaClients(judge).member("all", cluster.address, {NAME: "*"}) as member,
    ):
        for decided in (b"committed late", b"rolled back late", b"opened again"):
            assert end(cluster.broker, halves[decided], COMMIT) == 0
            assert resume(cluster.broker, decided) == 1, "it is decided"
        assert end(cluster.broker, halves[b"stays given up"], COMMIT) == 0
        assert resume(cluster.broker, deals[4].body) == 0
        with dealer(judge, GROUP, cluster.address, NAME) as producer:
            asked = producer.answered([deals[4]], COMMITTED)
            received = [*member.received(2), *member.received(1, timeout=0)]
    assert {each.body for each in asked} == {deals[4].body}
    assert Counter(each.body for each in received) == {b"stays given up": 1, deals[4].body: 1}


@pytest.mark.parametrize(("master_kind", "slave_kind"), [("eruca", "apache"), ("apache", "eruca")])
def test_a_slave_of_the_other_kind_has_all_of_it(
    judge: Judge, tmp_path: Path, master_kind: str, slave_kind: str
) -> None:
    asking = {**SOON, **SETTINGS, "transactionCheckMax": "2"}
    deals = [Deal(NAME, b"given up %d" % number, UNKNOWN) for number in range(4)]
    deals += [Deal(NAME, b"committed", COMMITTED), Deal(NAME, b"committed when asked", UNKNOWN, COMMITTED)]
    names = ErucaNameServer(tmp_path / "names")
    master = start_one(master_kind, tmp_path / "master", names.address, asking)
    slave = start_one(slave_kind, tmp_path / "slave", names.address, {**SLAVE, **SOON})
    try:
        line = ["updateTopic", "-n", names.address, "-b", master.address, "-t", NAME, "-r", "1", "-w", "1"]
        assert judge.call("admin", line=line)["stdout"].startswith("create topic")
        with dealer(judge, GROUP, names.address, NAME) as producer:
            producer.send(deals)
            wait_for(lambda: len(records(master, GIVEN_UP)) == 4, "four are given up", 60)
        halves = {bytes(each.body): each for each in records(master, HALF)[: len(deals)]}
        assert end(master, halves[b"given up 0"], COMMIT) == 0
        assert end(master, halves[b"given up 1"], ROLLBACK) == 0
        assert resume(master, b"given up 2") == 0
        wait_for(lambda: log_of(slave) == log_of(master), "equal logs", 60)
        for topic in (HALF, OP):
            asked = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": topic, "queueId": "0"}

            def arrived(asked: dict[str, str] = asked) -> bool:
                theirs, ours = (raw.ask(each.address, OFFSET, asked)[0] for each in (slave, master))
                return bool(theirs["code"] == 0 and theirs["extFields"] == ours["extFields"])

            wait_for(arrived, f"the offset of {topic} on the slave", 60)
        wait_for(
            lambda: [each.body for each in records(slave, NAME)] == [each.body for each in records(master, NAME)], NAME
        )
        delivered = Counter(bytes(each.body) for each in records(slave, NAME))
        assert delivered == {b"committed": 1, b"committed when asked": 1, b"given up 0": 1}
        if slave_kind == "apache":
            said = (tmp_path / "slave" / "broker.log").read_text()
            assert " ERROR " not in said, said
    finally:
        slave.stop()
        master.stop()
        names.stop()

    with start("eruca", tmp_path / "slave", {**SOON, "brokerRole": "ASYNC_MASTER"}) as alone:
        with dealer(judge, GROUP, alone.address, NAME) as producer:
            wait_for(lambda: b"given up 2" in {each.body for each in producer.asked()}, "the question", 60)
        if master_kind == "eruca":  # Apache's does not say what it decided after it was given up
            assert end(alone.broker, halves[b"given up 1"], COMMIT) == 0
        assert end(alone.broker, halves[b"given up 2"], COMMIT) == 0
        assert end(alone.broker, halves[b"given up 3"], COMMIT) == 0
        wait_for(lambda: len(records(alone.broker, NAME)) >= 5, "the late ones")
        bodies = Counter(bytes(each.body) for each in records(alone.broker, NAME))
    assert bodies == delivered + Counter((b"given up 2", b"given up 3"))
