"""The link of this process to its clusters: one event loop in a thread, one pull consumer for each, kept for good.

Owns the thread and the connections. Spark keeps its Python processes for many tasks, and ends them without a word;
so the link is made when it is first used, outlives tasks and queries, and nothing depends on its end.
Invariant: what runs here never blocks the loop; the caller's thread does the decoding.
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
from eruca.spark_connector.access import Access
from eruca.spark_connector.errors import SourceError

T = TypeVar("T")


class Link:
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
            await consumer.start()  # waits for nothing, so nobody else makes one meanwhile
            self._consumers[access] = consumer
        return consumer

    def begin(self, access: Access, work: Callable[[PullConsumer], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start ``work`` with the consumer of that cluster; its errors come as SourceError."""

        async def job() -> T:
            try:
                return await work(await self._consumer(access))
            except (ClientError, Refused) as error:
                raise SourceError(str(error)) from error

        return asyncio.run_coroutine_threadsafe(job(), self._loop)

    def ask(self, access: Access, work: Callable[[PullConsumer], Coroutine[Any, Any, T]]) -> T:
        """``begin``, and wait for the end."""
        return self.begin(access, work).result()

    def close(self) -> None:
        """End the thread and its connections. Calling it twice does no harm."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()


_link: Link | None = None
_making = threading.Lock()


def _forked() -> None:
    global _link, _making
    _link, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)


def this_process() -> Link:
    """The link of this process, made on the first call; a forked child gets one of its own."""
    global _link
    with _making:
        if _link is None:
            _link = Link()
        return _link
