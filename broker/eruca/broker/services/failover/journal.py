"""The lines in the log about what a broker becomes in its group. Must not know why."""

from __future__ import annotations

import structlog

from eruca.broker.failover.member import Member, State

log = structlog.get_logger("eruca.broker.failover")


def note(before: Member, after: Member) -> None:
    """A line for another state, and one for another syncStateSet of a master."""
    known = after.known
    if before.state is not after.state:
        log.info(
            "failover_state",
            former=before.state.value,
            state=after.state.value,
            epoch=known.group.master_epoch if known is not None else 0,
            master=known.group.master_broker_id if known is not None else None,
            end=after.end,
        )
    if after.state is State.MASTER and known is not None and before.known is not None:
        members, former = known.group.sync_state_set, before.known.group.sync_state_set
        if members != former:
            log.info(
                "sync_state_set",
                members=sorted(members),
                former=sorted(former),
                epoch=known.group.sync_state_set_epoch,
            )
