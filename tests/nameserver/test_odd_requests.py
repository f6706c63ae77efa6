"""Requests with odd values in every field: each is answered, none by accident, and the nameserver goes on."""

import random
from pathlib import Path

from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.nameserver.handlers import routes
from tests.nameserver.conftest import Clock
from tests.support.odd import ACCIDENT, odd_body, odd_fields
from tests.support.peers import Peer

TOPICS = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":5},'
    b'"topicConfigTable":{"T":{"perm":6,"readQueueNums":3,"topicName":"T","writeQueueNums":2}}}}'
)
BROKER = {"brokerName": "b", "brokerAddr": "10.1.1.1:10911", "clusterName": "c", "brokerId": 0}


async def test_odd_values_are_refused_or_served_but_never_crash(nameserver: Nameserver) -> None:
    seed = random.Random(20_261_121)
    peer = await Peer().connect(nameserver.address)
    register = {**BROKER, "haServerAddr": "10.1.1.1:10912", "compressed": "false"}
    assert (await peer.ask(103, register, TOPICS)).code == 0
    try:
        for code, (endpoint, *_) in routes.handlers.items():
            for _ in range(100):
                fields, body = odd_fields(endpoint.ask, seed), odd_body(seed)
                answer = await peer.ask(code, fields, body, within=15)
                assert not ACCIDENT.match(answer.remark or ""), (code, fields, body, answer.remark)
                assert "\n\tat " not in (answer.remark or "")
        newer = TOPICS.replace(b'"counter":0', b'"counter":1')  # an odd 216 may have deleted the topic of the first
        assert (await peer.ask(103, register, newer)).code == 0
        assert (await peer.ask(105, {"topic": "T"})).code == 0
    finally:
        await peer.close()


async def test_what_odd_requests_left_behind_can_be_read_again(tmp_path: Path, clock: Clock) -> None:
    seed = random.Random(7)
    config = NamesrvConfig(listen_port=0, bind_address="127.0.0.1", rocketmq_home=str(tmp_path))
    for _ in range(2):
        server = Nameserver(config, monotonic=clock)
        await server.start()
        peer = await Peer().connect(server.address)
        for code in (100, 102, 318):
            endpoint = routes.handlers[code].endpoint
            for _ in range(50):
                await peer.ask(code, odd_fields(endpoint.ask, seed), odd_body(seed), within=15)
        assert (await peer.ask(100, {"namespace": "N", "key": "k", "value": "v"})).code == 0
        assert (await peer.ask(101, {"namespace": "N", "key": "k"})).fields == {"value": "v"}
        await peer.close()
        await server.stop()
