"""What a reset does to each queue, as typed results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from eruca.admin.resets.acts import Done
from eruca.admin.resets.engine import Reset
from eruca.admin.results.answer import NONE, WIDE, Moment, Result


class QueueMove(Result, frozen=True, kw_only=True, rename="camel"):
    """A queue that a reset moves, or would move."""

    topic: str
    broker: str
    queue_id: int
    min_offset: Annotated[int, WIDE]
    max_offset: int
    stored_offset: Annotated[int | None, NONE]
    """Where the group was; None where it had no offset."""
    target_offset: int
    target: Annotated[Moment | None, WIDE]
    """The time to which the group is moved, if it is one."""
    message_there: Annotated[Moment | None, NONE]
    """When the message at the target was stored; None where there is none."""
    again: int
    """Consumed messages that come again."""
    skipped: int
    """Messages that were not consumed and will not be."""
    member: Annotated[str | None, WIDE]
    moved: bool | None
    """Whether it is known to have moved; None for a dry run."""
    group: Annotated[str, WIDE]


def moves(reset: Reset, done: Done | None) -> Iterator[QueueMove]:
    """The queues of a reset; ``done`` is what moved, None for a dry run."""
    owners, target = reset.owners, reset.target.timestamp
    for move in reset.plan.moves:
        queue, seen = move.seen.queue, move.seen
        yield QueueMove(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            min_offset=seen.first,
            max_offset=seen.end,
            stored_offset=seen.stored,
            target_offset=move.new if done is None else done.offsets.get(queue, move.new),
            target=Moment.known(target),
            message_there=Moment.known(reset.times.get(queue)),
            again=move.again,
            skipped=move.skipped,
            member=owners.get(queue),
            moved=None if done is None else queue in done.offsets,
            group=reset.survey.group,
        )


class StoredCopy(Result, frozen=True, kw_only=True, rename="camel"):
    """An offset that a group got from another one."""

    group: str
    topic: str
    broker: str
    queue_id: int
    offset: int
