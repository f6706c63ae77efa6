"""The state of a consumer, as it says it itself (307)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from eruca.admin.results.answer import NONE, WIDE, Moment, Result
from eruca.admin.results.groups import Subscription
from eruca.protocol.bodies import ConsumerRunningInfo
from eruca.protocol.queues import MessageQueue


class HeldQueue(Result, frozen=True, kw_only=True, rename="camel"):
    """A queue that a member has."""

    topic: str
    broker: str
    queue_id: int
    commit_offset: int
    cached: int
    """Messages that it has pulled and not consumed."""
    cached_mib: int
    locked: bool
    dropped: bool
    last_pull: Annotated[Moment | None, NONE]
    last_consume: Annotated[Moment | None, NONE]
    last_lock: Annotated[Moment | None, NONE]


class Pace(Result, frozen=True, kw_only=True, rename="camel"):
    """How fast a member pulls and consumes a topic."""

    topic: str
    pull_ms: float
    pull_per_second: float
    consume_ms: float
    consumed_per_second: float
    failed_per_second: float
    failed_last_hour: int


class MemberState(Result, frozen=True, kw_only=True, rename="camel"):
    """The state of one member of a group."""

    client_id: str
    file: str | None
    """The file that has it as text, if one was written."""
    subscriptions: Annotated[list[Subscription], WIDE]
    queues: Annotated[list[HeldQueue], WIDE]
    paces: Annotated[list[Pace], WIDE]
    properties: Annotated[dict[str, str], WIDE]
    threads: Annotated[str | None, WIDE]
    """The stacks of its threads, if they were asked for."""


def badly_shared(queues: Sequence[MessageQueue], infos: Mapping[str, ConsumerRunningInfo]) -> list[str]:
    """A sentence for each of these queues that not exactly one member of the group has."""
    owners: dict[MessageQueue, list[str]] = {queue: [] for queue in queues}
    for member, info in sorted(infos.items()):
        for queue, held in info.mq_table.items():
            if not held.droped and queue in owners:
                owners[queue].append(member)
    return [
        f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} has "
        + (f"{len(having)} members: {', '.join(having)}" if having else "no member")
        for queue, having in sorted(owners.items())
        if len(having) != 1
    ]


def member_state(client_id: str, info: ConsumerRunningInfo, file: str | None = None) -> MemberState:
    """What a member says."""
    queues = [
        HeldQueue(
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            commit_offset=held.commit_offset,
            cached=held.cached_msg_count,
            cached_mib=held.cached_msg_size_in_mib,
            locked=held.locked,
            dropped=held.droped,
            last_pull=Moment.known(held.last_pull_timestamp),
            last_consume=Moment.known(held.last_consume_timestamp),
            last_lock=Moment.known(held.last_lock_timestamp),
        )
        for queue, held in sorted(info.mq_table.items())
    ]
    paces = [
        Pace(
            topic=topic,
            pull_ms=pace.pull_rt,
            pull_per_second=pace.pull_tps,
            consume_ms=pace.consume_rt,
            consumed_per_second=pace.consume_ok_tps,
            failed_per_second=pace.consume_failed_tps,
            failed_last_hour=pace.consume_failed_msgs,
        )
        for topic, pace in info.status_table.items()
    ]
    subscriptions = [
        Subscription(topic=each.topic, expression=each.sub_string, expression_type=each.expression_type)
        for each in info.subscription_set
    ]
    return MemberState(
        client_id=client_id,
        file=file,
        subscriptions=subscriptions,
        queues=queues,
        paces=paces,
        properties=info.properties,
        threads=info.jstack,
    )
