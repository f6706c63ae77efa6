"""What a session asks the nameserver: every request that brokers, clients and operators send, well and badly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.compat.asked import CLUSTER, TOPIC, Ask, Session
from tests.support.peers import Peer

_TOPICS = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":5},'
    b'"topicConfigTable":{"Second":{"order":false,"perm":6,"readQueueNums":3,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"Second","topicSysFlag":2,"writeQueueNums":2}}}}'
)


async def run(session: Session, peer: Peer, broker: str) -> None:
    """Ask everything, in order."""
    for ask in (*values(), *routes(), *permissions(), *registrations(broker), *settings()):
        await session.ask(peer, ask)


def values() -> Iterator[Ask]:
    key = {"namespace": "N", "key": "k"}
    yield Ask(100, "put", {**key, "value": "v"})
    yield Ask(101, "there", key)
    yield Ask(101, "no such key", {**key, "key": "x"})
    yield Ask(101, "no such namespace", {**key, "namespace": "M"})
    yield Ask(219, "there", {"namespace": "N"})
    yield Ask(219, "no such namespace", {"namespace": "M"})
    yield Ask(102, "there", key)
    yield Ask(102, "gone", key)
    yield Ask(219, "empty", {"namespace": "N"})


def routes() -> Iterator[Ask]:
    yield Ask(105, "there", {"topic": TOPIC})
    yield Ask(105, "not there", {"topic": "NoSuch"})
    for code in (106, 206, 304, 311, 312, 313):
        yield Ask(code)
    yield Ask(224, "there", {"cluster": CLUSTER})
    yield Ask(224, "not there", {"cluster": "x"})


def permissions() -> Iterator[Ask]:
    for code in (205, 327):
        yield Ask(code, "no such broker", {"brokerName": "x"})
        yield Ask(code, "broker", {"brokerName": "broker-a"})
        yield Ask(105, f"after {code}", {"topic": TOPIC})
    yield Ask(216, "there", {"topic": TOPIC})
    yield Ask(105, "after 216", {"topic": TOPIC})
    yield Ask(216, "not there", {"topic": "NoSuch"})


def registrations(broker: str) -> Iterator[Ask]:
    whose: dict[str, Any] = {"brokerName": "b2", "brokerAddr": "10.1.1.1:10911", "clusterName": "C2", "brokerId": 0}
    register = {**whose, "haServerAddr": "10.1.1.1:10912", "compressed": "false"}
    version = b'{"counter":1,"timestamp":5}'
    ours = {"brokerName": "broker-a", "brokerAddr": broker, "clusterName": CLUSTER, "brokerId": 0}
    yield Ask(322, "no such broker", whose, version)
    yield Ask(322, "other version", ours, version)
    yield Ask(103, "broker", register, _TOPICS)
    yield Ask(105, "of the new broker", {"topic": "Second"})
    for code in (311, 312, 313):
        yield Ask(code, "with units")
    yield Ask(322, "same version", whose, b'{"counter":0,"timestamp":5}')
    yield Ask(103, "slave", {**register, "brokerAddr": "10.1.1.2:10911", "brokerId": 1})
    yield Ask(103, "bad checksum", {**register, "bodyCrc32": 7}, b"{}")
    yield Ask(103, "garbage", register, b"nonsense")
    yield Ask(106, "two clusters")
    yield Ask(104, "broker", whose)
    yield Ask(105, "of the broker that left", {"topic": "Second"})
    yield Ask(104, "no such broker", {**whose, "brokerName": "x", "brokerAddr": "1.1.1.1:1"})


def settings() -> Iterator[Ask]:
    yield Ask(319)
    yield Ask(318, "a path", None, b"kvConfigPath=/x\n")
    yield Ask(318, "no body")
    yield Ask(318, "changed", None, b"orderMessageEnable=true\n")
