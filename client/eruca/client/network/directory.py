"""Where topics and brokers are, as far as one client knows.

Owns the routes and the addresses of brokers, asked of the nameservers when they are first needed and again every
``route_interval``; callers that need the same route share one request. What was known stays known when a nameserver
is away or has forgotten it. Facts: MQClientInstance.updateTopicRouteInfoFromNameServer in 4.9.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping
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


class Directory:
    """Routes by topic and addresses by broker.

    ``changed`` is called with each topic whose route has changed; ``spawn`` runs something in the background.
    """

    def __init__(
        self,
        nameservers: Nameservers,
        *,
        changed: Callable[[str], None],
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        self.routes: dict[str, Route] = {}
        """What is known now; look only, and ask with ``route``."""
        self.masters: dict[str, str] = {}
        """The address of each broker's master as far as it is known; look only."""
        self.version = 0
        """Another number whenever routes or addresses may be others."""
        self._nameservers = nameservers
        self._changed = changed
        self._spawn = spawn
        self._brokers: dict[str, dict[int, str]] = {}
        self._fetching: dict[str, asyncio.Task[Route]] = {}

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

    def learn(self, cluster: ClusterInfo) -> None:
        """Keep the addresses of all brokers of a cluster."""
        self.version += 1
        for name, broker in cluster.broker_addr_table.items():
            self._keep_broker(name, broker.broker_addrs)

    async def close(self) -> None:
        """Ask for nothing more."""
        tasks = tuple(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def route(self, topic: str) -> Route:
        """The route of a topic, asked for once. Raises TopicNotFound or NameserverUnreachable."""
        known = self.routes.get(topic)
        if known is not None and not known.provisional:
            return known
        return await self.refresh(topic)

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
            route = build_provisional_route(topic, data, queue_count)
            self._keep(route)
            return route

    async def refresh(self, topic: str) -> Route:
        """Ask for a route now; callers that come meanwhile share the answer."""
        task = self._fetching.get(topic)
        if task is None:
            task = self._fetching[topic] = asyncio.ensure_future(self._fetch(topic))
            task.add_done_callback(lambda done: forget_task(self._fetching, topic, done))
        return await asyncio.shield(task)

    async def _fetch(self, topic: str) -> Route:
        route = build_route(topic, await self._ask_route(RouteOf(topic=topic, accept_standard_json_only=True)))
        self._keep(route)
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

    def _keep(self, route: Route) -> None:
        changed = self.routes.get(route.topic) != route
        self.routes[route.topic] = route
        self.version += 1
        for broker, addresses in route.brokers.items():
            self._keep_broker(broker, addresses)
        if changed:
            self._changed(route.topic)

    def _keep_broker(self, name: str, addresses: Mapping[int, str]) -> None:
        self._brokers[name] = dict(addresses)
        if MASTER in addresses:
            self.masters[name] = addresses[MASTER]
        else:
            self.masters.pop(name, None)

    async def refresh_all(self, topics: Collection[str]) -> None:
        """Ask for the routes of these and of all known topics; one that is not there is left as it was known."""
        for topic in sorted({*self.routes, *topics}):
            try:
                await self.refresh(topic)
            except TopicNotFound:
                continue
            except ClientError as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)
                if not isinstance(error, BrokerRefused):  # else another topic's may be given
                    break

    def look_again(self, topic: str) -> None:
        """Ask for a route in the background, since a broker of it failed."""
        if topic not in self._fetching:
            self._spawn(self._look(topic))

    async def _look(self, topic: str) -> None:
        with contextlib.suppress(ClientError):
            await self.refresh(topic)

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


def forget_task(tasks: dict[str, asyncio.Task[Any]], name: str, task: asyncio.Task[Any]) -> None:
    """Take a shared task that has ended out of ``tasks``."""
    del tasks[name]
    if not task.cancelled():
        task.exception()  # it is raised to those who wait, of whom there may be none left
