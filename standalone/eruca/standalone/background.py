"""A cluster in a thread of this process: for tests and programs without an event loop of their own.

Owns the thread. The cluster in it is a ``Cluster``; each call here has the same name and waits for the result.
Thread-safe.
Invariant: the thread ends with ``stop``, or with the interpreter at the latest. In a forked child nothing runs, and
``stop`` does nothing.
"""

from __future__ import annotations

from collections.abc import Coroutine
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from eruca.broker.config import BrokerConfig
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.loop_thread import LoopThread
from eruca.standalone.cluster import Cluster

T = TypeVar("T")


class BackgroundCluster:
    """A nameserver and one broker in a thread. Use it with ``with``, or call ``start`` and ``stop``.

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
        nameserver: NamesrvConfig | None = None,
    ) -> None:
        self.cluster = Cluster(
            folder, host=host, port=port, broker_port=broker_port, broker=broker, nameserver=nameserver
        )
        self._thread: LoopThread | None = None

    @property
    def address(self) -> str:
        """The nameserver's ``host:port``, for clients. Raises RuntimeError before the start."""
        return self.cluster.address

    def __repr__(self) -> str:
        return repr(self.cluster).replace("<", "<Background", 1)

    def start(self) -> None:
        """Start both. Raises PortTaken when a port is taken; then neither runs."""
        if self._thread is not None:
            raise RuntimeError("the cluster is running already")
        thread = LoopThread("eruca-cluster")
        try:
            thread.run(self.cluster.start())
        except BaseException:
            thread.close()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Stop both. All acknowledged messages are then on disk. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None and not thread.over:
            try:
                thread.run(self.cluster.stop())
            finally:
                thread.close()

    def create_topic(self, topic: str, queues: int = 8) -> str:
        """As ``Cluster.create_topic``."""
        return self._wait(self.cluster.create_topic(topic, queues))

    def restart_broker(self) -> None:
        """As ``Cluster.restart_broker``."""
        self._wait(self.cluster.restart_broker())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise RuntimeError("the cluster is not running: call start() or use `with` first")
        return self._thread.run(work)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
