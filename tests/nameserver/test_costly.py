"""Each request of a nameserver is known to read or to change, and to be costly or not."""

from eruca.nameserver.app import Nameserver
from eruca.nameserver.handlers import routes
from tests.support.peers import Peer

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
