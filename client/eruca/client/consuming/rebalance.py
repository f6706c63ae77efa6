"""From who is there to which queues are to be given up and taken: one decision of one member for one topic.

Pure. Facts: RebalanceImpl.rebalanceByTopic in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from eruca.client.assign import Strategy, sort_clients
from eruca.client.errors import UsageError
from eruca.protocol.queues import MessageQueue


class Change(NamedTuple):
    """What to do: both in the order of queues."""

    give_up: list[MessageQueue]
    take: list[MessageQueue]


def plan_change(
    client: str,
    clients: Sequence[str],
    queues: Collection[MessageQueue],
    owned: Collection[MessageQueue],
    strategy: Strategy,
) -> Change:
    """Compare what ``client`` owns of a topic with what it should own of its ``queues``; others are not its matter.

    Raises UsageError for a strategy that returns no queues at all, not even an empty list.
    """
    chosen: object = strategy(client, sorted(queues), sort_clients(clients)) if queues else []
    if not isinstance(chosen, Iterable):
        raise UsageError(f"The strategy returned {type(chosen).__name__}: a list of queues is expected.")
    wanted, have = set(chosen).intersection(queues), set(owned)
    return Change(sorted(have - wanted), sorted(wanted - have))
