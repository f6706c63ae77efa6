"""Whose turn it is to stand for election, by what the brokers of a group say in etcd.

Owns the decision, as a pure function; times are in ms. A broker whose rivals are up says first how long its log is, and
looks for a moment what they say. Must not know how it is said. Any broker that may stand would be safe: this is for
the longest log, and so that they do not all stand at once.
"""

from __future__ import annotations

from enum import Enum

from eruca.broker.failover.election import Candidate, first
from eruca.broker.failover.member import Member
from eruca.broker.services.failover.keys import Standing, View
from eruca.broker.services.failover.ports import Self

LISTEN = 300
"""How long a broker waits for what the others say."""
PATIENCE = 1500
"""How long it waits for one that should go first."""


class Verdict(Enum):
    """What a broker does that may stand."""

    STAND = "stand"
    SAY = "say"
    """Say how long the log is."""
    WAIT = "wait"


def is_named(view: View, member: Member) -> bool:
    """Whether the former master has named this broker the next one; then nobody waits for anything."""
    known = view.known
    if known is None or view.master is not None:
        return False
    return known.group.master_broker_id == member.broker_id and member.epoch < known.group.master_epoch


def verdict(view: View, member: Member, said: Standing | None, since: int, *, mine: Self) -> Verdict:
    """What to do; ``said`` is what this broker has said, ``since`` how long ago."""
    known = view.known
    assert known is not None
    rivals = [number for number in known.group.sync_state_set if number != member.broker_id and number in view.present]
    if not rivals:
        return Verdict.STAND
    if said is None or said.revision != known.revision:
        return Verdict.SAY
    if since < LISTEN:
        return Verdict.WAIT
    candidates = [Candidate(member.broker_id, member.store, member.epoch, member.end, mine.priority)]
    for number in rivals:
        there = view.present[number]
        if there.standing is not None and there.standing.revision == known.revision:
            standing = there.standing
            candidates.append(Candidate(number, there.store, standing.epoch, standing.end, standing.priority))
    best = first(known.group, candidates)
    turn = best is None or best.broker_id == member.broker_id or since >= PATIENCE
    return Verdict.STAND if turn else Verdict.WAIT
