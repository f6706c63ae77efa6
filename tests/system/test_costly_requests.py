"""Small requests of great cost, from some, beside one who sends and asks little: how long it waits.

On an idle machine that is below 50 ms; each test prints what it was. The bound leaves room for other programs, and
grows with the worst answer that the same client gets from the same server without the costly requests. That no turn of
the loop takes 50 ms of CPU time is judged by tests/broker/handlers/test_costly.py, whatever else the machine does.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter

import pytest

from tests.support.lone import LoneBroker
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.raw import ask, frame, send_header

pytestmark = pytest.mark.processes

QUEUES = 65_536
PLAIN_SECONDS = 1.0
AT_MOST = 1.0


class GoodClient:
    """Asks one thing after the other in a thread of its own, and keeps the longest time until an answer."""

    def __init__(self, address: str, request: bytes) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._request = request
        self._worst = 0.0
        self._count = 0
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._socket, self._socket.makefile("rb") as answers:
            while not self._over:
                begin = perf_counter()
                self._socket.sendall(self._request)
                answer = answers.read(int.from_bytes(answers.read(4), "big"))
                self._worst = max(self._worst, perf_counter() - begin)
                assert json.loads(answer[4 : 4 + int.from_bytes(answer[1:4], "big")])["code"] == 0
                self._count += 1

    def worst(self) -> float:
        """The longest time in seconds since the last question."""
        worst, self._worst = self._worst, 0.0
        return worst

    def several_more(self) -> None:
        """Wait until it got some more answers."""
        wanted, deadline = self._count + 20, monotonic() + 60
        while self._count < wanted:
            assert monotonic() < deadline
            threading.Event().wait(0.005)

    def close(self) -> None:
        self._over = True
        self._thread.join()


class Attacker:
    """A connection whose answers are read and thrown away."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._buffer = bytearray(1 << 20)

    def send(self, requests: bytes) -> None:
        self.socket.sendall(requests)

    def answers(self, count: int) -> None:
        """Wait for so many answers."""
        for _ in range(count):
            left = int.from_bytes(self._read(4), "big")
            while left:
                left -= self.socket.recv_into(self._buffer, min(left, len(self._buffer)))

    def _read(self, size: int) -> bytes:
        data = self.socket.recv(size, socket.MSG_WAITALL)
        assert len(data) == size
        return data

    def close(self) -> None:
        self.socket.close()


@contextmanager
def beside(address: str, request: bytes, what: str) -> Iterator[Attacker]:
    """A good client must not wait long while the attacker does what it does; its answers are awaited."""
    client = GoodClient(address, request)
    attacker = Attacker(address)
    try:
        threading.Event().wait(PLAIN_SECONDS)  # the answers of this time are what is compared
        plain = client.worst()
        yield attacker
        client.several_more()
        worst = client.worst()
    finally:
        client.close()
        attacker.close()
    print(f"{what}: worst answer {worst * 1000:.1f} ms, without it {plain * 1000:.1f} ms")
    assert worst <= max(AT_MOST, 4 * plain)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneBroker]:
    folder = tmp_path_factory.mktemp("broker")
    broker = LoneBroker(folder, folder / "store")
    fields = {"topic": "Wide", "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES)}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert ask(broker.address, 17, fields)[0]["code"] == 0
    yield broker
    broker.stop()


SEND = frame(send_header(), b"x" * 100)


def request(code: int, body: bytes = b"", *, oneway: bool = False, **fields: object) -> bytes:
    texts = {name: str(value) for name, value in fields.items()}
    return frame(send_header(code=code, flag=2 if oneway else 0, extFields=texts), body)


def heartbeat(size: int) -> bytes:
    """In fastjson's dialect: names without quotes, texts in single ones."""
    one = b"{groupName:'g%d',subscriptionDataSet:[{topic:'t%d',subString:'*',subVersion:5}]}"
    count = size // (len(one) + 8)
    return b"{clientID:'c',consumerDataSet:[" + b",".join(one % (number, number) for number in range(count)) + b"]}"


ATTACKS: dict[str, Callable[[], list[bytes]]] = {
    "one-way copies": lambda: [
        request(202, topic="Wide", oneway=True) * 60 + request(30, topic="Wide", queueId=0),
    ],
    "statistics": lambda: [request(202, topic="Wide")] * 4,
    "progress": lambda: [
        request(208, consumerGroup="g", topic="Wide"),
        request(303, group="g", topic="Wide"),
        request(222, group="g", topic="Wide", timestamp=-1, isForce="true"),
    ],
    "heartbeats of 6 MB": lambda: [request(34, heartbeat(6 << 20))] * 3,
    "heartbeats of 1 MB": lambda: [request(34, heartbeat(1 << 20)[:-1])] * 3,
}
"""Requests, each with one answer."""


@pytest.mark.parametrize("what", ATTACKS)
def test_others_do_not_wait_for_costly_requests_of_a_broker(broker: LoneBroker, what: str) -> None:
    requests = ATTACKS[what]()
    with beside(broker.address, SEND, what) as attacker:
        attacker.send(b"".join(requests))
        attacker.answers(len(requests))


def test_others_do_not_wait_for_values_that_a_nameserver_writes(tmp_path: Path) -> None:
    port = free_port()
    program = str(Path(sys.executable).parent / "mqnamesrv")
    settings = [f"listenPort={port}", "bindAddress=127.0.0.1", f"rocketmqHome={tmp_path}"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    value = "v" * (1 << 20)
    requests = [request(100, namespace="n", key=f"k{number % 4}", value=value) for number in range(20)]
    with Process([program, *arguments], tmp_path / "out") as nameserver:
        nameserver.wait_for_line("listening on 127")
        address = f"127.0.0.1:{port}"
        with beside(address, request(319), "values of 1 MiB") as attacker:
            attacker.send(b"".join(requests))
            attacker.answers(len(requests))
        head, body = ask(address, 219, {"namespace": "n"})
        assert (head["code"], len(body) > 4 << 20) == (0, True)
