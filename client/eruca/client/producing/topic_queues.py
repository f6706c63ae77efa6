"""The queues of one topic that a producer sends to, and what writes the requests to each.

Owns, by topic, the turn of the round robin and the targets, which are made again when the route or a connection has
changed. Facts: TopicPublishInfo in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from eruca.client.network.directory import Directory
from eruca.client.network.routes import Route
from eruca.client.selectors import RoundRobin
from eruca.protocol.memo import Memo
from eruca.protocol.queues import MessageQueue
from eruca.protocol.templates import Writer
from eruca.remoting import Connection


class Target(msgspec.Struct, eq=False):
    """One queue, the connection to its broker, and an encoder for each kind of send."""

    queue: MessageQueue
    connection: Connection
    plain: Writer
    """The encoder of plain messages."""
    others: Memo[Hashable, Writer]
    """Those of other kinds of sends."""


class TopicQueues:
    """The queues of one topic as of a version of the directory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = -1
        """Of the directory."""
        self.turn = RoundRobin()
        self.route: Route | None = None
        self.in_turn: list[int] = []
        """Numbers of the queues among which sends take turns: those of the route, which come first in ``queues``."""
        self.queues: list[MessageQueue] = []
        self.targets: list[Target | None] = []
        """One for each queue; None where there is none yet."""
        self.brokers: tuple[str, ...] = ()
        """Those of the route's queues."""
        self.numbers: dict[MessageQueue, int] = {}
        """Where each queue is in ``queues``."""
        self.new = False
        """Whether a broker is to create the topic, as far as is known."""

    def renew(self, directory: Directory) -> None:
        """Take the queues of the route as another version of the directory has it; none where there is no route."""
        self.version = directory.version
        route = self.route = directory.known_to_send(self.name)
        self.queues = [] if route is None else list(route.to_send)
        self.in_turn = list(range(len(self.queues)))
        self.brokers = tuple(dict.fromkeys(queue.broker_name for queue in self.queues))
        self.targets = [None] * len(self.queues)
        self.numbers = {queue: number for number, queue in enumerate(self.queues)}
        self.new = route is not None and route.provisional and self.name not in directory.routes

    def number(self, queue: MessageQueue) -> int:
        """The number of a queue; one that the route does not name gets a number behind the others."""
        number = self.numbers.get(queue)
        if number is None:
            number = self.numbers[queue] = len(self.queues)
            self.queues.append(queue)
            self.targets.append(None)
        return number
