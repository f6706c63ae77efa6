"""Whose turn it is to stand for election, by what the brokers of a group say in etcd.

Owns the decision, as a pure function; times are in ms. A broker whose rivals are up says first how long its log is, and
looks for a moment what they say. Must not know how it is said. Any broker that may stand has all messages that were
acknowledged: this is for the longest log, and so that they do not all stand at once. But who was started again lets
those go first that have the tables: only they have the commits and locks that were kept in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from eruca.broker.failover.election import Candidate, first
from eruca.broker.failover.member import Member
from eruca.broker.services.failover.keys import Present, Standing, View
from eruca.broker.services.failover.ports import Self

LISTEN = 300
"""How long a broker waits for what the others say."""
PATIENCE = 1500
"""How long it waits for one that should go first."""
LONG_PATIENCE = 3000
"""The same of one without the tables. Others say nothing before the master was silent for a while."""


class Verdict(Enum):
    """What a broker does that may stand."""

    STAND = "stand"
    SAY = "say"
    """Say how long the log is."""
    WAIT = "wait"


def is_named(view: View, member: Member) -> bool:
    """Whether the former master has named this broker the next one, which has the tables; then nobody waits."""
    known = view.known
    if known is None or view.master is not None or not member.has_tables:
        return False
    return known.group.master_broker_id == member.broker_id and member.epoch < known.group.master_epoch


def verdict(view: View, member: Member, said: Standing | None, since: int, *, mine: Self) -> Verdict:
    """What to do; ``said`` is what this broker has said, ``since`` how long ago."""
    known = view.known
    assert known is not None
    others = rivals(view, member)
    if not others:
        return Verdict.STAND
    if said is None or said.revision != known.revision:
        return Verdict.SAY
    if since < LISTEN:
        return Verdict.WAIT
    candidates = [member.candidate(mine.priority)]
    for number, there in others.items():
        if there.standing is not None and there.standing.revision == known.revision:
            said_there = there.standing
            candidates.append(
                Candidate(
                    number, there.store, said_there.epoch, said_there.end, said_there.priority, said_there.has_tables
                )
            )
    if since >= (PATIENCE if member.has_tables else LONG_PATIENCE):
        return Verdict.STAND
    if not member.has_tables and len(candidates) <= len(others):
        return Verdict.WAIT
    best = first(known.group, candidates)
    return Verdict.STAND if best is None or best.broker_id == member.broker_id else Verdict.WAIT


def rivals(view: View, member: Member) -> Mapping[int, Present]:
    """The other brokers that are up and may stand."""
    if view.known is None:
        return {}
    group = view.known.group
    return {
        number: there
        for number, there in view.present.items()
        if number != member.broker_id and group.has(number, there.store)
    }
