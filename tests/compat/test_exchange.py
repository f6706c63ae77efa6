"""A whole broker changes sides: daemons of one are stopped, those of the other go on with the same folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.clients import JavaClients, Letter, Queue, Seen, drain
from tests.compat.conftest import Cluster, start
from tests.compat.transcript import java_mqadmin
from tests.support.java import Judge

QUEUES = 4
# Several files of each kind, so that their borders are crossed.
SIZES = {"mappedFileSizeCommitLog": str(1 << 18), "mappedFileSizeConsumeQueue": str(50 * 20)}
# The other two ways to end are gone through with transactions under way, in test_transactions.py.
SIDES = [("apache", "eruca", "SIGKILL"), ("eruca", "apache", "SIGTERM")]


@pytest.mark.parametrize(("first", "second", "end"), SIDES)
def test_the_other_side_goes_on(first: str, second: str, end: str, judge: Judge, tmp_path: Path) -> None:
    java = JavaClients(judge)
    with start(first, tmp_path, SIZES) as cluster:
        address = cluster.address
        mqadmin = java_mqadmin(judge)
        create = ("updateTopic", "-n", address, "-c", "JudgeCluster", "-t", "Exchange", "-r", "4", "-w", "4")
        assert "success" in mqadmin(create).stdout
        with java.producer("exchange-producers", address) as producer:
            for n in range(QUEUES):
                producer.send(letters(n, 100), "sync", Queue("Exchange", "broker-a", n))
                producer.send(letters(n + 10, 50), "batch", Queue("Exchange", "broker-a", n))
            with java.member("exchange-group", address, {"Exchange": "*"}) as member:
                assert len(member.received(150 * QUEUES)) == 150 * QUEUES
                assert member.consumed(150 * QUEUES) == 150 * QUEUES
            producer.send(letters(99, 40))
        before = everything(java, cluster)
        (tenth,) = mqadmin(("queryMsgByKey", "-n", address, "-t", "Exchange", "-k", "key-3-10")).stdout.splitlines()[1:]
        mqadmin(("updateSubGroup", "-n", address, "-c", "JudgeCluster", "-g", "exchange-other", "-r", "7"))
        if end == "SIGKILL":
            cluster.broker.process.kill()
        cluster.stop()

    with start(second, tmp_path, SIZES) as cluster:
        address = cluster.address
        assert everything(java, cluster) == before
        found = mqadmin(("queryMsgByKey", "-n", address, "-t", "Exchange", "-k", "key-3-10"))
        assert found.stdout.splitlines()[1:] == [tenth]
        by_id = mqadmin(("queryMsgByUniqueKey", "-n", address, "-t", "Exchange", "-i", tenth.split()[0]))
        assert re.search(r"Keys: +\[key-3-10\]", by_id.stdout), by_id.stderr
        Path(re.findall(r"Message Body Path: +(\S+)", by_id.stdout)[0]).unlink()
        group = mqadmin(("getConsumerConfig", "-n", address, "-g", "exchange-other"))
        assert re.search(r"retryMaxTimes +=  7$", group.stdout, re.MULTILINE), group.stdout
        with java.member("exchange-group", address, {"Exchange": "*"}) as member:
            # Offsets that a killed broker had in its memory only are lost on either side: messages come again.
            rest = member.received(40 if end == "SIGTERM" else len(before), timeout=5)
            assert {each.body for each in rest} >= {each.body for each in letters(99, 40)}
            assert len(rest) in ([40] if end == "SIGTERM" else [40, len(before)])
        with java.producer("exchange-producers", address) as producer:
            ends = [
                each.queue_offset for each in producer.send(letters(0, 1), "sync", Queue("Exchange", "broker-a", 1))
            ]
        assert ends == [len([each for each in before if each.queue == 1])]


def letters(series: int, count: int) -> list[Letter]:
    return [
        Letter("Exchange", b"%d/%d " % (series, n) * (1 + n), tags=f"tag{n % 3}", keys=f"key-{series}-{n}")
        for n in range(count)
    ]


def everything(java: JavaClients, cluster: Cluster) -> list[Seen]:
    with java.puller("exchange-readers", cluster.address) as puller:
        return drain(puller, "Exchange")
