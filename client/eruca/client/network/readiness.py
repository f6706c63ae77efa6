"""Readiness: the wait of a start until the cluster is there, for programs that start together with it.

Owns what has to be there: a nameserver that answers, a broker that is registered there, the routes of the topics, and
of each route one broker that takes connections. Asks again until all is there, and says at the end what was missing.
What is learned meanwhile stays in the session for the start that follows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection

from eruca.client.checks import check_wait
from eruca.client.config import ClientSettings
from eruca.client.errors import BrokerUnreachable, ClientError, ClusterNotReady, TopicNotFound
from eruca.client.network.session import Session

FIRST = 0.05
"""Seconds until the second look; then twice as long each time ..."""
MOST = 1.0
"""... up to this."""


@contextlib.asynccontextmanager
async def cluster_ready(settings: ClientSettings, topics: Collection[str], wait: float | None) -> AsyncIterator[None]:
    """Enter the block when the cluster is there, after ``wait`` seconds at most; None: ``start_wait`` of the settings.

    Without topics a reachable master is enough. With 0 nothing is asked. Raises ClusterNotReady, at once any error that
    time does not heal, and BadConfig.
    """
    seconds = settings.start_wait if wait is None else check_wait("wait", wait)
    if not seconds:
        yield
        return
    session = Session.join(settings)
    try:
        await _wait(session, topics, seconds)
        yield
    finally:
        await session.leave()


async def _wait(session: Session, topics: Collection[str], seconds: float) -> None:
    missing: ClientError | None = None
    pause = FIRST
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await _look(session, topics)
                except ClientError as error:
                    if not error.retriable and not isinstance(error, TimeoutError):
                        raise
                    missing = error
                await asyncio.sleep(pause)
                pause = min(pause * 2, MOST)
    except TimeoutError:
        why = missing or f"no answer of the nameservers {', '.join(session.nameservers.addresses)}"
        raise ClusterNotReady(f"The cluster was not ready within wait={seconds:g} seconds: {why}") from missing


async def _look(session: Session, topics: Collection[str]) -> None:
    """Ask once. Raises ClientError for the first that is missing."""
    directory = session.directory
    cluster = await session.cluster()
    directory.learn(cluster)
    if not cluster.broker_addr_table:
        raise BrokerUnreachable("The nameserver answered, and no broker has registered there.")
    if not topics:
        await _reach_one(session, directory.addresses(with_slaves=False))
    for topic in sorted(topics):
        try:
            route = await directory.refresh(topic)
        except TopicNotFound:
            name = min(cluster.cluster_addr_table, default="DefaultCluster")
            raise TopicNotFound(
                topic,
                f'Create it first, by `await producer.create_topic("{topic}", key="{name}")` or by '
                f"`mqadmin updateTopic -n {session.nameservers.addresses[0]} -c {name} -t {topic}`; or start without "
                "waiting: a consumer then finds the topic when the first message makes it.",
            ) from None
        await _reach_one(session, sorted({each for broker in route.brokers.values() for each in broker.values()}))


async def _reach_one(session: Session, addresses: Collection[str]) -> None:
    failed: ClientError = BrokerUnreachable("The nameserver answered, and knows no master.")
    for address in addresses:
        try:
            await session.connection(address)
        except ClientError as error:
            failed = error
        else:
            return
    raise failed
