"""What the clients of one event loop share: connections, routes, heartbeats, and the client id that names them.

Owns the groups of which this process has members, and sends heartbeats to brokers: every ``heartbeat_interval``,
and at once when a connection to a broker is new, so that a restarted broker knows its clients before they call it.
Knows nothing of messages. Invariant: the members of one consumer group in a process never share a client id.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ssl
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from eruca.client.bounds import left, unbounded
from eruca.client.config import ClientSettings
from eruca.client.errors import (
    BadConfig,
    BrokerNotFound,
    ClientError,
    ForkedClient,
    StateError,
    TopicNotFound,
    translate,
)
from eruca.client.log import Warnings, log
from eruca.client.namespaces import Names
from eruca.client.network import identity, pushed
from eruca.client.network.directory import Directory
from eruca.client.network.events import BackgroundError, EventListeners, Events
from eruca.client.network.nameservers import Nameservers
from eruca.client.network.presence import Presence
from eruca.client.network.requests import Requests
from eruca.client.network.silence import Silence
from eruca.protocol import api, frame
from eruca.protocol.bodies import ClusterInfo, ConsumerData, ConsumerIdList, HeartbeatData, ProducerData
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Header
from eruca.protocol.headers.clients import OfConsumerGroup, UnregisterClient
from eruca.protocol.queues import MessageQueue
from eruca.protocol.templates import read_stored_binary, read_stored_json
from eruca.remoting import (
    Answer,
    BadTls,
    CallTimedOut,
    Channels,
    ConnectFailed,
    Connection,
    RemotingError,
    Router,
    Tls,
    TlsFiles,
)
from eruca.remoting.addresses import local_address, vip_address
from eruca.remoting.calls import answers_together
from eruca.remoting.loop import fork_count
from eruca.remoting.shared_tasks import SharedTasks

if TYPE_CHECKING:
    from eruca.client.network.lost_brokers import LostBrokers

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)
_READERS = {frame.JSON: read_stored_json, frame.ROCKETMQ: read_stored_binary}
"""What reads plain answers to sends, which often come many at once."""
LOOK_AT_LOOP = 0.2
"""Seconds between two looks whether the event loop stood still."""
MEETING = 0.5
"""Seconds that a call waits at most until all brokers have the heartbeat; slow ones get it in the background."""


class ConsumerMember(pushed.Reachable, Protocol):
    """A consumer as its session sees it: what heartbeats say of it, and what brokers may ask it."""

    def describe(self) -> ConsumerData:
        """This consumer in heartbeats."""

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it has now."""

    def routes_changed(self, topic: str) -> None:
        """A route it needs is another one now."""


reconnects: Counter[str] = Counter()
"""How often the clients of this process connected to a broker, by its address, once more."""
_open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[Session]] = weakref.WeakKeyDictionary()


