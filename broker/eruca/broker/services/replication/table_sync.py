"""The slave's copies of its master's tables: topics, offsets, delay offsets, groups (SlaveSynchronize in 4.9.7).

Owns when the tables are fetched (every 10 s, and for a new topic) and from where (topics from the master's VIP port).
Names that no topic or group may have are skipped. Invariant: a table is taken over whole and is on disk before the
next is fetched; without a master the last tables stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from eruca.broker.services.copied_delays import MasterLevels
from eruca.broker.services.delays import Delays
from eruca.broker.state.groups import Groups
from eruca.broker.state.offsets import Offsets
from eruca.broker.state.topics import Topics
from eruca.protocol import api, bodies
from eruca.protocol.bodies import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty
from eruca.remoting import Channels, RemotingError, TlsFiles
from eruca.remoting.addresses import vip_address
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.rpc_hooks import Signer
from eruca.remoting.tasks import Tasks, end

EVERY = 10.0
"""Seconds between two fetches of the tables."""
MISSED = 10_000
"""The number of unknown topics that are remembered."""
TIMEOUT = 3.0
"""Seconds for each request."""

log = structlog.get_logger("eruca.broker.replication")


class TableSync:
    """Keeps a slave's tables equal to its master's; ``delays_only`` where a group's stream has the others."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        delays: Delays,
        tasks: Tasks,
        signer: Signer,
        tls: TlsFiles | None = None,
        *,
        delays_only: bool = False,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._tasks = tasks
        self._signer = signer
        self._tls = tls
        self._delays_only = delays_only
        self._master: str | None = None
        self._missed: set[str] = set()
        """Unknown topics that triggered a fetch; a deleted topic stays unknown."""
        self._wake = asyncio.Event()
        self._repeats = Repeats()
        self._channels: Channels | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, master: str | None) -> None:
        """Set the address of the master that is followed; None while it is not registered."""
        if master != self._master:
            self._master = master
            self._delays.copied.leave()
            self._wake.set()

    def met(self, topic: str) -> None:
        """Fetch soon, because messages of a topic arrived that is not in the table yet."""
        if topic not in self._topics and topic not in self._missed:
            if len(self._missed) >= MISSED:
                self._missed.clear()
            self._missed.add(topic)
            self._wake.set()

    def start(self) -> None:
        """Start to fetch."""
        self._task = self._tasks.start("tables of the master", self._run())

    async def stop(self) -> None:
        """Stop to fetch, and forget from whom."""
        self._master = None
        self._missed.clear()
        if self._task is not None:
            await end([self._task])
            self._task = None
        if self._channels is not None:
            await self._channels.close()
            self._channels = None

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._master is not None:
                await self.fetch(self._master)
            try:
                async with asyncio.timeout(EVERY):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def fetch(self, master: str) -> None:
        """Fetch all tables once; a table whose fetch fails stays as it is."""
        every = (self._fetch_topics, self._fetch_offsets, self._fetch_delays, self._fetch_groups)
        for fetch_one in (self._fetch_delays,) if self._delays_only else every:
            await self._try(fetch_one, master)

    async def _try(self, fetch_one: Callable[[str], Awaitable[None]], master: str) -> None:
        table = fetch_one.__name__[7:]
        try:
            await fetch_one(master)
        except (RemotingError, Refused, ProtocolError, OSError, ValueError) as fault:  # it may be no address
            again = self._repeats.failed(table)
            if again is not None:
                log.warning("table_not_fetched", table=table, master=master, fault=str(fault), **again)
        else:
            self._repeats.over(table)
            log.debug("table_fetched", table=table, master=master)

    async def _ask(self, address: str, endpoint: api.Endpoint[Empty, Empty]) -> bytes:
        self._channels = self._channels or Channels(signer=self._signer, tls=self._tls)
        return (await self._channels.call(address, endpoint, timeout=TIMEOUT)).body

    async def _fetch_topics(self, master: str) -> None:
        body = await self._ask(vip_address(master), api.GET_ALL_TOPIC_CONFIG)
        self._topics.take_over(TopicConfigSerializeWrapper.decode(body))
        await self._topics.saved()

    async def _fetch_offsets(self, master: str) -> None:
        body = await self._ask(master, api.GET_ALL_CONSUMER_OFFSET)
        self._offsets.take_over(bodies.ConsumerOffsets.decode(body))
        await self._offsets.saved()

    async def _fetch_delays(self, master: str) -> None:
        copied = self._delays.copied
        position, left = copied.position, copied.left
        table = bodies.DelayOffsetSerializeWrapper.decode(await self._ask(master, api.GET_ALL_DELAY_OFFSET))
        self._delays.offsets.take_over(table)
        figures = bodies.KVTable.decode(await self._ask(master, api.GET_BROKER_RUNTIME_INFO)).table
        end = figures.get("commitLogMaxOffset", "")
        if end.isdigit() and copied.left == left:
            await copied.update(MasterLevels(position, table.offset_table, int(end)))

    async def _fetch_groups(self, master: str) -> None:
        body = await self._ask(master, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        self._groups.take_over(SubscriptionGroupWrapper.decode(body))
        await self._groups.saved()
