"""The rules about consumer groups and their members. Pure: findings from what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from eruca.admin.diagnosis.brokers import SKEW_MS, listed
from eruca.admin.diagnosis.findings import ALONE, WAITING, Finding
from eruca.admin.diagnosis.survey import GroupSeen, MemberSeen, Seen
from eruca.admin.lookups import AT_LEAST
from eruca.admin.text import counted
from eruca.protocol.bodies import PERM_READ, SubscriptionData
from eruca.protocol.names import is_retry_topic
from eruca.protocol.queues import MessageQueue

LEAST_RETRIES = 10
"""Messages to retry in half an hour, below which nobody is parts that they grow."""
NO_PULL_MS = 120_000
"""How old the last pull of a member may be: it pulls every 30 seconds, when nothing comes."""
_STARTED = "PROP_CONSUMER_START_TIMESTAMP"


def findings(seen: Seen, group: GroupSeen) -> Iterator[Finding]:
    """All that is wrong with a group."""
    yield from _use(seen, group)
    yield from _subscriptions(group)
    yield from _owners(seen, group)
    yield from _connections(seen, group)
    for client_id, member in sorted(group.members.items()):
        yield from _clock(group, client_id, member)
    yield from _failures(group)


def _use(seen: Seen, group: GroupSeen) -> Iterator[Finding]:
    if group.asked and not group.online:
        cluster = min(each.cluster for each in seen.masters if each.name in group.asked)
        yield Finding(
            kind="groupUnused",
            where=f"group {group.name}",
            what=_unused(group.lag),
            mend=f"start a consumer, or remove it with deleteSubGroup -c {cluster} -g {group.name}",
            group=group.name,
        )


def _unused(lag: str | None) -> str:
    if lag is None or lag == "0":
        return ALONE
    if lag == AT_LEAST.format("0"):
        return f"{ALONE}; whether messages wait is not known of every broker"
    return f"{WAITING}{counted(lag, 'message')} {'waits' if lag == '1' else 'wait'}"


# ------------------------------------------------------------------ subscriptions


def _subscriptions(group: GroupSeen) -> Iterator[Finding]:
    wanted = {
        client_id: {_topic(each) for each in member.info.subscription_set if not is_retry_topic(each.topic)}
        for client_id, member in sorted(group.members.items())
    }
    wanted = {client_id: topics for client_id, topics in wanted.items() if topics}
    shared = set.intersection(*wanted.values()) if wanted else set()
    own = {client_id: topics - shared for client_id, topics in wanted.items()}
    if any(own.values()):
        parts = [
            f"{client_id} wants {' and '.join(sorted(topics)) or 'none of that'}" for client_id, topics in own.items()
        ]
        yield Finding(
            kind="subscriptionsDiffer",
            where=f"group {group.name}",
            what=f"its members subscribe differently: {listed(parts)}; what a queue's owner does not want is lost",
            mend="let all members subscribe the same, or give the others a group of their own",
            group=group.name,
            member=next(client_id for client_id, topics in own.items() if topics),
        )


def _topic(each: SubscriptionData) -> str:
    """A topic and its expression, in one spelling."""
    text = each.sub_string or "*"
    if each.expression_type == "TAG":
        text = " || ".join(sorted({tag.strip() for tag in text.split("||")} - {""}))
    return f"{each.topic} [{text or '*'}]"


# ------------------------------------------------------------------ queues and brokers


def _shares_queues(group: GroupSeen) -> bool:
    """Whether the members share the queues among them, and all of them reported which ones they have."""
    kinds = {(each.consume_type, each.message_model) for each in group.online.values()}
    return kinds == {("CONSUME_PASSIVELY", "CLUSTERING")} and group.client_ids == set(group.members)


def _owners(seen: Seen, group: GroupSeen) -> Iterator[Finding]:
    if not _shares_queues(group):
        return
    held = Counter(
        queue
        for member in group.members.values()
        for queue, process_queue in member.info.mq_table.items()
        if not process_queue.droped
    )
    for topic in sorted(group.subscribed):
        queues = [
            MessageQueue(topic, broker.name, queue_id)
            for broker in seen.masters
            if (config := broker.topics.get(topic)) is not None and config.perm & PERM_READ
            for queue_id in range(config.read_queue_nums)
        ]
        where = f"group {group.name}, topic {topic}"
        if alone := [_shown(queue) for queue in queues if not held[queue]]:
            yield Finding(
                kind="queueWithoutOwner",
                where=where,
                what=f"no member consumes {_plural(alone)} {listed(alone)}",
                mend="if that lasts longer than a rebalance (20 s): compare the members' allocation and subscriptions",
                group=group.name,
                topic=topic,
            )
        if twice := [_shown(queue) for queue in queues if held[queue] > 1]:
            yield Finding(
                kind="queueWithTwoOwners",
                where=where,
                what=f"several members consume {_plural(twice)} {listed(twice)}, and messages come twice",
                mend="if that lasts longer than a rebalance (20 s): do members share a client id, or a strategy?",
                group=group.name,
                topic=topic,
            )


def _shown(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def _plural(names: list[str]) -> str:
    return "queue" if len(names) == 1 else "queues"


def _connections(seen: Seen, group: GroupSeen) -> Iterator[Finding]:
    """Members that a broker does not know although it has queues of the group's topics."""
    needed = [
        broker.name
        for broker in seen.masters
        if broker.name in group.asked and any(topic in broker.topics for topic in group.subscribed)
    ]
    known = {
        broker: {each.client_id for each in group.online[broker].connection_set} if broker in group.online else set()
        for broker in needed
    }
    for client_id in sorted(group.client_ids):
        lacking = [broker for broker in needed if client_id not in known[broker]]
        if lacking and len(needed) > 1:
            there = [broker for broker in needed if client_id in known[broker]]
            yield Finding(
                kind="memberNotEverywhere",
                where=f"group {group.name}, member {client_id}",
                what=f"it is connected to {listed(there)} and not to {listed(lacking)}",
                mend="if that lasts longer than a heartbeat (30 s): see whether it reaches the address of that broker",
                group=group.name,
                member=client_id,
                broker=lacking[0],
            )


