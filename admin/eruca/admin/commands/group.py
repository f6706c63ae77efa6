"""Commands about consumer groups and producers: settings, members, progress."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Iterator
from functools import partial
from pathlib import Path

import msgspec

from eruca.admin.client import Admin
from eruca.admin.command import (
    BROKER,
    CHANGE,
    DELETION,
    MASTERS,
    WATCH,
    Job,
    Shown,
    agree_to_changes,
    agree_to_deletion,
    command,
    first_of,
)
from eruca.admin.commands.topic import drop_topic
from eruca.admin.errors import BadValue, PeerRefused, Status
from eruca.admin.lookups import ask_each, online, readable_queues, running_info, running_infos
from eruca.admin.posix import INT64, Option
from eruca.admin.results import groups as found
from eruca.admin.results.acts import Act, settings_of
from eruca.admin.results.member_states import MemberState, badly_shared, member_state
from eruca.admin.results.monitor import same_subscription
from eruca.admin.results.users import users_of_group
from eruca.admin.text import columns, digits_text, shown
from eruca.protocol import api
from eruca.protocol.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
    SubscriptionGroupConfig,
)
from eruca.protocol.codes import version_name
from eruca.protocol.headers import topics
from eruca.protocol.names import dead_letter_topic, retry_topic

GROUP = Option("g", "groupName", "name of the consumer group", required=True, kind="group")
CONSUMER_GROUP = Option("g", "consumerGroup", "name of the consumer group", required=True, kind="group")

# ------------------------------------------------------------------ settings of groups


@command(
    "updateSubGroup",
    *first_of(BROKER, MASTERS),
    GROUP,
    Option("s", "consumeEnable", "true (default): it may consume", kind="boolean"),
    Option("m", "consumeFromMinEnable", "true: it may start from the first message; default false", kind="boolean"),
    Option("d", "consumeBroadcastEnable", "true: it may broadcast; default false", kind="boolean"),
    Option("q", "retryQueueNums", "queues of its retry topic; default 1", kind="number"),
    Option("r", "retryMaxTimes", "maximum number of retries of a message; default 16", kind="number", least=-1),
    Option("i", "brokerId", "the broker id that it pulls from; default 0", kind="number", most=INT64),
    Option(
        "w",
        "whichBrokerWhenConsumeSlowly",
        "the broker id to pull from when it lags; default 1",
        kind="number",
        most=INT64,
    ),
    Option(
        "a",
        "notifyConsumerIdsChanged",
        "true (default): its members are notified when others come and go",
        kind="boolean",
    ),
    *CHANGE,
    results=(Act,),
)
async def update_group(job: Job) -> AsyncIterator[Shown]:
    """200 at one broker, or at all masters of a cluster."""
    new = SubscriptionGroupConfig(
        group_name=job.text("g"), consume_from_min_enable=False, consume_broadcast_enable=False
    )
    config = _group_config(job, new)
    address = job.maybe("b")
    masters = [address] if address is not None else await job.admin.masters(job.text("c"))
    olds = (await ask_each({each: found.group_at(job.admin, each, new.group_name) for each in masters})).strict()
    configs = {each: _group_config(job, old) if old and job.has("keep") else config for each, old in olds.items()}
    said = agree_to_changes(job, {each: (old, configs[each]) for each, old in olds.items() if old is not None})
    for each in masters:
        config = configs[each]
        await job.admin.call(each, api.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())
        if each in said:
            job.say(said[each])
        act = Act(action="put", kind="group", name=config.group_name, place=each, settings=settings_of(config))
        yield Shown(act, partial(job.line, f"create subscription group to {each} success."))
    yield Shown(None, partial(job.write, str(config)))


def _group_config(job: Job, start: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    """The settings of ``start``, but for the options that are given."""
    return msgspec.structs.replace(
        start,
        consume_enable=job.truth("s", start.consume_enable),
        consume_from_min_enable=job.truth("m", start.consume_from_min_enable),
        consume_broadcast_enable=job.truth("d", start.consume_broadcast_enable),
        retry_queue_nums=job.number("q", start.retry_queue_nums),
        retry_max_times=job.number("r", start.retry_max_times),
        broker_id=job.number("i", start.broker_id),
        which_broker_when_consume_slowly=job.number("w", start.which_broker_when_consume_slowly),
        notify_consumer_ids_changed_enable=job.truth("a", start.notify_consumer_ids_changed_enable),
    )


@command(
    "deleteSubGroup",
    *first_of(BROKER, MASTERS),
    GROUP,
    Option("r", "removeOffset", "true: remove its offsets too; default false", kind="boolean"),
    *DELETION,
    results=(Act,),
)
async def delete_group(job: Job) -> AsyncIterator[Shown]:
    """207 at one broker, or at all masters of a cluster; there its retry and dead letter topics go too.

    Before, it looks whether members of the group are online.
    """
    group, address = job.text("g"), job.maybe("b")
    request = topics.DeleteSubscriptionGroup(group_name=group, remove_offset=job.truth("r", False))
    places = [address] if address is not None else await job.admin.masters(job.text("c"))
    there = await ask_each({each: found.group_at(job.admin, each, group) for each in places})
    users = await users_of_group(job.admin, group)
    agree_to_deletion(job, [*users.items, *users.errors], f"group {group} is in use. Delete it?")
    known = {each for each in places if each in there.errors or there.answers.get(each)}
    async for each in _delete_group(job, request, address, known):
        yield each
    if not known:
        job.report(f"no broker that was asked had a consumer group {group}", Status.NOT_FOUND)


async def _delete_group(
    job: Job, request: topics.DeleteSubscriptionGroup, address: str | None, known: Collection[str]
) -> AsyncIterator[Shown]:
    """``known`` are the addresses that have the group."""
    group = request.group_name
    if address is not None:
        await job.admin.call(address, api.DELETE_SUBSCRIPTIONGROUP, request)
        yield _deleted(job, group, address, f"broker [{address}]", done=address in known)
        return
    cluster = job.text("c")
    for master in await job.admin.masters(cluster):
        await job.admin.call(master, api.DELETE_SUBSCRIPTIONGROUP, request)
        yield _deleted(job, group, master, f"broker [{master}] in cluster [{cluster}]", done=master in known)
    for topic in (retry_topic(group), dead_letter_topic(group)):
        async for each in drop_topic(job, cluster, topic):
            yield each


def _deleted(job: Job, group: str, address: str, where: str, *, done: bool) -> Shown:
    act = Act(action="delete", kind="group", name=group, place=address, done=done)
    return Shown(act, partial(job.line, f"delete subscription group [{group}] from {where} success."))


@command("getConsumerConfig", GROUP, results=(found.SettingsOfGroup,))
async def get_consumer_config(job: Job) -> Shown:
    """201 at every broker."""
    result = await found.group_settings(job.admin, job.text("g"))

    def apache() -> None:
        for each in result.items:
            job.line(f"============================={each.cluster}:{each.broker}=============================")
            for title, value in msgspec.to_builtins(each).items():
                if title not in ("cluster", "broker"):
                    job.row("%-40s=  %s", title, shown(value))

    return Shown(result, apache)


# ------------------------------------------------------------------ members


@command(
    "consumerConnection",
    CONSUMER_GROUP,
    Option("b", "brokerAddr", "the broker to ask, as host:port", kind="address"),
    results=(found.Members,),
)
async def consumer_connection(job: Job) -> Shown:
    """203."""
    result = await found.members(job.admin, job.text("g"), job.maybe("b"))

    def apache() -> None:
        job.row("%-36s %-22s %-10s %s", "#ClientId", "#ClientAddr", "#Language", "#Version")
        for each in result.items:
            job.row("%-36s %-22s %-10s %s", each.client_id, each.address, shown(each.language), each.version)
        job.line()
        job.line("Below is subscription:")
        job.row("%-20s %s", "#Topic", "#SubExpression")
        for subscription in result.subscriptions:
            job.row("%-20s %s", subscription.topic, shown(subscription.expression))
        job.line()
        job.line(f"ConsumeType: {shown(result.consume_type)}")
        job.line(f"MessageModel: {shown(result.message_model)}")
        job.line(f"ConsumeFromWhere: {shown(result.consume_from_where)}")

    return Shown(result, apache)


@command(
    "producerConnection",
    Option("g", "producerGroup", "name of the producer group", required=True, kind="group"),
    Option("t", "topic", "a topic that it sends to", required=True, kind="topic"),
    results=(found.ProducerMembers,),
)
async def producer_connection(job: Job) -> Shown:
    """204 at each broker of the topic."""
    result = await found.producer_members(job.admin, job.text("g"), job.text("t"))

    def apache() -> None:
        for number, each in enumerate(result.items, 1):
            row = (number, each.client_id, each.address, shown(each.language), each.version)
            job.row("%04d  %-32s %-22s %-8s %s", *row)

    return Shown(result, apache)


@command(
    "consumerStatus",
    CONSUMER_GROUP,
    Option("i", "clientId", "one member; without it a file is written for each", kind="member"),
    Option("b", "brokerAddr", "the broker to ask for the members, as host:port", kind="address"),
    Option("s", "jstack", "with their threads", takes_value=False),
    results=(MemberState,),
    reads=True,
)
async def consumer_status(job: Job) -> AsyncIterator[Shown]:
    """203 at each broker; 307 of each member, side by side."""
    group, jstack = job.text("g"), job.has("s")
    if job.has(WATCH.key) and not job.has("i"):
        raise BadValue(f"option {WATCH} needs -i: without it each look writes a file for each member")
    members = await online(job.admin, group, job.maybe("b"))
    if job.has("i"):
        at = members.at.get(job.text("i"))
        info = await running_info(job.admin, group, job.text("i"), jstack, at=at)
        yield Shown(member_state(job.text("i"), info), partial(job.write, running_text(info)))
        return
    titles = ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    yield Shown(None, partial(job.row, "%-10s %-40s %-20s %s", *titles))
    now = time.time_ns() // 1_000_000
    asked = await running_infos(job.admin, group, members, jstack=jstack)
    versions = {each.client_id: version_name(each.version) for each in members.connection.connection_set}
    for number, (member, info) in enumerate(sorted(asked.answers.items()), 1):
        path = Path(str(now)) / member.replace("/", "_")
        path.parent.mkdir(exist_ok=True)
        path.write_text(running_text(info))
        state = member_state(member, info, file=str(path))
        yield Shown(state, partial(job.row, "%-10d %-40s %-20s %s", number, member, versions[member], path))
    job.missing(members.errors, "members that only it knows are missing")
    job.missing(asked.errors, "its state is missing, and whether each queue has its member is not known")
    if asked.answers:
        complete = not (members.errors or asked.errors)
        wrong = await _sharing(job.admin, members.connection, asked.answers) if complete else None
        yield Shown(None, partial(_print_verdict, job, same_subscription(asked.answers, now), wrong))


async def _sharing(
    admin: Admin, members: ConsumerConnection, infos: dict[str, ConsumerRunningInfo]
) -> list[str] | None:
    """What is wrong with the members' queues; None where they do not share queues, or routes are not known."""
    if members.consume_type != "CONSUME_PASSIVELY" or members.message_model != "CLUSTERING":
        return None
    asked = await ask_each({topic: admin.route(topic) for topic in members.subscription_table})
    if any(not isinstance(error, PeerRefused) for error in asked.errors.values()):
        return None
    queues = [queue for topic, route in asked.answers.items() for queue in readable_queues(topic, route)]
    return badly_shared(queues, infos)


