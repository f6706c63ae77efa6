"""Busy, but not overloaded: what a broker can work off is not refused; what it cannot is, and it stays quick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.overload import burst, capacity, held_up, offer
from tests.bench.restart import LARGE_FILES
from tests.support.eruca import ErucaCluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ErucaCluster]:
    with ErucaCluster(tmp_path, {**LARGE_FILES, "brokerFastFailureEnable": "true"}) as cluster:
        yield cluster


async def test_bursts_of_one_client_are_worked_off(cluster: ErucaCluster) -> None:
    for count in (512, 2048, 8192):
        failed, _ = await burst(cluster.address, "Bursts", count)
        assert failed == []


async def test_a_broker_that_is_held_up_again_and_again_works_off_bursts(cluster: ErucaCluster) -> None:
    await burst(cluster.address, "HeldUp", 8)
    async with held_up(cluster.broker.process, running=0.1, stopped=0.3):
        for count in (512, 2048, 512):
            failed, _ = await burst(cluster.address, "HeldUp", count)
            assert failed == []


async def test_more_than_it_can_do_is_refused_and_the_rest_answered_soon(cluster: ErucaCluster) -> None:
    """The long form is ``python -m tests.bench.overload``."""
    address, process = cluster.broker.address, cluster.broker.process
    before = process.memory()["anonymous"]
    figures = await offer(process, address, 10 * await capacity(address, 1.0), 4.0)
    assert figures.refused > len(figures.took) > 0
    assert figures.memory < before + (64 << 20)
    late = figures.took[len(figures.took) // 2 :]
    assert sorted(late)[len(late) // 2] < 500
