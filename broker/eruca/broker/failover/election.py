"""The election: who may become master, and who goes first.

Owns the conditions of standing for election; the transaction that elects is ``Group.elect``, and any member of the set
would be safe. A broker takes a new store id whenever its log may lack what it had: on another disk, after damage, after
a power failure with ASYNC_FLUSH. So a set with its stores says who has all that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eruca.broker.failover.group import Group


class Candidate(NamedTuple):
    """What a broker says of itself when somebody wants to stand."""

    broker_id: int
    store: str
    epoch: int
    """The newest epoch of its log."""
    end: int
    priority: int
    """``brokerElectionPriority``: of logs of the same length, the lowest goes first."""
    has_tables: bool = True
    """``Member.has_tables``."""


def may_stand(group: Group, broker_id: int, store: str, epoch: int, end: int) -> bool:
    """Whether a broker whose log has entries up to ``epoch``, and is sound up to ``end``, has what was acknowledged.

    A log with a newer epoch than etcd's: etcd was restored or emptied, and knows nothing.
    """
    return group.has(broker_id, store) and epoch <= group.master_epoch and not lacks_epochs(group, epoch, end)


def lacks_epochs(group: Group, epoch: int, end: int) -> bool:
    """Whether a log that others of the set have, too, has lost the list of its epochs: what it would begin as a master
    would have nothing in common with theirs. A founder whose list was not written yet is alone in the set; and what
    lies behind damage at the very beginning is in no epoch."""
    return not epoch and end > 0 and len(group.sync_state_set) > 1


def first(group: Group, candidates: Iterable[Candidate]) -> Candidate | None:
    """Who of those that may stand is to stand: who has the tables, then the longest log, the priority, the lowest id.

    All of them have all messages that were acknowledged. But one that was killed has lost the commits and locks that it
    kept in memory, and the others have them.
    """
    able = [each for each in candidates if may_stand(group, each.broker_id, each.store, each.epoch, each.end)]
    return min(able, key=lambda each: (not each.has_tables, _rank(each)), default=None)


def _rank(candidate: Candidate) -> tuple[int, int, int, int]:
    return -candidate.epoch, -candidate.end, candidate.priority, candidate.broker_id