class Session:
    """The shared part of the clients with equal settings on one event loop. Use ``Session.join`` and ``leave``."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.address = settings.client_ip or local_address()
        self.client_id = identity.client_id(self.address, settings.instance_name, settings.unit_name)
        self.names = Names(settings.namespace, unit_mode=settings.unit_mode)
        self.channels = Channels(
            Router(self, [pushed.routes], fast_path=answers_together(_READERS)),
            connect_timeout=settings.connect_timeout,
            serialization=frame.ROCKETMQ if settings.header == "ROCKETMQ" else frame.JSON,
            offer=settings.header == "MSGPACK",
            signer=settings.credentials,
            rename=self.names.header if self.names.rename else None,
            tls=_security(settings.tls),
            server_name=settings.tls.server_name if isinstance(settings.tls, Tls) else None,
            tls_words=settings.tls_words,
        )
        self.nameservers = Nameservers(
            settings.nameserver_list(),
            self.channels,
            timeout=settings.request_timeout,
            url=settings.list_url(),
        )
        self.directory = Directory(
            self.nameservers,
            changed=self._route_changed,
            found=self._found_topic,
            gone=lambda name: self.presence.gone(name),
            spawn=self.spawn,
        )
        self.silence = Silence(self.channels, self.directory, self.spawn, notified_by=self._notified_by)
        self.consumers: dict[str, ConsumerMember] = {}
        self.events = Events(settings.waits.event_listener)
        self._lost_brokers: LostBrokers | None = None
        self.presence = Presence(self.directory.broker_at, self._queues_at, self.events.tell)
        self.transactional: dict[str, list[pushed.CheckListener]] = {}
        """The producers that answer checks of transactions, by group; the newest one answers."""
        self.requests = Requests(settings.max_body)
        self.forks = fork_count()
        self.thread = threading.get_ident()
        self._producers: dict[str, int] = {}
        self.greeted: set[Connection] = set()
        """Connections to brokers that know this client."""
        self._met: set[str] = set()
        """Addresses of brokers that it was connected to."""
        self._greeting: SharedTasks[str, None] = SharedTasks()
        self._meets_all = False
        self._watches_loop = False
        self._warnings = Warnings()
        self._users = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # ------------------------------------------------------------------ joining and leaving

    @classmethod
    def join(
        cls,
        settings: ClientSettings,
        consumer_group: str | None = None,
        member: ConsumerMember | None = None,
        listeners: EventListeners | None = None,
    ) -> Session:
        """The session for ``settings`` on the running loop; another one where the group has a member already.

        ``member`` becomes the member of the group; ``listeners`` are called until the client leaves. Raises
        NoNameserver and BadConfig for what the environment gives.
        """
        settings = settings.found()
        for loop in [each for each in _open if each.is_closed()]:
            for session in _open.pop(loop):  # of clients that nobody stopped: now their sockets can be closed
                session._tell_left_behind()
        sessions = _open.setdefault(asyncio.get_running_loop(), [])
        for session in sessions:
            if session.settings == settings and session.forks == fork_count():
                if consumer_group is None or consumer_group not in session.consumers:
                    break
                if settings.instance_name != "DEFAULT":
                    raise StateError(
                        f"The consumer group[{consumer_group}] has been created before under the instance name "
                        f"{settings.instance_name}: give each member an instance_name of its own, or leave it out "
                        "where the group does not broadcast."
                    )
        else:
            session = cls(settings)
            sessions.append(session)
            session.spawn(session.nameservers.look_for_one())
            session.spawn(session._refresh_routes())
            if session.nameservers.may_change:
                session.spawn(session._refresh_nameservers())
            session.spawn(session._beat())
        session._users += 1
        session.events.add(listeners)
        if consumer_group is not None and member is not None:
            if not session._watches_loop:
                session._watches_loop = True
                session.spawn(session._watch_loop())
            session.consumers[consumer_group] = member
        return session

    async def leave(self, listeners: EventListeners | None = None) -> None:
        """End the use of this session; the last one to leave closes the connections."""
        self.events.remove(listeners)
        self._users -= 1
        if self._users:
            return
        with contextlib.suppress(KeyError, ValueError):
            _open[asyncio.get_running_loop()].remove(self)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.silence.close()
        if self._lost_brokers is not None:
            await self._lost_brokers.close()
        await self.events.close()
        await self._greeting.close()
        await self.directory.close()
        await self.channels.close()

    @property
    def closed(self) -> bool:
        """Whether the last client has left."""
        return not self._users

    @property
    def troubles(self) -> tuple[str, ...]:
        """Why what this session does is not to be relied upon, as sentences; may be asked in any thread."""
        try:
            self.check_fork()
        except ForkedClient as error:
            return (str(error),)
        if not self.loop.is_running():
            return ("The event loop in which this client was started does not run.",)
        if not self.nameservers.reached:
            why = self.nameservers.last_failure or ", ".join(self.nameservers.addresses)
            return (f"No nameserver has answered yet: {why}",)
        return self.presence.reasons

    def _tell_left_behind(self) -> None:
        """Warn of the consumers that nobody stopped; a producer does so itself."""
        if self.forks == fork_count():
            for group in self.consumers:
                warnings.warn(
                    f"The consumer {group} was not stopped: use `async with` (`with` in eruca.client.sync), or call "
                    "stop().",
                    ResourceWarning,
                    stacklevel=2,
                )

    def check_here(self) -> None:
        """Raise StateError in another thread or event loop than this session's, ForkedClient in a forked child."""
        self.check_fork()
        # Cheaper than to ask which loop runs: of those of one thread only one does.
        if threading.get_ident() != self.thread or not self.loop.is_running():
            raise StateError(
                "This client belongs to the event loop in which it was started, and that one does not run here. Make "
                "another client for another loop; in threads use eruca.client.sync or asyncio.run_coroutine_threadsafe."
            )

    def check_fork(self) -> None:
        """Raise ForkedClient in a child of the process that made this session."""
        if self.forks != fork_count():
            raise ForkedClient(
                "This client was made before a fork: its connections belong to the parent process. "
                "Make the client in the process that uses it (in the worker, not in the module that forks)."
            )

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in the background until this session closes."""
        task = asyncio.get_running_loop().create_task(work, context=unbounded())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            text, error = "background task of the client failed", task.exception()
            log.error(text, exc_info=error)
            self._tell(text, error, datetime.now(UTC))

    # ------------------------------------------------------------------ members

    async def add_producer(self, group: str) -> None:
        """Make this client a member of a producer group."""
        self._producers[group] = self._producers.get(group, 0) + 1
        if self._producers[group] == 1:
            await self.beat()

    async def remove_producer(self, group: str) -> None:
        """End the membership, and unregister it at the brokers."""
        self._producers[group] -= 1
        if not self._producers[group]:
            del self._producers[group]
            await self._unregister(producer_group=group)

    async def add_consumer(self, group: str, member: ConsumerMember) -> None:
        """Make ``member`` this client's member of a consumer group; every broker of its topics gets a heartbeat."""
        self.consumers[group] = member
        for topic in sorted(member.topics()):
            with contextlib.suppress(TopicNotFound):
                await self.directory.route(topic)
        await self.beat()

    async def remove_consumer(self, group: str) -> None:
        """End the membership, and unregister it at the brokers."""
        if self.consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        ask = UnregisterClient(client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group)
        calls = [
            connection.start_call(api.UNREGISTER_CLIENT, ask, timeout=self.settings.request_timeout)
            for address in self.directory.addresses(with_slaves=True)
            if (connection := self.channels.ready(address)) is not None
        ]
        await asyncio.gather(*calls, return_exceptions=True)

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=self.names.to_broker(each)) for each in sorted(self._producers)],
            consumer_data_set=[self.names.consumer(each.describe()) for _, each in sorted(self.consumers.items())],
        )

    async def beat(self) -> None:
        """Send a heartbeat with this client's groups to every known broker now; unreachable ones are left out."""
        if self._producers or self.consumers:
            addresses = self.directory.addresses(with_slaves=bool(self.consumers))
            await asyncio.gather(*(self._greet(address) for address in addresses), return_exceptions=True)

    async def meet_all(self) -> None:
        """From now on send heartbeats to all brokers of the cluster, also new ones and those of unused topics."""
        self._meets_all = True
        await asyncio.wait({self.spawn(self._meet())}, timeout=MEETING)

    async def _meet(self) -> None:
        if self._meets_all:
            try:
                self.directory.learn(await self.cluster())
            except ClientError as error:
                self.warn(self, f"the brokers that get heartbeats cannot be looked up: {error}", error)
            else:
                self.forget_warning(self)
        await self.beat()

    async def meet_now(self) -> None:
        """Wait until each known master has answered a heartbeat. Raises ClientError."""
        addresses = self.directory.addresses(with_slaves=False)
        try:
            await asyncio.gather(*(self._greet(address) for address in addresses))
        except (Refused, RemotingError, ProtocolError) as error:
            raise translate(error) from error

    async def _greet_once(self, address: str) -> None:
        """Send a heartbeat to a broker, one at a time; who comes meanwhile gets the result of that one."""
        await self._greeting.result(address, partial(self._greet, address))

    async def _greet(self, address: str) -> None:
        try:
            connection = await self.channels.get(address, timeout=self.settings.connect_timeout)
        except ConnectFailed as error:
            if address in self.directory.addresses(with_slaves=True):  # else its broker has moved, or left, meanwhile
                self.presence.lost(address, str(error).rpartition("failed: ")[2])
            raise
        self.presence.back(address)
        if connection not in self.greeted:
            self.greeted.add(connection)
            if address in self._met:
                reconnects[address] += 1
            self._met.add(address)
            connection.on_close(partial(self._connection_ended, address))
        asked = self.loop.time()
        refused: Refused | None = None
        self.silence.watch()
        try:
            for part in self._heartbeat().parts():
                try:
                    await connection.call(api.HEART_BEAT, body=part.encode(), timeout=self.settings.request_timeout)
                except Refused as error:
                    # What is wrong with one group must not keep the others from their work; each request reports for
                    # itself.
                    refused = error
        except (RemotingError, ProtocolError) as error:
            self.greeted.discard(connection)
            broker = self.directory.broker_at(address)[0]
            self.warn(address, f"the heartbeat to {address} failed: {error}", translate(error), broker=broker)
            if isinstance(error, CallTimedOut) and connection.last_active <= asked:
                self.presence.silent(address)
                connection.abort()  # its other end may be gone; the next call opens another one
            raise
        self.presence.answered(address)
        if refused is not None:
            why, broker = translate(refused), self.directory.broker_at(address)[0]
            self.warn(address, f"the heartbeat was refused by {address}: {why}", why, broker=broker)
        else:
            self._warnings.forget(address)

    def _notified_by(self, address: str) -> bool:
        """Whether the broker there notifies this client of changes: it knows members of groups."""
        return bool(self.consumers) and self.channels.ready(address) in self.greeted

    def _connection_ended(self, address: str, connection: Connection) -> None:
        self.greeted.discard(connection)
        if self.events.wanted:
            if self._lost_brokers is None:
                from eruca.client.network.lost_brokers import LostBrokers  # few clients listen to events

                self._lost_brokers = LostBrokers(self._greet_once, self._is_missed)
            self._lost_brokers.look_for(address)

    def _is_missed(self, address: str) -> bool:
        return self.channels.ready(address) is None and address in self.directory.addresses(with_slaves=True)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat_interval)
            await self._meet()

    # ------------------------------------------------------------------ asking brokers

    def ready(self, address: str) -> Connection | None:
        """The connection to a broker that knows this client already, if there is one."""
        connection = self.channels.ready(address)
        if connection is None or connection in self.greeted or not (self._producers or self.consumers):
            return connection
        return None

    async def connection(self, address: str) -> Connection:
        """A connection to a broker that knows of this client's groups. Raises ClientError."""
        connection = self.ready(address)
        if connection is not None:
            return connection
        self.check_fork()
        try:
            if self._producers or self.consumers:
                await self._greet_once(address)
            return await self.channels.get(address, timeout=self.settings.connect_timeout)
        except (Refused, RemotingError, ProtocolError) as error:
            raise translate(error) from error

    def doubt(self, address: str | None) -> None:
        """An answer did not come in time: a heartbeat finds out whether that broker is there at all.

        A connection can be dead without being closed, after a power failure or when a firewall dropped it; the system
        itself closes it after a quarter of an hour.
        """
        if address is not None and self.channels.ready(address) is not None:
            self._greeting.start(address, partial(self._greet, address))

    async def call(
        self, address: str, endpoint: api.Endpoint[A, R], ask: A | None = None, body: bytes = b"", *, timeout: float = 0
    ) -> Answer[R]:
        """Ask a broker; ``timeout`` in seconds, 0 for the request_timeout of the settings. Raises ClientError."""
        connection = await self.connection(address)
        self.silence.watch()
        try:
            return await connection.call(endpoint, ask, body, timeout=left(timeout or self.settings.request_timeout))
        except (Refused, RemotingError, ProtocolError) as error:
            if isinstance(error, CallTimedOut):
                self.doubt(address)
            raise translate(error) from error

    async def master(self, broker: str, topic: str | None = None) -> str:
        """The address of a broker's master, as ``Directory.master``."""
        return await self.directory.master(broker, topic)

    async def to_send(self, broker: str, topic: str) -> str:
        """Where messages for a broker are sent to: its master, by the second port if so set. Raises BrokerNotFound."""
        address = await self.directory.master(broker, topic)
        return vip_address(address) if self.settings.vip_channel else address

    def to_send_now(self, broker: str) -> str | None:
        """As ``to_send``, as far as it is known."""
        address = self.directory.masters.get(broker)
        return vip_address(address) if address is not None and self.settings.vip_channel else address

    async def members(self, group: str, topic: str) -> list[str]:
        """The client ids of a consumer group, by a broker of the topic (38). Raises ClientError."""
        route = await self.directory.route(topic)
        failed: ClientError = BrokerNotFound(topic)
        for broker in route.brokers:
            try:
                address = await self.directory.reader(broker)
                answer = await self.call(address, api.GET_CONSUMER_LIST_BY_GROUP, OfConsumerGroup(consumer_group=group))
            except ClientError as error:
                failed = error
            else:
                return ConsumerIdList.decode(answer.body).consumer_id_list
        raise failed

    def _route_changed(self, topic: str) -> None:
        for member in tuple(self.consumers.values()):
            if topic in member.topics():
                member.routes_changed(topic)

    def _queues_at(self, broker: str) -> Mapping[str, tuple[MessageQueue, ...]]:
        """The queues of a broker that each group has here."""
        found = {
            group: tuple(queue for queue in member.queues if queue.broker_name == broker)
            for group, member in self.consumers.items()
        }
        return {group: queues for group, queues in found.items() if queues}

    def warn(
        self,
        about: object,
        text: str,
        error: BaseException | None = None,
        *,
        group: str | None = None,
        topic: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Background work failed: log a warning, and tell it as an event, unless both were done in the last minute.

        ``about`` is the subject; ``error`` what was raised; what is given of the others goes beside the text.
        """
        named = {"group": group, "topic": topic, "broker": broker}
        began = self._warnings.warn(about, text, **{name: value for name, value in named.items() if value is not None})
        if began is not None:
            self._tell(text, error, began, group, topic, broker)

    def _tell(
        self,
        text: str,
        error: BaseException | None,
        since: datetime,
        group: str | None = None,
        topic: str | None = None,
        broker: str | None = None,
    ) -> None:
        if self.events.wanted:
            self.events.tell(
                BackgroundError(reason=text, error=error, group=group, topic=topic, broker=broker, since=since)
            )

    def forget_warning(self, about: object) -> None:
        """What was warned of is over."""
        self._warnings.forget(about)

    def _found_topic(self, topic: str) -> None:
        """A topic exists that this client's messages created: other sessions whose consumers wait for it look it up."""
        for session in _open.get(self.loop, ()):
            if session is not self and any(topic in each.topics() for each in session.consumers.values()):
                session.directory.look_again(topic)

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.settings.route_interval)
            await self.directory.refresh_all({topic for each in self.consumers.values() for topic in each.topics()})

    async def _refresh_nameservers(self) -> None:
        while True:
            await asyncio.sleep(self.settings.nameserver_interval)
            await self.nameservers.refresh()

    async def _watch_loop(self) -> None:
        """Warn when the event loop stood still, from before the first message on."""
        while True:
            asleep = self.loop.time()
            await asyncio.sleep(LOOK_AT_LOOP)
            late = self.loop.time() - asleep - LOOK_AT_LOOP
            if late > self.settings.waits.standstill:
                log.warning(
                    "the event loop stood still for %.1f s, and with it pulls, heartbeats and listeners: a coroutine "
                    "must not block or compute for long; a listener that is a plain function runs in threads",
                    late,
                    extra={"seconds": round(late, 1)},
                )

    async def cluster(self) -> ClusterInfo:
        """All brokers and clusters (106). Raises ClientError."""
        try:
            answer = await self.nameservers.call(api.GET_BROKER_CLUSTER_INFO)
            return ClusterInfo.decode(answer.body)
        except (Refused, ProtocolError) as error:
            raise translate(error) from error


@atexit.register
def _tell_left_behind() -> None:
    for sessions in [*_open.values()]:
        for session in sessions:
            session._tell_left_behind()


def _security(tls: Tls | ssl.SSLContext | None) -> TlsFiles | ssl.SSLContext | None:
    if not isinstance(tls, Tls):
        return tls
    try:
        return TlsFiles(tls)
    except BadTls as error:
        raise BadConfig(f"TLS cannot be used: {error}.") from None
