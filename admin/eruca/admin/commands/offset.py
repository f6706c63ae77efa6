"""Commands that move consumer groups: to a time, to the end, to the offsets of another group.

Brokers move online members (222, 220) and store nothing. When no member is online, the command stores the offsets at
the brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

from eruca.admin.client import Admin, broker_addresses
from eruca.admin.command import TOPIC, Job, command
from eruca.admin.errors import AdminError, PeerRefused
from eruca.admin.lookups import END, consume_stats, consume_stats_at, offset_at, store_offset, topic_stats_at
from eruca.admin.posix import Option
from eruca.admin.text import point_of_time, shown
from eruca.protocol import api
from eruca.protocol.bodies import ConsumerOffsets, OffsetWrapper, ResetOffsetBody, TopicRouteData
from eruca.protocol.codes import ResponseCode
from eruca.protocol.headers import offsets
from eruca.protocol.queues import MessageQueue

GROUP = Option("g", "group", "name of the consumer group", required=True)
FORCE = Option("f", "force", "false: move only back; default true")

_RESET = "%-40.32s  %-40s  %-40s"
_ROLLBACK = "%-20.32s  %-20s  %-20s  %-20s  %-20s  %-20s"


@dataclass(frozen=True, slots=True)
class Rollback:
    """The reset of one queue of an offline group (RollbackStats in 4.9.7)."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    rollback_offset: int


@command(
    "resetOffsetByTime",
    "move a consumer group to a time",
    GROUP,
    TOPIC,
    Option("s", "timestamp", "ms since 1970, yyyy-MM-dd#HH:mm:ss:SSS, or now for the end", required=True),
    FORCE,
    Option("c", "cplus", "for groups with members in C++", takes_value=False),
)
async def reset_by_time(job: Job) -> None:
    """222 at each broker of the topic; when no member is online (206), stores the offsets at the brokers."""
    text = job.text("s")
    timestamp = END if text == "now" else point_of_time(text)
    what = (
        f"[{job.text('g')}], topic[{job.text('t')}], force[{shown(job.truth('f', True))}], "
        f"timestamp(string)[{text}], timestamp(long)[{timestamp}]"
    )
    await _reset(
        job,
        timestamp,
        f"rollback consumer offset by specified group{what}",
        f"rollback consumer offset by specified consumerGroup{what}",
    )


@command("skipAccumulatedMessage", "move a consumer group to the end of a topic", GROUP, TOPIC, FORCE)
async def skip_accumulated(job: Job) -> None:
    """As resetOffsetByTime to the end."""
    await _reset(job, END, None, None)


async def _reset(job: Job, timestamp: int, online_title: str | None, offline_title: str | None) -> None:
    topic, group, force = job.text("t"), job.text("g"), job.truth("f", True)
    route = await job.admin.route(topic)
    try:
        moved = await reset_online(job.admin, route, topic, group, timestamp, force)
    except PeerRefused as refused:
        if refused.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        rollbacks = await reset_offline(job.admin, route, topic, group, timestamp, force)
        _print_rollbacks(job, offline_title, rollbacks)
        return
    if online_title is not None:
        job.line(online_title)
    job.row(_RESET, "#brokerName", "#queueId", "#offset")
    for queue, offset in sorted(moved.items()):
        job.row(_RESET, queue.broker_name, queue.queue_id, offset)


def _print_rollbacks(job: Job, title: str | None, rollbacks: list[Rollback]) -> None:
    if title is not None:
        job.line(title)
    titles = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset")
    job.row(_ROLLBACK, *titles)
    for each in rollbacks:
        row = (each.broker_offset, each.consumer_offset, each.timestamp_offset, each.rollback_offset)
        job.row(_ROLLBACK, each.queue.broker_name, each.queue.queue_id, *row)


