"""The group in whose name is pulled: TOOLS_CONSUMER, which every broker has, or one that is chosen or made."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eruca.client import PullConsumer
from eruca.protocol import api
from eruca.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from eruca.remoting import run
from eruca.spark_connector.errors import BadOption, SourceError
from eruca.spark_connector.options import read_options
from eruca.spark_connector.read.batch import BatchReader
from eruca.spark_connector.read.stream import StreamReader
from eruca.spark_connector.schema import default_schema
from tests.support.eruca import ErucaCluster
from tests.support.spark import Topic

pytestmark = pytest.mark.usefixtures("fresh_clients")


@pytest.fixture(scope="module")
def strict() -> Iterator[ErucaCluster]:
    """A broker that knows only the groups that somebody made."""
    properties = {"autoCreateSubscriptionGroup": "false"}
    with tempfile.TemporaryDirectory(prefix="eruca-spark-") as home, ErucaCluster(Path(home), properties) as running:
        yield running


@pytest.fixture
def orders(strict: ErucaCluster, request: pytest.FixtureRequest) -> Iterator[Topic]:
    made = Topic(strict, request.node.name[:100], 2)
    made.fill(6)
    yield made
    made.close()


def count(topic: Topic, **options: str) -> int:
    given = {"nameServer": topic.name_server, "subscribe": topic.name, **options}
    reader = BatchReader(read_options(given, streaming=False), default_schema(), 2)
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def groups(strict: ErucaCluster) -> dict[str, SubscriptionGroupConfig]:
    async def ask() -> dict[str, SubscriptionGroupConfig]:
        async with PullConsumer(nameserver=strict.address) as admin:
            answer = await admin.session.call(strict.broker.address, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table

    return run(ask())


def test_without_an_option_no_group_has_to_be_made(strict: ErucaCluster, orders: Topic) -> None:
    before = set(groups(strict))
    assert count(orders) == 6
    assert set(groups(strict)) == before


def test_a_group_that_is_not_there_is_named(orders: Topic) -> None:
    with pytest.raises(SourceError, match="nobody-made-it"):
        count(orders, pullGroup="nobody-made-it")


def test_a_group_is_made_once_and_its_settings_stay(strict: ErucaCluster, orders: Topic) -> None:
    given = {"pullGroup": "lake", "createPullGroup": "true"}
    assert count(orders, **given) == 6
    assert "lake" in groups(strict)

    changed = SubscriptionGroupConfig(group_name="lake", retry_max_times=3)

    async def change() -> None:
        async with PullConsumer(nameserver=strict.address) as admin:
            ask = api.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await admin.session.call(strict.broker.address, ask, None, changed.encode())

    run(change())
    assert count(orders, **given) == count(orders, pullGroup="lake") == 6
    assert groups(strict)["lake"].retry_max_times == 3


def test_a_stream_makes_it_too_in_its_namespace(strict: ErucaCluster, orders: Topic) -> None:
    given = {"nameServer": orders.name_server, "subscribe": orders.name, "pullGroup": "lake", "createPullGroup": "true"}
    reader = StreamReader(read_options({**given, "namespace": "shop"}, streaming=True), default_schema(), 2)
    with pytest.raises(SourceError, match=f"No route info of this topic: .*{orders.name}"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    shops = Topic(strict, f"shop%{orders.name}", 1)
    shops.send(0, b"of the shop")
    given |= {"namespace": "shop", "startingOffsets": "earliest"}
    reader = StreamReader(read_options(given, streaming=True), default_schema(), 2)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (part,) = reader.partitions(start, end)
    assert [body for each in reader.read(part) for body in each["body"].to_pylist()] == [b"of the shop"]
    assert "shop%lake" in groups(strict)
    shops.close()


def test_what_is_made_must_have_a_name() -> None:
    with pytest.raises(BadOption, match="createPullGroup needs the option pullGroup"):
        read_options({"nameServer": "m:1", "subscribe": "a", "createPullGroup": "true"}, streaming=False)
