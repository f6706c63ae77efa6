"""From a nameserver's answer to queues and addresses."""

from __future__ import annotations

import re

import pytest

from eruca.client import PullConsumer
from eruca.client.errors import ClientError
from eruca.client.network.routes import address_to_read, build_provisional_route, build_route
from eruca.protocol.bodies import BrokerData, QueueData, TopicRouteData
from eruca.protocol.errors import ProtocolError
from eruca.protocol.queues import MessageQueue
from tests.support.scripted import Scripted


def data(*queues: tuple[str, int, int, int], masters: str = "ab", order: str | None = None) -> TopicRouteData:
    """Queues as (broker, perm, read, write); brokers of `masters` have one, all have a slave."""
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write)
            for name, perm, read, write in queues
        ],
        broker_datas=[
            BrokerData(
                broker_name=name,
                cluster="Lab",
                broker_addrs={1: f"{name}-slave:1"} | ({0: f"{name}-master:1"} if name in masters else {}),
            )
            for name in {queue[0] for queue in queues}
        ],
        order_topic_conf=order,
    )


def named(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_queues_are_sorted_by_broker_and_bounded_by_their_own_counts() -> None:
    route = build_route("T", data(("b", 6, 1, 2), ("a", 6, 3, 1)))
    assert named(route.to_send) == ["a0", "b0", "b1"]
    assert named(route.to_read) == ["a0", "a1", "a2", "b0"]


def test_permissions_are_kept() -> None:
    route = build_route("T", data(("a", 4, 1, 1), ("b", 2, 1, 1)))
    assert (named(route.to_send), named(route.to_read)) == (["b0"], ["a0"])


def test_without_a_master_a_broker_is_only_read() -> None:
    route = build_route("T", data(("a", 6, 1, 1), ("b", 6, 1, 1), masters="b"))
    assert (named(route.to_send), named(route.to_read)) == (["b0"], ["a0", "b0"])


def test_an_order_configuration_names_the_queues() -> None:
    route = build_route("T", data(("a", 6, 8, 8), order="a:2;b:1"))
    assert named(route.to_send) == ["a0", "a1", "b0"]


def test_a_new_topic_borrows_the_templates_brokers() -> None:
    route = build_provisional_route("new", data(("a", 7, 8, 8)), 4)
    assert named(route.to_send) == ["a0", "a1", "a2", "a3"]
    assert route.provisional and {queue.topic for queue in route.to_send} == {"new"}


def test_a_wish_for_more_queues_than_the_template_has_is_cut() -> None:
    assert len(build_provisional_route("new", data(("a", 7, 8, 8)), 100).to_send) == 8


def test_reading_prefers_what_was_suggested() -> None:
    addresses = {0: "m", 1: "s1", 2: "s2"}
    assert address_to_read(addresses, 0) == "m"
    assert address_to_read(addresses, 1) == "s1"
    assert address_to_read({0: "m", 2: "s2"}, 1) == "s2"
    assert address_to_read({1: "s1"}, 0) == "s1"
    assert address_to_read({}, 0) is None


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        (data(("a", 6, 2**31 - 1, 1)), "readQueueNums = [2147483647] is not between 0 and 65536"),
        (data(("a", 6, 1, -1)), "writeQueueNums = [-1] is not between 0 and 65536"),
        (data(("a", 6, 1, 1), order="a:1;b:65537"), "orderTopicConf = [65537] is not between 0 and 65536"),
        (data(("a", 6, 1, 1), order="a:" + "9" * 5000), "orderTopicConf = [9999999999] is not between 0 and 65536"),
    ],
)
def test_a_route_with_more_queues_than_a_topic_may_have_is_found_out(route: TopicRouteData, fault: str) -> None:
    """Before a client makes a list of them: a nameserver of Apache hands out whatever was registered."""
    with pytest.raises(ProtocolError, match=re.escape(fault)):
        route.check_queues()


async def test_a_client_says_so_and_goes_on(server: Scripted) -> None:
    server.knows("Vast", server, queues=2**31 - 1)
    async with PullConsumer(nameserver=server.address) as puller:
        with pytest.raises(ClientError, match=r"readQueueNums = \[2147483647\] is not between 0 and 65536"):
            await puller.fetch_queues("Vast")
        assert len(await puller.fetch_queues("T")) == 1
