"""Which member of a group reads which queue: the allocation strategies.

Pure. Invariant: for the same sorted queues and sorted client ids every member, in any language, computes the same
table, so every queue has exactly one owner. Facts: AllocateMessageQueueAveragely and ...AveragelyByCircle in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eruca.protocol.queues import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Given a client id, all queues and all client ids, both sorted: the queues of that client."""


def averagely(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """Neighbouring queues; the first clients get one more where it does not come out even."""
    if client not in clients:
        return []
    index = clients.index(client)
    share, rest = divmod(len(queues), len(clients))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def by_circle(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """The queues dealt out like cards."""
    if client not in clients:
        return []
    return list(queues[clients.index(client) :: len(clients)])


def everything(client: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    """All queues, for a member that shares with nobody."""
    return list(queues)


def sort_clients(clients: Sequence[str]) -> list[str]:
    """Client ids in the order of Java's strings, by UTF-16 units."""
    return sorted(clients, key=lambda text: text.encode("utf-16-be", "surrogatepass"))
