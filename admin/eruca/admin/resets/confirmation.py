"""Whether a reset came true: looks until every queue of the members was seen at its new place.

Owns the looks (14 for the stored offset, 307 for the members) and the judgement. Changes nothing. A queue that went on
stands at or beyond its new offset. A queue that went back was seen below where it had been, stored there or held by a
member; or a member that pauses was seen to drop it, and to hold it again (Java's); or a member counts one reset more of
that queue, to that offset, which the broker has stored (Eruca's). The looks begin before the reset: a member may
consume all of it again before the last broker has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, Partial
from eruca.admin.lookups import stored_offset
from eruca.admin.resets.plan import Plan, Way
from eruca.admin.resets.survey import Survey, owners, silent_members, states
from eruca.admin.resets.targets import shown
from eruca.protocol.bodies import RESETS, ConsumerRunningInfo, ProcessQueueInfo, decode_resets
from eruca.protocol.queues import MessageQueue

JAVA_PAUSE = 10.0
"""Seconds for which Java's members wait after a 220, before they begin at the new offset (MQClientInstance)."""
_SOON, _LATER = 0.02, 0.25
"""Seconds between looks at the brokers: at first, and in the end."""
_MEMBERS_EVERY = 0.5


class Confirmation:
    """The looks at one reset; ``async with`` ends them."""

    def __init__(self, admin: Admin, survey: Survey, plan: Plan) -> None:
        self._admin = admin
        self._survey = survey
        self._infos = survey.infos
        self._dropped: set[MessageQueue] = set()
        self._waiting = {
            move.seen.queue: (step.broker.address, move)
            for step in plan.steps
            if step.way in (Way.PUSHED, Way.PUSHED_EACH)
            for move in step.moves
        }
        self._pushed = frozenset(self._waiting)
        self._pausing = any(
            state.droped for info in survey.infos.values() if info is not None for state in info.mq_table.values()
        )
        """Whether a member of Java pauses after a reset before: it does this one after that."""
        self._looks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Confirmation:
        """Begin to look."""
        if self._waiting:
            self._looks = [asyncio.create_task(self._at_brokers()), asyncio.create_task(self._at_members())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._looks:
            task.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)

    def waiting(self) -> frozenset[MessageQueue]:
        """The queues of members that were not seen at their new place yet."""
        return frozenset(self._waiting)

    async def wait(self, moved: Collection[MessageQueue], within: float, say: Callable[[str], None]) -> None:
        """Wait until all queues of members that ``moved`` were seen there. Raises Partial after ``within`` seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        pushed = set(moved) & self._pushed
        if not pushed:
            return
        java = any(member.language == "JAVA" for member in self._survey.members.values())
        pauses = len({queue.broker_name for queue in pushed}) - 1 + self._pausing
        hint = f"; Java members begin after {JAVA_PAUSE:.0f} s for each broker" if java else ""
        deadline = began + within + (JAVA_PAUSE * pauses if java else 0)
        while pushed & self._waiting.keys():
            if loop.time() > deadline:
                raise Partial(self._left(pushed, loop.time() - began))
            await asyncio.sleep(_SOON)
        say(f"{len(pushed)} of {len(pushed)} queues moved ({loop.time() - began:.1f} s{hint})")

    async def _at_brokers(self) -> None:
        """The stored offsets, again and again."""
        pause = _SOON
        while self._waiting:
            asked = list(self._waiting.items())
            stored = await asyncio.gather(*(self._stored(address, queue) for queue, (address, _) in asked))
            for (queue, _), at in zip(asked, stored, strict=True):
                if at is not None:
                    self._see(queue, at)
            await asyncio.sleep(pause)
            pause = min(pause * 1.1, _LATER)

    async def _at_members(self) -> None:
        """What the members hold, again and again; one that does not answer holds up nothing but these looks."""
        while self._waiting:
            self._infos = await states(self._admin, self._survey)
            for member, info in self._infos.items():
                if info is not None:
                    self._see_member(info, self._survey.infos.get(member))
            await asyncio.sleep(_MEMBERS_EVERY)

    def _see_member(self, info: ConsumerRunningInfo, before: ConsumerRunningInfo | None) -> None:
        known = {} if before is None else decode_resets(before.properties.get(RESETS, ""))
        for queue, (count, offset) in decode_resets(info.properties.get(RESETS, "")).items():
            is_new = before is not None and count > known.get(queue, (0, 0))[0]
            if is_new and queue in self._waiting and offset == self._waiting[queue][1].new:
                del self._waiting[queue]
        for queue, state in info.mq_table.items():
            self._see_held(queue, state)

    def _see_held(self, queue: MessageQueue, state: ProcessQueueInfo) -> None:
        if state.droped:
            self._dropped.add(queue)
        elif queue in self._dropped:
            self._waiting.pop(queue, None)
        elif state.commit_offset >= 0:
            self._see(queue, state.commit_offset)

    def _see(self, queue: MessageQueue, at: int) -> None:
        if queue not in self._waiting:
            return
        _, move = self._waiting[queue]
        if at >= move.new and (move.new >= move.start or at < move.start):
            del self._waiting[queue]

    async def _stored(self, address: str, queue: MessageQueue) -> int | None:
        try:
            return await stored_offset(self._admin, address, self._survey.group, queue)
        except AdminError:
            return None

    def _left(self, pushed: Collection[MessageQueue], seconds: float) -> str:
        """The sentence about the queues that still wait, and whose they are."""
        left = sorted(each for each in self._waiting if each in pushed)
        silent = silent_members(self._infos)
        quiet = f"; no answer from {', '.join(silent)}" if silent else ""
        of = owners(self._infos)
        unknown = "whose it is, is not known" if silent else "no member has it"
        names = ", ".join(f"{shown(each)} ({of.get(each, unknown)})" for each in left)
        return (
            f"{len(pushed) - len(left)} of {len(pushed)} queues were seen to move in {seconds:.0f} s, not: {names}"
            f"{quiet}; see whether these members run (mqadmin consumerStatus), then reset again"
        )
