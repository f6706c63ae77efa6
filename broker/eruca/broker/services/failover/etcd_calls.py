"""What one broker of a group asks of etcd: changes of the group, its own keys, and all keys again when they have moved.

Owns the order of the calls, one after the other, and what is to be asked next; a call that failed is made again. What
became of a call is posted as an event; an outcome that is unknown is none, and etcd is read until it is known. Must not
know what follows from an answer. Invariants: a broker's keys are on its own hold; its key ``master`` is put only where
no other one stands, but for the group that an operator has it write again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import structlog

from eruca.broker.coordination.port import ABSENT, Coordinator, HoldEnded, OutcomeUnknown, Put, Unavailable
from eruca.broker.failover import group as groups
from eruca.broker.failover.events import Changed, Event, Forgotten, NotChanged, Propose, Read
from eruca.broker.failover.group import Group, GroupUnreadable
from eruca.broker.failover.member import Member, State
from eruca.broker.services.failover.kept import Kept
from eruca.broker.services.failover.keys import Keys, Mastery, Present, Standing, View, encode
from eruca.broker.services.failover.master_key import MasterKey
from eruca.broker.services.failover.ports import Pace, Self
from eruca.broker.services.failover.presence import Presence
from eruca.remoting.log_repeats import Repeats

log = structlog.get_logger("eruca.broker.failover")


class Asks(Protocol):
    """The driver, as its calls see it."""

    @property
    def member(self) -> Member:
        """What this broker knows."""

    def post(self, event: Event) -> None:
        """Something happened."""


class EtcdCalls:
    """The calls of one broker, for its driver; ``monotonic`` gives ms."""

    def __init__(
        self,
        me: Self,
        keys: Keys,
        coordinator: Coordinator,
        driver: Asks,
        kept: Kept,
        monotonic: Callable[[], int],
        pace: Pace,
    ) -> None:
        self.presence = Presence(coordinator, monotonic, pace.renew)
        self.presence.on_hold = self.want
        self.view: View | None = None
        """The keys as they were read last."""
        self.stands: Standing | None = None
        """What this broker's own key says of an election."""
        self.recreated: Group | None = None
        """The group that an operator has this broker write, whoever holds the key ``master``."""
        self._me = me
        self._keys = keys
        self._coordinator = coordinator
        self._driver = driver
        self._kept = kept
        self._pace = pace
        self._key = MasterKey(me, keys, coordinator)
        self._wanted = asyncio.Event()
        self._unread = True
        """Whether etcd is to be read."""
        self._proposal: Propose | None = None
        self._refused: Propose | None = None
        self._stated: tuple[int, Present] | None = None
        """On which hold this broker's key stands, and what it says."""
        self._repeats = Repeats()

    @property
    def leased(self) -> tuple[int, int] | None:
        """When the hold was renewed last, and for how many ms that lasts, if the key ``master`` is on it; else None."""
        held = self._key.stands is not None and self._key.stands == (self.presence.hold, self._driver.member.epoch)
        return self.presence.leased if held else None

    def is_mine(self, master: Mastery) -> bool:
        """Whether the key is this broker's of a former life. With another address it may be that of one that lives, of
        whose disk this one has a copy; that of a broker which moved ends soon."""
        me = self._me
        return (master.broker_id, master.store, master.address) == (me.broker_id, me.store, me.address)

    # ------------------------------------------------------------------ what is wanted

    def want(self) -> None:
        """Ask for what is due."""
        self._wanted.set()

    def seek(self) -> None:
        """Read all keys."""
        self._unread = True
        self.want()

    def propose(self, proposal: Propose) -> None:
        """Ask for a change of the group."""
        self._proposal = proposal
        self.want()

    def give_up(self, master_revision: int) -> None:
        """Take the key ``master`` of this revision away."""
        self._key.unwanted = master_revision
        self.want()

    def want_mastery(self) -> None:
        """Put the key of a master, where it lacks."""
        if not self._wanted.is_set() and self._lacks_mastery():
            self.want()

    # ------------------------------------------------------------------ calls

    async def watch(self) -> None:
        """Read all keys whenever one has moved, until cancelled."""
        async for _ in self._coordinator.watch(self._keys.prefix):
            self.seek()

    async def run(self) -> None:
        """Ask for what is wanted, one call after the other, until cancelled."""
        while True:
            await self._wait()
            self._wanted.clear()
            try:
                await self._ask()
            except HoldEnded:
                self.presence.ended()
            except OutcomeUnknown as fault:
                self._troubled(fault)
                self.seek()
            except (Unavailable, GroupUnreadable) as fault:
                self._troubled(fault)
                await asyncio.sleep(self._pace.again)
                self.want()
            else:
                if (over := self._repeats.over("etcd")) is not None:
                    log.info("etcd_answers", **over)

    async def _wait(self) -> None:
        """Wait until something is wanted; a change of unknown outcome is looked after."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.doubt):
                await self._wanted.wait()
        if self._driver.member.proposed is not None and self._proposal is None:
            self._unread = True

    def _troubled(self, fault: Exception) -> None:
        again = self._repeats.failed("etcd")
        if again is not None:
            log.warning("etcd_silent", fault=str(fault), **again)

    async def _ask(self) -> None:
        if self._proposal is not None:
            await self._propose(self._proposal)
        await self._state_presence()
        if await self._key.give_up():
            self._unread = True
        if self._lacks_mastery():
            await self._put_mastery()
        if self._unread:
            self._unread = False
            try:
                await self._read()
            except BaseException:
                self._unread = True
                raise

    async def _propose(self, proposal: Propose) -> None:
        """Ask for a change of the group, unless the key has moved on meanwhile."""
        group, revision = proposal.group, proposal.revision
        if self._driver.member.proposed != group:
            self._proposal = None
            return
        seen, puts = {self._keys.group: revision}, [Put(self._keys.group, groups.encode(group))]
        hold, deletes = self.presence.hold, []
        if group.master_broker_id != self._me.broker_id:
            deletes.append(self._keys.master)  # it is handed over: nobody need wait until it passes
        elif self._driver.member.state is State.CANDIDATE:
            if hold is None:
                return  # comes again with the hold
            view = self.view
            taken = view is not None and view.master is not None and self.is_mine(view.master)
            taken = taken or group == self.recreated
            seen[self._keys.master] = view.master_revision if view is not None and taken else ABSENT
            puts.append(self._key.of(group.master_epoch, hold))
        if proposal == self._refused:
            await asyncio.sleep(self._pace.again)
            if self._proposal is not proposal or self._driver.member.proposed != group:
                return
        self._proposal = None
        try:
            changed = await self._coordinator.change(seen, puts, deletes)
        except OutcomeUnknown:
            raise
        except (HoldEnded, Unavailable):
            self._proposal = self._proposal or proposal
            raise
        if changed is None:
            self._refused = proposal
            self._driver.post(NotChanged())
            return
        if hold is not None and len(puts) > 1:
            self._key.stands = hold, group.master_epoch
        elif deletes:
            self._key.stands = None
        self._driver.post(Changed(changed))

    async def _state_presence(self) -> None:
        """Put this broker's own key where it lacks, or says something else."""
        hold, me = self.presence.hold, self._me
        present = Present(me.store, me.address, me.ha_address, self.stands)
        if hold is not None and self._stated != (hold, present):
            await self._coordinator.change({}, [Put(self._keys.member(me.broker_id), encode(present), hold)])
            self._stated = hold, present

    def _lacks_mastery(self) -> bool:
        """Whether this master has to put its key again, on another hold, in its own epoch."""
        leads = self._driver.member.state in (State.PROMOTING, State.MASTER)
        hold = self.presence.hold
        return leads and hold is not None and self._key.stands != (hold, self._driver.member.epoch)

    async def _put_mastery(self) -> None:
        known, hold = self._driver.member.known, self.presence.hold
        if known is not None and hold is not None and not await self._key.put(known, hold):
            self._unread = True

    async def _read(self) -> None:
        view = self._keys.view(await self._coordinator.read_all(self._keys.prefix))
        self.view = view
        if self._stated is not None and self._me.broker_id not in view.present:
            self._stated = None  # somebody has deleted the key: put it again
            self.want()
        if view.known is not None:
            self._driver.post(Read(view.known.group, view.known.revision))
        else:
            await self._without_group()

    async def _without_group(self) -> None:
        """Found the group, if this broker is to: never over a log that has been in one."""
        why = self._kept.why_forgotten(None, self._driver.member.epoch)
        if why is not None:
            self._driver.post(Forgotten(why, ABSENT))
        elif self._me.founds:
            group = groups.found(self._me.broker_id, self._me.store)
            if await self._coordinator.change(
                {self._keys.group: ABSENT}, [Put(self._keys.group, groups.encode(group))]
            ):
                log.info("group_founded", group=self._keys.prefix, master=self._me.broker_id)
            self.seek()
        elif self._repeats.failed("group") == {}:
            log.warning(
                "group_missing", group=self._keys.prefix, remedy="start the broker that is configured as master"
            )
