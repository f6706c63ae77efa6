"""A cluster in a thread of this process: for tests and programs that have no event loop of their own.

Owns the thread. The cluster in it is ``Cluster``, with the same names; each call here waits for it. Thread-safe.
Invariant: the thread ends with ``stop``, or with the interpreter at the latest.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from eruca.broker.config import BrokerConfig
from eruca.remoting.loop import new_loop
from eruca.standalone.cluster import Cluster

T = TypeVar("T")


class BackgroundCluster:
    """A nameserver and one broker, which serve from a thread. Use it with ``with``, or call ``start`` and ``stop``.

    Arguments as of ``Cluster``.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        broker_port: int = 0,
        broker: BrokerConfig | None = None,
    ) -> None:
        self.cluster = Cluster(folder, host=host, port=port, broker_port=broker_port, broker=broker)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The nameserver's ``host:port``: what clients are given. Raises RuntimeError before the start."""
        return self.cluster.address

    def __repr__(self) -> str:
        return repr(self.cluster).replace("<", "<Background", 1)

    def start(self) -> None:
        """Start both. Raises PortTaken (the nameserver: OSError) when a port is taken; nothing is left running then."""
        if self._loop is not None:
            raise RuntimeError("the cluster is running already")
        loop = self._loop = new_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="eruca-cluster", daemon=True)
        self._thread.start()
        try:
            self._wait(self.cluster.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop both; all that was acknowledged is on disk. Calling it twice does no harm."""
        if self._loop is not None:
            try:
                self._wait(self.cluster.stop())
            finally:
                self._end()

    def create_topic(self, topic: str, queues: int = 8) -> str:
        """As ``Cluster.create_topic``."""
        return self._wait(self.cluster.create_topic(topic, queues))

    def restart_broker(self) -> None:
        """As ``Cluster.restart_broker``."""
        self._wait(self.cluster.restart_broker())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the cluster is not running: call start() or use `with` first")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None and thread is not None
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
