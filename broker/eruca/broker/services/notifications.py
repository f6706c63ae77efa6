"""Telling the members of a consumer group that its membership changed (request 40), so that they share out anew.

Owns who is told; sends one-way requests and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from eruca.broker.state.clients import Clients
from eruca.protocol import api
from eruca.protocol.headers.clients import OfConsumerGroup


def tell_members(clients: Clients, groups: Iterable[str]) -> None:
    """Tell every member of each of ``groups`` that is online."""
    for name in groups:
        group = clients.consumer(name)
        if group is not None:
            for connection in group.members:
                connection.oneway(api.NOTIFY_CONSUMER_IDS_CHANGED, OfConsumerGroup(consumer_group=name))
