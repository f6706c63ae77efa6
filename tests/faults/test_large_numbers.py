"""Numbers and names that are far too large, beside a good client: they are refused, it has no error, and after a
restart the broker is in its nameserver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from eruca.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequest,
    ProducerData,
    SubscriptionGroupConfig,
    TopicList,
)
from eruca.protocol.queues import MessageQueue
from tests.support.history import History, judge
from tests.support.load import Load, read
from tests.support.lone import LoneBroker
from tests.support.names import Names
from tests.support.pairs import eventually
from tests.support.peers import Answered, Peer
from tests.support.programme import MEBIBYTE

pytestmark = pytest.mark.processes

HUGE = 2**31 - 1
WITHIN = 60.0


def heartbeat(client_id: str, groups: range, producers: int = 0) -> bytes:
    return HeartbeatData(
        client_id=client_id,
        consumer_data_set=[ConsumerData(group_name=f"flood-{number}") for number in groups],
        producer_data_set=[ProducerData(group_name=f"flood-{number}") for number in range(producers)],
    ).encode()


async def refused(peer: Peer, code: int, body: bytes = b"", fields: dict[str, Any] | None = None) -> Answered:
    answer = await peer.ask(code, fields or {}, body, within=WITHIN)
    assert answer.code == 1 and answer.remark and "Error" not in answer.remark, answer
    return answer


async def abuse(address: str) -> None:
    """Everything that once hung a broker, swelled it, ended a group or put it out of its cluster."""
    strange = await Peer("x" * (1 << 20), 10**9).connect(address)
    assert (await strange.ask(34, {}, heartbeat("strange", range(0), 1), within=WITHIN)).code == 0
    peer = await Peer().connect(address)
    group = SubscriptionGroupConfig(group_name="flood-0", retry_queue_nums=HUGE)
    await refused(peer, 200, group.encode())
    assert (await peer.ask(34, {}, heartbeat("good", range(1)), within=WITHIN)).code == 0
    assert (await peer.ask(202, {"topic": "%RETRY%flood-0"}, within=WITHIN)).code == 0
    await refused(peer, 25, b"defaultTopicQueueNums=2147483647")
    await refused(peer, 17, fields={"topic": "T", "readQueueNums": HUGE, "writeQueueNums": HUGE, "perm": 6})
    for begin in (0, 30_000, 60_000):
        await refused(peer, 34, heartbeat("c", range(begin, begin + 30_000)))
    long = "c" * (8 << 20)
    for _ in range(4):
        await refused(peer, 34, heartbeat(long, range(1), 1))
        await refused(peer, 41, LockBatchRequest(client_id=long, mq_set=[MessageQueue("T", "b", 0)]).encode())
    assert (await peer.ask(38, {"consumerGroup": "flood-0"}, within=WITHIN)).body == b'{"consumerIdList":["good"]}'
    full, others = 0, []
    for begin in range(0, 4_000, 200):  # no more than a client may have at once, but more than may be
        others.append(await Peer().connect(address))  # one connection may not be in so many
        answer = await others[-1].ask(34, {}, heartbeat("good", range(begin, begin + 200)), within=WITHIN)
        full += answer.code == 1 and "maxSubscriptionGroupNum allows 2000" in (answer.remark or "")
    assert full == 11
    for each in (peer, *others):
        await each.close()
    await strange.close()


async def test_a_good_client_notices_nothing_and_the_broker_stays_in_its_cluster(tmp_path: Path) -> None:
    settings = {"maxSubscriptionGroupNum": "2000"}
    async with Names(tmp_path) as names:
        settings["namesrvAddr"] = names.address
        broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
        history = History()
        try:
            async with Load(broker.address, history, producers=1, under_way=1) as load:
                await load.until(20)
                await read(broker.address)  # its group is there before the flood
                before = broker.memory()["rss"]
                await abuse(broker.address)
                count = load.answers[0]
                await load.until(count + 20)
                more = broker.memory()["rss"] - before
                await load.drained()
            assert set(load.answers) == {0}
            assert judge(history, await read(broker.address)) == []
            print(f"the abuse cost {more / MEBIBYTE:.1f} MiB beside {load.answers[0]} sends")
            assert more < 100 * MEBIBYTE
            broker.kill()
            await eventually(lambda: not names.server.table.clusters().broker_addr_table)
            broker = await LoneBroker.start(tmp_path, tmp_path / "store", settings)
            await eventually(lambda: bool(names.server.table.clusters().broker_addr_table))
            topics = TopicList.decode((await names.peer.ask(206)).body).topic_list
            assert sum(topic.startswith("%RETRY%flood-") for topic in topics) > 1_900
            assert await asyncio.wait_for(read(broker.address, history), WITHIN)
        finally:
            broker.kill()
