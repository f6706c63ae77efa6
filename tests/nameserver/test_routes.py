"""The route table told as what brokers do and what clients then see; no sockets, times are given."""

from eruca.nameserver.routes import LIFETIME, RouteTable
from eruca.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from eruca.protocol.headers.routes import RegisterBroker, RegisterBrokerReply, UnregisterBroker


def topics(
    *names: str, version: int = 1, perm: int = 6, sys_flag: int = 0, epoch: int | None = None
) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=version, state_version=epoch, timestamp=7),
        topic_config_table={
            name: TopicConfig(
                topic_name=name, perm=perm, read_queue_nums=4, write_queue_nums=4, topic_sys_flag=sys_flag
            )
            for name in names
        },
    )


def broker(name: str = "a", address: str = "1.1.1.1:1", broker_id: int = 0, cluster: str = "c") -> RegisterBroker:
    return RegisterBroker(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=address + "2",
        broker_id=broker_id,
    )


def leaves(ask: RegisterBroker) -> UnregisterBroker:
    return UnregisterBroker(
        broker_name=ask.broker_name,
        broker_addr=ask.broker_addr,
        cluster_name=ask.cluster_name,
        broker_id=ask.broker_id,
    )


def perms(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {queue.broker_name: queue.perm for queue in route.queue_datas}


def test_a_registered_broker_and_its_topics_are_found() -> None:
    table = RouteTable()
    assert table.route("T") is None
    assert table.register(broker(), topics("T", "U"), object(), 0) == RegisterBrokerReply()
    route = table.route("T")
    assert route is not None
    assert [(q.broker_name, q.read_queue_nums, q.perm) for q in route.queue_datas] == [("a", 4, 6)]
    assert [(b.cluster, b.broker_name, b.broker_addrs) for b in route.broker_datas] == [("c", "a", {0: "1.1.1.1:1"})]
    assert table.topics().topic_list == ["T", "U"]


def test_a_topic_registered_alone_leaves_the_others() -> None:
    table = RouteTable()
    table.register(broker(), topics("T"), object(), 0)
    table.register(broker(), topics("U", version=2), object(), 0)
    assert table.topics().topic_list == ["T", "U"]


def test_an_unchanged_data_version_changes_no_topic() -> None:
    table = RouteTable()
    table.register(broker(), topics("T"), object(), 0)
    table.register(broker(), topics("T", "U", perm=4), object(), 0)
    assert perms(table, "T") == {"a": 6}
    assert table.route("U") is None
    table.register(broker(), topics("T", "U", perm=4, version=2), object(), 0)
    assert perms(table, "T") == {"a": 4}


def test_a_slave_learns_of_its_master_and_adds_no_topics() -> None:
    table = RouteTable()
    slave = broker(address="1.1.1.2:1", broker_id=1)
    assert table.register(slave, topics("T"), object(), 0) == RegisterBrokerReply()
    assert table.route("T") is None
    table.register(broker(), topics("U"), object(), 0)
    assert table.register(slave, topics("T"), object(), 0) == RegisterBrokerReply(
        ha_server_addr="1.1.1.1:12", master_addr="1.1.1.1:1"
    )


def test_a_promoted_slave_changes_its_id_and_brings_its_topics() -> None:
    table = RouteTable()
    table.register(broker(broker_id=1), topics("T"), object(), 0)
    table.register(broker(broker_id=0), topics("T"), object(), 0)
    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "1.1.1.1:1"}


def test_a_lost_connection_removes_the_broker_at_once() -> None:
    table = RouteTable()
    connection, other = object(), object()
    table.register(broker(), topics("T"), connection, 0)
    table.register(broker("b", "2.2.2.2:1"), topics("T"), other, 0)
    assert [live.address for live in table.lost(connection)] == ["1.1.1.1:1"]
    assert perms(table, "T") == {"b": 6}
    assert table.lost(connection) == []
    table.lost(other)
    assert table.route("T") is None
    assert table.topics().topic_list == []
    assert table.clusters().cluster_addr_table == {}


def test_a_broker_that_came_again_survives_the_end_of_its_old_connection() -> None:
    table = RouteTable()
    old, new = object(), object()
    table.register(broker(), topics("T"), old, 0)
    table.register(broker(), topics("T"), new, 0)
    assert table.lost(old) == []
    assert perms(table, "T") == {"a": 6}


