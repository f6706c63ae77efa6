"""Asking nameservers: one of the list is kept, the next is taken when it fails.

Owns the order of the list and which address is in use. Knows nothing of what is asked.
Facts: NettyRemotingClient.getAndCreateNameserverChannel in 4.9.7.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from eruca.client.errors import NameserverUnreachable
from eruca.protocol.api import Endpoint
from eruca.protocol.header import Header
from eruca.remoting import Answer, Channels, RemotingError

A = TypeVar("A", bound=Header)
R = TypeVar("R", bound=Header)


class Nameservers:
    """The nameservers of a client; ``timeout`` in seconds holds for each that is tried."""

    def __init__(self, addresses: Sequence[str], channels: Channels, *, timeout: float) -> None:
        self._addresses = random.sample(list(addresses), len(addresses))
        self._channels = channels
        self._timeout = timeout
        self._current = 0

    @property
    def addresses(self) -> list[str]:
        """All of them, the one in use first."""
        return self._addresses[self._current :] + self._addresses[: self._current]

    async def call(self, endpoint: Endpoint[A, R], ask: A | None = None, body: bytes = b"") -> Answer[R]:
        """Ask one nameserver; one that cannot be reached or does not answer is passed over.

        Raises NameserverUnreachable when that holds for all, and Refused as the answering one says.
        """
        causes = []
        for address in self.addresses:
            try:
                answer = await self._channels.call(address, endpoint, ask, body, timeout=self._timeout)
            except RemotingError as error:
                causes.append(str(error))
                self._channels.drop(address)
                self._current = (self._addresses.index(address) + 1) % len(self._addresses)
            else:
                return answer
        raise NameserverUnreachable(
            f"None of the nameservers {', '.join(self._addresses)} answered: {'; '.join(causes)}. "
            "Check that mqnamesrv runs there and that the address is right."
        )
