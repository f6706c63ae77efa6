"""pytest fixtures for programs that use RocketMQ: a real nameserver and broker inside the test process.

pytest loads this module where Eruca is installed; it costs nothing until a test uses a fixture. Ports are free ones;
files are in pytest's temporary folder.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from eruca.standalone.background import BackgroundCluster

_MOST_OF_A_NAME = 80
_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings of the broker for a whole run."""
    words = "settings of the broker of the fixtures, KEY=VALUE in each line, with the keys of broker.conf"
    parser.addini("rocketmq_settings", words, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """The marker with the settings of one test."""
    words = "rocketmq(settings): settings of the broker of fresh_rocketmq for this test, by the keys of broker.conf"
    config.addinivalue_line("markers", words)


def _cluster(folder: Path, settings: Mapping[str, str]) -> BackgroundCluster:
    """A cluster that takes little disk. Fails the test with a sentence for wrong settings."""
    from eruca.remoting.settings import BadSetting
    from eruca.standalone.background import BackgroundCluster
    from eruca.standalone.trial_cluster import small_broker

    try:
        return BackgroundCluster(folder, broker=small_broker(settings))
    except BadSetting as error:
        pytest.fail(f"The broker of the fixtures: {error}", pytrace=False)


@pytest.fixture(scope="session")
def rocketmq_config(pytestconfig: pytest.Config) -> Mapping[str, str]:
    """The settings of the broker, by the keys of broker.conf; those of ``rocketmq_settings`` in pytest's configuration.

    Define it in a conftest.py to give others.
    """
    pairs = (line.partition("=") for line in pytestconfig.getini("rocketmq_settings"))
    return {key.strip(): text.strip() for key, _, text in pairs}


@pytest.fixture(scope="session")
def rocketmq(
    tmp_path_factory: pytest.TempPathFactory, rocketmq_config: Mapping[str, str]
) -> Iterator[BackgroundCluster]:
    """One nameserver and broker for all tests of the run; ``rocketmq.address`` is the nameserver's ``host:port``."""
    with _cluster(tmp_path_factory.mktemp("rocketmq"), rocketmq_config) as cluster:
        yield cluster


@pytest.fixture
def fresh_rocketmq(
    tmp_path: Path, rocketmq_config: Mapping[str, str], request: pytest.FixtureRequest
) -> Iterator[BackgroundCluster]:
    """An empty nameserver and broker for this test alone, which the test may restart.

    Its settings are those of ``rocketmq_config`` and of the test's marker ``rocketmq``.
    """
    marks = [mark.args[0] for mark in request.node.iter_markers("rocketmq")]
    settings = dict(ChainMap(*marks, dict(rocketmq_config)))
    with _cluster(tmp_path / "rocketmq", settings) as cluster:
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
