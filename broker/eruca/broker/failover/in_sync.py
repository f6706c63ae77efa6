"""The set in sync: whose ends count, what is confirmed, who comes into the set and who leaves it.

Owns what a master makes of the reports of its replicas (AutoSwitchHAService in RocketMQ 5). Knows no time: that a
replica is silent or too slow is an event of ``member``. Invariants: the confirm offset never passes the end of a member
of the set, nor of one that is proposed for it; who is proposed has all that is confirmed. A member is a broker with the
store that etcd has of it: with another one it is a newcomer.
"""

from __future__ import annotations

import msgspec

from eruca.broker.failover.group import Group


class Report(msgspec.Struct, frozen=True):
    """A replica's word about its log, in the epoch in which it follows."""

    broker_id: int
    store: str
    epoch: int
    end: int
    tables: int = 0
    """The number of the last change of the master's tables that it has."""


class Replica(msgspec.Struct, frozen=True, order=True):
    """What a master knows of one of its replicas, from reports of the present epoch."""

    broker_id: int
    store: str
    end: int
    follows: bool
    """Whether it is connected, and fast enough."""
    tables: int = 0


Replicas = tuple[Replica, ...]
"""Sorted by broker id, each once."""


def of(replicas: Replicas, broker_id: int) -> Replica | None:
    """One of the replicas; None when nothing was heard of it in this epoch."""
    for replica in replicas:
        if replica.broker_id == broker_id:
            return replica
    return None


def without(replicas: Replicas, broker_id: int) -> Replicas:
    """All of the others."""
    return tuple(replica for replica in replicas if replica.broker_id != broker_id)


def heard(replicas: Replicas, report: Report) -> Replicas:
    """The replicas after a report of the present epoch."""
    broker_id = report.broker_id
    new = Replica(broker_id, report.store, report.end, follows=True, tables=report.tables)
    for at, replica in enumerate(replicas):
        if replica.broker_id == broker_id:
            return (*replicas[:at], new, *replicas[at + 1 :])
    return tuple(sorted((*replicas, new)))


def lost(replicas: Replicas, broker_id: int) -> Replicas:
    """The replicas when one of them does not follow any more, or never did in this epoch."""
    return tuple(sorted((*without(replicas, broker_id), Replica(broker_id, "", 0, follows=False))))


def counted(group: Group, proposed: Group | None) -> frozenset[int]:
    """Whose logs an acknowledgement needs: the members of the set, and those that a change not yet decided would bring.

    Who would leave by it counts on: etcd may say no.
    """
    return group.sync_state_set | proposed.sync_state_set if proposed is not None else group.sync_state_set


def rightful(group: Group, proposed: Group | None, replicas: Replicas) -> Replicas:
    """The replicas that are members or proposed ones, each with its store; ``replicas`` itself where all are members.

    Others of the same numbers are not: where the former store of a number is, it may be elected. One that is lost has
    no store.
    """
    for replica in replicas:
        if not group.has(replica.broker_id, replica.store):
            break
    else:
        return replicas
    return tuple(
        each
        for each in replicas
        if group.has(each.broker_id, each.store)
        or (each.broker_id not in group.sync_state_set and proposed and proposed.has(each.broker_id, each.store))
    )


def heir(group: Group, replicas: Replicas) -> int | None:
    """Whom a master names the next one: of the set that follows, the longest log; None where nobody follows."""
    others = [each for each in replicas if each.follows and each.broker_id in group.sync_state_set]
    return max(others, key=lambda each: (each.end, -each.broker_id)).broker_id if others else None


def enough(group: Group, proposed: Group | None, least: int) -> bool:
    """Whether the set has ``least`` members (minInSyncReplicas), whatever becomes of a change not yet decided."""
    smaller = min(len(group.sync_state_set), len(proposed.sync_state_set) if proposed is not None else least)
    return smaller >= least


def confirm_offset(confirmed: int, own: int, master: int, members: frozenset[int], replicas: Replicas) -> int:
    """Up to where all of the members have the log; never less than was ``confirmed``.

    A member of which nothing was heard in this epoch holds it where it is.
    """
    end, unheard = own, len(members) - (master in members)
    for replica in replicas:
        if replica.broker_id in members and replica.broker_id != master:
            unheard -= 1
            if replica.end < end:
                end = replica.end
    return end if end > confirmed and not unheard else confirmed


def confirm_number(confirmed: int, own: int, master: int, members: frozenset[int], replicas: Replicas) -> int:
    """As ``confirm_offset``, of the numbered changes of tables."""
    numbers = {replica.broker_id: replica.tables for replica in replicas}
    return max(confirmed, min([own, *(numbers.get(each, confirmed) for each in members if each != master)]))


def acknowledged_offset(
    acknowledged: int, own: int, master: int, members: frozenset[int], replicas: Replicas, least: int
) -> int:
    """Up to where ``least`` of the members have the log, the master among them (inSyncReplicas); never less than
    before."""
    ends = [own, *(replica.end for replica in replicas if replica.broker_id in members - {master})]
    return max(acknowledged, sorted(ends, reverse=True)[least - 1]) if len(ends) >= least else acknowledged


def change(group: Group, replicas: Replicas, confirmed: int, tables: int, epoch_start: int) -> Group | None:
    """The set that a master has to propose; None while etcd's is right.

    Out goes who does not follow. In comes who has all that is confirmed, of log and of ``tables``, and reached the
    epoch's start: also a member with another store than the one it was taken in with (a new disk, or a log that may
    have lost its end).
    """
    members = set(group.sync_state_set)
    stores: dict[int, str] = {}
    for replica in replicas:
        broker_id = replica.broker_id
        if not replica.follows:
            members.discard(broker_id)
        elif group.has(broker_id, replica.store):
            pass
        elif replica.end >= max(confirmed, epoch_start) and replica.tables >= tables:
            members.add(broker_id)
            stores[broker_id] = replica.store
    if not stores and members == group.sync_state_set:
        return None
    return group.change(frozenset(members), stores)
