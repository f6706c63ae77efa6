"""What clients still send to a former master goes to the present one, and its answers go back (none in RocketMQ).

Owns the requests that wait for a master or for its answer, and the connection to it. A request is passed on as it came:
the same fields, so that its signature holds, the same serialization and body; only opaque and flag differ. Must not
know what requests mean. Invariants: an answer is the master's own, or a refusal; requests leave in the order in which
they came; what was passed on is never passed on again, whoever these two brokers take for the master; a request goes to
another master only where the one before has refused to look at it: any other answer, also that what is stored is not
confirmed, is the client's. A request that was sent to a master that hangs is refused as soon as that is known, so that
its client looks elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from msgspec.structs import replace

from eruca.broker.services.failover.group_part import GroupPart
from eruca.protocol import frame
from eruca.protocol.api import Endpoint
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Header
from eruca.protocol.headers.failover import RelayedReply
from eruca.remoting import Call, Channels, Connection, RemotingError, Reply, TlsFiles
from eruca.remoting.calls import Answer, SingleCall

FOR = 90.0
"""Seconds for which a former master passes requests on: three times as long as clients keep a route."""
IDLE = 10.0
"""Seconds without a request after which the connection to the master is closed."""
WITHIN = 4.0
"""Seconds from a request's arrival for a master to be there; a hand-over that fails does so earlier."""
ON_THE_WAY = 1.0
"""Seconds for a request and its answer, beside those for which a master waits for its set (slaveTimeout)."""
LOOK_EVERY = 0.25
"""Seconds between two looks whether the master hangs to which requests were sent."""
MOST_BYTES = 64 << 20
"""Bytes of the requests that wait here at the same time."""
NOT_THE_MASTER = "this broker is not the master of its group: ask the master"
"""The remark of a refusal with 14 before anything is done; what was passed on to the broker that says so goes on."""
_ANY_CODE = frozenset(ResponseCode)

Here = Callable[[], Awaitable[Reply | None] | Reply | None]
"""Handles the request at this broker."""


