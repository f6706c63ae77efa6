"""Sure or unsure: how long a master may believe that nobody else was elected.

Acknowledgements of sends do not need it; locks, commits and registrations do. Times are milliseconds of a clock that
goes on while the machine sleeps (CLOCK_BOOTTIME), as arguments. Invariant: an answer counts from the moment *before*
its request was sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

HEARD_FOR = 1500
"""How long a member's answer to a heartbeat holds, in ms: it stands for election only after so long a silence."""
_MARGIN = 10
"""Per cent of a lease that are not relied on: two clocks differ in speed."""


def sure_until(
    members: frozenset[int], master: int, leased: tuple[int, int] | None, heard: Mapping[int, int]
) -> int | None:
    """Until when a master is sure; None when it is sure without end, alone in its set.

    Args:
        members: of its set, and who is proposed for it (``in_sync.counted``)
        leased: when the last renewal of its lease that was answered was sent, and the lease's time to live
        heard: when the last heartbeat that each broker answered was sent
    """
    others = members - {master}
    if not others:
        return None
    by_lease = leased[0] + leased[1] * (100 - _MARGIN) // 100 if leased is not None else 0
    return max(by_lease, _by_members(others, heard))


def _by_members(others: Iterable[int], heard: Mapping[int, int]) -> int:
    """All of them must have answered: one that did not may have elected itself."""
    return min(heard.get(broker_id, -HEARD_FOR) for broker_id in others) + HEARD_FOR


def sure(now: int, until: int | None) -> bool:
    """Whether a master that is sure ``until`` then is sure now."""
    return until is None or now < until
