"""RebalanceListener: calls the user's functions with the queues that a member of a group gets and gives up.

Owns the bound on their time, and that their errors end in the log: a rebalance goes on whatever they do. Queues of the
group's retry topic are left out. Facts: ConsumerRebalanceListener of Kafka; RocketMQ has nothing like it for push
consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from eruca.client import callbacks
from eruca.client.log import log
from eruca.protocol import names
from eruca.protocol.queues import MessageQueue

QueuesListener = Callable[[list[MessageQueue]], Awaitable[None] | None]
"""Called with queues; a plain function runs in a thread."""


class RebalanceListener(msgspec.Struct, frozen=True):
    """The two functions of a member; ``timeout`` is in seconds, for each call."""

    group: str
    on_assigned: QueuesListener | None
    on_revoked: QueuesListener | None
    timeout: float

    async def assigned(self, queues: Sequence[MessageQueue]) -> None:
        """These are the member's now, and are read as soon as this returns."""
        await self._call("on_assigned", self.on_assigned, queues)

    async def revoked(self, queues: Sequence[MessageQueue]) -> None:
        """These are given up when this returns; until then what is consumed of them counts."""
        await self._call("on_revoked", self.on_revoked, queues)

    async def _call(self, name: str, function: QueuesListener | None, queues: Sequence[MessageQueue]) -> None:
        chosen = sorted(queue for queue in queues if not names.is_retry_topic(queue.topic))
        if function is None or not chosen:
            return
        try:
            async with asyncio.timeout(self.timeout):
                await callbacks.call(function, chosen)
        except TimeoutError:
            log.warning("%s of %s did not end within %s s for %s", name, self.group, self.timeout, chosen)
        except Exception:
            log.exception("%s of %s failed for %s", name, self.group, chosen)
