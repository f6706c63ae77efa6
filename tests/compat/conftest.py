"""The judges and what they judge: one JVM, one cluster of each kind for the whole run.

Everything here is started once and shared; tests keep apart by the names of their topics and groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.clients import Clients, JavaClients, PythonClients
from tests.compat.transactions import SOON
from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge, missing_tool

Cluster = ApacheCluster | ErucaCluster
FILTERING = {"enablePropertyFilter": "true"}
_serial = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = missing_tool()
    for item in items:
        if "tests/compat/" in item.nodeid:
            item.add_marker(pytest.mark.compat)
            # The first one resolves Apache's jars and compiles the judge.
            item.add_marker(pytest.mark.timeout(400))
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


def start(
    kind: str, home: Path, properties: Mapping[str, str] | None = None, *, options: Sequence[str] = ()
) -> Cluster:
    """A cluster of its own in that folder: of "eruca", of "apache" (4.9.7), or of that release of Apache's.

    `options` go to Apache's Java. The end of `with` ends it in no order; before another opens its store, `stop()` it.
    """
    if kind == "eruca":
        return ErucaCluster(home, properties)
    return ApacheCluster("4.9.7" if kind == "apache" else kind, home, properties, options=options)


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Apache's clients and mqadmin of 4.9.7."""
    with Judge("4.9.7", tmp_path_factory.mktemp("judge-4.9.7")) as judge:
        yield judge


@pytest.fixture(scope="session")
def judge5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Apache's clients and mqadmin of 5.3.3."""
    with Judge("5.3.3", tmp_path_factory.mktemp("judge-5.3.3")) as judge:
        yield judge


@pytest.fixture(scope="session")
def python() -> Iterator[PythonClients]:
    """Eruca's clients."""
    clients = PythonClients()
    yield clients
    clients.close()


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """A cluster of Apache RocketMQ 4.9.7."""
    with ApacheCluster("4.9.7", tmp_path_factory.mktemp("apache")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def apache5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """A cluster of Apache RocketMQ 5.3.3."""
    with ApacheCluster("5.3.3", tmp_path_factory.mktemp("apache5")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def apache_sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """A cluster of Apache RocketMQ 4.9.7 that knows SQL92."""
    with ApacheCluster("4.9.7", tmp_path_factory.mktemp("apache-sql"), FILTERING) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def apache_asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """A cluster of Apache RocketMQ 4.9.7 that asks soon about transactions."""
    with ApacheCluster("4.9.7", tmp_path_factory.mktemp("apache-asking"), SOON) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def eruca_asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    """A cluster of Eruca that asks soon about transactions."""
    with ErucaCluster(tmp_path_factory.mktemp("eruca-asking"), SOON) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def eruca(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    """A cluster of Eruca."""
    with ErucaCluster(tmp_path_factory.mktemp("eruca")) as cluster:
        yield cluster


@dataclass
class Pair:
    """A cluster and the clients that talk to it."""

    name: str
    cluster: Cluster
    clients: Clients

    @property
    def address(self) -> str:
        return self.cluster.address


@dataclass
class Real:
    """Apache's cluster, clients and mqadmin of one release, for what only Python's clients must show."""

    cluster: ApacheCluster
    judge: Judge

    @property
    def address(self) -> str:
        return self.cluster.address


@pytest.fixture(params=["4.9.7", "5.3.3"])
def real(request: pytest.FixtureRequest) -> Real:
    """Each release of Apache's."""
    names = ("apache", "judge") if request.param == "4.9.7" else ("apache5", "judge5")
    return Real(*(request.getfixturevalue(name) for name in names))


# The first two pairs are the judges' own measure; the others must do the same.
PAIRS = ("apache-java4", "apache-java5", "eruca-java4", "eruca-java5", "apache-python", "eruca-python")


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each pair that a transcript goes through."""
    cluster, clients = request.param.split("-")
    return Pair(request.param, request.getfixturevalue(cluster), clients_of(request, clients))


@pytest.fixture(params=[each for each in PAIRS if "java" in each])
def java_pair(request: pytest.FixtureRequest) -> Pair:
    """The pairs with Java clients, for what only those have."""
    cluster, clients = request.param.split("-")
    return Pair(request.param, request.getfixturevalue(cluster), clients_of(request, clients))


@pytest.fixture(params=["apache", "eruca"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["apache", "apache5", "eruca"])
def each_cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster, and each release of Apache's."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


def clients_of(request: pytest.FixtureRequest, name: str) -> Clients:
    if name == "python":
        python: PythonClients = request.getfixturevalue("python")
        return python
    return JavaClients(request.getfixturevalue({"java4": "judge", "java5": "judge5"}[name]))


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """A name that no other test of this run has."""
    return lambda kind: f"{kind}-{next(_serial)}"


@pytest.fixture
def topic(fresh: Callable[[str], str]) -> Callable[[Cluster, Judge, int], str]:
    """Creates a topic with so many queues, by Apache's mqadmin; its name."""

    def create(cluster: Cluster, judge: Judge, queues: int) -> str:
        name = fresh("topic")
        line = ["updateTopic", "-n", cluster.address, "-b", cluster.broker.address, "-t", name]
        done = judge.call("admin", line=[*line, "-r", str(queues), "-w", str(queues)])
        assert done["stdout"].startswith(f"create topic to {cluster.broker.address} success."), done
        # A name server hears of it from the broker before mqadmin is answered.
        return name

    return create


@pytest.fixture(params=["JSON", "ROCKETMQ"])
def headers(request: pytest.FixtureRequest, judge: Judge) -> Iterator[str]:
    """Both forms of headers that Java's clients can send."""
    yield judge.call("serialize", type=request.param)
    judge.call("serialize", type="JSON")
