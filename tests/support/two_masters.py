"""Two masters and two nameservers as processes, a group with two members that answer, and messages in every queue.

What an operator's commands are tried on while one of these hangs or is dead. Each broker has one queue of topic T with
three messages with the key ``key``, of which group g has consumed one, one dead letter of g, an account, and a
producer of group p online. The members are connections of the test's own: ``silent`` are those that answer nothing.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from eruca.client import Message, MessageQueue, Producer
from eruca.protocol.bodies import (
    ConsumerData,
    ConsumerRunningInfo,
    HeartbeatData,
    ProcessQueueInfo,
    ProducerData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.support.accounts import ADMIN, write_accounts
from tests.support.daemons import registered
from tests.support.eruca import ErucaNameServer
from tests.support.lone import LoneBroker
from tests.support.peers import Answering, Peer, Pushed

CLUSTER = "Two"
BROKERS = ("broker-a", "broker-b")
MEMBERS = {"10.0.0.1@a": "broker-a", "10.0.0.2@b": "broker-b"}
"""Client ids, and the broker whose queue each member has."""
TOPICS = ("T", "%RETRY%g", "%DLQ%g")
TRACES = "RMQ_SYS_TRACE_TOPIC"
_CREATE_TOPIC, _HEARTBEAT, _COMMIT, _PUT_KV, _REGISTER = 17, 34, 15, 100, 103
_RUNNING_INFO = 307


class TwoMasters:
    """The cluster. Commands work in its folder ``home``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.silent: set[str] = set()
        self.ids: dict[str, tuple[str, str]] = {}
        """The producer's and the broker's id of the first message at each broker."""
        self._peers: list[Peer] = []
        self._names = [ErucaNameServer(home / f"names-{number}") for number in (0, 1)]
        self.brokers: dict[str, LoneBroker] = {}

    @property
    def address(self) -> str:
        """Both nameservers."""
        return ";".join(each.address for each in self._names)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _start(self) -> None:
        accounts = write_accounts(self.home, [ADMIN], white=["127.0.0.1"], brokers=[])
        for name in BROKERS:
            settings = {"brokerName": name, "brokerClusterName": CLUSTER, "namesrvAddr": self.address}
            settings |= {
                "aclEnable": "true",
                "traceTopicEnable": "true",
                "aclFile": str(accounts / "conf" / "plain_acl.yml"),
            }
            self.brokers[name] = await LoneBroker.start(self.home / name, self.home / name / "store", settings)
        for broker in self.brokers.values():
            await self._set_up(broker)
        await self._send()

    async def _end(self) -> None:
        for peer in self._peers:
            await peer.close()
        for process in (*self.brokers.values(), *(each.process for each in self._names)):
            process.kill()

    # ------------------------------------------------------------------ troubles

    @contextmanager
    def stopped_nameserver(self) -> Iterator[None]:
        """The first nameserver hangs."""
        process = self._names[0].process
        process.signal(signal.SIGSTOP)
        yield
        process.signal(signal.SIGCONT)

    async def kill(self, name: str) -> None:
        """End a broker at once, and let the nameservers know it still, as if its machine had lost its power."""
        broker = self.brokers[name]
        broker.kill()
        table = {
            topic: TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1) for topic in (*TOPICS, TRACES)
        }
        body = RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table=table))
        fields = {"brokerName": name, "brokerAddr": broker.address, "clusterName": CLUSTER, "brokerId": "0"}
        fields |= {"haServerAddr": broker.address, "compressed": "false", "bodyCrc32": "0"}
        for each in self._names:
            peer = await self._peer(each.address)
            assert (await peer.ask(_REGISTER, fields, body.encode())).code == 0

    # ------------------------------------------------------------------ what is there

    async def _peer(self, address: str, answering: Answering | None = None) -> Peer:
        peer = await Peer(answering=answering).connect(address)
        self._peers.append(peer)
        return peer

    async def _set_up(self, broker: LoneBroker) -> None:
        for each in self._names:
            known = partial(registered, broker.address, each.address)
            await asyncio.to_thread(broker.wait_until, known, "registration")
        peer = await self._peer(broker.address)
        for topic in TOPICS:
            fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
            assert (await peer.ask(_CREATE_TOPIC, fields)).code == 0
        for topic, offset in {"T": 1, "%RETRY%g": 0}.items():
            fields = {"consumerGroup": "g", "topic": topic, "queueId": 0, "commitOffset": offset}
            assert (await peer.ask(_COMMIT, fields)).code == 0
        producer = HeartbeatData(client_id="10.0.0.3@p", producer_data_set=[ProducerData(group_name="p")])
        assert (await peer.ask(_HEARTBEAT, {}, producer.encode())).code == 0
        for client_id in MEMBERS:
            member = await self._peer(broker.address, self._member(client_id))
            group = ConsumerData(
                group_name="g",
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                subscription_data_set=[SubscriptionData(topic="T", sub_string="*", sub_version=7)],
            )
            beat = HeartbeatData(client_id=client_id, consumer_data_set=[group])
            assert (await member.ask(_HEARTBEAT, {}, beat.encode())).code == 0

    def _member(self, client_id: str) -> Answering:
        info = ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "1700000000000"},
            subscription_set=[SubscriptionData(topic="T", sub_string="*")],
            mq_table={MessageQueue("T", MEMBERS[client_id], 0): ProcessQueueInfo(commit_offset=1)},
        )

        def answer(pushed: Pushed) -> tuple[int, bytes] | None:
            known = pushed.code == _RUNNING_INFO and client_id not in self.silent
            return (0, info.encode()) if known else None

        return answer

    async def _send(self) -> None:
        async with Producer("sender", nameserver=self.address, trace=True) as producer:
            for name in BROKERS:
                for topic, count in {"T": 3, "%DLQ%g": 1}.items():
                    for number in range(count):
                        queue = MessageQueue(topic, name, 0)
                        sent = await producer.send(Message(topic, b"body", keys="key"), queue=queue)
                        if topic == "T" and not number:
                            self.ids[name] = sent.message_id, sent.offset_message_id or ""
        for each in self._names:
            peer = await self._peer(each.address)
            order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:1;broker-b:1"}
            assert (await peer.ask(_PUT_KV, order)).code == 0
