"""Quotas of requests, bytes, new topics, and of topics by the beginnings of their names; off by default."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.desk import Desk
from tests.support.peers import Peer
from tests.support.sends import message

SEND_V2, HEARTBEAT, MAX_OFFSET, CREATE, CONFIG = 310, 34, 30, 17, 25
TOPIC = {"perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false", "defaultTopic": "TBW102"}


def of(topic: str, queues: int = 4) -> dict[str, object]:
    """The header of a request that makes a topic."""
    return {**TOPIC, "topic": topic, "readQueueNums": queues, "writeQueueNums": queues}


async def other(desk: Desk, address: str) -> Peer:
    """A peer from another address of this machine."""
    return await Peer().connect(desk.app.address, local=address)


async def test_more_requests_a_second_than_allowed_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.config.quotas.quota_requests_per_second = 10
    async with desk:
        desk.app.quotas.requests.now = lambda: 100.0
        desk.topic("T")
        answers = [await desk.ask(SEND_V2, message(), b"x") for _ in range(15)]
        assert Counter(answer.code for answer in answers) == {0: 10, 2: 5}
        assert answers[-1].remark == (
            "127.0.0.1 may send 10 requests a second (quotaRequestsPerSecond): wait a second and repeat it, more slowly"
        )
        assert (await desk.ask(HEARTBEAT, {}, b'{"clientID":"c"}')).code == 0
        elsewhere = await other(desk, "127.0.0.2")
        assert (await elsewhere.ask(SEND_V2, message(), b"x")).code == 0
        await elsewhere.close()
        assert desk.app.quotas.requests.refused == 5
        assert desk.broker.store.max_offset("T", 0) == 11


async def test_more_bytes_a_second_than_allowed_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.config.quotas.quota_bytes_per_second = 100_000
    async with desk:
        desk.app.quotas.bytes.now = lambda: 100.0
        desk.topic("T")
        codes = [(await desk.ask(SEND_V2, message(), bytes(30_000))).code for _ in range(8)]
        assert codes == [0] * 4 + [2] * 4
        assert "may send 100000 bytes of requests a second (quotaBytesPerSecond)" in str(
            (await desk.ask(SEND_V2, message(), b"x")).remark
        )


async def test_more_new_topics_a_second_than_allowed_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.config.quota_new_topics_per_second = 0.01
    async with desk:
        assert (await desk.ask(CREATE, of("First"))).code == 0
        for refused in (
            await desk.ask(CREATE, of("Second")),
            await desk.ask(SEND_V2, message(topic="Third"), b"x"),
        ):
            assert refused.code == 2
            assert refused.remark is not None and "0.01 new topics a second (quotaNewTopicsPerSecond)" in refused.remark
        assert (await desk.ask(CREATE, of("First", 8))).code == 0, "it is there"
        assert (await desk.ask(SEND_V2, message(topic="First"), b"x")).code == 0
        assert {"First"} == {topic for topic in desk.broker.topics if not desk.broker.topics.is_system(topic)}


async def test_topics_and_queues_are_limited_by_the_beginning_of_the_name(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        changed = b"maxTopicNumByPrefix=pay-=2\nmaxQueueNumByPrefix=pay-=10;pay-fast=5\n"
        assert (await desk.ask(CONFIG, {}, changed)).code == 0
        assert (await desk.ask(CREATE, of("pay-a", 4))).code == 0
        over = await desk.ask(CREATE, of("pay-b", 7))
        assert (over.code, over.remark) == (
            1,
            "the topic pay-b is not made: this broker has topics with 4 queues whose names begin with pay-; it would "
            "have 7, and maxQueueNumByPrefix allows 10 in all; delete unused topics, or raise the limit",
        )
        assert (await desk.ask(CREATE, of("pay-fast", 6))).code == 1
        assert (await desk.ask(CREATE, of("pay-b", 4))).code == 0
        assert (await desk.ask(CREATE, of("pay-a", 7))).code == 1, "no more queues for one that is there"
        assert (await desk.ask(CREATE, of("pay-a", 6))).code == 0
        full = await desk.ask(SEND_V2, message(topic="pay-c"), b"x")
        assert (full.code, full.remark) == (
            1,
            "the topic pay-c is not made: this broker has 2 topics whose names begin with pay-; maxTopicNumByPrefix "
            "allows 2; delete unused topics, or raise the limit",
        )
        assert (await desk.ask(CREATE, of("other", 100))).code == 0


@pytest.mark.parametrize("value", ["pay-", "=3", "pay-=x"])
async def test_prefixes_without_numbers_are_refused(tmp_path: Path, value: str) -> None:
    async with Desk(tmp_path) as desk:
        refused = await desk.ask(CONFIG, {}, f"maxTopicNumByPrefix={value}\n".encode())
        assert refused.code != 0 and "write beginnings of names and numbers, like orders-=100;pay-=5" in str(
            refused.remark
        )


async def test_without_quotas_nothing_is_counted(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        assert not desk.app.quotas.on and not desk.app.new_topics.on
        desk.topic("T")
        assert {(await desk.ask(SEND_V2, message(), b"x")).code for _ in range(50)} == {0}
        assert len(desk.app.quotas.requests) == 0
