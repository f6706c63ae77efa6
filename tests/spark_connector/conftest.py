"""One Spark session and one cluster for all tests that need them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.clients import ClusterClients
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic, spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads of this machine."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def cluster() -> Iterator[ErucaCluster]:
    """A name server and a broker."""
    with tempfile.TemporaryDirectory(prefix="eruca-spark-") as home, ErucaCluster(Path(home)) as running:
        yield running


@pytest.fixture
def topic(cluster: ErucaCluster, request: pytest.FixtureRequest) -> Iterator[Topic]:
    """A topic of this test alone with four queues."""
    name = f"{request.path.stem.removeprefix('test_')}_{request.node.name}"
    made = Topic(cluster, re.sub("[^a-zA-Z0-9]+", "_", name)[:100], 4)
    yield made
    made.close()


@pytest.fixture
def fresh_clients() -> Iterator[ClusterClients]:
    """The clients of this process, made for this test alone: they know no route yet."""
    clients.close_this_process()
    yield clients.this_process()
    clients.close_this_process()
