"""What travels between brokers, clients, admins and a nameserver, over real sockets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.nameserver.routes import LIFETIME
from eruca.protocol import api
from eruca.protocol.api import Endpoint
from eruca.protocol.bodies import (
    ClusterInfo,
    DataVersion,
    KVConfig,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    body_crc32,
)
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers import routes, topics
from eruca.remoting import Answer, Channels
from tests.nameserver.conftest import Clock

VERSION = DataVersion(counter=1, timestamp=7)
CONTENT = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        data_version=VERSION,
        topic_config_table={"T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)},
    )
)
BODY = CONTENT.encode()


def register(body: bytes, **more: Any) -> routes.RegisterBroker:
    fields: dict[str, Any] = {
        "broker_name": "a",
        "broker_addr": "1.1.1.1:10911",
        "cluster_name": "c",
        "ha_server_addr": "1.1.1.1:10912",
        "broker_id": 0,
        "body_crc32": body_crc32(body),
        **more,
    }
    return routes.RegisterBroker(**fields)


async def ask(
    peer: Channels, server: Nameserver, endpoint: Endpoint[Any, Any], header: Any = None, body: bytes = b""
) -> Answer[Any]:
    return await peer.call(server.address, endpoint, header, body)


async def refusal(*args: Any) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        await ask(*args)
    return refused.value.code, refused.value.remark


async def test_a_broker_registers_and_a_client_finds_the_route(nameserver: Nameserver, peer: Channels) -> None:
    answer = await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    assert answer.header == routes.RegisterBrokerReply()
    assert answer.body == b""
    found = await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T"))
    assert found.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"1.1.1.1:10911"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    clusters = await ask(peer, nameserver, api.GET_BROKER_CLUSTER_INFO)
    assert b'{0:"1.1.1.1:10911"}' in clusters.body
    assert ClusterInfo.decode(clusters.body).cluster_addr_table == {"c": ["a"]}


async def test_the_compressed_body_says_the_same(nameserver: Nameserver, peer: Channels) -> None:
    body = CONTENT.compress()
    await ask(peer, nameserver, api.REGISTER_BROKER, register(body, compressed=True), body)
    assert (await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T"))).body


async def test_a_wrong_checksum_and_an_unreadable_body_are_refused(nameserver: Nameserver, peer: Channels) -> None:
    wrong = register(BODY, body_crc32=1)
    assert await refusal(peer, nameserver, api.REGISTER_BROKER, wrong, BODY) == (1, "crc32 not match")
    code, remark = await refusal(peer, nameserver, api.REGISTER_BROKER, register(b"{"), b"{")
    assert (code, remark.partition(":")[0]) == (1, "the body of this registration cannot be read")
    assert ClusterInfo.decode((await ask(peer, nameserver, api.GET_BROKER_CLUSTER_INFO)).body) == ClusterInfo()


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_topic_with_more_queues_than_a_topic_may_have_is_left_out(
    nameserver: Nameserver, peer: Channels, compressed: bool
) -> None:
    """Others of the registration have their routes, and the one that was known keeps its former queues."""
    await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    later = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=2, timestamp=7),
            topic_config_table={
                "T": TopicConfig(topic_name="T", read_queue_nums=2**31 - 1),
                "U": TopicConfig(topic_name="U", read_queue_nums=65536, write_queue_nums=65536),
                "V": TopicConfig(topic_name="V", write_queue_nums=-1),
            },
        )
    )
    body = later.compress() if compressed else later.encode()
    answer = await ask(peer, nameserver, api.REGISTER_BROKER, register(body, compressed=compressed), body)
    assert (answer.code, answer.remark) == (
        0,
        "the topic T is not registered: readQueueNums = [2147483647] is not between 0 and 65536",
    )
    found = await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T"))
    assert b'"readQueueNums":4' in found.body
    assert (await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="U"))).code == 0
    assert (await refusal(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="V")))[0] == 17


async def test_an_unknown_topic_has_no_route(nameserver: Nameserver, peer: Channels) -> None:
    assert await refusal(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="NOPE")) == (
        17,
        "No topic route info in name server for the topic: NOPE\n"
        "See http://rocketmq.apache.org/docs/faq/ for further details.",
    )


@pytest.mark.parametrize(
    ("version", "flag", "form"),
    [
        (317, "false", '{0:"1.1.1.1:10911"}'),
        (400, "false", '{0:"1.1.1.1:10911"}'),
        (401, "false", '{"0":"1.1.1.1:10911"}'),
        (317, "TRUE", '{"0":"1.1.1.1:10911"}'),
    ],
)
async def test_the_route_takes_the_form_that_the_client_reads(
    nameserver: Nameserver, peer: Channels, version: int, flag: str, form: str
) -> None:
    await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    head = json.dumps(
        {
            "code": 105,
            "flag": 0,
            "language": "GO",
            "opaque": 1,
            "version": version,
            "extFields": {"topic": "T", "acceptStandardJsonOnly": flag},
        }
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", nameserver.port)
    writer.write((4 + len(head)).to_bytes(4) + len(head).to_bytes(4) + head)
    length = int.from_bytes(await reader.readexactly(4))
    frame = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    assert form in frame.decode()


async def test_a_closed_connection_removes_the_broker(nameserver: Nameserver, peer: Channels) -> None:
    broker = Channels()
    await ask(broker, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    gone = asyncio.Event()
    (connection,) = nameserver._server.connections
    connection.on_close(lambda _: gone.set())
    await broker.close()
    await gone.wait()
    assert (await refusal(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T")))[0] == 17


async def test_a_silent_broker_is_forgotten_and_hung_up_on(
    nameserver: Nameserver, peer: Channels, clock: Clock
) -> None:
    broker = Channels()
    await ask(broker, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    hung_up = asyncio.Event()
    (await broker.get(nameserver.address)).on_close(lambda _: hung_up.set())
    clock.now += LIFETIME
    nameserver.expire(clock.now)
    same = await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T"))
    assert same.code == 0
    nameserver.expire(clock.now + 1)
    await hung_up.wait()
    assert (await refusal(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T")))[0] == 17
    await broker.close()


async def test_a_data_version_query_is_a_sign_of_life(nameserver: Nameserver, peer: Channels, clock: Clock) -> None:
    who = routes.UnregisterBroker(broker_name="a", broker_addr="1.1.1.1:10911", cluster_name="c", broker_id=0)
    unknown = await ask(peer, nameserver, api.QUERY_DATA_VERSION, who, VERSION.encode())
    assert (unknown.header.changed, unknown.body) == (True, b"")
    await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    clock.now += LIFETIME
    same = await ask(peer, nameserver, api.QUERY_DATA_VERSION, who, VERSION.encode())
    assert (same.header.changed, same.body) == (False, b'{"counter":1,"timestamp":7}')
    nameserver.expire(clock.now + 1)
    other = await ask(peer, nameserver, api.QUERY_DATA_VERSION, who, b'{"counter":2,"timestamp":7}')
    assert (other.header.changed, other.body) == (True, b'{"counter":1,"timestamp":7}')


async def test_a_broker_unregisters(nameserver: Nameserver, peer: Channels) -> None:
    await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    who = routes.UnregisterBroker(broker_name="a", broker_addr="1.1.1.1:10911", cluster_name="c", broker_id=0)
    await ask(peer, nameserver, api.UNREGISTER_BROKER, who)
    listed = await ask(peer, nameserver, api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert listed.body == b'{"topicList":[]}'


async def test_order_topics_reach_brokers_and_routes(nameserver: Nameserver, peer: Channels) -> None:
    await ask(
        peer, nameserver, api.PUT_KV_CONFIG, routes.PutKVConfig(namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
    )
    answer = await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    assert answer.body == b'{"table":{"T":"a:4"}}'
    plain = await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T"))
    assert b"orderTopicConf" not in plain.body
    await ask(peer, nameserver, api.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\n")
    ordered = await ask(peer, nameserver, api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic="T"))
    assert b'"orderTopicConf":"a:4"' in ordered.body


async def test_a_flood_of_order_configuration_is_refused_and_brokers_register(
    nameserver: Nameserver, peer: Channels
) -> None:
    """17 values of 1 MB once made the answer to every registration too long for a frame."""
    value = "x" * 1_000_000
    refused = 0
    for number in range(17):
        put = routes.PutKVConfig(namespace="ORDER_TOPIC_CONFIG", key=f"T{number}", value=value)
        try:
            await ask(peer, nameserver, api.PUT_KV_CONFIG, put)
        except Refused as fault:
            refused += 1
            assert fault.code == 1 and fault.remark.startswith("nothing was changed: all values together would have")
    assert refused == 9
    put = routes.PutKVConfig(namespace="n", key="k", value="x" * 1_048_577)
    assert await refusal(peer, nameserver, api.PUT_KV_CONFIG, put) == (
        1,
        "nothing was changed: the value has 1048577 bytes, at most 1048576 are allowed",
    )
    answer = await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    assert answer.code == 0 and len(answer.body) > 8_000_000
    slave = register(b"", broker_id=1, broker_addr="1.1.1.1:10921")
    assert (await ask(peer, nameserver, api.REGISTER_BROKER, slave)).header.master_addr == "1.1.1.1:10911"


async def test_with_more_order_configuration_than_a_frame_holds_brokers_register_without_it(
    tmp_path: Path, clock: Clock
) -> None:
    """From before there was a bound."""
    table = {"ORDER_TOPIC_CONFIG": {f"T{number}": "x" * 1_000_000 for number in range(17)}}
    folder = tmp_path / "namesrv"
    folder.mkdir()
    (folder / "kvConfig.json").write_bytes(KVConfig(config_table=table).encode())
    server, broker = Nameserver(NamesrvConfig(listen_port=0, rocketmq_home=str(tmp_path)), monotonic=clock), Channels()
    await server.start()
    answer = await ask(broker, server, api.REGISTER_BROKER, register(BODY), BODY)
    assert (answer.code, answer.body) == (0, b"")
    await broker.close()
    await server.stop()


async def test_values_are_put_found_and_deleted(nameserver: Nameserver, peer: Channels) -> None:
    key = routes.KVConfigKey(namespace="n", key="k")
    assert await refusal(peer, nameserver, api.GET_KV_CONFIG, key) == (22, "No config item, Namespace: n Key: k")
    assert await refusal(peer, nameserver, api.GET_KVLIST_BY_NAMESPACE, routes.OfNamespace(namespace="n")) == (
        22,
        "No config item, Namespace: n",
    )
    await ask(peer, nameserver, api.PUT_KV_CONFIG, routes.PutKVConfig(namespace="n", key="k", value="v=1"))
    assert (await ask(peer, nameserver, api.GET_KV_CONFIG, key)).header.value == "v=1"
    await ask(peer, nameserver, api.DELETE_KV_CONFIG, key)
    listed = await ask(peer, nameserver, api.GET_KVLIST_BY_NAMESPACE, routes.OfNamespace(namespace="n"))
    assert listed.body == b'{"table":{}}'


async def test_write_permission_and_topic_lists(nameserver: Nameserver, peer: Channels) -> None:
    await ask(peer, nameserver, api.REGISTER_BROKER, register(BODY), BODY)
    of = routes.OfBroker(broker_name="a")
    assert (await ask(peer, nameserver, api.WIPE_WRITE_PERM_OF_BROKER, of)).header.wipe_topic_count == 1
    assert (await ask(peer, nameserver, api.ADD_WRITE_PERM_OF_BROKER, of)).header.add_topic_count == 1
    lists: list[tuple[Endpoint[Any, Any], Any, list[str]]] = [
        (api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, ["T"]),
        (api.GET_TOPICS_BY_CLUSTER, routes.OfCluster(cluster="c"), ["T"]),
        (api.GET_TOPICS_BY_CLUSTER, routes.OfCluster(cluster="nowhere"), []),
        (api.GET_SYSTEM_TOPIC_LIST_FROM_NS, None, ["c", "a"]),
        (api.GET_UNIT_TOPIC_LIST, None, []),
        (api.GET_HAS_UNIT_SUB_TOPIC_LIST, None, []),
        (api.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, []),
    ]
    for endpoint, header, names in lists:
        answer = await ask(peer, nameserver, endpoint, header)
        assert TopicList.decode(answer.body).topic_list == names, endpoint.code.name
    await ask(peer, nameserver, api.DELETE_TOPIC_IN_NAMESRV, topics.DeleteTopicInNamesrv(topic="T", cluster_name="c"))
    assert (await ask(peer, nameserver, api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body == b'{"topicList":[]}'


async def test_settings_are_shown_changed_and_kept(nameserver: Nameserver, peer: Channels, tmp_path: Path) -> None:
    async def shown() -> list[str]:
        return (await ask(peer, nameserver, api.GET_NAMESRV_CONFIG)).body.decode().splitlines()

    assert "orderMessageEnable=false" in await shown()
    text = b"orderMessageEnable=true\nproductEnvName=here\n"
    answer = await ask(peer, nameserver, api.UPDATE_NAMESRV_CONFIG, Empty(), text)
    assert {"orderMessageEnable=true", "productEnvName=here"} <= set(await shown())
    kept = tmp_path / "namesrv" / "namesrv.properties"
    assert answer.remark == f"the change is kept in {kept}, which a start reads only if -c names it"
    nameserver.file = kept
    assert (await ask(peer, nameserver, api.UPDATE_NAMESRV_CONFIG, Empty(), text)).remark is None
    assert kept.read_text() == "orderMessageEnable=true\nproductEnvName=here\n"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (b"orderMessageEnable=true\nkvConfigPath=/tmp/x\n", 16, "Can not update config path"),
        (b"orderMessageEnable=true\nlistenPort=1\n", 16, "listenPort cannot be changed while the nameserver runs"),
        (b"orderMessageEnable=true\nnoSuchKey=1\n", 1, "unknown key noSuchKey"),
        (b"productEnvName=x\norderMessageEnable=maybe\n", 1, "orderMessageEnable: 'maybe' is not allowed"),
        (b"productEnvName=\\u12\n", 1, "the settings cannot be read"),
    ],
)
async def test_a_refused_change_changes_nothing(
    nameserver: Nameserver, peer: Channels, tmp_path: Path, text: bytes, code: int, words: str
) -> None:
    before = (await ask(peer, nameserver, api.GET_NAMESRV_CONFIG)).body
    answered, remark = await refusal(peer, nameserver, api.UPDATE_NAMESRV_CONFIG, None, text)
    assert (answered, words in remark) == (code, True)
    assert (await ask(peer, nameserver, api.GET_NAMESRV_CONFIG)).body == before
    assert not (tmp_path / "namesrv").exists()


async def test_an_unwritable_file_is_said_so_and_nothing_changes(
    nameserver: Nameserver, peer: Channels, tmp_path: Path
) -> None:
    (tmp_path / "namesrv").write_text("in the way")
    put = routes.PutKVConfig(namespace="n", key="k", value="v")
    code, remark = await refusal(peer, nameserver, api.PUT_KV_CONFIG, put)
    assert (code, remark.startswith("nothing was changed: ")) == (1, True)
    code, _ = await refusal(peer, nameserver, api.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\n")
    assert code == 1
    assert b"orderMessageEnable=false" in (await ask(peer, nameserver, api.GET_NAMESRV_CONFIG)).body


async def test_what_is_no_request_of_a_nameserver_is_answered_with_3(nameserver: Nameserver, peer: Channels) -> None:
    assert await refusal(peer, nameserver, api.HEART_BEAT) == (3, " request type 34 not supported")
