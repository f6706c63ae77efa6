"""One broker in this process, its clock in the test's hand, and an operator who is connected to it.

How late its event loop is, for which a broker refuses requests, is in the test's hand as well (``lag``): a machine that
is busy with something else changes nothing.
"""

from __future__ import annotations

import asyncio
from math import inf
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from eruca.broker.app import BrokerApp
from eruca.broker.broker import Broker
from eruca.broker.config import BrokerConfig
from eruca.broker.coordination.port import Coordinator
from eruca.broker.store.results import Put
from eruca.protocol import frame
from eruca.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, TopicConfig
from eruca.protocol.record import Record, decode_record
from tests.support.file_systems import Switched
from tests.support.peers import Answering, Peer

START = 1_700_000_000_000


class Desk:
    """A running broker and an operator who is connected to it."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self._jumped = 0
        self.folder = folder
        self.config = BrokerConfig(broker_name="broker-a", broker_cluster_name="Lab", broker_ip1="127.0.0.1")
        self.config.server.listen_port = 0
        self.config.server.bind_address = "127.0.0.1"
        self.config.store.store_path_root_dir = str(folder / "store")
        self.config.store.mapped_file_size_commit_log = 1 << 20
        self.config.store.max_hash_slot_num = 128
        self.config.store.max_index_num = 512
        self.file: Path | None = None
        self.disk = Switched()
        self.coordinator: Coordinator | None = None
        """For a broker whose group elects its master."""
        self._peers: list[Peer] = []

    def passed(self) -> int:
        """The monotonic clock in ms: it follows ``now`` in all but jumps."""
        return self.now - self._jumped

    def jump(self, millis: int) -> None:
        """Let the wall clock jump; no time passes."""
        self.now += millis
        self._jumped += millis

    async def start(self) -> None:
        self.app = BrokerApp(
            self.config,
            clock=lambda: self.now,
            monotonic=self.passed,
            file=self.file,
            file_system=self.disk,
            coordinator=self.coordinator,
        )
        await self.app.start()
        self.broker.loop_monitor.stop()
        self.broker.loop_monitor.overdue = inf
        self.operator = await self.peer()
        self.ask = self.operator.ask

    async def stop(self) -> None:
        self.disk.release()
        for peer in self._peers:
            await peer.close()
        self._peers.clear()
        await self.app.stop()

    async def stop_app(self) -> None:
        """Stop the broker first, and then close what its clients have left."""
        await self.app.stop()
        for peer in self._peers:
            await peer.close()
        self._peers.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def restart(self) -> None:
        """Stop the broker and start another one on the same disk."""
        await self.stop()
        await self.start()

    @property
    def broker(self) -> Broker:
        return self.app.broker

    async def peer(self, language: str = "JAVA", version: int = 407, answering: Answering | None = None) -> Peer:
        """A client that is connected and silent so far."""
        peer = await Peer(language, version, answering).connect(self.app.address)
        self._peers.append(peer)
        return peer

    async def consumer(
        self, group: str, *topics: str, client_id: str = "c", model: str = "CLUSTERING", peer: Peer | None = None
    ) -> Peer:
        """A client that has shown itself as a member of a consumer group."""
        peer = peer or await self.peer()
        beat = HeartbeatData(
            client_id=client_id,
            consumer_data_set=[
                ConsumerData(
                    group_name=group,
                    consume_type="CONSUME_PASSIVELY",
                    message_model=model,
                    consume_from_where="CONSUME_FROM_LAST_OFFSET",
                    subscription_data_set=[
                        SubscriptionData(topic=topic, sub_string="*", sub_version=7) for topic in topics
                    ],
                )
            ],
        )
        assert (await peer.ask(34, {}, beat.encode())).code == 0
        return peer

    async def producer(self, group: str, *, client_id: str = "p") -> Peer:
        """A client that has shown itself as a producer."""
        peer = await self.peer()
        beat = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group)])
        assert (await peer.ask(34, {}, beat.encode())).code == 0
        return peer

    def topic(self, name: str, queues: int = 1, **settings: Any) -> str:
        """A topic that exists."""
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        for field, value in settings.items():
            setattr(config, field, value)
        self.broker.topics.put(config)
        return name

    def store(self, topic: str, queue_id: int, *times: int, body: bytes = b"body", properties: bytes = b"") -> Put:
        """Messages stored at these times (ms after the start) and readable; the last of them."""
        put: Put | None = None
        for after in times:
            self.now = START + after
            put = self.broker.store.appender.put(
                topic,
                queue_id,
                body,
                properties,
                flag=0,
                sys_flag=0,
                born_timestamp=self.now,
                born_host=bytes(8),
                store_host=self.broker.store_host,
            )
            self.broker.store.drain()
        assert put is not None and not put.status
        return put

    def fill_disk(self, *, full: bool = True) -> None:
        """Let the store find its disk full, or not full any more."""
        self.broker.store.config.disk_space_warning_level_ratio = -1.0 if full else 1.0
        self.broker.store.check_disk()

    def leave_room(self, least: int) -> None:
        """Fill what the log's file has on the disk, until at most so many bytes are left there."""
        log = self.broker.store.commit_log
        while (left := log.limit - log.position) > least:
            around = 91 + len("Filler")
            self.store(
                self.topic("Filler"), 0, self.now - START, body=bytes(max(0, min(left - least - around, 60_000)))
            )

    def lag(self, rounds: int) -> None:
        """Let the event loop look as if the last ``rounds`` iterations had taken ten seconds each."""
        monitor = self.broker.loop_monitor
        for number in range(rounds - 1, -1, -1):
            monitor.ticked(monotonic() - 10 * (number + 1), 0.0 if number == rounds - 1 else 9.95)
        monitor.overdue = monitor.last

    def delete_forcibly(self) -> None:
        """Let the store find its disk so full that files are deleted before their time."""
        self.broker.store.config.disk_space_clean_forcibly_ratio = 0.0

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """Everything that was stored in a queue."""
        store = self.broker.store
        store.drain()
        found = []
        for offset in range(store.max_offset(topic, queue_id)):
            unit = store.unit(topic, queue_id, offset)
            data = None if unit is None else store.record(unit[0])
            assert data is not None
            found.append(decode_record(data))
        return found

    def deliver(self, after: int) -> int:
        """Let the time be ``after`` ms after the start, and deliver what is due; when delivery goes on."""
        self.now = START + after
        return self.turn()

    def turn(self) -> int:
        """Deliver what is due; when delivery goes on."""
        self.broker.store.drain()
        again = self.broker.delays.deliver(self.now, self.passed())
        self.broker.store.drain()
        return again

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        """Committed offsets of the queues 0, 1, … of a topic."""
        for queue_id, offset in enumerate(offsets):
            self.broker.offsets.commit(group, topic, queue_id, offset)


async def hear(reader: asyncio.StreamReader) -> tuple[frame.Head[Any], bytes]:
    """The next frame of a connection, and its bytes."""
    size = await reader.readexactly(8)
    data = size + await reader.readexactly(int.from_bytes(size[:4], "big") - 4)
    found = frame.split(data, 0)
    assert found is not None and found[3] == len(data)
    return frame.read(found[0], data[found[1] : found[2]]), data
