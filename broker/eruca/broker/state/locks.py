"""Which client holds which queue, for consumers that must see a queue in order.

Owns the locks (RebalanceLockManager in 4.9.7): one a group and queue, held by a client id. In memory only: after a
restart every client locks again. Must not know connections; the time is an argument (ms).

Invariant: a queue of a group is held by one client at most, and an owner that has been silent for ``expire_after``
holds it only until another asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from eruca.protocol.queues import MessageQueue

EXPIRE_AFTER = 60_000
"""ms after the last successful lock, unless another time is set (rocketmq.broker.rebalance.lockMaxLiveTime)."""


class Locks:
    """All queue locks; ``expire_after`` in ms."""

    def __init__(self, expire_after: int = EXPIRE_AFTER) -> None:
        self._expire_after = expire_after
        self._owners: dict[tuple[str, MessageQueue], tuple[str, int]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: int) -> list[MessageQueue]:
        """Lock what is free, expired or the client's own already; which queues the client holds now."""
        held = [queue for queue in queues if self.owner(group, queue, now) in (None, client_id)]
        for queue in held:
            self._owners[group, queue] = (client_id, now)
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release what the client holds; the locks of others stay."""
        for queue in queues:
            owner = self._owners.get((group, queue))
            if owner is not None and owner[0] == client_id:
                del self._owners[group, queue]

    def owner(self, group: str, queue: MessageQueue, now: int) -> str | None:
        """Who holds a queue, None when nobody does or the lock has expired."""
        owner = self._owners.get((group, queue))
        return owner[0] if owner is not None and now - owner[1] <= self._expire_after else None

    def drop_expired(self, now: int) -> None:
        """Forget locks that have expired."""
        self._owners = {key: owner for key, owner in self._owners.items() if now - owner[1] <= self._expire_after}
