"""The locks of an ordered group: when they are asked for, when they count, when they are given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca.client.config import ClientSettings
from eruca.client.consuming.locks import QueueLocks
from eruca.client.errors import BadConfig
from eruca.client.network.session import Session
from eruca.protocol.codes import RequestCode
from eruca.protocol.queues import MessageQueue
from tests.client.conftest import eventually
from tests.support.scripted import Scripted

A0, A1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def session(server: Scripted) -> AsyncIterator[Session]:
    server.knows("T", server, queues=2)
    session = Session.join(ClientSettings(nameserver=server.address))
    yield session
    await session.leave()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def locks(session: Session, clock: Clock) -> QueueLocks:
    return QueueLocks(session, "g", clock)


async def test_a_lock_counts_for_30_seconds_and_is_renewed(locks: QueueLocks, clock: Clock, server: Scripted) -> None:
    assert not locks.held(A0)
    assert await locks.take(A0) and await locks.take(A1)
    clock.now += 29.9
    assert locks.held(A0) and locks.held(A1)
    clock.now += 0.1
    assert not locks.held(A0)
    await locks.renew()
    assert locks.held(A0) and locks.held(A1)
    assert server.locked == [[A0], [A1], [A0, A1]]


async def test_what_is_not_granted_is_lost_until_it_is(locks: QueueLocks, server: Scripted) -> None:
    server.not_granted = {A0}
    assert not await locks.take(A0) and await locks.take(A1)
    await locks.renew()
    assert server.locked[-1] == [A1]  # what was never held is not renewed
    server.not_granted = {A1}
    await locks.renew()
    assert not locks.held(A1)
    server.not_granted = set()
    await locks.renew()
    assert locks.held(A1)


async def test_a_broker_that_cannot_be_asked_costs_no_lock_before_its_time(
    locks: QueueLocks, clock: Clock, server: Scripted
) -> None:
    await locks.take(A0)
    server.refused_codes.add(RequestCode.LOCK_BATCH_MQ)
    clock.now += 20
    await locks.renew()
    assert locks.held(A0)
    clock.now += 10
    assert not locks.held(A0)


async def test_locks_are_given_back_once(locks: QueueLocks, server: Scripted) -> None:
    await locks.take(A0)
    await locks.take(A1)
    await locks.release([A0, A1])
    await locks.release([A0, A1])
    assert server.unlocked == [[A0, A1]]
    assert not locks.held(A0)


async def test_a_lost_lock_counts_again_only_when_the_member_has_caught_up(
    locks: QueueLocks, clock: Clock, server: Scripted
) -> None:
    asked: list[MessageQueue] = []
    knows = False

    async def catch_up(queue: MessageQueue) -> bool:
        asked.append(queue)
        assert not locks.held(queue)
        return knows

    locks.catch_up = catch_up
    assert await locks.take(A0)
    clock.now += 29
    await locks.renew()
    assert asked == []  # it was never lost
    clock.now += 31
    await locks.renew()
    assert asked == [A0] and not locks.held(A0)
    knows = True
    assert await locks.take(A0)
    assert asked == [A0, A0] and locks.held(A0)


async def test_a_lock_ends_with_the_connection_that_brought_it(locks: QueueLocks, server: Scripted) -> None:
    assert await locks.take(A0)
    for connection in tuple(server.connections):
        connection.abort()
    await eventually(lambda: not locks.held(A0))
    await locks.renew()
    assert locks.held(A0)


async def test_an_answer_under_way_does_not_bring_back_what_was_released(locks: QueueLocks, server: Scripted) -> None:
    assert await locks.take(A0)
    await asyncio.gather(locks.renew(), locks.release([A0]))
    assert not locks.held(A0) and not locks.wanted(A0)
    await locks.renew()
    assert server.locked == [[A0], [A0]]


def test_locks_are_renewed_before_they_end() -> None:
    with pytest.raises(BadConfig, match="must be renewed before they end"):
        ClientSettings(lock_lifetime=5.0)