# ------------------------------------------------------------------ clocks and failures


def _clock(group: GroupSeen, client_id: str, member: MemberSeen) -> Iterator[Finding]:
    """A member's times lie in its past: one that is to come says that its clock is ahead."""
    pulls = [each.last_pull_timestamp for each in member.info.mq_table.values() if not each.droped]
    started = member.info.properties.get(_STARTED, "")
    latest = max([*pulls, int(started) if started.isdecimal() else 0])
    if latest > member.answered + SKEW_MS:
        what = f"its clock is {(latest - member.answered) / 1000:.1f} s or more ahead of this machine's"
    elif pulls and 0 < max(pulls) < member.asked - NO_PULL_MS:
        ago = (member.asked - max(pulls)) // 1000
        what = (
            f"by its clock it last pulled {ago} s ago: the clock is behind this machine's, or the member stands still"
        )
    else:
        return
    yield Finding(
        kind="memberClock",
        where=f"group {group.name}, member {client_id}",
        what=what,
        mend="run a time service (chrony, ntpd) there, and look at the member with consumerStatus",
        group=group.name,
        member=client_id,
    )


def _failures(group: GroupSeen) -> Iterator[Finding]:
    now, before = group.retries.half_hour, group.retries.half_hour_before
    if now >= LEAST_RETRIES and now > before:
        yield Finding(
            kind="retriesGrow",
            where=f"group {group.name}",
            what=f"{now} messages came to be consumed again in the last half hour, {before} in the one before",
            mend="see in the members' logs why their listeners fail",
            group=group.name,
        )
    lost = group.dead_letters.half_hour + group.dead_letters.half_hour_before
    became = "became a dead letter" if lost == 1 else "became dead letters"
    if lost:
        yield Finding(
            kind="deadLettersGrow",
            where=f"group {group.name}",
            what=f"{counted(lost, 'message')} {became} in the last hour",
            mend=f"mend the listener; mqadmin move -g {group.name} sends them to their topic again",
            group=group.name,
        )
