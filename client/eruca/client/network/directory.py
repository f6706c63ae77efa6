"""Where topics and brokers are, as far as one client knows.

Owns the routes and the addresses of brokers, asked of the nameservers when they are first needed and again every
``route_interval``; callers that need the same route share one request. What was known stays known when a nameserver
is away or has forgotten it. Facts: MQClientInstance.updateTopicRouteInfoFromNameServer in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from eruca.client.errors import BrokerNotFound, BrokerRefused, ClientError, TopicNotFound, translate
from eruca.client.log import log
from eruca.client.namespaces import RouteOfStored
from eruca.client.network.nameservers import Nameservers
from eruca.client.network.routes import MASTER, Route, address_to_read, build_provisional_route, build_route
from eruca.protocol import api
from eruca.protocol.bodies import ClusterInfo, TopicRouteData
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.headers.routes import RouteOf
from eruca.protocol.names import DEFAULT_TOPIC
from eruca.remoting.shared_tasks import SharedTasks

EXPECT_FIRST = 0.002
"""Seconds until the second look for a topic that a broker has created; then twice as long each time ..."""
EXPECT_MOST = 0.05
"""... up to this."""
EXPECT_FOR = 2.0
"""Seconds after which such a topic is left to the regular looks."""


class Directory:
    """Routes by topic and addresses by broker.

    ``changed`` is called with each topic whose route has changed, ``found`` with each that messages of this client have
    created, ``gone`` with each broker that no route names any more; ``spawn`` runs something in the background.
    """

    def __init__(
        self,
        nameservers: Nameservers,
        *,
        changed: Callable[[str], None],
        found: Callable[[str], None],
        gone: Callable[[str], None],
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        self.routes: dict[str, Route] = {}
        """The routes that nameservers gave; look only, and ask with ``route``."""
        self.provisional: dict[str, Route] = {}
        """Where messages for topics go that were not there when they were sent to; for producers only. Such a route
        stays, beside that in ``routes``, until the next regular look: so all brokers create the topic."""
        self.masters: dict[str, str] = {}
        """The address of each broker's master as far as it is known; look only."""
        self.version = 0
        """Another number whenever routes or addresses may be others."""
        self._nameservers = nameservers
        self._changed = changed
        self._found = found
        self._gone = gone
        self._spawn = spawn
        self._brokers: dict[str, dict[int, str]] = {}
        self._names: dict[str, str] = {}
        """The broker at each address that was ever given; one that has moved keeps its former addresses."""
        self._in_cluster: set[str] = set()
        self._fetching: SharedTasks[str, Route] = SharedTasks()
        self._expected: set[str] = set()
        """Topics that brokers have created, but of which nameservers did not know yet."""

    def addresses(self, *, with_slaves: bool) -> list[str]:
        """The addresses of all known brokers."""
        return sorted(
            {
                address
                for brokers in self._brokers.values()
                for number, address in brokers.items()
                if with_slaves or number == MASTER
            }
        )

    def knows(self, broker: str) -> bool:
        """Whether a route or a cluster has named this broker."""
        return broker in self._brokers

    def broker_at(self, address: str) -> tuple[str, int]:
        """Name and id of the broker at an address; the address itself in place of a name that is not known."""
        for name, brokers in self._brokers.items():
            for number, known in brokers.items():
                if known == address:
                    return name, number
        return address, MASTER

    def name_at(self, address: str) -> str | None:
        """The name of the broker that has this address, or had it."""
        return self._names.get(address)

    def topic_at(self, broker: str | None) -> str | None:
        """A topic whose route names a broker."""
        for topic, route in self.routes.items():
            if broker in route.brokers:
                return topic
        return None

    def others(self, broker: str, address: str) -> set[str]:
        """The other addresses of a broker's name."""
        return {*self._brokers.get(broker, {}).values()} - {address}

    def has_others(self, broker: str, address: str) -> bool:
        """Whether a broker of this name is, or was, at another address: a former master may be back already."""
        return any(name == broker and known != address for known, name in self._names.items())

    def learn(self, cluster: ClusterInfo) -> None:
        """Keep the addresses of all brokers of a cluster."""
        self.version += 1
        self._in_cluster = set(cluster.broker_addr_table)
        for name, broker in cluster.broker_addr_table.items():
            self._keep_broker(name, broker.broker_addrs)

    async def close(self) -> None:
        """Ask for nothing more."""
        await self._fetching.close()

    async def route(self, topic: str) -> Route:
        """The route of a topic, asked for once. Raises TopicNotFound or NameserverUnreachable."""
        return self.routes.get(topic) or await self._ask(topic)

    def known_to_send(self, topic: str) -> Route | None:
        """Where messages for a topic go as far as it is known."""
        return self.provisional.get(topic) or self.routes.get(topic)

    async def route_to_send(self, topic: str, queue_count: int) -> Route:
        """As ``route``; a topic that is not there yet gets the template topic's brokers, which will create it."""
        try:
            return await self.refresh(topic)
        except TopicNotFound:
            if known := self.routes.get(topic):
                return known
            try:
                data = await self._ask_route(RouteOf(topic=DEFAULT_TOPIC, accept_standard_json_only=True))
            except TopicNotFound:
                raise TopicNotFound(
                    topic, "Create it with mqadmin updateTopic, or let the broker do so (autoCreateTopicEnable=true)."
                ) from None
            route = self.provisional[topic] = build_provisional_route(topic, data, queue_count)
            self._learn_brokers(route)
            return route

    async def refresh(self, topic: str) -> Route:
        """Ask for a route now; callers that come meanwhile share the answer. It replaces a provisional one."""
        route = await self._ask(topic)
        if self.provisional.pop(topic, None) is not None:
            self.version += 1
        return route

    async def _ask(self, topic: str) -> Route:
        return await self._fetching.result(topic, partial(self._fetch, topic))

    async def _fetch(self, topic: str) -> Route:
        route = build_route(topic, await self._ask_route(RouteOf(topic=topic, accept_standard_json_only=True)))
        changed = self.routes.get(topic) != route
        self.routes[topic] = route
        self._learn_brokers(route)
        if changed:
            self._changed(topic)
        return route

    async def stored_route(self, topic: str) -> Route:
        """The route of a topic by the name that brokers know, in whatever namespace; it is not kept.

        Raises TopicNotFound or NameserverUnreachable.
        """
        return build_route(topic, await self._ask_route(RouteOfStored(topic=topic, accept_standard_json_only=True)))

    async def _ask_route(self, ask: RouteOf) -> TopicRouteData:
        topic = ask.topic
        try:
            answer = await self._nameservers.call(api.GET_ROUTEINFO_BY_TOPIC, ask)
            route = TopicRouteData.decode(answer.body)
            route.check_queues()
            return route
        except Refused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                asked = self._nameservers.addresses[0]
                raise TopicNotFound(topic, f"The nameserver {asked} answered, and knows no broker with it.") from None
            raise translate(error) from error
        except ProtocolError as error:
            raise translate(error) from error

    def _learn_brokers(self, route: Route) -> None:
        self.version += 1
        for broker, addresses in route.brokers.items():
            self._keep_broker(broker, addresses)

    def _keep_broker(self, name: str, addresses: Mapping[int, str]) -> None:
        self._brokers[name] = dict(addresses)
        for address in addresses.values():
            self._names[address] = name
        if MASTER in addresses:
            self.masters[name] = addresses[MASTER]
        else:
            self.masters.pop(name, None)

    async def refresh_all(self, topics: Collection[str]) -> None:
        """Ask for the routes of these and of all known topics; one that is not there is left as it was known.

        A broker that none of them names any more is forgotten (cleanOfflineBroker in 4.9.7).
        """
        for topic in sorted({*self.routes, *self.provisional, *topics}):
            try:
                await self.refresh(topic)
            except TopicNotFound:
                continue
            except ClientError as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)
                if not isinstance(error, BrokerRefused):  # else another topic's may be given
                    return
        named = {name for route in (*self.routes.values(), *self.provisional.values()) for name in route.brokers}
        for name in self._brokers.keys() - named - self._in_cluster:
            self.version += 1
            del self._brokers[name]
            self._names = {address: each for address, each in self._names.items() if each != name}
            self.masters.pop(name, None)
            self._gone(name)

    def look_again(self, topic: str) -> None:
        """Ask for a route in the background, since a broker of it failed."""
        if topic not in self._fetching:
            self._spawn(self._look(topic))

    async def _look(self, topic: str) -> None:
        with contextlib.suppress(ClientError):
            await self.refresh(topic)

    async def find(self, topics: Iterable[str]) -> None:
        """Ask once for topics that may not be there yet, one after the other."""
        for topic in topics:
            try:
                await self._ask(topic)
            except (TopicNotFound, BrokerRefused):
                continue
            except ClientError:  # no nameserver answers now
                return

    def expect(self, topic: str) -> None:
        """A broker has created this topic: find its route as soon as a nameserver knows of it."""
        if topic not in self.routes and topic not in self._expected:
            self._expected.add(topic)
            self._spawn(self._find_expected(topic))

    async def _find_expected(self, topic: str) -> None:
        clock = asyncio.get_running_loop().time
        pause, until = EXPECT_FIRST, clock() + EXPECT_FOR
        await self.find([topic])
        while topic not in self.routes and clock() < until:
            await asyncio.sleep(pause)
            pause = min(pause * 2, EXPECT_MOST)
            await self.find([topic])
        self._expected.discard(topic)
        if topic in self.routes:
            self._found(topic)

    async def master(self, broker: str, topic: str | None = None) -> str:
        """The address of a broker's master; its topic's route is asked for when it is not known.

        Raises BrokerNotFound.
        """
        return await self._address(broker, topic, lambda addresses: addresses.get(MASTER))

    async def reader(self, broker: str, topic: str | None = None, broker_id: int = MASTER) -> str:
        """The address to read from: the suggested broker id, else another of that name. Raises BrokerNotFound."""
        return await self._address(broker, topic, lambda addresses: address_to_read(addresses, broker_id))

    async def _address(self, broker: str, topic: str | None, choose: Callable[[dict[int, str]], str | None]) -> str:
        found = choose(self._brokers.get(broker, {}))
        if found is None and topic is not None:
            with contextlib.suppress(TopicNotFound):
                await self.refresh(topic)
            found = choose(self._brokers.get(broker, {}))
        if found is None:
            raise BrokerNotFound(broker)
        return found
