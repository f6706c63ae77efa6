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

Value = str | float | bool
"""Of a setting: a text as in broker.conf, or a number, True or False."""

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


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marker whose settings reach no broker fails its test."""
    fixtures = getattr(item, "fixturenames", ())
    if item.get_closest_marker("rocketmq") and "rocketmq" in fixtures and "fresh_rocketmq" not in fixtures:
        pytest.fail(
            "The marker rocketmq sets the broker of fresh_rocketmq, and this test uses the one that all tests share: "
            "take fresh_rocketmq, or set the shared one by rocketmq_settings or rocketmq_config.",
            pytrace=False,
        )


def _of_run(config: pytest.Config, of_project: Mapping[str, Value]) -> dict[str, Value]:
    """The settings of pytest's configuration, and over them those of the fixture ``rocketmq_config``."""
    if not isinstance(of_project, Mapping):
        pytest.fail(
            f"The fixture rocketmq_config returns a value of type {type(of_project).__name__}: a mapping of keys to "
            "values is expected.",
            pytrace=False,
        )
    pairs = (line.partition("=") for line in config.getini("rocketmq_settings"))
    return {key.strip(): text.strip() for key, _, text in pairs} | dict(of_project)


def _of_mark(mark: pytest.Mark) -> Mapping[str, Value]:
    if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], Mapping):
        pytest.fail('The marker takes a mapping: @pytest.mark.rocketmq({"messageDelayLevel": "1s 2s"}).', pytrace=False)
    return mark.args[0]


def _cluster(folder: Path, settings: Mapping[str, Value]) -> BackgroundCluster:
    """A cluster that takes little disk. Fails the test with a sentence for wrong settings."""
    from eruca.remoting.settings import BadSetting
    from eruca.standalone.background import BackgroundCluster
    from eruca.standalone.trial_cluster import small_broker

    try:
        return BackgroundCluster(folder, broker=small_broker(settings))
    except BadSetting as error:
        pytest.fail(f"The broker of the fixtures: {error}", pytrace=False)


@pytest.fixture(scope="session")
def rocketmq_config() -> Mapping[str, Value]:
    """More settings of the broker, by the keys of broker.conf: define it in a conftest.py.

    A value is a text as in that file, a number, True or False.

    They come after ``rocketmq_settings`` of pytest's configuration, and replace those of the same key.
    """
    return {}


@pytest.fixture(scope="session")
def rocketmq(
    tmp_path_factory: pytest.TempPathFactory, rocketmq_config: Mapping[str, Value], pytestconfig: pytest.Config
) -> Iterator[BackgroundCluster]:
    """One nameserver and broker for all tests of the run; ``rocketmq.address`` is the nameserver's ``host:port``."""
    with _cluster(tmp_path_factory.mktemp("rocketmq"), _of_run(pytestconfig, rocketmq_config)) as cluster:
        yield cluster


@pytest.fixture
def fresh_rocketmq(
    tmp_path: Path, rocketmq_config: Mapping[str, Value], request: pytest.FixtureRequest
) -> Iterator[BackgroundCluster]:
    """An empty nameserver and broker for this test alone, which the test may restart.

    Its settings are those of the run, and over them those of the test's markers ``rocketmq``.
    """
    marks = [dict(_of_mark(mark)) for mark in request.node.iter_markers("rocketmq")]
    settings = dict(ChainMap(*marks, _of_run(request.config, rocketmq_config)))
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
