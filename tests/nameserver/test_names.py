"""One name, one broker: who holds a name, when another one gets it, and that nothing stays of those that left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eruca.nameserver.app import LINES_AT_ONCE, Nameserver
from eruca.nameserver.handlers import REPORT_RIVAL_EVERY
from eruca.nameserver.routes import NameTaken, RouteTable
from eruca.protocol import api
from eruca.protocol.errors import Refused
from eruca.protocol.headers.routes import RegisterBroker, RegisterBrokerReply, UnregisterBroker
from eruca.remoting import Channels, Connection
from tests.nameserver.conftest import Clock
from tests.nameserver.test_routes import broker, leaves, topics

A, B = "1.1.1.1:1", "2.2.2.2:1"
MANY = 20_000


def addresses(table: RouteTable) -> dict[str, dict[int, str]]:
    return {name: data.broker_addrs for name, data in table.clusters().broker_addr_table.items()}


# ---------------------------------------------------------------------- the table


def test_a_connected_broker_keeps_its_name_from_another_address() -> None:
    table = RouteTable()
    table.register(broker("a", A), topics("T"), object(), 0)
    with pytest.raises(NameTaken) as taken:
        table.register(broker("a", B), topics("T", "U", version=2), object(), 0)
    assert taken.value.holder.address == A
    assert addresses(table) == {"a": {0: A}} and table.topics().topic_list == ["T"]


def test_another_cluster_is_no_other_name() -> None:
    """A route has the names of its brokers, and not of their clusters."""
    table = RouteTable()
    table.register(broker("a", A, cluster="c1"), topics("T"), object(), 0)
    with pytest.raises(NameTaken):
        table.register(broker("a", B, cluster="c2"), topics("T"), object(), 0)
    assert table.clusters().cluster_addr_table == {"c1": ["a"]}


def test_the_name_is_free_when_the_connection_of_its_holder_has_ended() -> None:
    table = RouteTable()
    connection = object()
    table.register(broker("a", A), topics("T"), connection, 0)
    table.lost(connection)
    table.register(broker("a", B), topics("T"), object(), 0)
    assert addresses(table) == {"a": {0: B}}


def test_the_name_is_free_when_its_holder_has_left() -> None:
    table = RouteTable()
    table.register(broker("a", A), topics("T"), object(), 0)
    assert table.unregister(leaves(broker("a", A)))
    table.register(broker("a", B), topics("T"), object(), 0)
    assert addresses(table) == {"a": {0: B}}


def test_by_a_takeover_the_last_one_holds_the_name_and_the_former_takes_nothing_with_it() -> None:
    table = RouteTable()
    first, second = object(), object()
    table.register(broker("a", A), topics("T", "U"), first, 0)
    table.register(broker("a", B), topics("T"), second, 0, takeover=True)
    assert addresses(table) == {"a": {0: B}}
    assert table.topics().topic_list == ["T", "U"], "as in 4.9"
    assert not table.unregister(leaves(broker("a", A))) and table.lost(first) == []
    assert addresses(table) == {"a": {0: B}}
    table.lost(second)
    assert addresses(table) == {} and table.topics().topic_list == []


@pytest.mark.parametrize("order", ["old first", "new first"])
def test_a_broker_that_connects_again_keeps_its_name_whatever_becomes_of_the_old_connection(order: str) -> None:
    table = RouteTable()
    old, new = object(), object()
    table.register(broker("a", A), topics("T"), old, 0)
    table.register(broker("a", A), topics("T"), new, 0)
    if order == "old first":
        assert table.lost(old) == []
        assert addresses(table) == {"a": {0: A}}
    assert [live.address for live in table.lost(new)] == [A]
    assert table.lost(old) == [] and addresses(table) == {}


def test_a_slave_that_becomes_the_master_leaves_its_former_id() -> None:
    table = RouteTable()
    master = object()
    table.register(broker("a", A), topics("T"), master, 0)
    table.register(broker("a", B, 1), topics(), object(), 0)
    with pytest.raises(NameTaken):
        table.register(broker("a", B, 0), topics("T"), object(), 0)
    assert addresses(table) == {"a": {0: A, 1: B}}
    table.lost(master)
    table.register(broker("a", B, 0), topics("T"), object(), 0)
    assert addresses(table) == {"a": {0: B}}
    assert table.register(broker("a", A, 1), topics(), object(), 0) == RegisterBrokerReply(
        ha_server_addr=B + "2", master_addr=B
    )


def test_one_address_may_serve_two_names_and_each_ends_by_itself() -> None:
    """A renamed broker whose old connection is still half open; or two behind one address."""
    table = RouteTable()
    old, new = object(), object()
    table.register(broker("a", A), topics("T"), old, 0)
    table.register(broker("b", A), topics("T"), new, 0)
    assert addresses(table) == {"a": {0: A}, "b": {0: A}}
    assert [live.name for live in table.lost(old)] == ["a"]
    assert addresses(table) == {"b": {0: A}}
    assert table.unregister(leaves(broker("b", A)))
    assert table.topics().topic_list == []


@pytest.mark.parametrize("wrong", [broker("b", A), broker("a", B), broker("a", A, 1)])
def test_only_who_is_registered_can_leave(wrong: RegisterBroker) -> None:
    table = RouteTable()
    connection = object()
    table.register(broker("a", A), topics("T"), connection, 0)
    assert not table.unregister(leaves(wrong))
    assert addresses(table) == {"a": {0: A}}
    table.lost(connection)
    assert (addresses(table), table.topics().topic_list) == ({}, []), "no route that never goes"


def test_a_broker_that_changes_its_cluster_leaves_the_former_one() -> None:
    table = RouteTable()
    connection = object()
    table.register(broker("a", A, cluster="c1"), topics("T"), connection, 0)
    table.register(broker("a", A, cluster="c2"), topics("T"), connection, 0)
    info = table.clusters()
    assert info.cluster_addr_table == {"c2": ["a"]} and info.broker_addr_table["a"].cluster == "c2"


names, ids, places, links = st.sampled_from("ab"), st.integers(0, 1), st.sampled_from([A, B]), st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("register"), names, ids, places, links, st.booleans()),
    st.tuples(st.just("unregister"), names, ids, places),
    st.tuples(st.just("lost"), links),
)


@given(st.lists(steps, max_size=30))
def test_whatever_brokers_do_routes_hold_those_that_are_there(story: list[tuple[object, ...]]) -> None:
    """Beside a model: who holds which name, and over which connection."""
    table = RouteTable()
    model: dict[tuple[str, int], tuple[str, object]] = {}
    for what, *rest in story:
        match what, *rest:
            case "register", str(name), int(number), str(place), connection, takeover:
                key = name, number
                taken = key in model and model[key][0] != place and not takeover
                try:
                    table.register(broker(name, place, number), topics(name), connection, 0, takeover=bool(takeover))
                    assert not taken
                except NameTaken:
                    assert taken
                    continue
                model = {
                    other: held for other, held in model.items() if not (other[0] == name and held[0] == place)
                } | {key: (place, connection)}
            case "unregister", str(name), int(number), str(place):
                held = model.get((name, number))
                assert table.unregister(leaves(broker(name, place, number))) is (held is not None and held[0] == place)
                if held is not None and held[0] == place:
                    del model[name, number]
            case "lost", connection:
                table.lost(connection)
                model = {key: held for key, held in model.items() if held[1] != connection}
        there = {(name, number): place for name, of in addresses(table).items() for number, place in of.items()}
        assert there == {key: held[0] for key, held in model.items()}
        assert {name for listed in table.clusters().cluster_addr_table.values() for name in listed} == {
            name for name, _ in model
        }
        assert set(table.topics().topic_list) <= {name for name, _ in model}


def flood(table: RouteTable, connection: object) -> None:
    for number in range(MANY):
        table.register(broker(f"b{number}", f"10.0.0.1:{number}"), topics(f"T{number}", "All"), connection, 0)


def ids_of_one_name(table: RouteTable, connection: object) -> None:
    for number in range(MANY):
        table.register(broker("a", f"10.0.0.1:{number}", number), topics("T"), connection, 0)


@pytest.mark.parametrize("come", [flood, ids_of_one_name])
def test_twenty_thousand_brokers_of_one_connection_go_at_once(come: Callable[[RouteTable, object], None]) -> None:
    table = RouteTable()
    connection = object()
    table.register(broker("a-good-one", B), topics("All"), object(), 0)
    come(table, connection)
    begin = time.thread_time()
    assert len(table.lost(connection)) == MANY
    assert time.thread_time() - begin < 0.2
    assert addresses(table) == {"a-good-one": {0: B}} and table.topics().topic_list == ["All"]


# ---------------------------------------------------------------------- over sockets


async def test_who_asks_for_a_name_that_is_taken_is_refused_with_both_addresses(
    nameserver: Nameserver, peer: Channels, clock: Clock
) -> None:
    rival = Channels()
    await peer.call(nameserver.address, api.REGISTER_BROKER, broker("a", A))

    async def refused() -> str:
        with pytest.raises(Refused) as refusal:
            await rival.call(nameserver.address, api.REGISTER_BROKER, broker("a", B))
        assert refusal.value.code == 1
        return refusal.value.remark

    with capture_logs() as said:
        remarks = {await refused() for _ in range(3)}
        clock.now += REPORT_RIVAL_EVERY
        remarks.add(await refused())
    assert remarks == {
        f"the name is taken: the broker at {A}, which is connected, holds brokerName a with brokerId 0, so the one at "
        f"{B} was not registered: stop one of the two, or give one another brokerName or brokerId"
    }
    lines = [line for line in said if line["event"] == "registration_refused"]
    assert len(lines) == 2 and all(A in line["reason"] and line["broker"] == B for line in lines)
    await rival.close()


class Watched(Connection):
    """The connection of a broker whose machine may be gone."""

    def __init__(self) -> None:
        self.probed = 0

    def probe(self) -> None:
        self.probed += 1


async def test_who_asks_for_a_name_has_the_holders_connection_probed(
    nameserver: Nameserver, peer: Channels, clock: Clock
) -> None:
    holder = Watched()
    nameserver.table.register(broker("a", A), topics("T"), holder, nameserver.monotonic())
    for probed in (1, 1, 2):
        with pytest.raises(Refused):
            await peer.call(nameserver.address, api.REGISTER_BROKER, broker("a", B))
        assert holder.probed == probed
        clock.now += REPORT_RIVAL_EVERY // 2
    nameserver.table.lost(holder)


async def test_the_next_one_gets_the_name_as_soon_as_its_holder_is_gone(nameserver: Nameserver, peer: Channels) -> None:
    holder = Channels()
    await holder.call(nameserver.address, api.REGISTER_BROKER, broker("a", A))
    await holder.close()
    async with asyncio.timeout(2):
        while True:
            try:
                await peer.call(nameserver.address, api.REGISTER_BROKER, broker("a", B))
                break
            except Refused:
                await asyncio.sleep(0.01)  # the end of the other connection has no event here
    assert addresses(nameserver.table) == {"a": {0: B}}


async def test_with_allow_broker_takeover_the_last_one_has_the_name(nameserver: Nameserver, peer: Channels) -> None:
    nameserver.config.allow_broker_takeover = True
    rival = Channels()
    await peer.call(nameserver.address, api.REGISTER_BROKER, broker("a", A))
    await rival.call(nameserver.address, api.REGISTER_BROKER, broker("a", B))
    assert addresses(nameserver.table) == {"a": {0: B}}
    await rival.close()


async def test_nobody_can_allow_takeovers_over_the_network(nameserver: Nameserver, peer: Channels) -> None:
    with pytest.raises(Refused):
        await peer.call(nameserver.address, api.UPDATE_NAMESRV_CONFIG, None, b"allowBrokerTakeover=true\n")


async def test_a_104_for_a_name_that_another_address_holds_changes_nothing(
    nameserver: Nameserver, peer: Channels
) -> None:
    await peer.call(nameserver.address, api.REGISTER_BROKER, broker("a", A))
    who = UnregisterBroker(broker_name="a", broker_addr=B, cluster_name="c", broker_id=0)
    with capture_logs() as said:
        assert (await peer.call(nameserver.address, api.UNREGISTER_BROKER, who)).code == 0
    assert addresses(nameserver.table) == {"a": {0: A}}
    assert [line["event"] for line in said] == ["broker_not_registered", "change"]
    assert (said[1]["before"], said[1]["after"]) == ("nothing", "nothing")


async def test_many_brokers_that_are_lost_together_leave_few_lines(nameserver: Nameserver, peer: Channels) -> None:
    crowd = Channels()
    for number in range(30):
        await crowd.call(nameserver.address, api.REGISTER_BROKER, broker(f"b{number}", f"10.0.0.1:{number}"))
    gone = asyncio.Event()
    (connection,) = {live.connection for live in (nameserver.table.known(broker("b0", "10.0.0.1:0")),) if live}
    connection.on_close(lambda _: gone.set())  # type: ignore[attr-defined]
    with capture_logs() as said:
        await crowd.close()
        await gone.wait()
    lost = [line for line in said if line["event"] == "broker_lost"]
    assert len(lost) == LINES_AT_ONCE
    assert [line["more"] for line in said if line["event"] == "brokers_lost"] == [30 - LINES_AT_ONCE]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"broker_name": ""}, "brokerName is to have 1 to 255 printable characters"),
        ({"broker_name": "x" * 300}, "brokerName is"),
        ({"broker_name": "\x1b[2J"}, "brokerName is"),
        ({"cluster_name": " "}, "brokerClusterName is"),
        ({"broker_id": -1}, "brokerId is -1, which is to be 0 or more"),
        ({"broker_addr": ""}, "the address by brokerIP1 is '', where host:port is expected"),
        (
            {"broker_addr": "x" * 256 + ":1"},
            f"the address by brokerIP1 is {'x' * 255!r}, where host:port is expected",
        ),
        ({"broker_addr": "nowhere"}, "the address by brokerIP1 is 'nowhere'"),
        ({"broker_addr": "a b:1"}, "the address by brokerIP1"),
        ({"broker_addr": "10.0.0.1:70000"}, "the address by brokerIP1"),
        ({"ha_server_addr": "10.0.0.1:\n"}, "the address by brokerIP2"),
    ],
)
async def test_a_broker_whose_place_nobody_could_use_is_not_registered(
    nameserver: Nameserver, peer: Channels, changed: dict[str, Any], said: str
) -> None:
    odd = msgspec.structs.replace(broker("a", A), **changed)
    with pytest.raises(Refused) as refusal:
        await peer.call(nameserver.address, api.REGISTER_BROKER, odd)
    assert refusal.value.code == 1 and refusal.value.remark.startswith(f"the broker was not registered: {said}")
    assert addresses(nameserver.table) == {}
    await peer.call(nameserver.address, api.REGISTER_BROKER, broker("名字 a", "[::1]:1091"))
    assert addresses(nameserver.table) == {"名字 a": {0: "[::1]:1091"}}
