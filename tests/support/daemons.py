"""A name server and one broker as processes, whoever made them: what Apache's and Eruca's have in common.

Owns their end, and the question by which a registration is known. How they are started is in apache.py and eruca.py.
"""

import ssl
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from eruca.protocol.signature import Credentials
from tests.support import raw
from tests.support.processes import Process

_GET_ROUTE, _GET_BROKER_CLUSTER_INFO = 105, 106


class Daemon(Protocol):
    """A server of its own process; `address` is ip:port."""

    process: Process
    address: str

    def stop(self) -> None: ...


class Broker(Daemon, Protocol):
    """A server with a store."""

    def discard(self) -> None: ...


class DaemonCluster:
    """A name server and one broker, which whoever derives from this has started."""

    name: str
    home: Path
    name_server: Daemon
    broker: Broker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    @property
    def address(self) -> str:
        return self.name_server.address

    def stop(self) -> None:
        """An orderly end: another one may go on with the store."""
        self.broker.stop()
        self.name_server.stop()

    def discard(self) -> None:
        """The end of a cluster whose store nobody opens again, as at the end of `with`."""
        self.broker.discard()
        self.name_server.stop()


def registered(
    address: str, name_server: str, tls: ssl.SSLContext | None = None, account: Credentials | None = None
) -> bool:
    """Whether the name server, asked in the name of an account, knows the broker at that address."""
    fields = None if account is None else account({}, b"")
    return address.encode() in raw.ask(name_server, _GET_BROKER_CLUSTER_INFO, fields, tls=tls)[1]


def has_route(topic: str, name_server: str) -> bool:
    """Whether that name server knows a broker with the topic: who starts before has to wait until it asks again."""
    head, _ = raw.ask(name_server, _GET_ROUTE, {"topic": topic})
    return bool(head["code"] == 0)
