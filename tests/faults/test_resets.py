"""Resets of groups while brokers restart, hang or are away, and while members hang: what is said is what happened."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.admin.client import Admin
from eruca.admin.errors import Partial
from eruca.admin.resets.engine import performed, prepare
from eruca.admin.resets.plan import Options
from eruca.admin.resets.targets import First
from eruca.client import ClientSettings, Message, MessageQueue, Producer, PushConsumer, ReceivedMessage
from eruca.protocol.bodies import ConsumerOffsets
from tests.support.eruca import SCRIPTS, ErucaBroker, ErucaNameServer
from tests.support.pairs import Pairs
from tests.support.peers import Peer
from tests.support.processes import Process
from tests.support.stopwatch import Stopwatch

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("resets")]

EACH = 10
MEMBER = """
import asyncio, sys
from eruca.client import PushConsumer

async def main():
    async def listen(message):
        print(message.body.decode(), flush=True)

    async with PushConsumer(sys.argv[2], listen, nameserver=sys.argv[1], start_from="first").subscribe(sys.argv[3]):
        await asyncio.Event().wait()

asyncio.run(main())
"""
_names = itertools.count(1)


class Two:
    """A nameserver and two masters."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.nameserver = ErucaNameServer(home / "names")
        self.brokers = {name: self._broker(name) for name in ("broker-a", "broker-b")}

    def _broker(self, name: str, port: int = 0) -> ErucaBroker:
        settings = {"brokerName": name, "listenPort": str(port)}
        return ErucaBroker(self.home / name, self.nameserver.address, settings)

    def start(self, name: str) -> None:
        """Start a broker again, with its port."""
        self.brokers[name] = self._broker(name, self.brokers[name].port)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.brokers[name].process.signal(number)

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.process.kill()
        self.nameserver.stop()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    two = Two(tmp_path_factory.mktemp("two"))
    try:
        yield two
    finally:
        two.end()


class Work:
    """A topic with a queue at each master, 10 messages in each, and a group."""

    def __init__(self, two: Two) -> None:
        self.two = two
        number = next(_names)
        self.topic, self.group = f"T{number}", f"G{number}"
        self.bodies = sorted(f"{name} {number}" for name in two.brokers for number in range(EACH))

    async def mqadmin(self, *line: str) -> tuple[int, str, str]:
        """A reset of the group to the first message, with more options."""
        start = ("resetOffsetByTime", "-g", self.group, "-t", self.topic, "-s", "0")
        return await asyncio.to_thread(run, self.two.nameserver.address, self.two.home, (*start, *line))

    async def stored(self) -> list[int | None]:
        """Where the group stands at each broker."""
        found: list[int | None] = []
        for broker in self.two.brokers.values():
            peer = await Peer().connect(broker.address)
            found += await stored(peer, f"{self.topic}@{self.group}") or [None]
            await peer.close()
        return found

    async def commit(self, offset: int) -> None:
        for broker in self.two.brokers.values():
            peer = await Peer().connect(broker.address)
            fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": 0, "commitOffset": offset}
            assert (await peer.ask(15, fields)).code == 0
            await peer.close()


