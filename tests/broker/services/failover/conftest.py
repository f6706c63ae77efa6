"""A group in memory, with an etcd in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.coordination import FakeClient, FakeCoordinator
from tests.support.failover_groups import MemoryGroup


@pytest.fixture
def etcd() -> FakeCoordinator:
    return FakeCoordinator()


@pytest.fixture
async def group(etcd: FakeCoordinator) -> AsyncIterator[MemoryGroup[FakeClient]]:
    async with MemoryGroup[FakeClient](lambda: FakeClient(etcd)) as group:
        yield group
