"""Events of a member of a group, and actions: what happens to a broker, and what it has to do then.

Owns their names and fields, as values. Must not know what follows from an event: ``member`` does.
"""

from __future__ import annotations

import msgspec

from eruca.broker.failover.epochs import Epoch, Epochs
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report

# ---- events


class Read(msgspec.Struct, frozen=True):
    """etcd has this group."""

    group: Group
    revision: int


class Changed(msgspec.Struct, frozen=True):
    """etcd took over what was proposed."""

    revision: int


class NotChanged(msgspec.Struct, frozen=True):
    """etcd's key is not as it was expected."""


class MasterSilent(msgspec.Struct, frozen=True):
    """The key of the master is gone, and it was not heard for a while."""


class Welcomed(msgspec.Struct, frozen=True):
    """The master's answer to a handshake: its log."""

    master_epoch: int
    epochs: Epochs
    end: int
    confirmed: int
    same: int = 0
    """Up to where the log of a replica without epochs is the master's; 0 where it is not."""


class Copied(msgspec.Struct, frozen=True):
    """Bytes of the master's log up to ``end`` were appended; all of them belong to ``part``. None: a heartbeat."""

    master_epoch: int
    part: Epoch | None
    end: int
    confirmed: int


class TablesCopied(msgspec.Struct, frozen=True):
    """The tables are the master's, with all changes up to ``number``."""

    master_epoch: int
    number: int


class MasterLost(msgspec.Struct, frozen=True):
    """The connection to the master ended."""


class Asked(msgspec.Struct, frozen=True):
    """A replica shakes hands."""

    broker_id: int


class Reported(msgspec.Struct, frozen=True):
    """A replica reports. As ``Stored`` before, where the master's log was written up to ``end``."""

    report: Report
    end: int = 0


class ReplicaLost(msgspec.Struct, frozen=True):
    """The connection of a replica ended, or it makes no progress (haMaxTimeSlaveNotCatchup)."""

    broker_id: int


class Stored(msgspec.Struct, frozen=True):
    """The master's log was written, up to ``end``."""

    end: int


class TablesChanged(msgspec.Struct, frozen=True):
    """The master's tables have changed; ``number`` changes since it is the master."""

    number: int


class HandOver(msgspec.Struct, frozen=True):
    """The master shall be another one, if that is a member of the set."""

    broker_id: int


class Noted(msgspec.Struct, frozen=True):
    """The new epoch is on the disk."""


class Forgotten(msgspec.Struct, frozen=True):
    """etcd has no group, or an older one than this broker has known: it was emptied, or restored from a backup.

    ``revision`` is that of the key as it was read.
    """

    reason: str
    revision: int


class Recreate(msgspec.Struct, frozen=True):
    """An operator has this broker write the group again, with itself as the master, over the key of that revision."""

    group: Group
    revision: int


Event = (
    Read
    | Changed
    | NotChanged
    | MasterSilent
    | Welcomed
    | Copied
    | TablesCopied
    | MasterLost
    | Asked
    | Reported
    | ReplicaLost
    | Stored
    | TablesChanged
    | HandOver
    | Noted
    | Forgotten
    | Recreate
)


# ---- actions


class Seek(msgspec.Struct, frozen=True):
    """Read the group from etcd."""


class Join(msgspec.Struct, frozen=True):
    """Connect to the master, and shake hands for this epoch."""

    broker_id: int
    epoch: int


class Propose(msgspec.Struct, frozen=True):
    """Ask etcd to change the group, if its key still has this revision."""

    group: Group
    revision: int


class Note(msgspec.Struct, frozen=True):
    """Write the list of epochs to the disk."""

    epochs: Epochs


class CutTo(msgspec.Struct, frozen=True):
    """Cut the log off here, and write its list of epochs."""

    end: int
    epochs: Epochs


class Welcome(msgspec.Struct, frozen=True):
    """Answer a handshake."""

    broker_id: int
    answer: Welcomed


class Accept(msgspec.Struct, frozen=True):
    """Be the master from now on."""


class StepDown(msgspec.Struct, frozen=True):
    """Be no master any more: acknowledge nothing, waiting sends fail."""


class Bar(msgspec.Struct, frozen=True):
    """Take no part any more, and say why."""

    reason: str


class Admit(msgspec.Struct, frozen=True):
    """Take part again."""


Action = Seek | Join | Propose | Note | CutTo | Welcome | Accept | StepDown | Bar | Admit
