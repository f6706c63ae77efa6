"""Members of a consumer group are killed while queues are shared out: every message is consumed, and soon.

Each member is a process that writes down what it consumed; a killed one may have consumed what it could not report, so
that messages may come twice, but none may be missing.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from eruca.client import Message, MessageQueue, Producer
from tests.support.eruca import ErucaCluster
from tests.support.peers import Peer
from tests.support.processes import Process
from tests.support.programme import ENOUGH, chance, rounds

pytestmark = pytest.mark.processes

TOPIC, QUEUES, TOGETHER, CONVERGED = "Shared", 8, 3, 20.0
MEMBER = """
import asyncio, sys
from eruca.client import PushConsumer

async def main():
    out = open(sys.argv[2], "ab", buffering=0)

    async def listen(message):
        out.write(message.body + b"\\n")

    consumer = PushConsumer("members", listen, nameserver=sys.argv[1], start_from="first")
    consumer.subscribe("Shared")
    async with consumer:
        print("joined", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@ENOUGH
async def test_members_killed_while_rebalancing(tmp_path: Path) -> None:
    random = chance("members")
    sent: set[bytes] = set()
    book = tmp_path / "consumed"
    book.touch()
    members: list[Process] = []
    names = iter(range(1_000_000))

    def join() -> None:
        command = [sys.executable, "-c", MEMBER, cluster.address, str(book)]
        members.append(Process(command, tmp_path / f"member-{next(names)}.out"))

    with ErucaCluster(tmp_path) as cluster:
        try:
            async with Producer("p", nameserver=cluster.address) as producer:

                async def send(count: int) -> None:
                    for _ in range(count):
                        body = b"message %d" % len(sent)
                        queue = MessageQueue(TOPIC, "broker-a", len(sent) % QUEUES)
                        await producer.send(Message(TOPIC, body), queue=queue)
                        sent.add(body)

                await make_topic(cluster)
                for _ in range(TOGETHER):
                    join()
                for member in members:
                    await asyncio.to_thread(member.wait_for_line, "joined")
                slowest = 0.0
                for _ in rounds(4, 100, seconds=15):
                    join()  # which makes all of them share the queues anew
                    await asyncio.sleep(random.uniform(0, 1.5))  # somewhere in that
                    members.pop(random.randrange(TOGETHER)).kill()
                    await send(40)
                    begin = asyncio.get_running_loop().time()
                    await all_consumed(sent, book)
                    slowest = max(slowest, asyncio.get_running_loop().time() - begin)
                print(f"{len(sent)} messages, each consumed; at most {slowest:.1f} s after a kill")
            assert set(book.read_bytes().split(b"\n")) - {b""} == sent
        finally:
            for member in members:
                member.kill()


async def all_consumed(sent: set[bytes], book: Path, within: float = CONVERGED) -> None:
    """Wait until every message was written down."""
    async with asyncio.timeout(within):
        while not sent <= set(book.read_bytes().split(b"\n")):  # noqa: ASYNC110, ASYNC240 (another process writes)
            await asyncio.sleep(0.05)


async def test_a_member_that_leaves_messages_out_is_found_out(tmp_path: Path) -> None:
    """The planted fault: each tenth message is reported as consumed, and was not."""
    book = tmp_path / "consumed"
    book.touch()
    planted = MEMBER.replace("        out.write(", '        message.body.endswith(b"7") or out.write(')
    with ErucaCluster(tmp_path) as cluster:
        await make_topic(cluster)
        member = Process([sys.executable, "-c", planted, cluster.address, str(book)], tmp_path / "member.out")
        try:
            async with Producer("p", nameserver=cluster.address) as producer:
                sent = {b"message %d" % number for number in range(20)}
                for body in sent:
                    await producer.send(Message(TOPIC, body))
            await all_consumed(sent - {b"message 7", b"message 17"}, book)
            with pytest.raises(TimeoutError):
                await all_consumed(sent, book, within=1.0)
        finally:
            member.kill()


async def make_topic(cluster: ErucaCluster) -> None:
    """The topic with its queues."""
    peer = await Peer().connect(cluster.broker.address)
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    assert (await peer.ask(17, fields)).code == 0
    await peer.close()
