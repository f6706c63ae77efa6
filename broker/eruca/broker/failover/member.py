"""One broker of a group: what it knows, and what it does at each event.

Owns the states, and the order in which election, epochs and the set in sync are used. ``Rules.step`` is a pure function
of a ``Member`` and an event; whoever calls it does what the actions say, in their order, before the next event.
Contract of that caller:

- ``end`` and ``epochs`` are on its disk as here; all else is forgotten when it ends.
- Calls to etcd follow one another, and reads are linearizable. An outcome that is unknown is no event.
- The former connection of a replica that comes again is closed before its handshake is an event: its reports are lost.
- A handshake names the epoch that the replica expects, and a master of another one does not answer it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from eruca.broker.failover import election, in_sync
from eruca.broker.failover import epochs as lists
from eruca.broker.failover.epochs import Epochs
from eruca.broker.failover.events import (
    Accept,
    Action,
    Admit,
    Asked,
    Bar,
    Changed,
    Copied,
    CutTo,
    Event,
    Forgotten,
    HandOver,
    Join,
    MasterLost,
    MasterSilent,
    NotChanged,
    Note,
    Noted,
    Propose,
    Read,
    Recreate,
    ReplicaLost,
    Reported,
    Seek,
    StepDown,
    Stored,
    TablesChanged,
    TablesCopied,
    Welcome,
    Welcomed,
)
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Replicas, Report


class State(Enum):
    """What a broker is in its group. A master that is unsure (``sureness``) remains one, and holds back answers."""

    SEEKING = "seeking"
    """It knows no master."""
    JOINING = "joining"
    """It knows one, and has not compared its log with the master's yet."""
    FOLLOWING = "following"
    CANDIDATE = "candidate"
    """It has asked etcd to elect it."""
    PROMOTING = "promoting"
    """It is elected, and its epoch is not on its disk yet."""
    MASTER = "master"
    BARRED = "barred"
    """Its log does not belong to the group's, or etcd has forgotten the group: an operator decides."""


MASTER, FOLLOWING = State.MASTER, State.FOLLOWING
"""Each message asks for these two; a member of an enumeration is looked up slowly by its class."""


class Known(NamedTuple):
    """A group as it was in etcd, and the revision of its key then."""

    group: Group
    revision: int


class Member(msgspec.Struct, frozen=True):
    """What a broker knows of itself and its group."""

    broker_id: int
    store: str
    end: int = 0
    """Where its log ends."""
    epochs: Epochs = ()
    state: State = State.SEEKING
    known: Known | None = None
    confirmed: int = 0
    """Up to where it may show its log."""
    acknowledged: int = 0
    """At a master whose messages fewer than all of the set have to have: up to where sends are answered with 0."""
    tables: int = 0
    """The number of the last change of the tables, in the present epoch, that it has: at a master, of all changes. What
    a master begins with is number 1; 0 is nothing."""
    tables_confirmed: int = 0
    """At a master: up to which number all of the set have them."""
    has_tables: bool = False
    """Whether it has led, or got the tables of a master, since it was started: what a broker keeps in memory only
    (offsets, locks) is lost when it is killed."""
    proposed: Group | None = None
    """The change that it asked etcd for, while it is not known what became of it."""
    replicas: Replicas = ()
    forgotten: bool = False
    """Whether it is barred as long as etcd's group is not the one that it has known."""
    lacking: int = 0
    """The epoch of a master whose log lacked what was confirmed here."""
    damaged_at: int | None = None
    """Where damage of its log was covered: from there on it is no master's, whatever its epochs say."""

    @property
    def epoch(self) -> int:
        """The newest epoch of its log; 0 without one."""
        return self.epochs[-1].epoch if self.epochs else 0

    @property
    def sound_end(self) -> int:
        """Up to where its log is as it was written."""
        return self.end if self.damaged_at is None else min(self.damaged_at, self.end)

    @property
    def reached_epoch(self) -> int:
        """The newest epoch that its log, as far as it is sound, has come to; 0 without one. The list may name a later
        one: it is on the disk before the bytes, which a power failure takes under ASYNC_FLUSH."""
        end = self.sound_end
        reached = lists.cut(self.epochs, end if end < self.end else end + 1)
        return reached[-1].epoch if reached else 0

    def candidate(self, priority: int) -> election.Candidate:
        """What it says of itself when somebody wants to stand: what follows damage is nothing that others lack."""
        return election.Candidate(
            self.broker_id, self.store, self.reached_epoch, self.sound_end, priority, self.has_tables
        )


