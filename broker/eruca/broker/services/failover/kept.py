"""The newest group that a broker has known, in former lives too, and whether what etcd has is older.

Owns that value, and the order: it is on the disk before anything is done by it. Must not know what follows from an
older one. Invariant: it never goes back.
"""

from __future__ import annotations

import structlog

from eruca.broker.failover.election import lacks_epochs
from eruca.broker.failover.group import Group
from eruca.broker.failover.member import Member, State
from eruca.broker.services.failover.ports import Office

log = structlog.get_logger("eruca.broker.failover")


class Kept:
    """What one broker has kept; ``load`` before anything else."""

    def __init__(self, office: Office) -> None:
        self.group: Group | None = None
        self._office = office
        self._told = False
        """Whether the log says why this broker does not stand."""

    def load(self) -> None:
        """Know what was kept in a former life. Raises OSError."""
        self.group = self._office.kept()

    async def keep(self, member: Member) -> None:
        """Keep the group that etcd has now, as this broker knows it."""
        known = member.known
        if known is None or known.group == self.group or member.state is State.BARRED:
            return
        self.group = known.group
        try:
            await self._office.keep(known.group)
        except OSError as fault:
            log.error(
                "group_not_kept", fault=str(fault), consequence="if etcd loses the group, this broker cannot tell"
            )

    async def is_written_again(self) -> bool:
        """Whether the disk takes it once more: who is to lead is not to find out afterwards that its disk hangs."""
        if self.group is None:
            return True
        try:
            await self._office.keep(self.group)
        except OSError as fault:
            self._not_electable(str(fault))
        else:
            self._told = False
        return not self._told

    def look_at_epochs(self, member: Member, group: Group) -> None:
        """Say it in the log when a member may not lead because it has lost the list of its epochs."""
        if lacks_epochs(group, member.epoch, member.sound_end):
            self._not_electable("it has lost the list of its epochs (epochFileCheckpoint), and follows before it leads")

    def _not_electable(self, fault: str) -> None:
        if not self._told:
            log.error("not_electable", fault=fault, consequence="this broker does not stand for election")
        self._told = True

    def why_forgotten(self, group: Group | None, epoch: int) -> str | None:
        """Why etcd knows less than this broker, whose log has ``epoch``; None while it does not.

        A group of an older epoch than the log's is for the rules to see.
        """
        kept = self.group
        if group is None:
            known = max(epoch, kept.master_epoch if kept is not None else 0)
            return f"etcd has no group, but this broker knows epoch {known}: etcd was emptied" if known else None
        if kept is not None and kept.lineage and group.lineage and kept.lineage != group.lineage:
            return "etcd has another group of this name, which was founded again: this log is not of that one"
        if kept is None or group.age >= kept.age:
            return None
        return (
            f"etcd has epoch {group.master_epoch} and syncStateSetEpoch {group.sync_state_set_epoch}, but this broker "
            f"has known {kept.master_epoch} and {kept.sync_state_set_epoch}: etcd was restored"
        )
