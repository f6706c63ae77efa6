"""Python's producer goes on with every kind of send while Apache's only broker is killed and started again.

The transcript is that of tests/faults/test_sends_through_restarts.py, which Eruca's brokers go through.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.test_sends_through_restarts import Brokers, none_fails
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.programme import LONG, WHY

RELEASES = ["4.9.7", pytest.param("5.3.3", marks=pytest.mark.skipif(not LONG, reason=WHY))]


@pytest.fixture
async def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Brokers]:
    names = await asyncio.to_thread(ApacheNameServer, request.param, tmp_path / "names")

    def make(name: str, port: int) -> ApacheBroker:
        properties = {"brokerName": name}
        return ApacheBroker(request.param, tmp_path / name, names.address, properties, port=port)

    found = await asyncio.to_thread(Brokers, names, make, "broker-a")
    yield found
    found.close()


@pytest.mark.parametrize("brokers", RELEASES, indirect=True)
async def test_no_send_fails_while_the_only_broker_restarts(brokers: Brokers) -> None:
    await none_fails(brokers, ("broker-a", signal.SIGKILL), ("broker-a", signal.SIGTERM), least=0.0)
