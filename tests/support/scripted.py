"""A nameserver and brokers that do as the test says: refuse, stay silent, lose connections.

For what a client does about failures; for what a broker does, tests use a real one. Keeps what it was asked, stores
sends only as counts, and knows no queue contents beyond that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Any, Self

from eruca.protocol import api
from eruca.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerIdList,
    HeartbeatData,
    LockBatchAnswer,
    LockBatchRequest,
    QueueData,
    TopicRouteData,
)
from eruca.protocol.errors import Refused
from eruca.protocol.headers.clients import OfConsumerGroup
from eruca.protocol.headers.offsets import OffsetReply
from eruca.protocol.headers.pull import SUSPEND, PullReply
from eruca.protocol.headers.send import SendReply
from eruca.protocol.headers.topics import ConfigVersion
from eruca.protocol.queues import MessageQueue
from eruca.remoting import Call, Connection, Reply, Router, Routes
from eruca.remoting.server import Server

SILENT = -1
"""In a script of answers: no answer at all."""

routes: Routes[Scripted] = Routes()


class Scripted:
    """One server that plays nameserver, broker, or both."""

    def __init__(self, name: str = "broker-a") -> None:
        self.name = name
        self.answers: deque[int] = deque()
        """Codes with which the next sends are answered; 0 once they are used up."""
        self.delay = 0.0
        """Seconds until sends are answered."""
        self.sends: list[Any] = []
        self.serializations: list[int] = []
        """Of the headers of sends."""
        self.bodies: list[bytes] = []
        self.heartbeats: list[HeartbeatData] = []
        self.refuses_heartbeats = False
        self.unregistered: list[Any] = []
        self.committed: dict[tuple[str, str, int], int] = {}
        self.members: list[str] = []
        self.bounds = {"min": 0, "max": 0, "time": 0}
        """The answers to 31, 30 and 29."""
        self.least_asked = 0
        """How often 31 was asked."""
        self.pulls: list[Any] = []
        """Those that may be held; others find nothing."""
        self.moved: deque[PullReply] = deque()
        """Answers to the next pulls that the offset is outside the queue (21); all others are held."""
        self.sent_back: list[Any] = []
        self.ends: list[Any] = []
        """The ends of transactions (37)."""
        self.locked: list[list[MessageQueue]] = []
        """The queues of each question for locks (41), and of each return of them (42)."""
        self.unlocked: list[list[MessageQueue]] = []
        self.not_granted: set[MessageQueue] = set()
        self.refused_codes: set[int] = set()
        """Requests that are refused with code 1, beside those of sending."""
        self.offsets_asked = asyncio.Event()
        """Set when a group's offset (14) is asked for."""
        self.offsets_answered = asyncio.Event()
        """Clear it to let questions for a group's offset wait."""
        self.offsets_answered.set()
        self.heartbeats_answered = asyncio.Event()
        """Clear it to let heartbeats wait."""
        self.heartbeats_answered.set()
        self.works = asyncio.Event()
        self.works.set()
        self.topics: dict[str, TopicRouteData] = {}
        self.cluster: ClusterInfo | None = None
        """The answer to 106; None refuses it."""
        self.asked: list[str] = []
        self.configuration = b"timerMaxDelaySec=100\n"
        """The answer to 26."""
        self.configuration_asked = 0
        self.connections: set[Connection] = set()
        self._server: Server | None = None
        self._port = 0

    async def start(self) -> Self:
        """Listen; on the same port as before when it listened already."""
        self._server = Server(Router(self, [routes]), on_made=self.connections.add, on_lost=self.connections.discard)
        await self._server.start("127.0.0.1", self._port)
        self._port = self._server.port
        return self

    async def stop(self) -> None:
        """Listen no more; connections end."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(0.0)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def hang(self) -> None:
        """Answer neither 31 nor 38 any more, and no pull."""
        self.works.clear()

    def go_on(self) -> None:
        """Answer all again."""
        self.works.set()

    def tell(self, group: str) -> None:
        """As a broker: the members of a group shall look at it (40)."""
        for connection in self.connections:
            connection.oneway(api.NOTIFY_CONSUMER_IDS_CHANGED, OfConsumerGroup(consumer_group=group))

    def knows(self, topic: str, *brokers: Scripted, queues: int = 1, perm: int = 6) -> None:
        """As a nameserver: the topic has so many queues on each of these brokers."""
        self.leads(topic, {each.name: each.address for each in brokers}, queues=queues, perm=perm)

    def leads(
        self, topic: str, brokers: dict[str, str], *, slave: str | None = None, queues: int = 1, perm: int = 6
    ) -> None:
        """As ``knows``, by the names and addresses of brokers; each has the slave 1 at that address."""
        slaves = {} if slave is None else {1: slave}
        self.topics[topic] = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=name, broker_addrs={0: address, **slaves}, cluster="Lab")
                for name, address in brokers.items()
            ],
            queue_datas=[
                QueueData(broker_name=name, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
                for name in brokers
            ],
        )


@routes.on(api.GET_ROUTEINFO_BY_TOPIC)
def route(server: Scripted, call: Call[Any]) -> Reply:
    server.asked.append(call.header.topic)
    data = server.topics.get(call.header.topic)
    if data is None:
        raise Refused(17, f"No topic route info in name server for the topic: {call.header.topic}")
    return Reply(body=data.encode())


@routes.on(api.GET_BROKER_CONFIG)
def configuration(server: Scripted, call: Call[Any]) -> Reply:
    server.configuration_asked += 1
    if call.code in server.refused_codes:
        raise Refused(1, "not now")
    return Reply(header=ConfigVersion(version="1"), body=server.configuration)


@routes.on(api.HEART_BEAT)
async def heartbeat(server: Scripted, call: Call[Any]) -> Reply:
    beat = HeartbeatData.decode(call.body)
    server.heartbeats.append(beat)
    if server.refuses_heartbeats:
        raise Refused(1, "no heartbeats today")
    if call.code in server.refused_codes:
        raise Refused(1, "not now")
    if beat.consumer_data_set and beat.client_id not in server.members:
        server.members.append(beat.client_id)
    await server.heartbeats_answered.wait()
    return Reply()


@routes.on(api.UNREGISTER_CLIENT)
def unregister(server: Scripted, call: Call[Any]) -> Reply:
    server.unregistered.append(call.header)
    return Reply()


@routes.on(api.GET_CONSUMER_LIST_BY_GROUP)
async def members(server: Scripted, call: Call[Any]) -> Reply:
    await server.works.wait()
    if not server.members:
        raise Refused(1, f"no consumer for this group, {call.header.consumer_group}")
    return Reply(body=ConsumerIdList(consumer_id_list=server.members).encode())


@routes.on(api.SEND_MESSAGE_V2, api.SEND_BATCH_MESSAGE)
async def send(server: Scripted, call: Call[Any]) -> Reply | None:
    server.sends.append(call.header)
    server.serializations.append(call.serialization)
    server.bodies.append(call.body)
    code = server.answers.popleft() if server.answers else 0
    if server.delay:
        await asyncio.sleep(server.delay)
    if code == SILENT:
        return None
    if code not in (0, 10, 11, 12):
        raise Refused(code, f"{server.name} says {code}")
    number = len(server.sends) - 1
    return Reply(code, SendReply(msg_id=f"{number:032X}", queue_id=max(call.header.queue_id, 0), queue_offset=number))


@routes.on(api.LOCK_BATCH_MQ)
def lock(server: Scripted, call: Call[Any]) -> Reply:
    if call.code in server.refused_codes:
        raise Refused(1, "not now")
    ask = LockBatchRequest.decode(call.body)
    server.locked.append(sorted(ask.mq_set))
    return Reply(body=LockBatchAnswer(locked=[each for each in ask.mq_set if each not in server.not_granted]).encode())


@routes.on(api.UNLOCK_BATCH_MQ)
def unlock(server: Scripted, call: Call[Any]) -> Reply:
    server.unlocked.append(sorted(LockBatchRequest.decode(call.body).mq_set))
    return Reply()


@routes.on(api.END_TRANSACTION)
def end_transaction(server: Scripted, call: Call[Any]) -> None:
    server.ends.append(call.header)
    assert call.oneway


@routes.on(api.UPDATE_CONSUMER_OFFSET)
async def update_offset(server: Scripted, call: Call[Any]) -> Reply:
    header = call.header
    if call.code in server.refused_codes:
        raise Refused(1, "not now")
    *group_and_topic, _ = place = header.consumer_group, header.topic, header.queue_id
    if not any([*known[:2]] == group_and_topic for known in server.committed):
        await asyncio.sleep(0)  # as with 4.9.7, of several first offsets at once the last one remains
        server.committed = {known: at for known, at in server.committed.items() if [*known[:2]] != group_and_topic}
    server.committed[place] = header.commit_offset
    return Reply()


@routes.on(api.GET_BROKER_CLUSTER_INFO)
def cluster(server: Scripted, call: Call[Any]) -> Reply:
    if server.cluster is None:
        raise Refused(1, "not now")
    return Reply(body=server.cluster.encode())


@routes.on(api.QUERY_CONSUMER_OFFSET)
async def query_offset(server: Scripted, call: Call[Any]) -> Reply:
    header = call.header
    server.offsets_asked.set()
    await server.offsets_answered.wait()
    if call.code in server.refused_codes:
        raise Refused(1, "not now")
    offset = server.committed.get((header.consumer_group, header.topic, header.queue_id))
    if offset is None:
        raise Refused(22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    return Reply(header=OffsetReply(offset=offset))


@routes.on(api.GET_MIN_OFFSET)
async def least(server: Scripted, call: Call[Any]) -> Reply:
    server.least_asked += 1
    await server.works.wait()
    return Reply(header=OffsetReply(offset=server.bounds["min"]))


@routes.on(api.GET_MAX_OFFSET)
def greatest(server: Scripted, call: Call[Any]) -> Reply:
    return Reply(header=OffsetReply(offset=server.bounds["max"]))


@routes.on(api.SEARCH_OFFSET_BY_TIMESTAMP)
def search(server: Scripted, call: Call[Any]) -> Reply:
    return Reply(header=OffsetReply(offset=server.bounds["time"]))


@routes.on(api.CHECK_CLIENT_CONFIG)
def check_subscription(server: Scripted, call: Call[Any]) -> Reply:
    if call.code in server.refused_codes:
        raise Refused(1, "not now")
    return Reply()


@routes.on(api.CONSUMER_SEND_MSG_BACK)
def send_back(server: Scripted, call: Call[Any]) -> Reply:
    server.sent_back.append(call.header)
    if call.code in server.refused_codes:
        raise Refused(1, "not now")
    return Reply()


@routes.on(api.PULL_MESSAGE)
async def pull(server: Scripted, call: Call[Any]) -> Reply:
    if not call.header.sys_flag & SUSPEND:  # somebody looks what is there
        offset = call.header.queue_offset
        nothing = PullReply(suggest_which_broker_id=0, next_begin_offset=offset, min_offset=0, max_offset=offset)
        return Reply(code=19, header=nothing)
    server.pulls.append(call.header)
    if server.moved:
        return Reply(code=21, header=server.moved.popleft())
    await asyncio.get_running_loop().create_future()  # held until the connection ends
    raise AssertionError("never")
