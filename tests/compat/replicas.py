"""A master and its slave of either kind, as processes, and what is in their logs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from eruca.protocol.record import BatchEntry, Record, decode_records, encode_batch
from tests.support import raw
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.eruca import ErucaBroker, ErucaNameServer

PULL, SEND, SEND_BATCH = 11, 310, 320
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


def name_server(kind: str, home: Path) -> NameServer:
    """A name server of a kind."""
    return ApacheNameServer("4.9.7", home) if kind == "apache" else ErucaNameServer(home)


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


def pulled(broker: Broker, queue: int, subscription: str = "*") -> list[Record]:
    """Every message that a broker gives out of a queue."""
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
            "subscription": subscription,
            "subVersion": "0",
            "expressionType": "TAG",
        }
        header, body = raw.ask(broker.address, PULL, fields)
        if header["code"] == 19:
            return records
        nothing_has_the_tag = subscription != "*" and header["code"] == 20
        assert header["code"] == 0 or nothing_has_the_tag, header
        records += [] if nothing_has_the_tag else decode_records(body, check=True)
        assert int(header["extFields"]["nextBeginOffset"]) > offset
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
