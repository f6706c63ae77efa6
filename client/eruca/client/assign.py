"""Allocation strategies: which member of a group gets which queues.

Pure. Invariant: for the same sorted queues and sorted client ids every member, in any language, computes the same
table, so every queue has exactly one owner (``by_config`` leaves that to who writes the lists). A client that is not
among the members gets nothing. Facts: AllocateMessageQueueAveragely, ...AveragelyByCircle, ...ConsistentHash,
...ByConfig, ...ByMachineRoom and AllocateMachineRoomNearby in 4.9.7.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from eruca.client.errors import UsageError
from eruca.protocol.queues import MessageQueue, share_averagely

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Returns the queues of a client, given its id, all queues and all client ids, both sorted."""


def averagely(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Adjacent queues; the first clients get one more if the division leaves a remainder."""
    if client not in clients:
        return []
    return share_averagely(queues, clients.index(client), len(clients))


def by_circle(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Queues in a circle, one at a time."""
    if client not in clients:
        return []
    return list(queues[clients.index(client) :: len(clients)])


def consistent_hash(
    client: str, queues: Sequence[MessageQueue], clients: Sequence[str], *, virtual_nodes: int = 10
) -> list[MessageQueue]:
    """The queues whose place on a ring comes before one of the client's: few move when a member comes or goes.

    ``functools.partial(consistent_hash, virtual_nodes=...)`` gives each client another number of places.
    """
    if client not in clients:
        return []
    ring = {_hash(f"{each}-{number}"): each for each in clients for number in range(virtual_nodes)}
    places = sorted(ring)
    mine = []
    for queue in queues:
        index = bisect.bisect_left(places, _hash(str(queue)))
        if ring[places[index % len(places)]] == client:
            mine.append(queue)
    return mine


def _hash(text: str) -> int:
    """The place on the ring: the first 4 bytes of the MD5 digest."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def by_config(own: Iterable[MessageQueue]) -> Strategy:
    """The given queues, whoever else is there. Nobody reads a queue that no member lists, of the retry topic, too."""
    listed = list(own)
    return lambda client, queues, clients: list(listed)


def by_machine_room(rooms: Iterable[str]) -> Strategy:
    """The queues of brokers named ``room@name`` with one of these rooms, shared evenly; nobody reads the others."""
    wanted = frozenset(rooms)

    def share(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        if client not in clients:
            return []
        near = [queue for queue in queues if room_of(queue.broker_name) in wanted]
        index, (base, rest) = clients.index(client), divmod(len(near), len(clients))
        extra = near[index + base * len(clients) :][:1] if index < rest else []
        return [*near[base * index : base * (index + 1)], *extra]

    return share


def room_of(broker: str) -> str | None:
    """The room in ``room@name``; None in a name of another form. As Java's split, ends that are empty do not count."""
    parts = broker.split("@")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def near_machine_room(
    inner: Strategy, room_of_queue: Callable[[MessageQueue], str], room_of_client: Callable[[str], str]
) -> Strategy:
    """Queues go to members in their own room; those of rooms without a member are shared by all, by ``inner``.

    The strategy raises UsageError when a room is empty.
    """

    def share(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        if client not in clients:
            return []
        by_room = _grouped(queues, room_of_queue)
        members = _grouped(clients, room_of_client)
        room = room_of_client(client)
        mine = inner(client, by_room.pop(room), members[room]) if room in by_room else []
        for other in sorted(by_room.keys() - members.keys()):
            mine = [*mine, *inner(client, by_room[other], clients)]
        return mine

    return share


T = TypeVar("T")


def _grouped(items: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise UsageError(f"The machine room of {item} is empty: name a room for each queue and each client id.")
        groups.setdefault(room, []).append(item)
    return groups


def everything(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """All queues, for a broadcasting member."""
    return list(queues)


def sort_clients(clients: Sequence[str]) -> list[str]:
    """Client ids in the order of Java's strings, by UTF-16 units."""
    return sorted(clients, key=lambda text: text.encode("utf-16-be", "surrogatepass"))
