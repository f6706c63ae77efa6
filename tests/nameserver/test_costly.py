"""Each request of a nameserver is known to read or to change, and to be costly or not."""

from functools import partial

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.handlers import routes
from eruca.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicList
from eruca.protocol.headers.routes import RegisterBroker
from tests.support.pairs import eventually
from tests.support.peers import Peer
from tests.support.turns import turns_during, turns_of_the_loop

READS = {101, 105, 106, 206, 219, 224, 304, 311, 312, 313, 319}
CHANGES = {100, 102, 103, 104, 205, 216, 318, 322, 327}
COSTLY = {100, 102, 106, 205, 206, 219, 224, 304, 311, 312, 313, 327}


def test_the_table_of_what_requests_cost() -> None:
    served = routes.handlers
    assert {code for code, route in served.items() if route.reads} == READS
    assert {code for code, route in served.items() if not route.reads} == CHANGES, "322 is a sign of life"
    assert {code for code, route in served.items() if route.costly} == COSTLY


async def test_a_registration_that_is_no_plain_json_has_a_bound(nameserver: Nameserver) -> None:
    peer = await Peer().connect(nameserver.address)
    fields = {"brokerName": "a", "brokerAddr": "1.1.1.1:10911", "clusterName": "c", "haServerAddr": "1.1.1.1:10912"}
    fields |= {"brokerId": "0"}
    for size, words in ((900 << 10, None), (2 << 20, "such a text may have 1048576 bytes")):
        topic = b"T%d:{topicName:'T%d',readQueueNums:4,writeQueueNums:4,perm:6}"
        topics = b",".join(topic % (number, number) for number in range(size // 70))
        body = b"{topicConfigSerializeWrapper:{dataVersion:{counter:1,timestamp:7},topicConfigTable:{" + topics + b"}}}"
        answer = await peer.ask(103, fields, body, within=60)
        assert (answer.code == 0, words is None or words in str(answer.remark)) == (words is None, True)
    assert (await peer.ask(105, {"topic": "T7"})).code == 0
    await peer.close()


MANY = 100_000


@pytest.fixture
async def crowded(nameserver: Nameserver) -> Nameserver:
    """With very many topics, each of a unit that others subscribe to."""
    ask = RegisterBroker(broker_name="a", broker_addr="1.1.1.1:1", cluster_name="c", ha_server_addr="", broker_id=0)
    topics = {f"T{number}": TopicConfig(topic_name=f"T{number}", topic_sys_flag=3) for number in range(MANY)}
    wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=1), topic_config_table=topics)
    nameserver.table.register(ask, wrapper, object(), nameserver.monotonic())
    return nameserver


@pytest.mark.parametrize(("code", "fields", "count"), [(224, {"cluster": "c"}, MANY), (311, {}, MANY), (313, {}, 0)])
async def test_topics_are_selected_in_slices(
    crowded: Nameserver, code: int, fields: dict[str, str], count: int
) -> None:
    peer = await Peer().connect(crowded.address)
    await peer.ask(code, fields, within=60)
    turns = await turns_during(partial(peer.ask, code, fields, within=60), 0.04)
    assert turns.count > 10 and turns.longest < 0.04
    answer = await peer.ask(code, fields, within=60)
    assert len(TopicList.decode(answer.body).topic_list) == count
    await peer.close()


async def test_permissions_change_in_slices_and_all_of_them_though_who_asked_leaves(crowded: Nameserver) -> None:
    peer, other = await Peer().connect(crowded.address), await Peer().connect(crowded.address)

    def writable() -> int:
        table = crowded.table
        routes = (table.route(topic) for topic in table.topics().topic_list)
        return sum(route.queue_datas[0].perm & 2 > 0 for route in routes if route is not None)

    async with turns_of_the_loop() as turns:
        answer = await peer.ask(205, {"brokerName": "a"}, within=60)
        assert turns.count > 10
    assert (answer.fields["wipeTopicCount"], writable()) == (str(MANY), 0)
    peer.tell(327, {"brokerName": "a"})
    assert (await other.ask(101, {"namespace": "n", "key": "k"})).code, "the change has begun, and is hardly done"
    await peer.close()
    await eventually(lambda: writable() == MANY)
    await other.close()
