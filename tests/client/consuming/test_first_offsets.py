"""The first offsets of a group, of which a broker of Apache's loses one if several come at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca.client import MessageQueue
from eruca.client.config import ClientSettings
from eruca.client.consuming.offset_store import RemoteBrokerOffsetStore
from eruca.client.errors import BrokerRefused
from eruca.client.network.session import Session
from eruca.protocol import api
from tests.client.conftest import eventually
from tests.support.scripted import Scripted

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(8)]
ALL = {("g", "T", queue.queue_id): 5 + queue.queue_id for queue in QUEUES}


@pytest.fixture
async def store(server: Scripted) -> AsyncIterator[RemoteBrokerOffsetStore]:
    server.knows("T", server, queues=len(QUEUES))
    session = Session.join(ClientSettings(nameserver=server.address))
    await session.directory.reader("broker-a", "T")
    yield RemoteBrokerOffsetStore(session, "g")
    await session.leave()


async def test_all_are_stored_that_are_saved_at_once(server: Scripted, store: RemoteBrokerOffsetStore) -> None:
    await asyncio.gather(*(store.save(queue, 5 + queue.queue_id) for queue in QUEUES))
    assert server.committed == ALL


async def test_all_are_stored_that_are_reported(server: Scripted, store: RemoteBrokerOffsetStore) -> None:
    await store.load(QUEUES[0])  # which connects
    assert [store.report(queue, 5 + queue.queue_id) for queue in QUEUES] == [True] + [False] * 7
    store.flush()
    await eventually(lambda: len(server.committed) == 1)
    assert all([store.report(queue, 5 + queue.queue_id) for queue in QUEUES])
    await eventually(lambda: server.committed == ALL)


async def test_the_others_go_on_after_a_first_that_failed(server: Scripted, store: RemoteBrokerOffsetStore) -> None:
    server.refused_codes.add(api.UPDATE_CONSUMER_OFFSET.code)
    saves = (store.save(queue, 1) for queue in QUEUES)
    assert {type(failed) for failed in await asyncio.gather(*saves, return_exceptions=True)} == {BrokerRefused}
    server.refused_codes.clear()
    await asyncio.gather(*(store.save(queue, 5 + queue.queue_id) for queue in QUEUES))
    assert server.committed == ALL
