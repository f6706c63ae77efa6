"""Epochs: a newer master takes the name of its group, and a former one never gets it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eruca.nameserver.app import Nameserver
from eruca.nameserver.epochs import OlderEpoch
from eruca.nameserver.routes import LIFETIME, NameTaken, RouteTable
from eruca.protocol import api
from eruca.protocol.bodies import DataVersion, RegisterBrokerBody
from eruca.protocol.errors import Refused
from eruca.remoting import Channels
from tests.nameserver.test_names import A, B, addresses
from tests.nameserver.test_routes import broker, leaves, topics


def test_a_newer_master_takes_the_name_of_one_that_is_connected_and_brings_its_topics() -> None:
    table = RouteTable()
    table.register(broker("a", A), topics("T", epoch=1), object(), 0)
    table.register(broker("a", B, 2), topics(epoch=1), object(), 0)
    table.register(broker("a", B), topics("T", "U", epoch=2), object(), 0)
    assert addresses(table) == {"a": {0: B}} and table.topics().topic_list == ["T", "U"]


@pytest.mark.parametrize("takeover", [False, True])
@pytest.mark.parametrize("epoch", [None, 0, 4])
def test_a_former_master_gets_nothing_back(epoch: int | None, takeover: bool) -> None:
    table = RouteTable()
    table.register(broker("a", A), topics("T", epoch=4), object(), 0)
    table.register(broker("a", B), topics("T", epoch=5), object(), 0)
    with pytest.raises(OlderEpoch) as refused:
        table.register(broker("a", A), topics("T", "Stale", version=9, epoch=epoch), object(), 0, takeover=takeover)
    assert (refused.value.claim.address, refused.value.claim.epoch) == (B, 5)
    assert not table.unregister(leaves(broker("a", A)))
    assert addresses(table) == {"a": {0: B}} and table.topics().topic_list == ["T"]
    table.register(broker("a", A, 1), topics(epoch=5), object(), 0)
    assert addresses(table) == {"a": {0: B, 1: A}}, "but it may follow"


def test_not_even_while_the_newer_one_is_away() -> None:
    table = RouteTable()
    newer, slave = object(), object()
    table.register(broker("a", A), topics("T", epoch=4), object(), 0)
    table.register(broker("a", B), topics("T", epoch=5), newer, 0)
    table.register(broker("a", "3.3.3.3:1", 3), topics(epoch=5), slave, 0)
    table.lost(newer)
    for away in (LIFETIME, 10 * LIFETIME):
        table.touch(leaves(broker("a", "3.3.3.3:1", 3)), away)
        table.expire(away)
        with pytest.raises(OlderEpoch):
            table.register(broker("a", A), topics("T", epoch=4), object(), away)
    table.lost(slave)
    table.expire(gone := 10 * LIFETIME)
    table.expire(gone + LIFETIME)
    with pytest.raises(OlderEpoch):
        table.register(broker("a", A), topics("T", epoch=4), object(), gone + LIFETIME)
    table.expire(gone + LIFETIME + 1)
    table.register(broker("a", A), topics("T", epoch=4), object(), 0)
    assert addresses(table) == {"a": {0: A}}, "a group that is gone for long enough begins again"


def test_a_master_may_begin_again_at_its_own_address() -> None:
    """Its group was made anew, or elects nobody any more."""
    table = RouteTable()
    connection = object()
    table.register(broker("a", A), topics("T", epoch=7), connection, 0)
    table.register(broker("a", A), topics("T", epoch=1), connection, 0)
    table.register(broker("a", B), topics("T", epoch=2), object(), 0)
    assert addresses(table) == {"a": {0: B}}
    table.register(broker("a", B), topics("T"), object(), 0)
    with pytest.raises(NameTaken):
        table.register(broker("a", A), topics("T"), object(), 0)


def test_masters_of_one_epoch_are_rivals_as_those_without() -> None:
    table = RouteTable()
    table.register(broker("a", A), topics("T", epoch=3), object(), 0)
    with pytest.raises(NameTaken):
        table.register(broker("a", B), topics("T", epoch=3), object(), 0)
    table.register(broker("a", B), topics("T", epoch=3), object(), 0, takeover=True)
    assert addresses(table) == {"a": {0: B}}


places, epochs, links = st.sampled_from([A, B, "3.3.3.3:1"]), st.integers(0, 5), st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("register"), places, epochs, links),
    st.tuples(st.just("unregister"), places),
    st.tuples(st.just("lost"), links),
)


@given(st.lists(steps, max_size=40))
def test_the_masters_of_a_name_go_forward_only(story: list[tuple[object, ...]]) -> None:
    """Whoever registers, leaves or vanishes: at another address than the last, no master of a lower epoch stands."""
    table = RouteTable()
    table.register(broker("a", "9.9.9.9:1", 9), topics(), "a slave that stays", 0)
    last: tuple[str, int] = ("", 0)
    for what, *rest in story:
        match what, *rest:
            case "register", str(place), int(epoch), link:
                try:
                    table.register(broker("a", place), topics("T", epoch=epoch), link, 0, takeover=True)
                except OlderEpoch:
                    assert place != last[0] and epoch < last[1]
                else:
                    assert place == last[0] or epoch >= last[1]
                    last = place, epoch
            case "unregister", str(place):
                table.unregister(leaves(broker("a", place)))
            case "lost", link:
                table.lost(link)
        assert addresses(table)["a"].get(0, last[0]) == last[0]


async def test_who_registers_with_an_older_epoch_is_told_whom_to_follow(nameserver: Nameserver, peer: Channels) -> None:
    former = Channels()

    def body(epoch: int) -> bytes:
        return RegisterBrokerBody(topic_config_serialize_wrapper=topics("T", epoch=epoch)).encode()

    await former.call(nameserver.address, api.REGISTER_BROKER, broker("a", A), body(4))
    await peer.call(nameserver.address, api.REGISTER_BROKER, broker("a", B), body(5))
    with capture_logs() as said, pytest.raises(Refused) as refused:
        await former.call(nameserver.address, api.REGISTER_BROKER, broker("a", A), body(4))
    assert refused.value.code == 1 and refused.value.remark == (
        f"a newer master is known: the broker at {B} is the master of brokerName a since epoch 5, so the one at {A}, "
        "of epoch 4, was not registered: it has to follow that one as a slave"
    )
    assert [line["event"] for line in said if line["log_level"] == "warning"] == ["registration_refused"]
    assert nameserver.table.refusals["older_epoch"] == 1
    ask = leaves(broker("a", B))
    version = await peer.call(nameserver.address, api.QUERY_DATA_VERSION, ask, DataVersion().encode())
    assert DataVersion.decode(version.body) == DataVersion(counter=1, state_version=5, timestamp=7)
    await former.close()
