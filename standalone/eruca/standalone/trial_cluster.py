"""The cluster of a test: a nameserver and a broker that take little disk, in this process.

Owns its configuration, and the temporary folder of a cluster that has none. ``App.test`` of the client finds
``cluster`` by the entry point ``eruca.test_clusters``; the pytest fixtures call ``small_broker``.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator

from eruca.broker.config import BrokerConfig
from eruca.standalone.cluster import Cluster


def small_broker() -> BrokerConfig:
    """A broker that takes little disk."""
    config = BrokerConfig(broker_name="broker-a")
    config.store.mapped_file_size_commit_log = 16 << 20
    config.store.max_hash_slot_num = 1_000
    config.store.max_index_num = 4_000
    return config


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[str]:
    """An empty cluster in a temporary folder; gives the nameserver's ``host:port``."""
    folder = tempfile.TemporaryDirectory(prefix="eruca-test-")
    try:
        async with Cluster(folder.name, broker=small_broker()) as running:
            yield running.address
    finally:
        await asyncio.to_thread(folder.cleanup)
