"""Where the sends of the short way go: for each queue of a topic the connection to its broker, and what writes to it.

Owns, by topic, the lanes and their seats, which are made anew when the route or a connection has changed. Which queue
is next is said by the same turns and the same table of faults as in the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Final

import msgspec

from eruca.client.message import AFTER_ID, BEFORE_ID
from eruca.client.network.routes import Route
from eruca.client.producing.latency_faults import LatencyFaults
from eruca.client.selectors import RoundRobin
from eruca.protocol import api
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.queues import MessageQueue
from eruca.protocol.templates import Template
from eruca.remoting import Connection

if TYPE_CHECKING:
    from eruca.client.network.session import Session
    from eruca.client.producing.quick import QuickSend

_REMEMBERED: Final = 1024
"""Topics with seats; beyond that all are forgotten and made anew."""
_TIMES: Final = 1e9, 1e10
"""Seconds since 1970 between which a time in ms has 13 digits, as prepared requests want it."""

MakeHeader = Callable[[str, str, int, int, float], SendMessageV2]
"""Makes the header of a send from topic, properties, sysFlag, flag and the time in seconds since 1970."""


class Seat(msgspec.Struct, eq=False):
    """One queue to send to, with all that repeats from send to send."""

    queue: MessageQueue
    connection: Connection
    template: Template
    around_id: Template
    """Of sends that ask for nothing else, around their unique ids."""


class Lane(msgspec.Struct, eq=False):
    """The seats of one topic, as of a version of the directory; None where there is none yet, or none any more."""

    lanes: Lanes
    topic: str
    turn: RoundRobin
    version: int = -1
    route: Route | None = None
    seats: list[Seat | None] = []
    """One for each queue of the route."""
    numbers: dict[MessageQueue, int] = {}
    """Where the seat of each queue is."""
    pending: list[QuickSend] = []
    """What leaves at the end of this turn of the loop."""
    closed: bool = False
    """Whether the connections of this session change each header (accounts, namespaces): nothing goes from here."""

    def renew(self) -> None:
        """Have the seats of today's route; none where there is no route."""
        directory = self.lanes.session.directory
        if self.version != directory.version:
            route = self.route = directory.routes.get(self.topic)
            queues = () if route is None else route.to_send
            self.version = directory.version
            self.seats = [None] * len(queues)
            self.numbers = {queue: number for number, queue in enumerate(queues)}

    def number(self, wish: MessageQueue | None, now: float) -> int | None:
        """The number of the seat for one send at this time of the loop; None where the route has none for it."""
        if wish is not None:
            return self.numbers.get(wish)
        route, faults = self.route, self.lanes.faults
        if route is None or not self.seats:
            return None
        if faults is None:
            return self.turn.step() % len(self.seats)
        return self.numbers[faults.choose(route, self.turn, int(now * 1000))]

    def seat_at(self, number: int) -> Seat | None:
        """The seat of this number; None where its broker is not connected."""
        seat = self.seats[number]
        if seat is None or seat.connection.closed or seat.connection not in self.lanes.session.greeted:
            seat = self.seats[number] = self._sit(number)
        return seat

    def _sit(self, number: int) -> Seat | None:
        assert self.route is not None
        queue, now, session = self.route.to_send[number], time(), self.lanes.session
        address = session.to_send_now(queue.broker_name)
        connection = None if address is None else session.ready(address)
        if connection is None or connection not in session.greeted or not _TIMES[0] < now < _TIMES[1]:
            return None
        header, batch = self.lanes.header(queue.topic, "", 0, 0, now), self.lanes.batch
        header.queue_id, header.batch = queue.queue_id, batch
        endpoint = api.SEND_BATCH_MESSAGE if batch else api.SEND_MESSAGE_V2
        template = connection.template_of(endpoint.code, header)
        if template is None:
            self.closed = True
            return None
        return Seat(queue, connection, template, template.around(BEFORE_ID, AFTER_ID))


class Lanes(dict[str, Lane]):
    """The lanes of one producer in one session by their topics, for single messages or for batches.

    ``turns`` has the turns of each topic that the producer has sent to.
    """

    def __init__(
        self,
        session: Session,
        header: MakeHeader,
        turns: Mapping[str, RoundRobin],
        faults: LatencyFaults | None,
        *,
        batch: bool,
    ) -> None:
        super().__init__()
        self.session = session
        self.header = header
        self.faults = faults
        self.batch = batch
        self._turns = turns

    def open(self, topic: str) -> Lane | None:
        """The lane of a topic that was sent to before, the ordinary way, and so is found legal and has turns."""
        turn = self._turns.get(topic)
        if turn is None:
            return None
        if len(self) >= _REMEMBERED:
            self.clear()
        lane = self[topic] = Lane(self, topic, turn)
        return lane
