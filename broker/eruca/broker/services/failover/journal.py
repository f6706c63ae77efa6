"""The lines in the log about what a broker becomes in its group, each with its reason.

Owns the words for the events that lead there. Must not know what follows.
"""

from __future__ import annotations

import structlog

from eruca.broker.failover.events import (
    Changed,
    Event,
    Forgotten,
    MasterLost,
    MasterSilent,
    NotChanged,
    Noted,
    Read,
    Recreate,
    Welcomed,
)
from eruca.broker.failover.group import Group
from eruca.broker.failover.member import Member, State

log = structlog.get_logger("eruca.broker.failover")

_REASONS: dict[type[object], str] = {
    MasterSilent: "the master's key in etcd is gone, and nothing was heard of it",
    MasterLost: "the connection to the master ended",
    Welcomed: "the master has answered, and the log is its own so far",
    Noted: "the new epoch is on the disk",
    Recreate: "an operator has it write the group again",
    NotChanged: "etcd had another group meanwhile",
}


def note(before: Member, after: Member, event: Event) -> None:
    """A line for another state, for another syncStateSet of a master, and about a master that lost its store."""
    known = after.known
    if after.state is State.SEEKING and known is not None and _has_lost_its_store(after, known.group):
        others = ", ".join(map(str, sorted(known.group.sync_state_set - {after.broker_id})))
        start = f"start another broker of the syncStateSet ({others}), or " if others else ""
        log.warning(
            "not_electable",
            epoch=known.group.master_epoch,
            reason="etcd names this broker the master, but with another store: this one is new, lost its end, or was "
            "used outside of the group",
            remedy=f"{start}bring the disk with that store back, or do what the runbook says at no-master",
        )
    if before.state is not after.state:
        log.info(
            "failover_state",
            former=before.state.value,
            state=after.state.value,
            epoch=known.group.master_epoch if known is not None else 0,
            master=known.group.master_broker_id if known is not None else None,
            end=after.end,
            reason=_reason(after, event),
        )
    if after.state is State.MASTER and known is not None and before.known is not None:
        members, former = known.group.sync_state_set, before.known.group.sync_state_set
        if members != former:
            log.info(
                "sync_state_set",
                members=sorted(members),
                former=sorted(former),
                epoch=known.group.sync_state_set_epoch,
                reason=_of_the_set(members - former, former - members),
            )


def _has_lost_its_store(member: Member, group: Group) -> bool:
    return group.master_broker_id == member.broker_id and not group.has(member.broker_id, member.store)


def _reason(after: Member, event: Event) -> str:
    group = after.known.group if after.known is not None else None
    match event:
        case Forgotten(reason):
            return reason
        case Read() | Changed() if group is not None and after.state is not State.BARRED:
            elected = after.state in (State.PROMOTING, State.MASTER)
            return "etcd has elected it" if elected else f"etcd names broker {group.master_broker_id} the master"
        case _:
            return _REASONS.get(type(event), "its log and the group's do not fit")


def _of_the_set(came: frozenset[int], gone: frozenset[int]) -> str:
    told = [f"broker {number} has all that is confirmed" for number in sorted(came)]
    told += [f"broker {number} is lost, or made no progress" for number in sorted(gone)]
    return "; ".join(told)
