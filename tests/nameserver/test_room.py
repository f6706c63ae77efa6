"""How much a nameserver takes in: what is beyond its bounds is refused or left out, and what is within them stays."""

from __future__ import annotations

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.handlers import LONGEST_TOPIC
from eruca.nameserver.routes import LIFETIME, Room, RouteTable, TableFull
from eruca.protocol import api
from eruca.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from eruca.protocol.errors import Refused
from eruca.protocol.headers import routes
from eruca.remoting import Channels
from tests.nameserver.test_names import A, B
from tests.nameserver.test_routes import broker, leaves, perms, topics
from tests.nameserver.test_server import ask, refusal, register


def holding(brokers: int = 0, topics: int = 0) -> RouteTable:
    return RouteTable(lambda: Room(brokers, topics))


def test_one_broker_more_than_there_may_be_is_refused() -> None:
    table = holding(brokers=2)
    table.register(broker("a", A), topics("T"), object(), 0)
    table.register(broker("a", B, 1), topics(), object(), 0)
    with pytest.raises(TableFull) as refused:
        table.register(broker("b", "3.3.3.3:1"), topics("T"), object(), 0)
    assert refused.value.args == (2,) and table.refusals == {"full": 1}
    assert (table.broker_count, table.registrations) == (2, 2)


def test_brokers_that_are_registered_stay_and_one_that_leaves_makes_room() -> None:
    table = holding(brokers=1)
    table.register(broker("a", A), topics("T"), object(), 0)
    table.register(broker("a", A), topics("T", "U", version=2), object(), 1)
    assert table.topics().topic_list == ["T", "U"]
    table.unregister(leaves(broker("a", A)))
    table.register(broker("b", B), topics("V"), object(), 2)
    assert table.topics().topic_list == ["V"]


def test_what_brokers_claimed_that_came_and_went_counts_too() -> None:
    """A claim outlives its broker: else ever new names would fill the memory."""
    table = holding(brokers=2)
    for name in ("a", "b"):
        table.register(broker(name, A), topics(epoch=5), object(), 0)
        table.unregister(leaves(broker(name, A)))
    with pytest.raises(TableFull):
        table.register(broker("c", A), topics(epoch=5), object(), 0)
    table.register(broker("a", A), topics(epoch=6), object(), 0)
    table.unregister(leaves(broker("a", A)))
    for now in (0, LIFETIME + 1):
        table.expire(now)
    table.register(broker("c", A), topics(epoch=5), object(), LIFETIME + 1)


def test_topics_beyond_the_bound_are_left_out_and_others_change_as_before() -> None:
    table = holding(topics=3)
    table.register(broker("a", A), topics("T", "U"), object(), 0)
    table.register(broker("b", B), topics("T", "V", "W"), object(), 0)
    known = table.known(broker("b", B))
    assert known is not None and known.left_out == 2
    assert (table.taken_topics, table.topics().topic_list, perms(table, "T")) == (3, ["T", "U"], {"a": 6, "b": 6})
    table.register(broker("a", A), topics("T", "U", version=2, perm=4), object(), 0)
    assert (perms(table, "T"), perms(table, "U")) == ({"a": 4, "b": 6}, {"a": 4})


def test_a_broker_whose_topics_were_left_out_is_asked_for_all_until_they_are_there() -> None:
    table = holding(topics=2)
    table.register(broker("a", A), topics("T"), object(), 0)
    b, content = broker("b", B), topics("U", "V", "W")
    table.register(b, content, object(), 0)
    assert table.topics().topic_list == ["T", "U"] and table.is_changed(b, content.data_version)
    table.delete_topic("T")
    one_alone = topics("U", version=2)
    table.register(b, one_alone, object(), 0)
    assert table.is_changed(b, one_alone.data_version), "a topic that is registered alone does not make up for them"
    table.register(b, topics("U", "V", "W", version=2), object(), 0)
    assert table.topics().topic_list == ["U", "V"] and table.is_changed(b, one_alone.data_version)
    table.delete_topic("U")
    whole = topics("V", "W", version=3)
    table.register(b, whole, object(), 0)
    assert table.topics().topic_list == ["V", "W"] and not table.is_changed(b, whole.data_version)


@pytest.mark.parametrize("end", ["unregistered", "lost", "topics deleted"])
def test_what_ends_makes_room_for_all_of_its_topics(end: str) -> None:
    table, connection = holding(topics=2), object()
    table.register(broker("a", A), topics("T", "U"), connection, 0)
    if end == "unregistered":
        table.unregister(leaves(broker("a", A)))
    elif end == "lost":
        table.lost(connection)
    else:
        for topic in ("T", "U"):
            table.delete_topic(topic)
    assert table.taken_topics == 0
    table.register(broker("b", B), topics("V", "W"), object(), 0)
    assert (table.taken_topics, table.topics().topic_list) == (2, ["V", "W"])


def body(*names: str) -> bytes:
    table = {name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in names}
    wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=1, timestamp=7), topic_config_table=table)
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()


async def test_a_broker_is_told_which_bound_it_meets(nameserver: Nameserver, peer: Channels) -> None:
    nameserver.config.max_registered_brokers = 1
    nameserver.config.max_registered_topics = 1
    content = body("T", "U", "V")
    answer = await ask(peer, nameserver, api.REGISTER_BROKER, register(content), content)
    assert (answer.code, answer.remark) == (
        0,
        "2 topics are not registered: 1 topics of brokers have routes, and maxRegisteredTopics is 1",
    )
    second = register(content, broker_name="b", broker_addr=B)
    assert await refusal(peer, nameserver, api.REGISTER_BROKER, second, content) == (
        1,
        f"the broker at {B} was not registered: 1 brokers are, "
        "and maxRegisteredBrokers of this nameserver allows no more",
    )


async def test_the_bounds_change_while_the_nameserver_runs(nameserver: Nameserver, peer: Channels) -> None:
    nameserver.config.max_registered_topics = 1
    content = body("T", "U")
    await ask(peer, nameserver, api.REGISTER_BROKER, register(content), content)
    await ask(peer, nameserver, api.UPDATE_NAMESRV_CONFIG, None, b"maxRegisteredTopics=0")
    answer = await ask(peer, nameserver, api.REGISTER_BROKER, register(content), content)
    assert (answer.code, answer.remark) == (0, None)
    assert (await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="U"))).code == 0


@pytest.mark.parametrize("where", ["key", "topicName"])
async def test_a_topic_with_a_longer_name_than_any_broker_makes_is_left_out(
    nameserver: Nameserver, peer: Channels, where: str
) -> None:
    longest, longer = "x" * LONGEST_TOPIC, "y" * (LONGEST_TOPIC + 1)
    content = body("T", longest, longer)
    if where == "topicName":
        content = content.replace(f'"{longer}":'.encode(), b'"Short":')
    answer = await ask(peer, nameserver, api.REGISTER_BROKER, register(content), content)
    assert answer.code == 0 and (answer.remark or "").endswith("its name has more than 512 characters")
    assert sorted(nameserver.table.topics().topic_list) == ["T", longest]
    with pytest.raises(Refused):
        await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic=longer))
