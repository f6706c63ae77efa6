"""What a driver of failover asks of the broker around it: the office that it holds, and the links to other brokers.

Owns the contracts. The office is the store and the duties of the present role; links speak to the master, or to
replicas. Whoever implements them calls ``Posts`` with what happens, and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from eruca.broker.failover.epochs import Epoch, Epochs
from eruca.broker.failover.events import Event, Welcomed
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Member, Promise
from eruca.broker.failover.sureness import HEARD_FOR
from eruca.broker.services.failover.presence import RENEW_EVERY


class Self(NamedTuple):
    """Who this broker is in its group."""

    broker_id: int
    store: str
    address: str
    ha_address: str
    priority: int
    """``brokerElectionPriority``."""
    founds: bool
    """Whether it is configured as the master: it founds a group that is not there."""


class Pace(NamedTuple):
    """Seconds between two things that a broker of a group does."""

    renew: float = RENEW_EVERY
    again: float = 0.2
    """Until etcd is asked again that did not answer, or has refused the same."""
    doubt: float = 1.0
    """Between two reads while it is not known what became of a change; between two tries to write to a disk."""
    look: float = 0.1
    """Between two looks whether the master is silent."""
    silence: float = HEARD_FOR / 1000
    """For how long a master must not have been heard before somebody stands."""


class Frame(msgspec.Struct, frozen=True):
    """A part of the master's log, all of it in ``part``; without data a heartbeat."""

    master_epoch: int
    part: Epoch | None
    offset: int
    data: bytes | memoryview
    confirmed: int


class TableFrame(msgspec.Struct, frozen=True):
    """Changes of the master's tables up to ``number``."""

    master_epoch: int
    number: int
    body: bytes


class Office(Protocol):
    """The broker as its driver sees it. One call at a time, and each has its effect when it returns."""

    @property
    def disk_failed(self) -> bool:
        """Whether the log cannot be brought to the disk: after an error until a restart, and while the disk hangs."""

    def epochs(self) -> Epochs:
        """The list of the log's epochs. Raises StoreDamaged, OSError."""

    def damaged_at(self) -> int | None:
        """Where damage of the log was covered that is still there; None where none was. Raises OSError."""

    async def note(self, epochs: Epochs) -> None:
        """Write the list to the disk; the part of its newest epoch is the truth. Raises OSError."""

    def kept(self) -> Group | None:
        """The group that was kept last; None where there is none. Raises OSError."""

    async def keep(self, group: Group) -> None:
        """Write the group as it is known now to the disk. Raises OSError."""

    @property
    def shown_end(self) -> int:
        """Behind this nothing of the log was ever shown; a record ends there."""

    async def settle(self) -> int:
        """Cut a part of a record off the log's end, and bring the log to the disk; where it ends. Raises OSError."""

    def append(self, frame: Frame) -> int:
        """Append a part of the master's log; up to where the log can be relied on. Raises CopyRefused, OSError."""

    async def take_tables(self, frame: TableFrame) -> None:
        """Be equal to the master's tables, on the disk too. Raises ProtocolError, OSError."""

    async def cut(self, end: int) -> None:
        """Cut the log off there, with all that points behind it. Raises CutRefused, OSError."""

    async def lead(self, epoch: int, *, takes_sends: bool) -> None:
        """Be the master: it serves when this returns, sends only if it ``takes_sends``. Raises OSError."""

    async def follow(self) -> None:
        """Be no master, or remain none: nothing is acknowledged any more, and nothing is stored by itself."""

    def follows(self, address: str) -> None:
        """The master that is to be followed has this address for clients: its tables are there."""

    def show(self, promise: Promise) -> None:
        """Show and answer what is promised, and refuse sends where the set is too small for them; also where that is as
        before."""

    def bar(self, reason: str) -> None:
        """An operator has to decide: say so."""

    def admit(self) -> None:
        """What has to be decided was: take part again."""


class Posts(Protocol):
    """The driver, as its links see it."""

    @property
    def member(self) -> Member:
        """What this broker knows."""

    def post(self, event: Event) -> None:
        """Something happened."""

    def take(self, frame: Frame | TableFrame) -> asyncio.Future[None] | None:
        """A part of the master's log, or of its tables, came; what ends when there is room for the next one, None where
        there is."""


class Links(Protocol):
    """Connections to the other brokers of the group."""

    def join(self, ha_address: str, epoch: int) -> None:
        """Connect to the master there, again and again, and shake hands for this epoch."""

    def leave(self) -> None:
        """End the connection to the master; no more of it is posted."""

    def tell(self, report: Report) -> None:
        """Report to the master."""

    def welcome(self, broker_id: int, answer: Welcomed) -> None:
        """Answer a replica's handshake."""

    def dismiss(self) -> None:
        """End the connections of all replicas."""

    def master_heard(self) -> int | None:
        """When something came from the master last, in ms of the driver's clock; None if nothing did."""

    def master_silent_since(self) -> int | None:
        """The same of the master that was joined last; None if nothing came from it, or it was left."""

    def answered(self) -> Mapping[int, int]:
        """When the last heartbeat that each replica answered was sent, in ms of the driver's clock."""
