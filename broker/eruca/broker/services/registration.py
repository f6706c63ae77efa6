"""Registration of the broker with every nameserver: at the start, periodically, and on each change.

Owns what is registered and when (BrokerOuterAPI and BrokerController.registerBrokerAll in 4.9.7). A nameserver that is
unreachable, or whose connection was lost, is retried soon; so is one that refuses because another broker has the name;
then this one is not ready. A master that was elected registers with its epoch, while it is sure that it is the master,
and never leaves as id 0: another one may have it. A change goes with all that changed since the last answer
(``registration_rounds``). A large table goes compressed, without ``topicSysFlag`` and ``order``, since a frame is
bounded. Must not know clients. Invariants: a nameserver gets one registration after the other; only a caller that asks
for it waits for a nameserver that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

import structlog

from eruca.broker.config import BrokerConfig
from eruca.broker.services.registration_rounds import Rounds, release
from eruca.broker.services.role import MASTER_ID, Role
from eruca.broker.state.parts import chosen
from eruca.broker.state.topics import LONGEST_REGISTRATION, READ_WRITE, Topics
from eruca.protocol import api
from eruca.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    body_crc32,
)
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers.routes import NAME_TAKEN, RegisterBroker, RegisterBrokerReply, RouteOf, UnregisterBroker
from eruca.remoting import CallTimedOut, Channels, Connection, RemotingError, TlsFiles
from eruca.remoting.addresses import split_address
from eruca.remoting.log_repeats import Repeats
from eruca.remoting.rpc_hooks import Signer
from eruca.remoting.tasks import Tasks, end

RETRY_AFTER = 2.0
"""Seconds until a failed nameserver is retried."""
FIRST_ROUND = 2.0
"""Seconds that the start waits for nameservers, at most."""
STAND_BACK = 2
"""Registration periods for which a broker whose name is taken keeps away from a nameserver that was lost and may have
restarted: the holder registers again within one of its own."""
UNREGISTER_TIMEOUT = 3.0
"""Seconds."""

COMPRESS_ABOVE = 4 << 20
"""Bytes of a registration from which on it is compressed, whatever compressedRegister says."""
SHORTEST_ENTRY = 120
"""Bytes of a topic in a registration that is not compressed, at least."""

WATCHED = 30.0
"""Seconds after an election for which a master looks whether it stands in the table: a former one may come back, where
a nameserver knows no epochs."""
WATCH_EVERY = 1.0
"""Seconds between two of these looks."""

log = structlog.get_logger("eruca.broker.registration")


class Registered(NamedTuple):
    """The body of a registration."""

    content: bytes
    compressed: bool


class Registration:
    """Keeps one broker registered under the addresses that ``advertise`` sets."""

    def __init__(
        self,
        config: BrokerConfig,
        role: Role,
        topics: Topics,
        tasks: Tasks,
        signer: Signer,
        tls: TlsFiles | None = None,
    ) -> None:
        self._config = config
        self._role = role
        self._topics = topics
        self._tasks = tasks
        self._signer = signer
        self._tls = tls
        self.is_sure: Callable[[], bool] = lambda: True
        """Whether nobody else can have been elected; asked before each registration of an elected master."""
        self._on_master: Callable[[str | None, str | None], None] | None = None
        self._lacks_master = False
        """Whether no nameserver knows the master yet; a slave then registers more often."""
        self._address = ""
        self._ha_address = ""
        self._channels: Channels | None = None
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._rounds: dict[str, Rounds] = {}
        self._registered: set[str] = set()
        self._masters: set[str] = set()
        """The nameservers that have this broker as the master of its name."""
        self._registered_at: dict[str, float] = {}
        self._began = 0.0
        self._name_taken: dict[str, str] = {}
        self._name_taken_logged: dict[str, float] = {}
        self._repeats = Repeats()
        self._encoded: tuple[tuple[DataVersion, int], Registered | None] | None = None
        self._changed_at = 0.0
        """When the role changed last."""
        self._large = False
        """Whether the whole table is compressed for its size."""
        topics.watchers.append(self._changed)

    @property
    def registered(self) -> frozenset[str]:
        """The nameservers that answered the last registration."""
        return frozenset(self._registered)

    def ages(self) -> dict[str, float]:
        """The seconds since each nameserver took a registration; since the start for one that took none."""
        now = monotonic()
        return {nameserver: now - self._registered_at.get(nameserver, self._began) for nameserver in self._rounds}

    @property
    def fault(self) -> str | None:
        """Why clients may not find this broker; None if a nameserver took a registration in the last two periods.

        A broker whose name is taken is not ready for that reason.
        """
        most, now = 2 * self._period, monotonic()
        if not self._rounds or self._name_taken or any(now - at <= most for at in self._registered_at.values()):
            return None
        return f"no nameserver has registered this broker in the last {most:.0f} s: {'; '.join(self._rounds)}"

    @property
    def name_taken(self) -> Mapping[str, str]:
        """The nameservers that refuse this broker as another one has its name and id, and what they answered last."""
        return self._name_taken

    def advertise(self, address: str, ha_address: str) -> None:
        """Set the addresses to register."""
        self._address, self._ha_address = address, ha_address

    def seek(self, on_master: Callable[[str | None, str | None], None] | None) -> None:
        """As a slave, call ``on_master`` with what each nameserver answers: the master's HA address and its address,
        None if unknown. None as a master."""
        self._on_master = on_master
        self._lacks_master = on_master is not None

    def role_changed(self) -> None:
        """Register soon at every nameserver under the role of now, as what nobody knows yet."""
        self._topics.renew()  # nameservers ignore the topics of a version that they know
        self._changed_at = monotonic()
        self.announce_all()

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Register with every nameserver and keep registered; waits shortly for the first answers."""
        self._channels = Channels(signer=self._signer, tls=self._tls, on_lost=self._lost)
        self._began = monotonic()
        for nameserver in dict.fromkeys(self._config.nameservers):
            rounds = self._rounds[nameserver] = Rounds()
            self._keepers[nameserver] = self._tasks.start(
                f"registration at {nameserver}", self._keep(nameserver, rounds)
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ROUND):
                await self.register_changed()

    async def stop(self) -> None:
        """Unregister from every reachable nameserver, and register no more."""
        await end(self._keepers.values())
        self._keepers.clear()
        for rounds in self._rounds.values():
            rounds.end()
        if self._channels is not None:
            broker_id = self._role.broker_id
            if broker_id != MASTER_ID or not self._role.elected:
                await asyncio.gather(
                    *(self._unregister(nameserver, broker_id) for nameserver in self._channels.addresses())
                )
            await self._channels.close()
            self._channels = None
        self._registered.clear()
        for nameserver in tuple(self._name_taken):
            self._is_not_taken(nameserver)

    async def _keep(self, nameserver: str, rounds: Rounds) -> None:
        asked = True
        while True:
            if self._stands_back(nameserver):
                await rounds.rest(STAND_BACK * self._period)
            waiting = rounds.begin()
            try:
                done = await self._refresh(nameserver, rounds, asked)
            finally:
                release(waiting)
            watched = done and self._is_watched
            pause = RETRY_AFTER if not done or self._lacks_master else WATCH_EVERY if watched else self._period
            asked = True
            try:
                async with asyncio.timeout(pause):
                    await rounds.due.wait()
            except TimeoutError:
                asked = watched and await self._is_replaced(nameserver)
                if asked:
                    rounds.doubt()

    @property
    def _is_watched(self) -> bool:
        """Whether this master was elected a moment ago."""
        return self._role.epoch > 0 and monotonic() - self._changed_at < WATCHED

    async def _is_replaced(self, nameserver: str) -> bool:
        """Whether nobody, or somebody else, stands in the table as the master of this name."""
        try:
            return (await self._addresses_by(nameserver)).get(MASTER_ID) != self._address
        except Refused:
            return True
        except (RemotingError, ProtocolError):
            return False  # the next registration will tell

    def _stands_back(self, nameserver: str) -> bool:
        """Whether a nameserver that refused this broker was lost: when it is back, the name is its former holder's."""
        return (
            nameserver in self._name_taken and self._channels is not None and self._channels.ready(nameserver) is None
        )

    @property
    def _period(self) -> float:
        return min(max(self._config.register_name_server_period, 10_000), 60_000) / 1000

    def _lost(self, connection: Connection) -> None:
        """Register again soon: a nameserver forgets a broker whose connection ends."""
        for nameserver, rounds in self._rounds.items():
            if self._channels is not None and self._channels.ready(nameserver) is connection:
                rounds.due.set()

    # ------------------------------------------------------------------ registering

    def _changed(self, topic: str) -> None:
        for rounds in self._rounds.values():
            rounds.changed(topic)

    def announce(self) -> None:
        """Register soon what has changed, without waiting for answers (topics that were created by a send)."""
        for rounds in self._rounds.values():
            rounds.due.set()

    def announce_all(self) -> None:
        """Register the whole table soon, without waiting for answers."""
        for rounds in self._rounds.values():
            rounds.doubt()
            rounds.due.set()

    def have_topic(self, name: str, queues: int = 1, *, sys_flag: int = 0) -> TopicConfig:
        """The topic; one that does not exist is created with these queues, and announced."""
        config = self._topics.get(name)
        if config is None:
            config = self._topics.create_if_absent(name, queues, sys_flag=sys_flag)
            self.announce()
        return config

    async def register_changed(self) -> None:
        """Register what has changed, and wait until each nameserver has answered or cannot be asked."""
        await asyncio.gather(*(rounds.over() for rounds in self._rounds.values()))

    async def register_all(self) -> None:
        """Register the whole table, and wait as ``register_changed``."""
        self.announce_all()
        await self.register_changed()

    async def _refresh(self, nameserver: str, rounds: Rounds, asked: bool) -> bool:
        """Register what a nameserver lacks; the whole table if a period has passed, and nobody has ``asked``."""
        if not asked:
            if not self._config.force_register and not rounds.in_doubt and not await self._is_outdated(nameserver):
                return True
            rounds.doubt()
        done = await self._register(nameserver, rounds)
        if not done:
            rounds.doubt()
        return done

    async def _register(self, nameserver: str, rounds: Rounds) -> bool:
        if not self._may_register:
            return False
        if nameserver in self._masters and self._role.is_slave and not self._role.elected:
            await self._unregister(nameserver, MASTER_ID)  # as long as it is known as the master, nobody else is
            rounds.doubt()
        try:
            header = await self._ask(nameserver, rounds)
        except (RemotingError, Refused, ProtocolError) as error:
            self._failed(nameserver, error)
            return False
        if header is None:
            return False
        self._is_not_taken(nameserver)
        if header.broker_id == MASTER_ID:
            self._masters.add(nameserver)
        self._registered_at[nameserver] = monotonic()
        failed = self._repeats.over(nameserver)
        if nameserver not in self._registered:
            log.info("registered", nameserver=nameserver, address=self._address, **(failed or {}))
            self._registered.add(nameserver)
        return True

    async def _ask(self, nameserver: str, rounds: Rounds) -> RegisterBroker | None:
        """Send a registration, and hear the answer; None if there is nothing that may be sent.

        Raises RemotingError, Refused, ProtocolError.
        """
        assert self._channels is not None
        timeout, begun = self._config.register_broker_timeout_mills / 1000, monotonic()
        connection = await self._channels.get(nameserver, timeout=timeout)
        timeout -= monotonic() - begun
        if timeout <= 0:
            raise CallTimedOut(nameserver, f"<{nameserver}> was not connected in time to register there")
        changed = rounds.carried(connection)
        body = self._body() if changed is None else self._encode(chosen(changed, self._topics.table))
        if body is None or not self._may_register:
            return None
        header = self._header(body)
        answer = await connection.start_call(api.REGISTER_BROKER, header, body.content, timeout=timeout)
        self._hear_of_master(answer.header)
        if answer.body:
            self._topics.set_order(KVTable.decode(answer.body).table)
        return header

    @property
    def _may_register(self) -> bool:
        """Whether this is no elected master, or one that is sure."""
        return self._role.epoch == 0 or self.is_sure()

    def _failed(self, nameserver: str, error: Exception) -> None:
        if isinstance(error, Refused) and error.remark.startswith(NAME_TAKEN):
            self._is_taken(nameserver, error.remark)
        else:
            if not isinstance(error, RemotingError):
                self._is_not_taken(nameserver)
            again = self._repeats.failed(nameserver)
            if again is not None:
                log.warning("registration_failed", nameserver=nameserver, error=str(error), **again)
        self._registered.discard(nameserver)

    def _is_taken(self, nameserver: str, remark: str) -> None:
        """The broker is not ready; report it when it begins or changes, and then every registration period."""
        now = asyncio.get_running_loop().time()
        is_new = self._name_taken.get(nameserver) != remark
        self._name_taken[nameserver] = remark
        self._tasks.readiness.withdraw("name", remark)
        if is_new or now - self._name_taken_logged[nameserver] >= self._period:
            self._name_taken_logged[nameserver] = now
            log.error("name_taken", nameserver=nameserver, reason=remark)

    def _is_not_taken(self, nameserver: str) -> None:
        self._name_taken.pop(nameserver, None)
        if not self._name_taken:
            self._tasks.readiness.restore("name")

    def _hear_of_master(self, found: RegisterBrokerReply) -> None:
        if self._on_master is not None:
            self._lacks_master = self._lacks_master and not found.master_addr
            self._on_master(found.ha_server_addr or None, found.master_addr or None)

    async def _is_outdated(self, nameserver: str) -> bool:
        assert self._channels is not None
        try:
            answer = await self._channels.call(
                nameserver, api.QUERY_DATA_VERSION, self._identity(self._role.broker_id), self._version.encode()
            )
        except (RemotingError, Refused, ProtocolError):
            return True
        return answer.header.changed

    async def _unregister(self, nameserver: str, broker_id: int) -> None:
        assert self._channels is not None
        self._masters.discard(nameserver)
        ask = self._identity(broker_id)
        try:
            await self._channels.call(nameserver, api.UNREGISTER_BROKER, ask, timeout=UNREGISTER_TIMEOUT)
        except (RemotingError, Refused, ProtocolError) as error:
            log.warning("unregistration_failed", nameserver=nameserver, error=str(error))

    # ------------------------------------------------------------------ others of this name

    async def hosts_of_name(self) -> frozenset[str] | None:
        """The hosts of all brokers with this name, by all nameservers that answer; None if none does."""
        answers = await asyncio.gather(*(self._hosts_by(nameserver) for nameserver in self._rounds))
        found = [hosts for hosts in answers if hosts is not None]
        return frozenset().union(*found) if found else None

    async def _hosts_by(self, nameserver: str) -> frozenset[str] | None:
        try:
            addresses = await self._addresses_by(nameserver)
            return frozenset(split_address(address)[0] for address in addresses.values())
        except (RemotingError, Refused, ProtocolError, ValueError) as fault:
            log.warning("slaves_not_known", nameserver=nameserver, fault=str(fault))
            return None

    async def _addresses_by(self, nameserver: str) -> dict[int, str]:
        """The addresses of the brokers with this name, by their ids. Raises RemotingError, Refused, ProtocolError."""
        if self._channels is None:
            return {}
        name = self._config.broker_name
        answer = await self._channels.call(nameserver, api.GET_ROUTEINFO_BY_TOPIC, RouteOf(topic=name))
        route = TopicRouteData.decode(answer.body)
        return {
            number: address
            for data in route.broker_datas
            if data.broker_name == name
            for number, address in data.broker_addrs.items()
        }

    # ------------------------------------------------------------------ the request

    def _identity(self, broker_id: int) -> UnregisterBroker:
        config = self._config
        return UnregisterBroker(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.broker_cluster_name,
            broker_id=broker_id,
        )

    def _header(self, body: Registered) -> RegisterBroker:
        config = self._config
        return RegisterBroker(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=self._role.broker_id,
            compressed=body.compressed,
            body_crc32=body_crc32(body.content),
        )

    @property
    def _version(self) -> DataVersion:
        """The version of the topics as it is registered: with the epoch of an elected master."""
        version, epoch = self._topics.version, self._role.epoch
        if not epoch:
            return version
        return DataVersion(counter=version.counter, state_version=epoch, timestamp=version.timestamp)

    def _body(self) -> Registered | None:
        """The whole table; None, with one line in the log for each version, if no nameserver would take it."""
        state = (self._version, self._config.broker_permission)
        if self._encoded is None or self._encoded[0] != state:
            body = self._encode(self._topics.table)
            self._note(body)
            self._encoded = (state, body if len(body.content) <= LONGEST_REGISTRATION else None)
        return self._encoded[1]

    def _note(self, body: Registered) -> None:
        count, size = len(self._topics), len(body.content)
        if size > LONGEST_REGISTRATION:
            log.error(
                "registration_too_long",
                topics=count,
                size=size,
                most=LONGEST_REGISTRATION,
                remedy="no nameserver learns of this broker: delete unused topics",
            )
            return
        large = body.compressed and not self._config.compressed_register
        if large and not self._large:
            log.warning("registration_compressed", topics=count, size=size, lost="topicSysFlag of all topics")
        self._large = large

    def _encode(self, table: Mapping[str, TopicConfig]) -> Registered:
        permission = self._config.broker_permission
        if permission & READ_WRITE != READ_WRITE:
            table = {name: _with_permission(config, permission) for name, config in table.items()}
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                data_version=self._version, topic_config_table=dict(table)
            )
        )
        if not self._config.compressed_register and len(table) * SHORTEST_ENTRY <= COMPRESS_ABOVE:
            plain = body.encode()
            if len(plain) <= COMPRESS_ABOVE:
                return Registered(plain, compressed=False)
        return Registered(body.compress(), compressed=True)


def _with_permission(config: TopicConfig, permission: int) -> TopicConfig:
    return TopicConfig(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=permission,
    )
