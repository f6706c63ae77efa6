"""One reset from the first look to the last one.

Owns the order: look, find the target of each queue, decide, say what it means, keep the way back, act, look again.
Knows no option and no column of a command; what a person must know goes to ``say``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, BadValue, NotFound, Partial
from eruca.admin.messages import stored_at
from eruca.admin.resets import ways_back
from eruca.admin.resets.acts import Acts, Done
from eruca.admin.resets.confirmation import Confirmation
from eruca.admin.resets.plan import Move, Options, Plan, check, check_reach, decide, not_all
from eruca.admin.resets.survey import QueueSeen, Survey, look, look_at_members, owners, silent_members
from eruca.admin.resets.targets import Nearest, Only, Since, Table, Target, shown
from eruca.admin.text import counted
from eruca.protocol.names import retry_topic
from eruca.protocol.queues import MessageQueue


@dataclass(slots=True)
class Reset:
    """A reset that was looked at and decided: nothing has moved yet."""

    admin: Admin
    target: Target
    options: Options
    survey: Survey
    plan: Plan
    times: dict[MessageQueue, int | None] = field(default_factory=dict)
    """The time in ms of the message at each target; None where there is none."""
    settled_at: float = 0.0
    """The time of the event loop at which ``plan.settles_in`` is over."""

    @property
    def changes(self) -> bool:
        """Whether any offset will be another, or messages in flight come again."""
        return any(move.changes or move.again or move.skipped for move in self.plan.moves)

    @property
    def owners(self) -> dict[MessageQueue, str]:
        """The member that has each queue."""
        return owners(self.survey.infos)

    @property
    def counts(self) -> tuple[int, int, int]:
        """The messages that come again, the unconsumed ones that are skipped, and the queues without an offset."""
        moves = self.plan.moves
        fresh = sum(move.seen.stored is None for move in moves)
        return sum(move.again for move in moves), sum(move.skipped for move in moves), fresh

    def meaning(self) -> list[str]:
        """What the reset does to messages and members, in lines for a person."""
        again, skipped, fresh = self.counts
        return [
            self.headline(),
            f"{counted(again, 'message')} {'comes' if again == 1 else 'come'} again, "
            f"{skipped} unconsumed {'one is' if skipped == 1 else 'ones are'} skipped"
            + (f", queues without an offset: {fresh}" if fresh else ""),
            *self.remarks(),
        ]

    def headline(self) -> str:
        """Who is moved, and where to."""
        group, topic = self.survey.group, self.survey.topic
        return f"group {group}, topic {topic}, to {self.target.text}, members: {self._members()}"

    def remarks(self) -> list[str]:
        """What is to be known besides: how old messages are, what a broker cannot do, who did not answer."""
        silent = silent_members(self.survey.infos)
        return [*self._ages(), *self.plan.remarks, *([f"no answer from {', '.join(silent)}"] if silent else [])]

    def _members(self) -> str:
        members = sorted(self.survey.members.values(), key=lambda each: each.client_id)
        names = ", ".join(f"{each.language or 'unknown'} {each.client_id}" for each in members)
        return f"{len(members)} online ({names})" if members else "none online"

    def _ages(self) -> list[str]:
        if not isinstance(self.target, Nearest | Since) or self.target.timestamp < 0:
            return []
        asked = self.target.timestamp
        known = {queue: at for queue, at in self.times.items() if at is not None}
        lines = []
        if known:
            queue = min(known, key=lambda each: (known[each], each))
            gap = asked - known[queue]
            if gap > 0:
                lines.append(
                    f"the message at {shown(queue)} is {gap} ms older than the time (as Apache's search finds it)"
                )
        ahead = [move for move in self.plan.moves if move.target > move.seen.first or move.seen.first == move.seen.end]
        if known and not ahead:
            lines.append("the time is before the first message of every queue, or at it")
        is_near = isinstance(self.target, Nearest)
        if asked > time.time() * 1000:
            lines.append(
                "the time is in the future: "
                + ("the last message of each queue comes again" if is_near else "it is the end")
            )
        elif self._is_after_all(asked, is_near):
            lines.append(
                "the time is after the last message of every queue" + (", which comes again" if is_near else "")
            )
        return lines

    def _is_after_all(self, asked: int, is_near: bool) -> bool:
        """Whether no queue has a message at or after a time."""
        filled = [move for move in self.plan.moves if move.seen.first < move.seen.end]
        times = [self.times.get(move.seen.queue) or asked for move in filled]
        last = all(move.target >= move.seen.end - is_near for move in filled)
        return bool(filled) and last and (not is_near or max(times) < asked)


async def prepare(admin: Admin, group: str, topic: str, target: Target, options: Options) -> Reset:
    """Look and decide. Raises AdminError if the reset would not be true; nothing has moved then."""
    survey = await look(admin, group, topic)
    check(survey, options)
    survey = await look_at_members(admin, survey)
    check_reach(survey, options)
    addresses = {broker.name: broker.address for broker in survey.brokers}

    async def wanted(seen: QueueSeen) -> int | None:
        return await target.offset(admin, addresses[seen.queue.broker_name], seen)

    async def there(move: Move) -> int | None:
        queue = move.seen.queue
        if move.target >= move.seen.end:
            return None
        return await stored_at(admin, addresses[queue.broker_name], queue, move.target)

    if isinstance(target, Table) and (lacking := target.lacking(survey)):
        if not options.partial:
            raise NotFound(
                f"nothing was moved: {topic} has no queue {', '.join(lacking)} that consumers read, of which "
                f"{target.text} has an offset; --partial does without"
            )
        survey = replace(survey, missing={**survey.missing, **dict.fromkeys(lacking, "there is no such queue")})
    seen = survey.queues
    found = await asyncio.gather(*(wanted(each) for each in seen))
    targets = {each.queue: offset for each, offset in zip(seen, found, strict=True) if offset is not None}
    plan = decide(survey, targets, target.timestamp, options, is_near=target.is_near)
    times = await asyncio.gather(*(there(move) for move in plan.moves))
    by_queue = {move.seen.queue: at for move, at in zip(plan.moves, times, strict=True)}
    settled_at = asyncio.get_running_loop().time() + plan.settles_in
    return Reset(admin, target, options, survey, plan, by_queue, settled_at)


async def _settle(reset: Reset, say: Callable[[str], None]) -> None:
    """Wait while every broker has just restarted, look and decide again, and say what that means."""
    while reset.plan.settles_in:
        await asyncio.sleep(max(0.0, reset.settled_at - asyncio.get_running_loop().time()))
        survey = reset.survey
        again = await prepare(reset.admin, survey.group, survey.topic, reset.target, reset.options)
        reset.survey, reset.plan, reset.times = again.survey, again.plan, again.times
        reset.settled_at = again.settled_at
        for line in reset.meaning():
            say(line)


async def prepare_all(
    admin: Admin, group: str, places: Mapping[str, Target], options: Options, *, with_retries: bool = False
) -> list[Reset]:
    """Look and decide for several topics, and the retry topic too if that is wished: none moves before all were seen.

    Raises AdminError as ``prepare``, and BadValue for a place that is none of the retry topic.
    """
    wanted = list(places.items())
    if with_retries:
        target = wanted[0][1]
        if isinstance(target, Only):
            raise BadValue("option --with-retries resets whole queues: leave out --queue")
        if target.timestamp is None:
            raise BadValue("option --with-retries needs a time, first or last: an offset names messages of one topic")
        wanted.append((retry_topic(group), target))
    resets = [await prepare(admin, group, topic, target, options) for topic, target in wanted]
    _check_queues(resets)
    return resets


def of_several(resets: Sequence[Reset], number: int, error: AdminError) -> AdminError:
    """The error of one of several resets, with its topic and those that were not begun."""
    if len(resets) == 1:
        return error
    left = [other.survey.topic for other in resets[number + 1 :]]
    text = f"topic {resets[number].survey.topic}: {error}" + (f"; not begun: {', '.join(left)}" if left else "")
    return Partial(text) if number or isinstance(error, Partial) else AdminError(text)


def _check_queues(resets: Sequence[Reset]) -> None:
    """Raise NotFound for a queue that was named and that none of the topics has, unless its broker did not answer."""
    wanted = {queue for each in resets if isinstance(each.target, Only) for queue in each.target.queues}
    surveys = [reset.survey for reset in resets]
    known = {(seen.queue.broker_name, seen.queue.queue_id) for each in surveys for seen in each.queues}
    silent = {name for each in surveys for name in each.missing}
    lacking = sorted(each for each in wanted if each not in known and each[0] not in silent)
    if lacking:
        topics = ", ".join(each.topic for each in surveys)
        names = ", ".join(f"{broker}:{queue}" for broker, queue in lacking)
        raise NotFound(f"nothing was moved: {topics} has no queue {names} that consumers read")


@contextlib.asynccontextmanager
async def performed(
    reset: Reset, environment: Mapping[str, str], say: Callable[[str], None], within: float
) -> AsyncIterator[Done]:
    """Keep the way back and move the group; at the end of ``async with``, look until its members were seen to move.

    Brokers that have all just restarted are waited for first. The members have ``within`` seconds to move (0: do not
    look). The end raises Partial if a broker failed, or if a queue was not seen to move; AdminError if nothing moved at
    all. What was left out on demand is said by ``check_left_out``.
    """
    await _settle(reset, say)
    survey = reset.survey
    acts = Acts(reset.admin, survey.group, survey.topic, force=reset.options.force)
    await acts.until_members_are_known(reset.plan)
    path = None
    try:
        path = ways_back.keep(environment, survey.group, survey.topic, reset.plan)
        if path is not None:
            say(f"the way back: mqadmin resetOffset -g {survey.group} --from-file {path}")
    except AdminError as error:
        say(f"{error}; they are, as lines of a file for --from-file:")
        for move in reset.plan.moves:
            if move.seen.stored is not None:
                say(f"{move.seen.queue.topic} {shown(move.seen.queue)} {move.seen.stored}")
    async with Confirmation(reset.admin, survey, reset.plan) as confirmation:
        done = await acts.do(reset.plan, reset.target.timestamp)
        done.way_back, done.waiting = path, confirmation.waiting
        yield done
        if done.failures:
            reasons = "; ".join(f"{name}: {error}" for name, error in sorted(done.failures.items()))
            if not done.offsets:
                raise AdminError(f"nothing is known to have moved: {reasons}; mend that, and reset again")
            raise Partial(f"only the queues above have moved: {reasons}; mend that, and reset again")
        if within > 0:
            await confirmation.wait(done.offsets.keys(), within, say)


def check_left_out(resets: Sequence[Reset]) -> None:
    """Raise Partial if a broker or a queue was left out of resets that are done."""
    several = len(resets) > 1
    missing = {
        f"{name} of {reset.survey.topic}" if several else name: reason
        for reset in resets
        for name, reason in reset.plan.missing.items()
    }
    if missing:
        raise not_all(missing)


async def untouched(admin: Admin, group: str) -> int:
    """The messages that wait in the group's retry topic, which a reset of another topic does not touch."""
    try:
        survey = await look(admin, group, retry_topic(group))
    except AdminError:
        return 0
    return sum(max(0, seen.end - (seen.first if seen.stored is None else seen.stored)) for seen in survey.queues)