@pytest.fixture
async def work(two: Two) -> Work:
    work = Work(two)
    for broker in two.brokers.values():
        peer = await Peer().connect(broker.address)
        topic = {"topic": work.topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        fields = {**topic, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        assert (await peer.ask(17, fields)).code == 0
        await peer.close()
    async with Producer("p", nameserver=two.nameserver.address) as producer:
        for name in two.brokers:
            for number in range(EACH):
                body = f"{name} {number}".encode()
                await producer.send(Message(work.topic, body), queue=MessageQueue(work.topic, name, 0))
    return work


async def stored(peer: Peer, key: str) -> list[int]:
    """The stored offsets of a topic and group at one broker, by queue."""
    table = ConsumerOffsets.decode((await peer.ask(43)).body).offset_table
    return [offset for _, offset in sorted(table.get(key, {}).items())]


def run(nameserver: str, home: Path, line: tuple[str, ...]) -> tuple[int, str, str]:
    """mqadmin as an operator runs it: exit status, output, errors."""
    environment = {"NAMESRV_ADDR": nameserver, "XDG_STATE_HOME": str(home / "state")}
    with Process([str(SCRIPTS / "mqadmin"), *line], home / "mqadmin.err", talks=True, env=environment) as process:
        out = process.output_lines.read()
        return process.wait(60), out, process.output


@pytest.mark.slow
async def test_a_broker_that_has_just_restarted_is_waited_for(two: Two, work: Work) -> None:
    """It knows no member before their heartbeats; offsets that were stored there would be overwritten by the member."""
    came = asyncio.Condition()
    bodies: list[str] = []

    async def listen(message: ReceivedMessage) -> None:
        async with came:
            bodies.append(message.body.decode())
            came.notify_all()

    async def has(count: int) -> None:
        async with asyncio.timeout(60), came:
            await came.wait_for(lambda: len(bodies) >= count)

    settings = ClientSettings(nameserver=two.nameserver.address, heartbeat_interval=3, route_interval=1)
    consumer = PushConsumer(work.group, listen, settings=settings, start_from="first", offset_interval=0.05)
    async with consumer.subscribe(work.topic):
        await has(2 * EACH)
        async with asyncio.timeout(30):
            while await work.stored() != [EACH, EACH]:  # noqa: ASYNC110 (else they come again without a reset)
                await asyncio.sleep(0.05)
        two.brokers["broker-b"].stop()
        await asyncio.to_thread(two.start, "broker-b")
        status, out, err = await work.mqadmin()
        assert status == 0, err
        assert [line.split() for line in out.splitlines()[1:]] == [
            ["#brokerName", "#queueId", "#offset"],
            ["broker-a", "0", "0"],
            ["broker-b", "0", "0"],
        ]
        await has(4 * EACH)
    assert sorted(bodies) == sorted(2 * work.bodies)


@pytest.mark.slow
async def test_members_are_waited_for_where_every_broker_has_just_restarted(tmp_path: Path) -> None:
    """Nobody seems to be online: offsets that are stored then are overwritten by the members' next commit."""
    nameserver = ErucaNameServer(tmp_path / "names")
    broker = ErucaBroker(tmp_path / "broker", nameserver.address)
    try:
        async with Producer("p", nameserver=nameserver.address) as producer:
            for number in range(EACH):
                await producer.send(Message("T", b"order %d" % number))
        command = [sys.executable, "-c", MEMBER, nameserver.address, "G", "T"]
        with Process(command, tmp_path / "member.out") as member:
            member.wait_until(lambda: member.output.count("order ") == EACH, "all messages consumed")
            peer = await Peer().connect(broker.address)
            async with asyncio.timeout(15):
                while sum(await stored(peer, "T@G")) < EACH:  # noqa: ASYNC110 (a member commits each 5 s)
                    await asyncio.sleep(0.05)
            await peer.close()
            await asyncio.to_thread(broker.stop)
            broker = await asyncio.to_thread(
                ErucaBroker, tmp_path / "broker", nameserver.address, {"listenPort": str(broker.port)}
            )
            line = ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "0")
            refused = await asyncio.to_thread(run, nameserver.address, tmp_path, (*line, "--now"))
            assert refused[:2] == (1, "") and "broker-a has just restarted and may not know all members" in refused[2]
            clone = ("cloneGroupOffset", "-s", "G", "-d", "G", "-t", "T")
            status, _, err = await asyncio.to_thread(run, nameserver.address, tmp_path, clone)
            assert (status, "nothing was copied, since broker-a has just restarted" in err) == (1, True)
            status, out, err = await asyncio.to_thread(run, nameserver.address, tmp_path, line)
            assert status == 0 and "waiting " in err and "members: 1 online" in err, err
            assert out.splitlines()[1].split() == ["#brokerName", "#queueId", "#offset"]
            member.wait_until(lambda: member.output.count("order ") == 2 * EACH, "all messages come again")
    finally:
        broker.process.kill()
        nameserver.stop()


async def test_a_broker_that_hangs_stops_the_reset_before_anything_moves(two: Two, work: Work) -> None:
    await work.commit(7)
    two.signal("broker-b", signal.SIGSTOP)
    try:
        with Stopwatch() as watch:
            status, out, err = await work.mqadmin()
        half = await work.mqadmin("--partial")
    finally:
        two.signal("broker-b", signal.SIGCONT)
    assert (status, out) == (1, "")
    assert watch.seconds < 20
    assert f"nothing was moved, since not every broker of {work.topic} can do it (broker-b: " in err
    assert half[0] == 5
    assert half[1].splitlines()[2].split()[:2] == ["broker-a", "0"] and "broker-b" not in half[1]
    assert half[2].splitlines()[-1].startswith("mqadmin resetOffsetByTime: not moved: broker-b (")
    assert await work.stored() == [0, 7]


async def test_a_broker_that_dies_after_the_look_is_named(two: Two, work: Work) -> None:
    await work.commit(7)
    said: list[str] = []
    async with Admin([two.nameserver.address]) as admin:
        reset = await prepare(admin, work.group, work.topic, First(), Options())
        two.brokers["broker-b"].process.kill()
        with pytest.raises(Partial, match="only the queues above have moved: broker-b: ") as told:
            async with performed(reset, {"XDG_STATE_HOME": str(two.home)}, said.append, 1.0) as done:
                pass
    await asyncio.to_thread(two.start, "broker-b")
    assert told.value.status == 5
    assert {queue.broker_name for queue in done.offsets} == {"broker-a"}
    assert (await work.stored())[0] == 0


@pytest.mark.slow
async def test_a_member_that_hangs_is_seen_not_to_move(two: Two, work: Work, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEMBER, two.nameserver.address, work.group, work.topic]
    with Process(command, tmp_path / "member.out") as member:
        member.wait_until(lambda: member.output.count("broker-") == 2 * EACH, "all messages consumed")
        async with asyncio.timeout(15):
            while await work.stored() != [EACH, EACH]:  # noqa: ASYNC110 (a member commits each 5 s)
                await asyncio.sleep(0.05)
        member.signal(signal.SIGSTOP)
        began = time.monotonic()
        with Stopwatch() as watch:
            status, out, err = await work.mqadmin("--wait", "2")
        took = time.monotonic() - began
        member.signal(signal.SIGCONT)
        assert status == 5, (out, err)
        assert took >= 2 and watch.seconds < 2 + 10, took
        assert out.count("broker-") == 2
        assert "0 of 2 queues were seen to move in 2 s, not: broker-a:0 " in err and "no answer from " in err
        member.wait_until(lambda: member.output.count("broker-") == 4 * EACH, "the reset that it slept through")


@pytest.mark.slow
async def test_the_slave_of_a_master_that_is_away_gets_no_offsets(tmp_path: Path) -> None:
    async with Pairs(tmp_path) as pairs:
        await pairs.create_topic("T", 1)
        await pairs.followed()
        await pairs.stop("b")
        line = ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "0", "--new-group")
        status, out, err = await asyncio.to_thread(run, pairs.address, tmp_path, line)
    assert (status, out) == (1, "")
    assert "broker-b: its master is away, and its slave would forget new offsets" in err
