"""One Spark session and one cluster for all tests that need them."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from eruca.spark_connector import java
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.clients import ClusterClients
from tests.spark_connector.retention import SETTINGS
from tests.support.eruca import ErucaCluster
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.spark import Topic, spark_session


@pytest.fixture(scope="session")
def spark(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads of this machine."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def cluster() -> Iterator[ErucaCluster]:
    """A name server and a broker."""
    with tempfile.TemporaryDirectory(prefix="eruca-spark-") as home, ErucaCluster(Path(home)) as running:
        yield running


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    """A broker that deletes files of 256 KiB when they are old."""
    with ErucaCluster(tmp_path_factory.mktemp("forgetful"), SETTINGS) as cluster:
        yield cluster


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


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with all packages of this one but Eruca."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=60)
    (target,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "eruca" not in package.name and package.suffix != ".pth":
            (target / package.name).symlink_to(package)
    return tmp_path / "bare" / "bin" / "python"


SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@pytest.fixture
def master(quick_java: None, tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with two workers of one core each."""
    java.prepare()
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    env = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
    deploy = [str(SPARK_CLASS), "org.apache.spark.deploy"]
    leader = [deploy[0], f"{deploy[1]}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [deploy[0], f"{deploy[1]}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "600m"]
    with Process([*leader, "--webui-port", "0"], tmp_path / "master.out", env=env, cwd=tmp_path) as leading:
        leading.wait_for_port(port, 180)
        with (
            Process(
                [*worker, "--webui-port", "0", "--work-dir", str(tmp_path / "one"), address],
                tmp_path / "one.out",
                env=env,
                cwd=tmp_path,
            ) as one,
            Process(
                [*worker, "--webui-port", "0", "--work-dir", str(tmp_path / "two"), address],
                tmp_path / "two.out",
                env=env,
                cwd=tmp_path,
            ) as two,
        ):
            for each in (one, two):
                each.wait_for_line("Successfully registered with master", 180)
            yield address
