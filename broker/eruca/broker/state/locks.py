"""Queue locks of orderly consumers (RebalanceLockManager in 4.9.7).

Owns one lock per group and queue, held by a client id. In memory only: after a restart every client locks again. Must
not know connections; the time is an argument (ms of the monotonic clock).

Invariants: at most one client holds a queue for a group, and at most ``most`` queues are held. An owner that has not
renewed its lock for ``expire_after`` keeps it only until another client asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from eruca.protocol.queues import MessageQueue

MOST_LOCKS = 500_000
"""Queues that are locked at the same time. Whoever locks chooses the names."""
EXPIRE_AFTER = 60_000
"""The default lifetime of a lock in ms (rocketmq.broker.rebalance.lockMaxLiveTime)."""


class Locks:
    """All queue locks; ``expire_after`` in ms, ``most`` of them at the same time."""

    def __init__(self, expire_after: int = EXPIRE_AFTER, most: int = MOST_LOCKS) -> None:
        self._expire_after = expire_after
        self.most = most
        self._owners: dict[tuple[str, MessageQueue], tuple[str, int]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: int) -> list[MessageQueue]:
        """Lock the queues that are free, expired or already the client's; returns those that the client now holds."""
        held = [queue for queue in queues if self.owner(group, queue, now) in (None, client_id)]
        if len(self._owners) + len(held) > self.most:
            room = self.most - len(self._owners)
            new = [queue for queue in held if (group, queue) not in self._owners]
            left_out = set(new[max(room, 0) :])
            held = [queue for queue in held if queue not in left_out]
        for queue in held:
            self._owners[group, queue] = (client_id, now)
        return held

    def __len__(self) -> int:
        return len(self._owners)

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the locks of the client; those of others stay."""
        for queue in queues:
            owner = self._owners.get((group, queue))
            if owner is not None and owner[0] == client_id:
                del self._owners[group, queue]

    def owner(self, group: str, queue: MessageQueue, now: int) -> str | None:
        """The owner of a queue, None if there is none or its lock has expired."""
        owner = self._owners.get((group, queue))
        return owner[0] if owner is not None and now - owner[1] <= self._expire_after else None

    def clear(self) -> None:
        """Release all locks."""
        self._owners.clear()

    def drop_expired(self, now: int) -> None:
        """Remove expired locks."""
        self._owners = {key: owner for key, owner in self._owners.items() if now - owner[1] <= self._expire_after}