class Step(msgspec.Struct, frozen=True):
    """What a broker knows after an event, and what it has to do."""

    member: Member
    actions: tuple[Action, ...] = ()
    report: Report | None = None
    """What it has to tell its master, after the actions."""


class Promise(msgspec.Struct, frozen=True):
    """What a broker may show and answer."""

    confirmed: int
    """Up to here the log may be shown ..."""
    acknowledged: int
    """... and sends may be answered with 0 ..."""
    tables: int
    """... and changes of tables up to this number."""
    takes_sends: bool
    """False at a master whose set has, or may have, fewer members than minInSyncReplicas."""


class Rules:
    """How a member answers events. Each decision on which acknowledged messages depend is a method of its own.

    ``acknowledging`` is how many members of the set have to have what is acknowledged (inSyncReplicas), None for all.
    """

    def __init__(self, min_in_sync_replicas: int = 1, acknowledging: int | None = None) -> None:
        self._least = min_in_sync_replicas
        self._acknowledging = acknowledging

    def promise(self, member: Member) -> Promise:
        """What a member may show and answer."""
        enough, confirmed = self._least <= 1 or self._has_enough(member), member.confirmed
        acknowledged = confirmed if self._acknowledging is None else member.acknowledged
        return Promise(confirmed, acknowledged, member.tables_confirmed, enough)

    def _has_enough(self, member: Member) -> bool:
        """Whether a member that leads has a set of minInSyncReplicas."""
        leads = member.known if member.state is MASTER else None
        return leads is None or in_sync.enough(leads.group, member.proposed, self._least)

    # ---- decisions

    def counted(self, member: Member, known: Known) -> frozenset[int]:
        """Whose logs an acknowledgement needs."""
        return in_sync.counted(known.group, member.proposed)

    def counts(self, member: Member, known: Known, report: Report) -> bool:
        """Whether a report counts: only one of this epoch."""
        return report.epoch == known.group.master_epoch

    def wanted(self, member: Member, known: Known) -> Group | None:
        """The set that a master has to propose: who is in it has all that is confirmed, of log and tables."""
        start = member.epochs[-1].start
        return in_sync.change(known.group, member.replicas, member.confirmed, member.tables_confirmed, start)

    def may_stand(self, member: Member, known: Known) -> bool:
        """Whether a member has all that was acknowledged."""
        return election.may_stand(known.group, member.broker_id, member.store, member.epoch, member.sound_end)

    def cut_point(self, member: Member, answer: Welcomed) -> int | None:
        """Up to where a member's log is the master's; None when nothing says that they share a byte."""
        end = member.sound_end
        if end == 0:
            return 0
        return lists.cut_point(lists.cut(member.epochs, end), end, answer.epochs, answer.end)

    def is_decided(self, known: Known, read: Read) -> bool:
        """Whether a change that was asked for with ``known`` cannot happen any more, or has: the key moved on.

        A key that is as before says nothing: the request may still be under way.
        """
        return read.revision != known.revision

    def waits_for_others(self, member: Member) -> bool:
        """Whether nothing follows from a longer log of a master before another event: others have to have it first."""
        known = member.known
        if member.state is not MASTER or known is None or self._acknowledging is not None:
            return False
        return len(self.counted(member, known)) > 1

    def takes_part(self, member: Member, group: Group) -> bool:
        """Whether etcd knows no less than a member's log: it does after it was emptied, or restored from a backup."""
        return member.epoch <= group.master_epoch

    # ---- events

    def step(self, member: Member, event: Event) -> Step:
        """What a member knows after an event, and what it has to do."""
        if isinstance(event, Copied):
            return self._copied(member, event)
        if isinstance(event, Reported):
            return self._reported(member, event)
        if member.state is State.BARRED:
            return self._barred(member, event)
        if isinstance(event, Read):
            return self._read(member, event)
        if isinstance(event, Forgotten):
            return self._forget(member, event)
        known = member.known
        if known is None:
            return Step(member)
        match event:
            case Stored() | Asked() | ReplicaLost() | TablesChanged():
                return self._lead(member, known, event)
            case Welcomed() | TablesCopied() | MasterLost():
                return self._follow(member, known, event)
            case Changed():
                return self._changed(member, event)
            case NotChanged():
                return Step(member, (Seek(),))
            case MasterSilent():
                return self._stand(member, known)
            case Noted():
                return self._accept(member, known)
            case HandOver(broker_id):
                return self._hand_over(member, known, broker_id)
            case Recreate():
                return Step(member)

    # ---- etcd was emptied or restored

    def _forget(self, member: Member, event: Forgotten) -> Step:
        known, proposed = member.known, member.proposed
        if proposed is not None and known is not None and known.revision == event.revision:
            return Step(member, (Propose(proposed, event.revision),))  # it is about to write the group again
        barred = replace(member, state=State.BARRED, forgotten=True, proposed=None)
        return Step(barred, (Bar(event.reason),))

    def _barred(self, member: Member, event: Event) -> Step:
        """A group that etcd has forgotten is there again when an operator, or a newer backup, has brought it."""
        if not member.forgotten:
            return Step(member)
        match event:
            case Recreate(group, revision):
                known = Known(group, revision)
                stands = replace(member, state=State.CANDIDATE, forgotten=False, known=known, proposed=group)
                return Step(stands, (Admit(), Propose(group, revision)))
            case Read(group) if self.takes_part(member, group) and group.master_epoch > member.lacking:
                fresh = replace(member, state=State.SEEKING, forgotten=False, known=None, proposed=None, replicas=())
                step = self._read(fresh, event)
                return Step(step.member, (Admit(), *step.actions))
        return Step(member)

    def _read(self, member: Member, read: Read) -> Step:
        known = member.known
        if known is not None and not self.is_decided(known, read):
            again = (Propose(member.proposed, known.revision),) if member.proposed is not None else ()
            return Step(member, again)
        group = read.group
        if not self.takes_part(member, group):
            reason = f"etcd has epoch {group.master_epoch}, but the log has epoch {member.epoch}"
            return self._forget(member, Forgotten(f"{reason}: etcd was emptied or restored", read.revision))
        new = replace(member, known=Known(group, read.revision), proposed=None)
        if known is not None and known.group.master_epoch == group.master_epoch and member.state is not State.CANDIDATE:
            return self._set_moved(new) if new.state is State.MASTER else Step(new)
        if member.state is State.CANDIDATE and member.proposed == group:
            return self._promote(new, group)  # its own request, of whose outcome it has heard nothing
        ended: tuple[Action, ...] = (StepDown(),) if member.state in (State.PROMOTING, State.MASTER) else ()
        if group.master_broker_id == member.broker_id:  # of a former life
            return Step(replace(new, state=State.SEEKING, replicas=()), ended)
        joining = replace(new, state=State.JOINING, replicas=())
        return Step(joining, (*ended, Join(group.master_broker_id, group.master_epoch)))

    def _changed(self, member: Member, event: Changed) -> Step:
        assert member.proposed is not None
        group = member.proposed
        new = replace(member, known=Known(group, event.revision), proposed=None)
        if member.state is State.CANDIDATE:
            return self._promote(new, group)
        if group.master_broker_id != member.broker_id:
            joining = replace(new, state=State.JOINING, replicas=())
            return Step(joining, (StepDown(), Join(group.master_broker_id, group.master_epoch)))
        return self._set_moved(new)

    # ---- election

    def _stand(self, member: Member, known: Known) -> Step:
        if member.state not in (State.SEEKING, State.JOINING, State.FOLLOWING) or not self.may_stand(member, known):
            return Step(member)
        wanted = known.group.elect(member.broker_id, member.store)
        new = replace(member, state=State.CANDIDATE, proposed=wanted)
        return Step(new, (Propose(wanted, known.revision),))

    def _promote(self, member: Member, group: Group) -> Step:
        """What follows damage is of the new epoch: nobody else has it."""
        start = member.sound_end
        former = lists.cut(member.epochs or lists.adopted(member.end), start)
        epochs = lists.begin(former, group.master_epoch, start)
        new = replace(member, state=State.PROMOTING, epochs=epochs, replicas=(), damaged_at=None)
        return Step(new, (Note(epochs),))

    def _accept(self, member: Member, known: Known) -> Step:
        """All of the log is the truth now, and so are the tables: they are number 1, which whoever comes into the set
        has to have."""
        if member.state is not State.PROMOTING or member.epoch != known.group.master_epoch:
            return Step(member)
        new = replace(member, state=State.MASTER, confirmed=member.end, tables=1, tables_confirmed=1, has_tables=True)
        if self._acknowledging is not None:
            new = replace(new, acknowledged=member.end)
        return Step(new, (Accept(),))

    # ---- a follower

    def _follow(self, member: Member, known: Known, event: Welcomed | TablesCopied | MasterLost) -> Step:
        epoch = known.group.master_epoch
        match event:
            case Welcomed() if member.state in (State.JOINING, State.FOLLOWING) and event.master_epoch == epoch:
                return self._join(member, event)  # also of the next connection, after the word of one that has ended
            case TablesCopied() if member.state is State.FOLLOWING and event.master_epoch == epoch:
                new = replace(member, tables=event.number, has_tables=True)
                return Step(new, report=self._report(new, epoch))
            case MasterLost() if member.state is State.FOLLOWING:
                joining = replace(member, state=State.JOINING)
                return Step(joining, (Seek(), Join(known.group.master_broker_id, epoch)))
        return Step(member)

    def _join(self, member: Member, answer: Welcomed) -> Step:
        if not member.epochs and 0 < member.sound_end == answer.same:
            return self._adopt(member, answer)
        end = self.cut_point(member, answer)
        if end is None:
            reason = "the log has nothing in common with the master's: empty the store, or start it in another group"
            return Step(replace(member, state=State.BARRED), (Bar(reason),))
        if end < member.confirmed:
            reason = (
                f"the master's log is the same up to {end} only, and this one was confirmed up to {member.confirmed}: "
                "etcd was restored, or the group was recreated without this broker; started again, it is cut back"
            )
            barred = replace(member, state=State.BARRED, forgotten=True, lacking=answer.master_epoch)
            return Step(barred, (Bar(reason),))
        epochs = lists.cut(member.epochs, end)
        new = self._following(member, end, epochs, answer)
        report = self._report(new, answer.master_epoch)
        return Step(new, (CutTo(end, epochs),) if end < member.end else (), report)

    def _adopt(self, member: Member, answer: Welcomed) -> Step:
        """Its log, which has no epochs, is the beginning of the master's: then so is the list of its epochs."""
        end = member.sound_end
        epochs = lists.cut(answer.epochs, end)
        new = self._following(member, end, epochs, answer)
        report = self._report(new, answer.master_epoch)
        return Step(new, (CutTo(end, epochs) if end < member.end else Note(epochs),), report)

    def _following(self, member: Member, end: int, epochs: Epochs, answer: Welcomed) -> Member:
        """A member whose log ends at ``end`` from now on, and is the master's up to there."""
        confirmed = min(answer.confirmed, end)
        return replace(
            member, state=State.FOLLOWING, end=end, epochs=epochs, confirmed=confirmed, tables=0, damaged_at=None
        )

    def _copied(self, member: Member, event: Copied) -> Step:
        known, epoch, part = member.known, event.master_epoch, event.part
        if member.state is not FOLLOWING or known is None or known.group.master_epoch != epoch:
            return Step(member)
        end, confirmed = event.end, event.confirmed
        new = replace(member, end=end, confirmed=confirmed if confirmed < end else end)
        if part is None or part in member.epochs:
            return Step(new, (), self._report(new, epoch))
        new = replace(new, epochs=lists.begin(member.epochs, part.epoch, part.start))
        return Step(new, (Note(new.epochs),), self._report(new, epoch))

    def _report(self, member: Member, epoch: int) -> Report:
        return Report(member.broker_id, member.store, epoch, member.end, member.tables)

    # ---- a master

    def _reported(self, member: Member, event: Reported) -> Step:
        known, report = member.known, event.report
        if member.state is not MASTER or known is None or not self.counts(member, known, report):
            return Step(member)
        return self._set_moved(member, in_sync.heard(member.replicas, report), event.end)

    def _lead(self, member: Member, known: Known, event: Asked | ReplicaLost | Stored | TablesChanged) -> Step:
        if member.state is not State.MASTER:
            return Step(member)
        match event:
            case Asked(broker_id):
                new = replace(member, replicas=in_sync.without(member.replicas, broker_id))
                answer = Welcomed(known.group.master_epoch, member.epochs, member.end, member.confirmed)
                return Step(new, (Welcome(broker_id, answer),))
            case ReplicaLost(broker_id):
                # what it has reported counts no more: until etcd has taken it out, nothing is confirmed
                return self._set_moved(member, in_sync.lost(member.replicas, broker_id))
            case Stored(end):
                return self._set_moved(member, end=end)
            case TablesChanged(number):
                return self._set_moved(replace(member, tables=number))

    def _hand_over(self, member: Member, known: Known, broker_id: int) -> Step:
        """Ask etcd to name another master; it is elected as any other, in the epoch after that one."""
        group = known.group
        of_the_set = broker_id != member.broker_id and broker_id in group.sync_state_set
        if member.state is not State.MASTER or member.proposed is not None or not of_the_set:
            return Step(member)
        wanted = group.hand_over(broker_id)
        return Step(replace(member, proposed=wanted), (Propose(wanted, known.revision),))

    def _set_moved(self, member: Member, replicas: Replicas | None = None, end: int = 0) -> Step:
        """Confirm what all have, and propose the set that is right, if no other change is under way.

        ``replicas`` are those that are known from now on, ``end`` is where the log was written up to, if that is new.
        """
        known, replicas = member.known, member.replicas if replicas is None else replicas
        assert known is not None
        if end < member.end:
            end = member.end
        right = in_sync.rightful(known.group, member.proposed, replicas)
        confirmed, acknowledged, tables = member.confirmed, member.acknowledged, member.tables_confirmed
        if self._least <= 1 or in_sync.enough(known.group, member.proposed, self._least):
            me, members = member.broker_id, self.counted(member, known)
            confirmed = in_sync.confirm_offset(confirmed, end, me, members, right)
            if (least := self._acknowledging) is not None:
                acknowledged = in_sync.acknowledged_offset(acknowledged, end, me, members, right, least)
            if member.tables > tables:
                tables = in_sync.confirm_number(tables, member.tables, me, members, right)
        new = replace(
            member,
            end=end,
            confirmed=confirmed,
            acknowledged=acknowledged,
            tables_confirmed=tables,
            replicas=replicas,
        )
        if member.proposed is not None or right is replicas:
            return Step(new)
        wanted = self.wanted(new, known)
        if wanted is None:
            return Step(new)
        return Step(replace(new, proposed=wanted), (Propose(wanted, known.revision),))