def test_a_silent_broker_is_forgotten_after_two_minutes() -> None:
    table = RouteTable()
    table.register(broker(), topics("T"), object(), 1000)
    assert table.expire(1000 + LIFETIME) == []
    assert [live.address for live in table.expire(1001 + LIFETIME)] == ["1.1.1.1:1"]
    assert table.route("T") is None


def test_a_sign_of_life_is_enough() -> None:
    table = RouteTable()
    table.register(broker(), topics("T"), object(), 0)
    table.touch(leaves(broker()), 5000)
    assert table.expire(5000 + LIFETIME) == []
    assert table.expire(5001 + LIFETIME) != []


def test_when_the_master_leaves_the_slave_still_serves_reads() -> None:
    table = RouteTable()
    table.register(broker(), topics("T"), object(), 0)
    table.register(broker(address="1.1.1.2:1", broker_id=1), topics(), object(), 0)
    table.unregister(leaves(broker()))
    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: "1.1.1.2:1"}


def test_unregistering_the_last_address_removes_name_cluster_and_topics() -> None:
    table = RouteTable()
    table.register(broker(), topics("T"), object(), 0)
    table.unregister(leaves(broker()))
    assert table.clusters().broker_addr_table == {}
    assert table.clusters().cluster_addr_table == {}
    assert table.topics().topic_list == []
    table.register(broker(), topics("T"), object(), 0)  # and it may come again with the same version
    assert perms(table, "T") == {"a": 6}


def test_write_permission_is_wiped_and_added_until_the_next_news() -> None:
    table = RouteTable()
    table.register(broker(), topics("T", "U", perm=7), object(), 0)
    table.register(broker("b", "2.2.2.2:1"), topics("T"), object(), 0)
    assert table.wipe_write_permission("a", ["T", "U", "gone"]) == 2
    assert perms(table, "T") == {"a": 5, "b": 6}
    table.register(broker(), topics("T", "U", perm=7), object(), 0)
    assert perms(table, "T") == {"a": 5, "b": 6}
    assert table.add_write_permission("a", table.topics_of("a")) == 2
    assert perms(table, "T") == {"a": 6, "b": 6}
    assert table.wipe_write_permission("nobody", ["T"]) == 0
    table.register(broker(), topics("T", "U", perm=7, version=2), object(), 0)
    assert perms(table, "T") == {"a": 7, "b": 6}


def test_a_topic_is_deleted_in_one_cluster_or_everywhere() -> None:
    table = RouteTable()
    table.register(broker("a", "1.1.1.1:1", cluster="c1"), topics("T", "U"), object(), 0)
    table.register(broker("b", "2.2.2.2:1", cluster="c2"), topics("T"), object(), 0)
    table.delete_topic("T", "c1")
    assert perms(table, "T") == {"b": 6}
    table.delete_topic("T", "c2")
    assert table.topics().topic_list == ["U"]
    table.delete_topic("U")
    table.delete_topic("never there")
    table.delete_topic("never there", "no such cluster")
    assert table.topics().topic_list == []


def test_topic_lists() -> None:
    table = RouteTable()
    table.register(broker("a", "1.1.1.1:1", cluster="c1"), topics("T", sys_flag=1), object(), 0)
    table.register(broker("b", "2.2.2.2:1", cluster="c2"), topics("U", sys_flag=3), object(), 0)
    table.register(broker("b", "2.2.2.2:1", cluster="c2"), topics("V", sys_flag=2, version=2), object(), 0)
    every = [*table.topics().topic_list, "gone"]
    assert every == ["T", "U", "V", "gone"]
    assert table.in_cluster("c2", every) == ["U", "V"]
    assert table.in_cluster("nowhere", every) == []
    assert table.with_flags(every, has=1) == ["T", "U"]
    assert table.with_flags(every, has=2) == ["U", "V"]
    assert table.with_flags(every, has=2, has_not=1) == ["V"]
    system = table.system_topics()
    assert (system.topic_list, system.broker_addr) == (["c1", "a", "c2", "b"], "1.1.1.1:1")
