"""The pull consumers of this process: one event loop in a thread, and one PullConsumer for each cluster.

Owns the connections. Spark keeps its Python processes for many tasks and ends them without notice. So the clients are
made when they are first used, they outlive tasks and queries, and nothing depends on their end.
Invariant: work on the loop never blocks it; the thread of the caller decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from eruca.client import PullConsumer
from eruca.client.errors import ClientError
from eruca.protocol.errors import Refused
from eruca.remoting.loop_thread import LoopThread, PerProcess
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.runtime.access import Access

T = TypeVar("T")


class ClusterClients:
    """An event loop in a daemon thread, and the consumers that live on it."""

    def __init__(self) -> None:
        self._consumers: dict[Access, PullConsumer] = {}
        self._thread = LoopThread("eruca-spark")

    async def _consumer(self, access: Access) -> PullConsumer:
        consumer = self._consumers.get(access)
        if consumer is None:
            consumer = PullConsumer(access.pull_group, settings=access.settings)
            await consumer.start()  # does not suspend, so nobody else makes one meanwhile
            self._consumers[access] = consumer
        return consumer

    def submit(self, access: Access, work: Callable[[PullConsumer], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start ``work`` with the consumer of that cluster. Its client errors become SourceError."""

        async def job() -> T:
            try:
                return await work(await self._consumer(access))
            except (ClientError, Refused) as error:
                raise SourceError(str(error)) from error

        return self._thread.submit(job())

    def call(self, access: Access, work: Callable[[PullConsumer], Coroutine[Any, Any, T]]) -> T:
        """``submit``, and wait for the result."""
        return self.submit(access, work).result()

    def close(self) -> None:
        """Stop the consumers and end the thread. A second call does nothing."""
        if not self._thread.over:
            self._thread.run(self._stop())
            self._thread.close()

    async def _stop(self) -> None:
        for consumer in self._consumers.values():
            await consumer.stop()


_clients = PerProcess(ClusterClients)


def this_process() -> ClusterClients:
    """The clients of this process, made on the first call. A forked child gets its own."""
    return _clients.get()


def close_this_process() -> None:
    """Close the clients of this process; the next ``this_process`` makes new ones, which know no route."""
    closed = _clients.replace(None)
    if closed is not None:
        closed.close()
