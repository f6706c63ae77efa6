"""A nameserver and a broker in this process, and mqadmin as an operator types it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from eruca.admin.cli import run
from eruca.broker.app import BrokerApp
from eruca.broker.config import BrokerConfig
from eruca.protocol.bodies import (
    ConsumerData,
    ConsumerOffsets,
    HeartbeatData,
    ProducerData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from eruca.standalone.cluster import Cluster
from tests.support.peers import Answering, Peer


class Done(NamedTuple):
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The printed lines, in words."""
        return [line.split() for line in self.out.splitlines()]


class Lab:
    """A running cluster and an operator."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home
        self.nameserver = cluster.address
        self.broker = cluster.broker.address
        self.peers: list[Peer] = []

    async def mqadmin(
        self, *line: str, answers: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command; the nameserver is in its environment. ``answers`` are typed at a terminal."""
        out, err = io.StringIO(), io.StringIO()
        variables = {"NAMESRV_ADDR": self.nameserver, "XDG_STATE_HOME": str(self.home), **(environment or {})}
        status = await run(line, variables, out, err, None if answers is None else io.StringIO(answers))
        return Done(status, out.getvalue(), err.getvalue())

    async def done(self, *line: str) -> Done:
        """Run a command that must succeed without a complaint."""
        done = await self.mqadmin(*line)
        assert (done.status, done.err) == (0, ""), done
        return done

    async def topic(self, name: str, queues: int = 1) -> str:
        """A topic that exists and has a route."""
        await self.done("updateTopic", "-c", "DefaultCluster", "-t", name, "-r", str(queues), "-w", str(queues))
        return name

    async def send(self, topic: str, *bodies: str, queue: int = 0, tags: str = "", keys: str = "") -> list[str]:
        """Messages in one queue of a topic; their ids."""
        line = ["sendMessage", "-t", topic, "-b", "broker-a", "-i", str(queue)]
        line += ["-c", tags] if tags else []
        line += ["-k", keys] if keys else []
        return [(await self.done(*line, "-p", body)).rows[1][-1] for body in bodies]

    async def member(
        self,
        group: str,
        *topics: str,
        client_id: str = "10.0.0.1@c",
        answering: Answering | None = None,
        message_model: str = "CLUSTERING",
        consume_type: str = "CONSUME_PASSIVELY",
        at: str = "",
    ) -> Peer:
        """An online consumer of a group, as a Java client shows itself to the broker (``at`` another address)."""
        peer = await self._peer(answering, at)
        subscriptions = [SubscriptionData(topic=topic, sub_string="*", sub_version=7) for topic in topics]
        beat = HeartbeatData(
            client_id=client_id,
            consumer_data_set=[
                ConsumerData(
                    group_name=group,
                    consume_type=consume_type,
                    message_model=message_model,
                    consume_from_where="CONSUME_FROM_LAST_OFFSET",
                    subscription_data_set=subscriptions,
                )
            ],
        )
        assert (await peer.ask(34, {}, beat.encode())).code == 0
        return peer

    async def register(
        self, name: str, address: str, *topics: TopicConfig, broker_id: int = 0, nameserver: str = ""
    ) -> None:
        """Another broker that a nameserver knows, with these topics; nothing need be at its address."""
        table = {each.topic_name: each for each in topics}
        body = RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table=table))
        peer = await Peer().connect(nameserver or self.nameserver)
        self.peers.append(peer)
        fields = {"brokerName": name, "brokerAddr": address, "clusterName": "DefaultCluster", "haServerAddr": address}
        more = {"brokerId": str(broker_id), "compressed": "false", "bodyCrc32": "0"}
        assert (await peer.ask(103, {**fields, **more}, body.encode())).code == 0

    @asynccontextmanager
    async def another_master(self, name: str) -> AsyncIterator[str]:
        """Another master of the cluster; its address."""
        config = BrokerConfig(broker_name=name, broker_ip1="127.0.0.1", namesrv_addr=self.nameserver)
        config.server.listen_port, config.server.bind_address = 0, "127.0.0.1"
        config.store.store_path_root_dir = str(self.home / name)
        _keep_small(config)
        app = BrokerApp(config)
        await app.start()
        try:
            yield app.address
        finally:
            await app.stop()

    async def producer(self, group: str) -> Peer:
        """An online producer of a group."""
        peer = await self._peer(None)
        beat = HeartbeatData(client_id="10.0.0.2@p", producer_data_set=[ProducerData(group_name=group)])
        assert (await peer.ask(34, {}, beat.encode())).code == 0
        return peer

    async def _peer(self, answering: Answering | None, at: str = "") -> Peer:
        peer = await Peer(answering=answering).connect(at or self.broker)
        self.peers.append(peer)
        return peer

    async def commit(self, group: str, topic: str, *offsets: int) -> None:
        """Committed offsets of the queues 0, 1, … of a topic."""
        peer = await self._peer(None)
        for queue, offset in enumerate(offsets):
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}
            assert (await peer.ask(15, fields)).code == 0

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a topic, by queue."""
        peer = await self._peer(None)
        table = ConsumerOffsets.decode((await peer.ask(43)).body).offset_table
        return table.get(f"{topic}@{group}", {})


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with running_lab(tmp_path) as lab:
        yield lab


@asynccontextmanager
async def running_lab(tmp_path: Path, *, makes_topics: bool = True, accounts: Path | None = None) -> AsyncIterator[Lab]:
    """A lab in this folder, whose broker creates topics that are sent to, or not.

    With ``accounts``, a home of RocketMQ, it has access control.
    """
    config = BrokerConfig(broker_name="broker-a", auto_create_topic_enable=makes_topics)
    if accounts is not None:
        config.access.acl_enable = True
        config.rocketmq_home = str(accounts)
    _keep_small(config)
    async with Cluster(tmp_path, broker=config) as cluster:
        lab = Lab(cluster, tmp_path / "home")
        yield lab
        for peer in lab.peers:
            await peer.close()


def _keep_small(config: BrokerConfig) -> None:
    config.store.mapped_file_size_commit_log = 1 << 20
    config.store.max_hash_slot_num = 128
    config.store.max_index_num = 512
