"""Clients that nobody stopped: their sockets end with their event loop, and Python says that they were left open."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from eruca.client import Message, Producer
from eruca.standalone.background import BackgroundCluster
from tests.client.conftest import small_broker


def test_a_client_that_was_not_stopped_does_not_outlive_its_loop(tmp_path: Path) -> None:
    with BackgroundCluster(tmp_path, broker=small_broker()) as cluster:

        async def forget() -> None:
            producer = Producer("forgetful", nameserver=cluster.address)
            await producer.start()
            await producer.send(Message("T", b"x"))

        async def remember() -> None:
            async with Producer("careful", nameserver=cluster.address) as producer:
                await producer.send(Message("T", b"x"))

        with pytest.warns(ResourceWarning, match="Producer forgetful was not stopped, with 0 sends under way"):
            asyncio.run(forget())
        with pytest.warns(ResourceWarning, match="unclosed") as told:
            asyncio.run(remember())
            gc.collect()
        assert len(told) >= 2, "one of the nameserver and one of the broker"