class Relay:
    """The relay of one broker.

    ``leads`` is whether this broker takes sends; ``most`` how many requests may wait; ``patience`` for how many seconds
    a master of the group waits for its set.
    """

    def __init__(
        self,
        leads: Callable[[], bool],
        most: Callable[[], int],
        patience: Callable[[], float],
        tls: TlsFiles | None = None,
    ) -> None:
        self.part: GroupPart | None = None
        """This broker's part in its group, while it has one."""
        self.relayed = 0
        """Requests that were passed on; those with an answer count when it came."""
        self._leads = leads
        self._most = most
        self._patience = patience
        self._tls = tls
        self.idle = IDLE
        self._until = 0.0
        self._waits_until = 0.0
        """Until when a request waits for a master that is not there yet."""
        self._waiting = 0
        self._bytes = 0
        self._turn = asyncio.Lock()
        self._channels: Channels | None = None
        self._used = 0
        """Requests that ever came."""
        self._looks: asyncio.TimerHandle | None = None
        """Of the next look whether somebody still uses the connection."""
        self._guards: asyncio.TimerHandle | None = None
        """Of the next look whether the master hangs."""

    def begin(self) -> None:
        """This broker hands the mastership over: requests wait for the next master from now on."""
        self._until = self._waits_until = monotonic() + FOR

    def follow(self) -> None:
        """This broker was the master, and another one was elected without a word to it.

        Requests are passed on while there is a master; without one clients do better to look elsewhere than to wait.
        """
        self._until = max(self._until, monotonic() + FOR)

    def end(self) -> None:
        """This broker takes no part any more: it passes nothing on."""
        self._until = self._waits_until = 0.0

    def takes(self, call: Call[Any]) -> bool:
        """Whether this is the one who sees to a request that came while this broker does not lead."""
        now = monotonic()
        if now < self._waits_until or call.head.flag & frame.RELAYED_FLAG:
            return True
        return now < self._until and self._leader() is not None

    async def pass_on(self, call: Call[Any], endpoint: Endpoint[Any, Any], here: Here) -> Reply | None:
        """The master's answer to a request, or that of ``here`` if this broker is the master then. Raises Refused."""
        size = len(call.data) + len(call.body)
        if self._waiting >= self._most() or self._bytes + size > MOST_BYTES:
            raise Refused(ResponseCode.SYSTEM_BUSY, "too many requests wait for the new master of the group: try again")
        self._waiting += 1
        self._used += 1
        self._bytes += size
        try:
            return await self._pass_on(call, replace(endpoint, answer=RelayedReply, accepts=_ANY_CODE), here)
        finally:
            self._waiting -= 1
            self._bytes -= size

    async def _pass_on(self, call: Call[Any], endpoint: Endpoint[Any, RelayedReply], here: Here) -> Reply | None:
        deadline = asyncio.get_running_loop().time() + WITHIN
        while True:
            async with self._turn:  # so that a request that came later does not overtake this one
                asked = await self._sent(call, endpoint, deadline)
                if asked is None:
                    result = here()
            if asked is None:
                return await result if isinstance(result, Awaitable) else result
            address, answering = asked
            if answering is None:
                self.relayed += 1
                return None
            try:
                answer = await answering
            except RemotingError as fault:
                raise Refused(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    f"the new master did not answer, and may have done what was asked: try again ({fault})",
                ) from None
            if answer.remark == NOT_THE_MASTER and self._leader() != address:
                continue  # it was the master no more when it refused, and has done nothing
            self.relayed += 1
            header: Header | None = answer.header if answer.header.natives() else None
            return Reply(answer.code, header, answer.body, answer.remark)

    async def _sent(
        self, call: Call[Any], endpoint: Endpoint[Any, RelayedReply], deadline: float
    ) -> tuple[str, asyncio.Future[Answer[RelayedReply]] | None] | None:
        """Send a request to the master; who that is, and its answer to come. None if this broker is the master."""
        try:
            async with asyncio.timeout_at(deadline):
                address = await self._master(call)
                if address is None:
                    return None
                connection = await self._connection(address)
        except (TimeoutError, RemotingError) as fault:
            reason = str(fault) or f"none was there within {WITHIN:g} s"
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this broker has handed the mastership over, and the new master cannot be reached: {reason}",
            ) from None
        return address, _send(connection, call, endpoint, self._patience() + ON_THE_WAY)

    async def _master(self, call: Call[Any]) -> str | None:
        """Wait until there is a master; its address, or None for this broker. Raises Refused, RemotingError."""
        if self.part is not None and not self._leads():
            await self.part.driver.until(lambda: self._leads() or self._leader() is not None)
        address = self._leader()
        if self._leads():
            return None
        if address is None or call.head.flag & frame.RELAYED_FLAG:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_THE_MASTER)
        return address

    def _leader(self) -> str | None:
        return self.part.leader() if self.part is not None else None

    async def _connection(self, address: str) -> Connection:
        if self._channels is None:
            self._channels = Channels(offer=False, tls=self._tls)
        if self._looks is None:
            self._look(-1)
        if self._guards is None:
            self._guard()
        return self._channels.ready(address) or await self._channels.get(address)

    def _look(self, used: int) -> None:
        """Close the connection if nobody has used it since ``used`` requests had come, and look again later."""
        if self._waiting or used != self._used:
            self._looks = asyncio.get_running_loop().call_later(self.idle, self._look, self._used)
        else:
            self._looks = None
            for connection in self._channels.connections() if self._channels is not None else ():
                connection.abort()

    def _guard(self) -> None:
        """Give up what a master was asked that hangs, and look again as long as something waits."""
        if self.part is not None and self.part.driver.master_hangs and self._channels is not None:
            for connection in self._channels.connections():
                connection.abort()
        loop = asyncio.get_running_loop()
        self._guards = loop.call_later(LOOK_EVERY, self._guard) if self._waiting else None

    async def close(self) -> None:
        """Close the connections."""
        if self._guards is not None:
            self._guards.cancel()
        if self._looks is not None:
            self._looks.cancel()
        if self._channels is not None:
            await self._channels.close()


def _send(
    connection: Connection, call: Call[Any], endpoint: Endpoint[Any, RelayedReply], within: float
) -> asyncio.Future[Answer[RelayedReply]] | None:
    """Send a request as it came; the answer to come, None for a one-way request."""
    opaque = connection.reserve(1)[0]
    head = frame.relayed(call.serialization, call.data, opaque, len(call.body))
    loop = asyncio.get_running_loop()
    asked = loop.time()
    deadline = asked + within
    if call.oneway:
        connection.call_many([head, call.body], {}, deadline, flush=False)
        return None
    answering: asyncio.Future[Answer[RelayedReply]] = loop.create_future()
    pending = SingleCall(answering, endpoint, deadline, asked)
    connection.call_many([head, call.body], {opaque: pending}, deadline, flush=False)
    return answering