def _print_verdict(job: Job, same: bool, wrong: list[str] | None) -> None:
    if not same:
        job.write("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    job.write("\n\nSame subscription in the same group of consumer\n")
    if wrong is not None:
        job.write(f"\nRebalance {'Failed' if wrong else 'OK'}\n")
        for each in wrong:
            job.say(each)


def running_text(info: ConsumerRunningInfo) -> str:
    """The state of a consumer as text (ConsumerRunningInfo.formatString in 4.9.7)."""
    return "\n".join(_running_lines(info)) + ("" if info.jstack is None else f"\n\n#Consumer jstack#\n{info.jstack}")


def _running_lines(info: ConsumerRunningInfo) -> Iterator[str]:
    yield "#Consumer Properties#"
    for key, value in info.properties.items():
        yield f"{key:<40}: {value}"
    yield from ("", "", "#Consumer Subscription#")
    for number, each in enumerate(info.subscription_set, 1):
        row = (number, each.topic, shown(each.class_filter_mode), shown(each.sub_string))
        yield columns("%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s", *row)
    queues = sorted(info.mq_table.items())
    yield from ("", "", "#Consumer Offset#")
    yield columns("%-64s  %-32s  %-4s  %-20s", "#Topic", "#Broker Name", "#QID", "#Consumer Offset")
    for queue, held in queues:
        yield columns("%-32s  %-32s  %-4d  %-20d", queue.topic, queue.broker_name, queue.queue_id, held.commit_offset)
    yield from ("", "", "#Consumer MQ Detail#")
    yield columns("%-64s  %-32s  %-4s  %-20s", "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    for queue, held in queues:
        yield columns("%-64s  %-32s  %-4d  %s", queue.topic, queue.broker_name, queue.queue_id, _held_text(held))
    yield from ("", "", "#Consumer RT&TPS#")
    yield columns(
        "%-64s  %14s %14s %14s %14s %18s %25s",
        "#Topic",
        "#Pull RT",
        "#Pull TPS",
        "#Consume RT",
        "#ConsumeOK TPS",
        "#ConsumeFailed TPS",
        "#ConsumeFailedMsgsInHour",
    )
    for topic, pace in info.status_table.items():
        yield columns(
            "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d",
            topic,
            pace.pull_rt,
            pace.pull_tps,
            pace.consume_rt,
            pace.consume_ok_tps,
            pace.consume_failed_tps,
            pace.consume_failed_msgs,
        )
    yield ""


def _held_text(held: ProcessQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={held.commit_offset}, cachedMsgMinOffset={held.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={held.cached_msg_max_offset}, cachedMsgCount={held.cached_msg_count}, "
        f"cachedMsgSizeInMiB={held.cached_msg_size_in_mib}, "
        f"transactionMsgMinOffset={held.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={held.transaction_msg_max_offset}, "
        f"transactionMsgCount={held.transaction_msg_count}, locked={shown(held.locked)}, "
        f"tryUnlockTimes={held.try_unlock_times}, lastLockTimestamp={digits_text(held.last_lock_timestamp)}, "
        f"droped={shown(held.droped)}, lastPullTimestamp={digits_text(held.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={digits_text(held.last_consume_timestamp)}]"
    )
