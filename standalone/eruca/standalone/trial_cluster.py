"""The cluster of a test: a nameserver and a broker that take little disk, in this process.

Owns its configuration, and the temporary folder of a cluster that has none. ``App.test`` of the client finds
``cluster`` by the entry point ``eruca.test_clusters``; the pytest fixtures call ``small_broker``.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import Final

from eruca.broker.config import BrokerConfig
from eruca.remoting.settings import BadSetting
from eruca.remoting.sources import Given
from eruca.standalone.cluster import Cluster
from eruca.standalone.settings import DEFAULTS, cluster_settings

SMALL: Final = {
    **DEFAULTS,
    "mappedFileSizeCommitLog": str(16 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


def small_broker(settings: Mapping[str, str | float | bool] | None = None) -> BrokerConfig:
    """A broker that takes little disk, with further ``settings`` by their keys. Raises BadSetting."""
    given = [Given(key, _text(key, value), "the settings") for key, value in (settings or {}).items()]
    return cluster_settings(given, defaults=SMALL).broker


def _text(key: str, value: object) -> str:
    """A value as broker.conf has it."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
    raise BadSetting(f"{key} is of type {type(value).__name__}: a text, a number, True or False is expected")


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[str]:
    """An empty cluster in a temporary folder; gives the nameserver's ``host:port``."""
    folder = tempfile.TemporaryDirectory(prefix="eruca-test-")
    try:
        async with Cluster(folder.name, broker=small_broker()) as running:
            yield running.address
    finally:
        await asyncio.to_thread(folder.cleanup)
