"""Who uses what is about to be deleted: members of groups, their lag, producers.

Nothing here fails because a peer is silent: what is not known is None, and the peer stands in ``errors``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from eruca.admin.client import HEAVY, Admin
from eruca.admin.errors import AdminError, NotFound, PeerRefused
from eruca.admin.lookups import MISSING_GROUPS, Progress, ask_each, groups_of, members_of, progress, progress_in
from eruca.admin.results.answer import Result, Table, errors_of
from eruca.admin.results.metrics import user_groups
from eruca.admin.results.progress import Lag
from eruca.admin.text import counted
from eruca.protocol import api
from eruca.protocol.bodies import ConsumerOffsets, ProducerTableInfo, TopicConfigSerializeWrapper


class GroupInUse(Result, frozen=True, kw_only=True, rename="camel"):
    """A consumer group with members that are online."""

    group: str
    members: int
    lag: Lag | None
    """Of the topic that was asked about, or of all its topics; None where it is not known."""

    def __str__(self) -> str:
        lag = "?" if self.lag is None else str(self.lag)
        return f"group {self.group}: {self.members} online, {counted(lag, 'message')} not consumed"


class Users(Table[GroupInUse], frozen=True, kw_only=True, rename="camel"):
    """The consumer groups that use something now."""


async def users_of_topic(admin: Admin, topic: str) -> Users:
    """The groups of a topic that have members online (105, 300; 203 and 208 for each)."""
    try:
        route = await admin.route(topic)
    except AdminError:
        return Users(items=[])  # it has no route, and so nobody uses it
    groups = await groups_of(admin, route, topic)
    users = await _users(admin, groups.names, lambda group: progress_in(admin, group, topic, route))
    return msgspec.structs.replace(users, errors=errors_of(groups.errors, MISSING_GROUPS) + users.errors)


async def users_of_group(admin: Admin, group: str) -> Users:
    """A group, if it has members online (203 and 208)."""
    return await _users(admin, [group], lambda group: progress(admin, group))


async def _users(admin: Admin, groups: list[str], ask: Callable[[str], Awaitable[Progress]]) -> Users:
    asked = await ask_each({group: _user(admin, group, ask) for group in groups})
    found = [each for group in groups if (each := asked.answers.get(group)) is not None]
    return Users(items=found, errors=errors_of(asked.errors, "whether it has members is not known"))


async def _user(admin: Admin, group: str, ask: Callable[[str], Awaitable[Progress]]) -> GroupInUse | None:
    try:
        members = len((await members_of(admin, group)).connection_set)
    except PeerRefused:
        return None  # no member is online
    lag: Lag | None
    try:
        found = await ask(group)
        lag = Lag(known=max(0, found.stats.lag()), complete=not found.errors)
    except NotFound:
        lag = Lag(known=0, complete=True)  # it has consumed nothing
    except AdminError:
        lag = None
    return GroupInUse(group=group, members=members, lag=lag)


async def users_of_deleted_topics(admin: Admin, address: str) -> list[str]:
    """Who subscribes a topic that a broker does not have any more, in sentences (206; 21, 43, 201; 203 for each group).

    That is one which the broker lacks, and which no other has either or of which the group has an offset there.
    """
    anywhere = set(await admin.all_topics())
    answer, stored = await asyncio.gather(
        admin.call(address, api.GET_ALL_TOPIC_CONFIG), admin.call(address, api.GET_ALL_CONSUMER_OFFSET, timeout=HEAVY)
    )
    there = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table
    offsets = ConsumerOffsets.decode(stored.body).offset_table
    groups = (await user_groups(admin, address)).subscription_group_table
    asked = await ask_each({group: members_of(admin, group, address) for group in sorted(groups)})
    users = []
    for group in sorted(asked.answers):
        members = asked.answers[group]
        missing = set(members.subscription_table) - there.keys()
        gone = sorted(each for each in missing if each not in anywhere or f"{each}@{group}" in offsets)
        if gone:
            users.append(
                f"group {group}: {len(members.connection_set)} online subscribe {', '.join(gone)} at {address}"
            )
    return users


async def producers_at(admin: Admin, address: str) -> dict[str, int]:
    """How many producers of each group a broker has online (328); none where the broker cannot say it."""
    try:
        answer = await admin.call(address, api.GET_ALL_PRODUCER_INFO)
    except AdminError:
        return {}
    groups = ProducerTableInfo.decode(answer.body).data
    return {group: len(members) for group, members in sorted(groups.items()) if members}
