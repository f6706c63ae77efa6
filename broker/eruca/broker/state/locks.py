"""Queue locks of orderly consumers (RebalanceLockManager in 4.9.7).

Owns one lock per group and queue, held by a client id. In memory only: after a restart every client locks again. Must
not know connections; the time is an argument (ms of the monotonic clock).

Invariants: at most one client holds a queue for a group, and at most ``most`` queues are held. An owner that has not
renewed its lock for ``expire_after`` keeps it only until another client asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from eruca.broker.state.parts import Part, gone, unheard
from eruca.protocol.errors import ProtocolError
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
        self.on_change: Callable[[str], object] = unheard
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
            former = self._owners.get((group, queue))
            self._owners[group, queue] = (client_id, now)
            if former is None or former[0] != client_id:
                self.on_change(_key(group, queue))
        return held

    def __len__(self) -> int:
        return len(self._owners)

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the locks of the client; those of others stay."""
        for queue in queues:
            owner = self._owners.get((group, queue))
            if owner is not None and owner[0] == client_id:
                del self._owners[group, queue]
                self.on_change(_key(group, queue))

    def owner(self, group: str, queue: MessageQueue, now: int) -> str | None:
        """The owner of a queue, None if there is none or its lock has expired."""
        owner = self._owners.get((group, queue))
        return owner[0] if owner is not None and now - owner[1] <= self._expire_after else None

    def clear(self) -> None:
        """Release all locks."""
        self._owners.clear()

    def drop_expired(self, now: int) -> None:
        """Remove expired locks."""
        for key in [key for key, owner in self._owners.items() if now - owner[1] > self._expire_after]:
            del self._owners[key]
            self.on_change(_key(*key))

    def renew(self, now: int) -> None:
        """Let every owner keep its locks as if it had just renewed them: it may have, at another broker."""
        self._owners = {key: (client_id, now) for key, (client_id, _) in self._owners.items()}

    # ------------------------------------------------------------------ parts

    def part(self, keys: Iterable[str] | None) -> Part:
        """As in ``parts.Table``."""
        wanted = self._owners if keys is None else [key for key in map(_of_key, keys) if key in self._owners]
        owners = {_key(*key): self._owners[key][0] for key in wanted}
        return Part(keys is None, msgspec.json.encode(owners), gone(keys, owners))

    def take_part(self, part: Part) -> None:
        """As in ``parts.Table``. The locks do not expire before ``renew``: their owners renew them at the master."""
        try:
            owners = msgspec.json.decode(part.entries, type=dict[str, str])
            there = {_of_key(key): (client_id, _NEVER) for key, client_id in owners.items()}
            without = [_of_key(key) for key in part.gone]
        except msgspec.MsgspecError as fault:
            raise ProtocolError(f"no locks: {fault}") from None
        if part.whole:
            self._owners.clear()
        for each in without:
            self._owners.pop(each, None)
        self._owners.update(there)

    async def saved(self) -> None:
        """As in ``parts.Table``: locks have no file."""


_NEVER = 1 << 62
"""When a lock was renewed that another broker keeps."""


def _key(group: str, queue: MessageQueue) -> str:
    return msgspec.json.encode([group, queue.topic, queue.broker_name, queue.queue_id]).decode()


def _of_key(key: str) -> tuple[str, MessageQueue]:
    group, topic, broker_name, queue_id = msgspec.json.decode(key, type=tuple[str, str, str, int])
    return group, MessageQueue(topic, broker_name, queue_id)