async def reset_online(
    admin: Admin, route: TopicRouteData, topic: str, group: str, timestamp: int, force: bool
) -> dict[MessageQueue, int]:
    """Let each broker of a topic move the online members of a group; returns the offset of each queue.

    Raises PeerRefused: 206 when no member is online, 1 when a queue has no offset yet (the error names it).
    """
    request = offsets.ResetOffset(topic=topic, group=group, timestamp=timestamp, is_force=force)
    moved: dict[MessageQueue, int] = {}
    for name, address in broker_addresses(route):
        try:
            answer = await admin.call(address, api.INVOKE_BROKER_TO_RESET_OFFSET, request)
        except PeerRefused as refused:
            if refused.code == ResponseCode.SYSTEM_ERROR and "not exist" in refused.remark:
                await _name_fresh_queues(admin, route, name, refused, f"{topic}@{group}")
            raise
        if answer.body:
            moved |= ResetOffsetBody.decode(answer.body).offset_table
    return moved


async def _name_fresh_queues(admin: Admin, route: TopicRouteData, name: str, refused: PeerRefused, key: str) -> None:
    """Raise AdminError with the queues for which a group (``topic@group``) has no offset, if there are any."""
    answer = await admin.call(refused.address, api.GET_ALL_CONSUMER_OFFSET)
    known = ConsumerOffsets.decode(answer.body).offset_table.get(key, {})
    count = next((queue.write_queue_nums for queue in route.queue_datas if queue.broker_name == name), 0)
    fresh = [str(queue) for queue in range(count) if known.get(queue, -1) < 0]
    if fresh:
        queues = f"queue {fresh[0]}" if len(fresh) == 1 else f"queues {', '.join(fresh)}"
        topic, group = key.split("@", 1)
        raise AdminError(
            f"THe consumer group <{group}> not exist (code {refused.code} from {refused.address}): it has no offset "
            f"yet for {queues} of topic {topic} on broker {name}, so nothing was moved there; let a consumer of the "
            "group run until it has committed (5 s), then try again"
        )


async def reset_offline(
    admin: Admin, route: TopicRouteData, topic: str, group: str, timestamp: int, force: bool
) -> list[Rollback]:
    """Store the offsets of a time at each broker of a topic, for a group without online members."""
    rollbacks = []
    for name, address in broker_addresses(route):
        for queue, offset in sorted((await _offline_offsets(admin, route, name, address, topic, group)).items()):
            rollbacks.append(await _roll_back(admin, address, group, queue, offset, timestamp, force))
    return rollbacks


async def _offline_offsets(
    admin: Admin, route: TopicRouteData, name: str, address: str, topic: str, group: str
) -> dict[MessageQueue, OffsetWrapper]:
    """The offsets of a group; a group that never consumed the topic counts as being at the first message."""
    stats = await consume_stats_at(admin, address, group)
    consumed = {queue: offset for queue, offset in stats.offset_table.items() if queue.topic == topic}
    if consumed:
        return consumed
    readable = next((queue.read_queue_nums for queue in route.queue_datas if queue.broker_name == name), 0)
    return {
        queue: OffsetWrapper(broker_offset=offset.max_offset, consumer_offset=offset.min_offset)
        for queue, offset in (await topic_stats_at(admin, address, topic)).items()
        if queue.queue_id < readable
    }


async def _roll_back(
    admin: Admin, address: str, group: str, queue: MessageQueue, now: OffsetWrapper, timestamp: int, force: bool
) -> Rollback:
    target = await offset_at(admin, address, queue, timestamp)
    wanted = target if force or target <= now.consumer_offset else now.consumer_offset
    if wanted == target:
        await store_offset(admin, address, group, queue, target)
    return Rollback(queue, now.broker_offset, now.consumer_offset, target, wanted)


@command(
    "cloneGroupOffset",
    "copy the offsets of a consumer group to another one",
    Option("s", "srcGroup", "the group to copy from", required=True),
    Option("d", "destGroup", "the group to copy to", required=True),
    Option("t", "topic", "the topic that names the brokers; all topics of the group are copied", required=True),
    Option("o", "offline", "accepted without effect, as by Apache's"),
)
async def clone_group_offset(job: Job) -> None:
    """208 of the one group, then 15 for each queue of the other."""
    source, target, topic = job.text("s"), job.text("d"), job.text("t")
    stats = await consume_stats(job.admin, source)
    brokers = dict(await job.admin.brokers_of(topic))
    for queue, offset in sorted(stats.offset_table.items()):
        if queue.broker_name in brokers and offset.consumer_offset >= 0:
            await store_offset(job.admin, brokers[queue.broker_name], target, queue, offset.consumer_offset)
    job.write(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")
