"""The pull consumers of this process: one event loop in a thread, and one PullConsumer for each cluster.

Owns the thread and the connections. Spark keeps its Python processes for many tasks and ends them without notice. So
the clients are made when they are first used, they outlive tasks and queries, and nothing depends on their end.
Invariant: work on the loop never blocks it; the thread of the caller decodes.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from eruca.client import PullConsumer
from eruca.client.errors import ClientError
from eruca.protocol.errors import Refused
from eruca.remoting import run
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.runtime.access import Access

T = TypeVar("T")


class ClusterClients:
    """An event loop in a daemon thread, and the consumers that live on it."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._consumers: dict[Access, PullConsumer] = {}
        self._thread = threading.Thread(target=lambda: run(self._live()), name="eruca-spark", daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._ready.set()
        await self._end.wait()
        for consumer in self._consumers.values():
            await consumer.stop()

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

        return asyncio.run_coroutine_threadsafe(job(), self._loop)

    def call(self, access: Access, work: Callable[[PullConsumer], Coroutine[Any, Any, T]]) -> T:
        """``submit``, and wait for the result."""
        return self.submit(access, work).result()

    def close(self) -> None:
        """End the thread and its connections. A second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()


_clients: ClusterClients | None = None
_lock = threading.Lock()


def _forked() -> None:
    global _clients, _lock
    _clients, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)


def this_process() -> ClusterClients:
    """The clients of this process, made on the first call. A forked child gets its own."""
    global _clients
    with _lock:
        if _clients is None:
            _clients = ClusterClients()
        return _clients


def close_this_process() -> None:
    """Close the clients of this process; the next ``this_process`` makes new ones, which know no route."""
    global _clients
    with _lock:
        closed, _clients = _clients, None
    if closed is not None:
        closed.close()
