"""Python's producers when Apache's brokers are killed and stand still, and its nameserver is away.

The transcripts are those of tests/faults/test_producers.py, which Eruca's brokers go through with every change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults import test_producers as transcripts
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.programme import LONG, WHY

pytestmark = pytest.mark.skipif(not LONG, reason=WHY)


class Two(transcripts.Two):
    """A nameserver and two brokers of Apache's."""

    def __init__(self, release: str, home: Path) -> None:
        self._release = release
        super().__init__(home)

    def _make_names(self) -> ApacheNameServer:
        return ApacheNameServer(self._release, self._home)

    def _make(self, name: str) -> ApacheBroker:
        patient = {"brokerFastFailureEnable": "false"}  # all share these processors: waiting is not refused
        properties = {"brokerName": f"broker-{name}", **patient}
        return ApacheBroker(self._release, self._home / name, self.names.address, properties)


@pytest.fixture(params=["4.9.7", "5.3.3"])
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Two]:
    two = await asyncio.to_thread(Two, request.param, tmp_path)
    yield two
    two.close()


async def test_in_each_kind_of_trouble(two: Two) -> None:
    await transcripts.test_of_two_brokers_one_is_killed_and_no_send_fails(two)
    await transcripts.test_a_broker_that_stands_still_costs_each_sender_one_time_out(two)
    two.kill("a")
    await two.start("a")
    await transcripts.test_without_a_nameserver_what_is_known_is_enough(two)
