"""The acts of a reset: 15 and 222, at all brokers side by side.

Owns the requests, and the report of what moved. Decides nothing. Invariant: a queue counts as moved only if its broker
said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, PeerRefused
from eruca.admin.lookups import members_of, store_offset
from eruca.admin.resets.plan import Move, Plan, Step, Way
from eruca.admin.resets.survey import HEARTBEAT_WITHIN, Kind
from eruca.admin.resets.targets import shown
from eruca.protocol import api
from eruca.protocol.bodies import ResetOffsetBody
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.offsets import ResetOffset
from eruca.protocol.queues import MessageQueue

_EVERY = 0.5


@dataclass(slots=True)
class Done:
    """What moved, and at which brokers (by name) something failed."""

    offsets: dict[MessageQueue, int] = field(default_factory=dict)
    failures: dict[str, AdminError] = field(default_factory=dict)
    way_back: Path | None = None
    """The file with the offsets from before, if there were any."""
    waiting: Callable[[], frozenset[MessageQueue]] = frozenset
    """The queues that were not seen at their new place yet."""


class Acts:
    """The acts for one group and topic; without ``force`` a queue moves only back."""

    def __init__(self, admin: Admin, group: str, topic: str, *, force: bool = True) -> None:
        self._admin = admin
        self._group = group
        self._topic = topic
        self._force = force

    async def until_members_are_known(self, plan: Plan) -> None:
        """Wait for the heartbeats that a plan waits for. Raises AdminError if a broker gets none."""
        await _all(self._until_members_are_known(step) for step in plan.steps if step.waits)

    async def do(self, plan: Plan, timestamp: int | None) -> Done:
        """Do all steps. ``timestamp`` is the time for Way.PUSHED. A failure at one broker does not stop the others."""
        done = Done()
        await asyncio.gather(*(self._step(step, timestamp, done) for step in plan.steps))
        return done

    async def _step(self, step: Step, timestamp: int | None, done: Done) -> None:
        try:
            if step.way is Way.STORED:
                await _first_alone(step, step.moves, lambda move: self._store(step, move, done))
                return
            if step.way is not Way.NOTHING:
                fresh = [move for move in step.moves if move.seen.stored is None]
                await _first_alone(step, fresh, lambda move: self._begin(step, move))
            if step.way is Way.PUSHED and timestamp is not None:
                done.offsets |= await self._push(step, self._request(timestamp))
            for move in step.moves:
                if move.seen.queue in done.offsets:
                    continue
                if step.way is Way.NOTHING or not (self._force or move.changes):
                    done.offsets[move.seen.queue] = move.new
                elif step.way is Way.PUSHED_EACH or step.broker.kind is not Kind.APACHE_4:
                    done.offsets |= await self._push(step, self._request(0, move))
            left = [
                move
                for move in step.moves
                if move.seen.queue not in done.offsets and not step.broker.is_only_read(move.seen)
            ]
            if left:
                names = ", ".join(shown(move.seen.queue) for move in left)
                raise AdminError(f"{step.broker.address} did not say that it moved {names}")
        except AdminError as error:
            done.failures[step.broker.name] = error
        except ProtocolError as error:
            done.failures[step.broker.name] = AdminError(f"{step.broker.address} answered what cannot be read: {error}")

    def _request(self, timestamp: int, move: Move | None = None) -> ResetOffset:
        return ResetOffset(
            topic=self._topic,
            group=self._group,
            timestamp=timestamp,
            is_force=self._force,
            queue_id=None if move is None else move.seen.queue.queue_id,
            offset=None if move is None else move.new,
        )

    async def _store(self, step: Step, move: Move, done: Done) -> None:
        if move.changes:
            await self._put(step, move, move.new)
        done.offsets[move.seen.queue] = move.new

    async def _begin(self, step: Step, move: Move) -> None:
        """A broker moves members only if the group has an offset in each queue: give it the first one."""
        await self._put(step, move, move.seen.first)

    async def _put(self, step: Step, move: Move, offset: int) -> None:
        """15. A broker of RocketMQ 5 refuses it for a group that it does not have."""
        address = step.broker.address
        try:
            await store_offset(self._admin, address, self._group, move.seen.queue, offset)
        except PeerRefused as refused:
            if refused.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            raise AdminError(
                f"{address} stores no offset for a group that it does not have: create it with "
                f"mqadmin updateSubGroup -b {address} -g {self._group}, then do this again"
            ) from None

    async def _push(self, step: Step, request: ResetOffset) -> dict[MessageQueue, int]:
        """222: the queues that it says it moved. If its members have just gone (206), it is asked again with them."""
        try:
            answer = await self._admin.call(step.broker.address, api.INVOKE_BROKER_TO_RESET_OFFSET, request)
        except PeerRefused as refused:
            if refused.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            await self._until_members_are_known(step)
            answer = await self._admin.call(step.broker.address, api.INVOKE_BROKER_TO_RESET_OFFSET, request)
        table = ResetOffsetBody.decode(answer.body).offset_table if answer.body else {}
        return {move.seen.queue: table[move.seen.queue] for move in step.moves if move.seen.queue in table}

    async def _until_members_are_known(self, step: Step) -> None:
        deadline = asyncio.get_running_loop().time() + HEARTBEAT_WITHIN
        while not step.absent <= (known := await self._known_members(step)) or not known:
            if asyncio.get_running_loop().time() > deadline:
                if known:
                    return  # the others are gone
                raise AdminError(
                    f"nothing was moved at {step.broker.name}, since no member of {self._group} sent it a heartbeat in "
                    f"{HEARTBEAT_WITHIN:.0f} s; see whether they reach {step.broker.address}, or stop them and reset "
                    "then"
                )
            await asyncio.sleep(_EVERY)

    async def _known_members(self, step: Step) -> frozenset[str]:
        """The members that a broker knows, if they subscribe the topic."""
        try:
            members = await members_of(self._admin, self._group, step.broker.address)
        except PeerRefused as refused:
            if refused.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return frozenset()
        known = frozenset(each.client_id for each in members.connection_set)
        return known if self._topic in members.subscription_table else frozenset()


async def _first_alone(step: Step, moves: Sequence[Move], store: Callable[[Move], Awaitable[None]]) -> None:
    """Store offsets side by side, but the very first of a group and topic before the others.

    Apache's broker makes a table for it then, and two that are made at once lose one of the offsets
    (ConsumerOffsetManager.commitOffset in 4.9.7).
    """
    at_once = 0 if any(seen.stored is not None for seen in step.broker.queues) else 1
    await _all(map(store, moves[:at_once]))
    await _all(map(store, moves[at_once:]))


async def _all(acts: Iterable[Awaitable[None]]) -> None:
    """Do all, also those after a failure; raise the first failure."""
    for result in await asyncio.gather(*acts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
