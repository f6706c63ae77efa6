"""pytest fixtures for programs that use RocketMQ: a real nameserver and broker inside the test process.

pytest loads this module where Eruca is installed; it costs nothing until a test uses a fixture. Needs the servers:
``pip install "eruca[broker]"``. Ports are free ones; files are in pytest's temporary folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from eruca.standalone.background import BackgroundCluster

_MOST_OF_A_NAME = 80
_numbers = count(1)


def _cluster(folder: Path) -> BackgroundCluster:
    """A cluster that takes little disk. Fails the test with a sentence when its packages are missing."""
    try:
        from eruca.standalone.background import BackgroundCluster
        from eruca.standalone.trial_cluster import small_broker
    except ImportError as error:
        pytest.fail(f'The servers of Eruca cannot be loaded ({error}): pip install "eruca[broker]"', pytrace=False)
    return BackgroundCluster(folder, broker=small_broker())


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    """One nameserver and broker for all tests of the run; ``rocketmq.address`` is the nameserver's ``host:port``."""
    with _cluster(tmp_path_factory.mktemp("rocketmq")) as cluster:
        yield cluster


@pytest.fixture
def fresh_rocketmq(tmp_path: Path) -> Iterator[BackgroundCluster]:
    """An empty nameserver and broker for this test alone, which the test may restart."""
    with _cluster(tmp_path / "rocketmq") as cluster:
        yield cluster


@pytest.fixture
def rocketmq_env(rocketmq: BackgroundCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of ``rocketmq``; ROCKETMQ_NAMESRV_ADDR has it during this test."""
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", rocketmq.address)
    return rocketmq.address


@pytest.fixture
def rocketmq_topic(rocketmq: BackgroundCluster, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Creates topics of ``rocketmq`` that no other test has: ``rocketmq_topic(queues=8)`` returns the name."""
    test = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:_MOST_OF_A_NAME].strip("-")

    def make(queues: int = 8) -> str:
        return rocketmq.create_topic(f"{test}-{next(_numbers)}", queues)

    return make
