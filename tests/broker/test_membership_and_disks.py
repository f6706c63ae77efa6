"""Brokers of a group whose disk is full, or so slow that nothing comes onto it: who leads, and who is in the set."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from eruca.broker.failover.member import State
from tests.broker.elected import Group
from tests.broker.services.replication.pairs import until
from tests.broker.test_membership import SEND, came_into_the_set, equal, sent
from tests.support.desk import Desk
from tests.support.peers import Peer
from tests.support.sends import message


def master_epoch(desk: Desk) -> int:
    """The epoch of a broker that leads; 0 of another one."""
    member = desk.app.member
    if member is None or member.known is None or member.state is not State.MASTER:
        return 0
    return member.known.group.master_epoch


@pytest.mark.parametrize("sync_flush", [False, True])
async def test_a_master_whose_disk_is_full_stays_the_master_and_takes_sends_again_when_there_is_room(
    group: Group, sync_flush: bool
) -> None:
    """Nothing can be written: neither the log, nor what is made of it, though all of that is tried."""
    one, two = [await group.start(number, sync_flush=sync_flush) for number in (1, 2)]
    await group.led({1, 2})
    epoch = master_epoch(one)
    assert await sent(one, 30, b"x" * 20_000) == [0] * 30
    with capture_logs() as said, one.disk.without_room():
        codes = await sent(one, 30, b"y" * 40_000)
        assert set(codes[:-1]) <= {0, 14} and codes[-1] == 14
        answer = await one.ask(SEND, message(), b"z" * 40_000)
        assert answer.code == 14 and "the broker's disk is full" in str(answer.remark)
        await until(lambda: {"no_room_in_commit_log", "store_housekeeping_failed"} <= {line["event"] for line in said})
        assert await sent(one, 3, b"z" * 40_000) == [14] * 3
        await asyncio.sleep(1)  # a broker looks at its disk several times a second
        assert master_epoch(one) == epoch
    async with asyncio.timeout(20):
        while (await sent(one, 1, b"on"))[0]:  # it looks for room every 0.2 s
            continue
    assert await group.led({1, 2}) is one and master_epoch(one) == epoch
    await equal(one, two)


@pytest.mark.slow
async def test_a_replica_that_is_connected_and_makes_no_progress_leaves_the_set_and_comes_back(group: Group) -> None:
    """Its disk brings nothing it gets to an end, while it answers heartbeats."""
    one = await group.start(1, sync_flush=True)
    two = await group.start(2, sync_flush=True)
    await group.led({1, 2})
    assert await sent(one, 3) == [0] * 3
    await equal(one, two)
    with capture_logs() as said:
        two.disk.hold()
        peer = await Peer().connect(one.app.address)
        waits = asyncio.create_task(peer.ask(SEND, message(), b"waits", within=20))
        assert await group.led({1}) is one
        assert (await waits).code == 0 and await sent(one, 3, b"on") == [0] * 3
        await peer.close()
        events = [line["event"] for line in said]
        assert "replica_stuck" in events and "replica_lost" not in events
        two.disk.release()
        await until(lambda: came_into_the_set(said) == [2])
    assert await sent(one, 1, b"both") == [0]
    await equal(one, two)
