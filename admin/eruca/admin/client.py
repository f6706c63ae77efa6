"""The connections of mqadmin to a cluster: nameservers, routes, brokers, one request at a time.

Owns the choice of the address for a request, and the sentence for a refusal. Must not know commands or print.
Requests time out after 5 seconds, heavy ones after 15 (DefaultMQAdminExt in 4.9.7). A nameserver that does not answer
costs half a second: the next one is asked beside it, and who answered is asked first from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from eruca.admin.errors import AdminError, BadValue, NoAnswer, NotFound, Partial, PeerRefused, TimedOut, UnknownGroup
from eruca.admin.text import nearest
from eruca.protocol import api
from eruca.protocol.api import Endpoint
from eruca.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerConnection,
    KVTable,
    SubscriptionGroupWrapper,
    TopicList,
    TopicRouteData,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Header
from eruca.protocol.headers import clients, routes
from eruca.protocol.names import is_retry_topic, retry_topic
from eruca.protocol.signature import Credentials
from eruca.remoting.addresses import whole_address
from eruca.remoting.calls import Answer
from eruca.remoting.channels import Channels
from eruca.remoting.errors import CallTimedOut, ConnectFailed, RemotingError
from eruca.remoting.tls import TlsWords

TIMEOUT = 5.0
"""Seconds for a request."""
HEAVY = 15.0
"""Seconds for a request that walks many queues or asks a client."""
AT_ONCE = 192
"""Requests that are under way at one peer at once; a broker lets 256 costly ones of a connection wait."""
_PROBE = 1.0
"""Seconds within which a peer answers an easy request while it works on a heavy one."""
PATIENCE = 0.5
"""Seconds until another nameserver is asked too."""
_SILENT_FOR = 1.0
"""Seconds for which a peer that did not answer is not asked again: a command that asks in steps waits for it once."""
_OF_MEMBERS = frozenset({api.GET_CONSUMER_RUNNING_INFO.code, api.CONSUME_MESSAGE_DIRECTLY.code})
"""Requests that a broker passes on to a member: if they time out, the broker need not hang."""
_PORT, _BROKER_PORT = 9876, 10911
"""The usual ports of a nameserver and of a broker."""

_TLS = TlsWords(
    on='JAVA_OPT="-Dtls.enable=true", or a context with --tls',
    off="-Dtls.enable=false, or a context without --tls",
    trust="tls.client.trustCertPath",
    certificate="tls.client.certPath and tls.client.keyPath",
    name="set tls.client.checkHostname=false",
)
"""What a person sets for mqadmin: Java properties."""

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)


class Admin:
    """Connections to a cluster; ``async with`` closes them.

    Reads try the ``nameservers`` in order until one answers; changes go to each of them. ``credentials`` sign the
    requests, and ``tls`` encrypts the connections, where they are given. ``timeout`` counts for all requests, in
    seconds; by default each kind has its own.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float | None = None,
    ) -> None:
        self._nameservers = list(nameservers)
        self._answered = self._nameservers[:1]
        self._late: set[str] = set()
        """Nameservers that did not answer while another one did: they are not waited for again."""
        self._timeout = timeout
        self.credentials = credentials
        self.tls = tls
        self._silent: dict[str, tuple[float, str]] = {}
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))
        """Those of each peer: one that hangs keeps no request from another."""
        self.channels = Channels(connect_timeout=3.0, offer=False, signer=credentials, tls=tls, tls_words=_TLS)

    @property
    def timeout(self) -> float | None:
        """Seconds for all requests; None where each kind has its own."""
        return self._timeout

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channels.close()

    @property
    def nameservers(self) -> list[str]:
        """The nameservers' addresses. Raises AdminError when none is known."""
        self.need_nameservers()
        return self._nameservers

    def need_nameservers(self) -> None:
        """Raise AdminError when no nameserver is known."""
        if not self._nameservers:
            raise AdminError("no nameserver is known: name one with -n host:port or set NAMESRV_ADDR")

    # ------------------------------------------------------------------ requests

    async def call(
        self,
        address: str,
        endpoint: Endpoint[A, R],
        header: A | None = None,
        body: bytes = b"",
        *,
        timeout: float = TIMEOUT,
    ) -> Answer[R]:
        """Send a request to one broker or nameserver. Raises PeerRefused or NoAnswer.

        Any number may be asked side by side; what is too many for a peer waits, and ``timeout`` counts from its turn. A
        peer that takes long for a heavy request has to answer an easy one meanwhile, else it hangs.
        """
        async with self._places[address]:
            return await self._ask(address, endpoint, header, body, timeout)

    async def _ask(
        self, address: str, endpoint: Endpoint[A, R], header: A | None, body: bytes, timeout: float
    ) -> Answer[R]:
        now = asyncio.get_running_loop().time
        until, sentence = self._silent.get(address, (0.0, ""))
        if now() < until:
            raise TimedOut(sentence)
        try:
            call = self.channels.call(address, endpoint, header, body, timeout=self._timeout or timeout)
            if self._timeout or timeout <= TIMEOUT:
                return await call
            return await self._while_it_answers(address, asyncio.create_task(call))
        except Refused as refused:
            if refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and address in self._nameservers:
                raise AdminError(f"{address} is no nameserver, but perhaps a broker: see -n") from None
            raise PeerRefused(refused.code, refused.remark, address) from None
        except ConnectFailed as error:
            registered = error.unreachable and address not in self._nameservers
            advice = " (a broker registers its brokerIP1)" if registered else ""
            raise NoAnswer(f"{error}; see whether it runs and whether the address is right{advice}") from None
        except CallTimedOut as error:
            if endpoint.code not in _OF_MEMBERS:
                self._silent[address] = (now() + _SILENT_FOR, str(error))
            raise TimedOut(str(error)) from None
        except RemotingError as error:
            raise NoAnswer(str(error)) from None
        except ProtocolError as error:
            raise NoAnswer(f"{address} answered what cannot be read: {error}") from None

    async def _while_it_answers(self, address: str, call: asyncio.Task[Answer[R]]) -> Answer[R]:
        """The answer of a heavy request. Raises what it raises, and RemotingError for a peer that hangs."""
        try:
            done, _ = await asyncio.wait([call], timeout=TIMEOUT - _PROBE)
            if not done:
                with contextlib.suppress(Refused, ProtocolError):
                    await self.channels.call(address, api.GET_BROKER_RUNTIME_INFO, timeout=_PROBE)
            return await call
        finally:
            call.cancel()

    async def call_nameserver(self, endpoint: Endpoint[A, R], header: A | None = None) -> Answer[R]:
        """Send a request to the first nameserver that answers. Raises PeerRefused or NoAnswer."""
        waiting = list(dict.fromkeys([*self._answered, *self.nameservers]))
        asked: dict[asyncio.Task[Answer[R]], str] = {}
        failed: NoAnswer | None = None
        try:
            while waiting or asked:
                if waiting:
                    address = waiting.pop(0)
                    asked[asyncio.create_task(self.call(address, endpoint, header))] = address
                patience = PATIENCE if waiting else None
                done, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    address = asked.pop(task)
                    error = task.exception()
                    if isinstance(error, NoAnswer):
                        failed = failed or error
                        continue
                    self._answered = [address]
                    self._late.update(asked.values())
                    return task.result()
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise failed or NoAnswer("no nameserver answered")

    async def call_nameservers(
        self, endpoint: Endpoint[A, R], header: A | None = None, body: bytes = b""
    ) -> list[Answer[R]]:
        """Send a request to every nameserver. Raises Partial if some have done it, else what all of them said.

        That is PeerRefused, NoAnswer, or AdminError where they said different things.
        """
        calls = (self.call(address, endpoint, header, body) for address in self.nameservers)
        results = await asyncio.gather(*calls, return_exceptions=True)
        done, failures, answers = [], [], []
        for address, result in zip(self.nameservers, results, strict=True):
            if isinstance(result, AdminError):
                failures.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                done.append(address)
                answers.append(result)
        if failures and done:
            raise Partial(f"only {', '.join(done)} did it: {'; '.join(map(str, failures))}")
        if len({type(each) for each in failures}) > 1:
            raise AdminError("; ".join(map(str, failures)))
        if failures:
            raise failures[0]
        return answers

    # ------------------------------------------------------------------ routes

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic, from one nameserver that knows it. Raises as ``whole_route``."""
        try:
            answer = await self.call_nameserver(api.GET_ROUTEINFO_BY_TOPIC, routes.RouteOf(topic=topic))
        except PeerRefused as refused:
            if len(self.nameservers) == 1:
                raise await self._with_names_like(topic, refused) from None
            return await self.whole_route(topic)  # that one may have just started
        return TopicRouteData.decode(answer.body)

    async def whole_route(self, topic: str) -> TopicRouteData:
        """The route of a topic as all nameservers know it together: one that has just started may lack brokers.

        Raises PeerRefused(17) for a topic that none of them knows, with names that are like it.
        """
        try:
            return _joined(await self._views_of(topic))
        except PeerRefused as refused:
            raise await self._with_names_like(topic, refused) from None

    async def _with_names_like(self, topic: str, refused: PeerRefused) -> PeerRefused:
        if refused.code != ResponseCode.TOPIC_NOT_EXIST or is_retry_topic(topic):
            return refused
        like = nearest(topic, [each for each in await self.all_topics() if not is_retry_topic(each)])
        return PeerRefused(refused.code, f"{_first_line(refused.remark)}{like}", refused.address)

    async def _views_of(self, topic: str) -> list[TopicRouteData]:
        """The routes of all nameservers that know a topic; those half a second behind the others are left out.

        Raises PeerRefused or NoAnswer where there is none.
        """
        request = routes.RouteOf(topic=topic)
        places = [each for each in self.nameservers if each not in self._late] or self.nameservers
        asks = {asyncio.create_task(self.call(each, api.GET_ROUTEINFO_BY_TOPIC, request)): each for each in places}
        waiting = set(asks)
        try:
            while waiting and all(each in waiting or isinstance(each.exception(), NoAnswer) for each in asks):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                _, waiting = await asyncio.wait(waiting, timeout=PATIENCE)
            self._late.update(asks[each] for each in waiting)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
        errors = [error for each in asks if each not in waiting and (error := each.exception()) is not None]
        found = [each.result() for each in asks if each not in waiting and each.exception() is None]
        if not found:
            raise min(errors, key=lambda error: isinstance(error, NoAnswer))
        return [TopicRouteData.decode(answer.body) for answer in found]

    async def brokers_of(self, topic: str) -> list[tuple[str, str]]:
        """Name and an address (the master's where there is one) of each broker of a topic."""
        return broker_addresses(await self.route(topic))

    async def brokers_of_group(self, group: str) -> list[tuple[str, str]]:
        """The brokers that know a consumer group, by the route of its retry topic. Raises as ``route_of_group``."""
        return broker_addresses(await self.route_of_group(group))

    async def route_of_group(self, group: str) -> TopicRouteData:
        """The route of a group's retry topic. Raises UnknownGroup with what is true of a group that has none."""
        try:
            return await self.route(retry_topic(group))
        except PeerRefused as refused:
            if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            what = await self._without_route(group)
            raise UnknownGroup(17, f"{_first_line(refused.remark)}: {what}", refused.address) from None

    async def _without_route(self, group: str) -> str:
        """Why a group has no retry topic: it is new, it was deleted, or there is none of this name (201, 203).

        Raises Partial where that is not known, because a broker does not answer.
        """
        brokers = {
            name: address
            for name, broker in (await self.clusters()).broker_addr_table.items()
            if (address := some_address(broker)) is not None
        }
        found = await asyncio.gather(*(self._group_at(address, group) for address in brokers.values()))
        groups = {name: known or set() for name, (known, _) in zip(brokers, found, strict=True)}
        members = sorted({each for _, online in found for each in online})
        having = sorted(name for name, known in groups.items() if group in known)
        silent = sorted(name for name, (known, _) in zip(brokers, found, strict=True) if known is None)
        if silent and not having and not members:
            raise Partial(
                f"no broker that answers knows the consumer group {group}; no answer from {', '.join(silent)}"
            )
        if having and not members:
            return f"the group {group} exists at {', '.join(having)}, but no member of it has ever connected"
        if members:
            return (
                f"the group {group} was deleted while its members go on: {', '.join(members)}; stop them, or create it "
                "again with updateSubGroup"
            )
        return f"no broker knows the consumer group {group}{nearest(group, sorted(set().union(*groups.values())))}"

    async def _group_at(self, address: str, group: str) -> tuple[set[str] | None, list[str]]:
        """The names of all groups of a broker, and the members that it knows of one; None if it is silent."""
        try:
            answer = await self.call(address, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            known = set(SubscriptionGroupWrapper.decode(answer.body).subscription_group_table)
        except (AdminError, ProtocolError):
            return None, []
        try:
            members = await self.call(
                address, api.GET_CONSUMER_CONNECTION_LIST, clients.OfConsumerGroup(consumer_group=group)
            )
            online = [each.client_id for each in ConsumerConnection.decode(members.body).connection_set]
        except (AdminError, ProtocolError):
            online = []
        return known, online

    async def all_topics(self) -> list[str]:
        """The names of all topics."""
        answer = await self.call_nameserver(api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return TopicList.decode(answer.body).topic_list

    # ------------------------------------------------------------------ clusters

    async def clusters(self) -> ClusterInfo:
        """All clusters and brokers."""
        return ClusterInfo.decode((await self.call_nameserver(api.GET_BROKER_CLUSTER_INFO)).body)

    async def brokers_in(self, cluster: str) -> list[BrokerData]:
        """The brokers of a cluster, by name. Raises NotFound for an unknown cluster."""
        info = await self.clusters()
        names = info.cluster_addr_table.get(cluster)
        if names is None:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NotFound(f"there is no cluster {cluster}; the nameserver knows: {known}")
        return [info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table]

    async def masters(self, cluster: str) -> list[str]:
        """The addresses of the masters of a cluster. Raises NotFound for an unknown cluster."""
        return [address for broker in await self.brokers_in(cluster) if (address := broker.master())]

    async def addresses(self, cluster: str) -> list[str]:
        """The addresses of the masters and slaves of a cluster. Raises NotFound for an unknown cluster."""
        return [
            address for broker in await self.brokers_in(cluster) for _, address in sorted(broker.broker_addrs.items())
        ]

    async def broker_name_at(self, address: str) -> str:
        """The name of the broker that has an address. Raises NotFound when no broker has it."""
        for broker in (await self.clusters()).broker_addr_table.values():
            if address in broker.broker_addrs.values():
                return broker.broker_name
        raise NotFound(f"the nameserver knows no broker at {address}: mqadmin clusterList shows the addresses")

    async def runtime(self, address: str) -> dict[str, str]:
        """The runtime info of a broker."""
        return KVTable.decode((await self.call(address, api.GET_BROKER_RUNTIME_INFO)).body).table


def nameserver_addresses(text: str) -> list[str]:
    """The nameservers of ``host:port;host:port``; commas are taken too, and a host without a port has 9876.

    Raises BadValue for what is no address.
    """
    found = []
    for each in filter(None, map(str.strip, text.replace(",", ";").split(";"))):
        if "://" in each:
            raise BadValue(f"a nameserver is named as host:port, without '{each.partition('://')[0]}://'")
        try:
            found.append(whole_address(each, _PORT))
        except ValueError as fault:
            raise BadValue(f"'{each[:80]}' is no address of a nameserver: {fault}") from None
    return list(dict.fromkeys(found))


def check_address(text: str, named: str) -> None:
    """Raise BadValue, which begins with ``named``, for what is no address of one broker; its port is not guessed."""
    try:
        if "://" in text:
            raise ValueError(f"leave out '{text.partition('://')[0]}://'")
        if ";" in text or "," in text:
            raise ValueError("give one address")
        whole_address(text, _BROKER_PORT)
        if ":" not in text or text.endswith("]"):
            raise ValueError(f"add the port, as in {text}:{_BROKER_PORT}; mqadmin clusterList shows the addresses")
    except ValueError as fault:
        raise BadValue(f"{named}: '{text[:80]}' is no address: {fault}") from None


def some_address(broker: BrokerData) -> str | None:
    """The master's address, else the address of the slave with the lowest id."""
    addresses = broker.broker_addrs
    return addresses[min(addresses)] if addresses else None


def broker_addresses(route: TopicRouteData) -> list[tuple[str, str]]:
    """Name and an address of each broker of a route."""
    return [(broker.broker_name, address) for broker in route.broker_datas if (address := some_address(broker))]


def _joined(views: Sequence[TopicRouteData]) -> TopicRouteData:
    """What several nameservers know of a topic; of what they know differently, the first one's."""
    route = views[0]
    brokers = {each.broker_name: each for each in route.broker_datas}
    queues = {each.broker_name for each in route.queue_datas}
    for view in views[1:]:
        for each in view.broker_datas:
            known = brokers.setdefault(each.broker_name, each)
            known.broker_addrs = {**each.broker_addrs, **known.broker_addrs}
        more = [each for each in view.queue_datas if each.broker_name not in queues]
        route.queue_datas += more
        queues |= {each.broker_name for each in more}
    route.broker_datas = list(brokers.values())
    return route


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].strip()
