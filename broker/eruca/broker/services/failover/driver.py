"""One broker in its group: carries out the rules of ``failover.member``, by etcd, its office and its links.

Owns the order: one event after the other, and the actions of each before the next event; what needs no waiting is done
where an event is posted, if no other one waits. Calls to etcd go beside the events (``etcd_calls``), so that a broker
goes on while etcd is away. Must not know what an event means: the rules do. Invariants: nobody stands while the key
``master`` of another is there, nor while that master is heard; bytes of a master are appended only by a follower of its
epoch, and after the epoch is noted on the disk; from a master whose log cannot be taken in, more is asked for only
after a back-off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from eruca.broker.coordination.port import ABSENT, Coordinator
from eruca.broker.failover import epochs as lists
from eruca.broker.failover import in_sync
from eruca.broker.failover.events import (
    Accept,
    Action,
    Admit,
    Bar,
    Changed,
    Copied,
    CutTo,
    Event,
    Forgotten,
    HandOver,
    Join,
    MasterSilent,
    Note,
    Noted,
    Propose,
    Read,
    Recreate,
    Reported,
    Seek,
    StepDown,
    Stored,
    TablesCopied,
    Welcome,
    Welcomed,
)
from eruca.broker.failover.group import Group
from eruca.broker.failover.member import FOLLOWING, MASTER, Member, Rules, State
from eruca.broker.failover.sureness import sure, sure_until
from eruca.broker.services.failover import journal
from eruca.broker.services.failover.candidacy import Verdict, is_named, rivals, verdict
from eruca.broker.services.failover.copy_tries import CopyTries
from eruca.broker.services.failover.etcd_calls import EtcdCalls
from eruca.broker.services.failover.frame_room import FrameRoom
from eruca.broker.services.failover.kept import Kept
from eruca.broker.services.failover.keys import Keys, Standing, View
from eruca.broker.services.failover.ports import Frame, Links, Office, Pace, Self, TableFrame
from eruca.broker.store import CopyRefused
from eruca.broker.store.cut import CutRefused
from eruca.protocol.errors import ProtocolError
from eruca.remoting.clock import boottime_ms
from eruca.remoting.tasks import Tasks, end

log = structlog.get_logger("eruca.broker.failover")

_PROMPT = (Reported, Copied, Stored)
"""Events of each message: what follows from them mostly needs no waiting."""


class _Look(NamedTuple):
    """Is it time to stand?"""


class _Redo(NamedTuple):
    """An action that failed for a reason that may pass."""

    action: Note


class _NotCopied(NamedTuple):
    """A part of the master's log could not be taken in."""

    fault: Exception


class _Failed(NamedTuple):
    """An error that nobody expects: this broker cannot go on."""

    error: Exception


class Driver:
    """A broker's part in its group; ``post`` takes what links and the store see."""

    def __init__(
        self,
        me: Self,
        keys: Keys,
        coordinator: Coordinator,
        office: Office,
        links: Links,
        tasks: Tasks,
        rules: Rules,
        monotonic: Callable[[], int] = boottime_ms,
        pace: Pace | None = None,
    ) -> None:
        self.member = Member(me.broker_id, me.store)
        self._me = me
        self._office = office
        self._links = links
        self._tasks = tasks
        self._rules = rules
        self._monotonic = monotonic
        self._pace = pace or Pace()
        self._events: asyncio.Queue[Event | Frame | TableFrame | _Look | _Redo | _NotCopied | _Failed] = asyncio.Queue()
        self._rests = False
        """Whether the next event may be done at once: this broker takes part, and no other event waits, or is under
        way."""
        self._queued = 0
        """How many events wait, or are under way in the task."""
        self._stored = 0
        """Up to where the log was written, where that is no event yet."""
        self._waits = False
        """Whether others have to have it before it counts, as long as state and group are the same."""
        self._room = FrameRoom()
        self._stood_at = 0
        self._unsettled = False
        """Whether it is not known where the log ends on the disk, which failed or hung then."""
        self._looking = False
        """Whether a look waits to be done."""
        self.kept = Kept(office)
        self._etcd = EtcdCalls(me, keys, coordinator, self, self.kept, monotonic, self._pace)
        self.followed: str | None = None
        """The address of the master that was looked for last."""
        self.switches = 0
        """How often this broker has seen the mastership go to another broker."""
        self._tries = CopyTries(monotonic)
        self._running: list[asyncio.Task[None]] = []
        self._moved = asyncio.Event()
        """Set after each event, at least while somebody waits for that."""
        self._waiting = 0
        """How many do."""

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Take part from now on; the store is open. Raises StoreDamaged, OSError."""
        self.kept.load()
        office = self._office
        await self._find_end()
        self.member = replace(self.member, epochs=office.epochs(), damaged_at=office.damaged_at())
        start = self._tasks.start
        self._rests = not self._queued
        self._running = [
            start("failover", self._run()),
            start("failover at etcd", self._etcd.run()),
            start("failover's hold", self._etcd.presence.run()),
            start("failover's watch", self._etcd.watch()),
            start("failover's looks", self._look_again()),
        ]

    async def stop(self) -> None:
        """Take part no more; the keys go at once. The office stays what it is."""
        self._rests = False
        await end(self._running)
        self._running = []
        self._links.leave()
        self._links.dismiss()
        await self._etcd.presence.release()

    def post(self, event: Event) -> None:
        """Something happened. What follows is done before this returns, if it needs no waiting and nothing waits."""
        if not (self._rests and isinstance(event, _PROMPT) and self._did(event)):
            self._put(event)

    def stored(self, end: int) -> None:
        """The master's log was written, up to ``end``. Where others have to have that first, it counts from the next
        event on, which mostly is the report of a replica."""
        if self._waits:
            self._stored = end
        else:
            self.post(Stored(end))

    def take(self, frame: Frame | TableFrame) -> asyncio.Future[None] | None:
        """A part of the master's log, or of its tables, came; what ends when there is room for the next one, None where
        there is."""
        if self._rests and isinstance(frame, Frame) and self._appended(frame):
            return None
        self._put(frame)
        return self._room.enter()

    def _put(self, event: Event | Frame | TableFrame | _Look | _Redo | _NotCopied | _Failed) -> None:
        self._rests = False
        self._queued += 1
        self._events.put_nowait(event)

    @property
    def me(self) -> Self:
        """Who this broker is."""
        return self._me

    def recreate(self, group: Group) -> None:
        """Write this group, which etcd has forgotten, over what etcd has now; an operator wants it."""
        self._etcd.recreated = group
        known = self.view.known if self.view is not None else None
        self.post(Recreate(group, known.revision if known is not None else ABSENT))

    @property
    def view(self) -> View | None:
        """The keys as they were read last."""
        return self._etcd.view

    def heard_at(self) -> int | None:
        """When something came from the master last, in ms of CLOCK_BOOTTIME; None if nothing did."""
        return self._links.master_heard()

    @property
    def master_hangs(self) -> bool:
        """Whether the master that this broker follows, or has followed last, says nothing for longer than any that
        works."""
        since = self._links.master_silent_since()
        return since is not None and self._monotonic() - since > self._pace.silence * 1000

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until that is so; it is asked after each event."""
        self._waiting += 1
        try:
            while not reached():
                self._moved.clear()
                await self._moved.wait()
        finally:
            self._waiting -= 1

    def etcd_silent(self) -> int:
        """For how many ms etcd has not answered."""
        return self._monotonic() - self._etcd.presence.answered

    def look(self) -> None:
        """To be called when this broker has changed without an event: who waits by ``until`` asks again."""
        self._moved.set()

    @property
    def sure(self) -> bool:
        """Whether this is the master, and nobody else can have been elected."""
        member = self.member
        if member.state is not State.MASTER or member.known is None:
            return False
        members = in_sync.counted(member.known.group, member.proposed)
        until = sure_until(members, member.broker_id, self._etcd.leased, self._links.answered())
        return sure(self._monotonic(), until)

    # ------------------------------------------------------------------ events

    async def _run(self) -> None:
        while True:
            event = await self._events.get()
            await self._handle(event)
            self._queued -= 1
            self._rests = not self._queued  # not after an error: nothing is done any more then
            if isinstance(event, Frame | TableFrame):
                self._room.leave()
            self._moved.set()

    async def _handle(self, event: Event | Frame | TableFrame | _Look | _Redo | _NotCopied | _Failed) -> None:
        match event:
            case Frame():
                await self._append(event)
            case TableFrame():
                await self._take_tables(event)
            case _Look():
                self._looking = False
                went_on = self._unsettled and not self._office.disk_failed
                if went_on:
                    await self._settle()
                if (self._tries.is_due() or went_on) and self.member.state is State.JOINING:
                    self._connect()
                await self._consider()
            case Read(group, revision) if why := self.kept.why_forgotten(group, self.member.epoch):
                await self._step(Forgotten(why, revision))
            case Recreate():
                await self._settle()
                if not self._unsettled:
                    await self._step(event)
            case Welcomed() if self.member.state is FOLLOWING:
                await self._welcomed_again(event)
            case _Redo():
                if event.action.epochs == self.member.epochs:
                    await self._do(event.action)
            case _NotCopied(fault):
                await self._copy_failed(fault)
            case _Failed(error):
                raise error
            case _:
                await self._step(event)

    async def _welcomed_again(self, event: Welcomed) -> None:
        """The master's welcome by another connection, perhaps after parts that came by the one before it."""
        await self._settle()
        if self._unsettled:
            self._links.leave()
            self.member = replace(self.member, state=State.JOINING)
        else:
            await self._step(event)

    async def _step(self, event: Event) -> None:
        if self._stored and self.member.state is MASTER:
            self.member = replace(self.member, end=max(self._stored, self.member.end))
        self._stored = 0
        step = self._rules.step(self.member, event)
        if isinstance(event, Read | Changed):
            await self.kept.keep(step.member)
        before, self.member = self.member, step.member
        if before.state is not step.member.state or before.known is not step.member.known:
            self._became(before, event)
        for action in step.actions:
            await self._do(action)
        if step.report is not None:
            self._links.tell(step.report)
        self._office.show(self._rules.promise(step.member))
        self._etcd.want_mastery()
        if isinstance(event, Read) and step.member.state is State.JOINING:
            self._connect()
        if self._stored and not self._waits:
            self._put(Stored(self._stored))  # written while this event was under way, and nobody else will say so

    def _did(self, event: Event) -> bool:
        """Do what follows from an event, if that needs no waiting; whether it was done."""
        before = self.member
        step = self._rules.step(before, event)
        after = step.member
        for action in step.actions:
            if not isinstance(action, Propose):
                return False
        self._rests = False
        try:
            self.member = after
            if before.state is not after.state or before.known is not after.known:
                self._became(before, event)
            for action in step.actions:
                if isinstance(action, Propose):
                    self._etcd.propose(action)
            if step.report is not None:
                self._links.tell(step.report)
            self._office.show(self._rules.promise(after))
        except Exception as error:  # the task ends with it, and so does this broker, whoever has posted the event
            self._put(_Failed(error))
        self._rests = not self._queued
        if self._waiting:
            self._moved.set()
        return True

    def _became(self, before: Member, event: Event) -> None:
        """Another state, or another group is known."""
        after = self.member
        self._waits = self._rules.waits_for_others(after)
        journal.note(before, after, event)
        if before.known is not None and after.known is not None:
            self.switches += after.known.group.master_broker_id != before.known.group.master_broker_id

    async def _do(self, action: Action) -> None:
        match action:
            case Propose():
                self._etcd.propose(action)
            case Seek():
                self._etcd.seek()
            case Note():
                await self._note(action)
            case CutTo(end):
                await self._cut(end)
            case Accept():
                await self._office.lead(self.member.epoch, takes_sends=self._rules.promise(self.member).takes_sends)
            case StepDown():
                await self._office.follow()
                self._links.dismiss()
                await self._settle()
            case Join():
                await self._leave()
                self._connect()
            case Welcome(broker_id, answer):
                self._links.welcome(broker_id, answer)
            case Bar(reason):
                await self._bar(reason)
            case Admit():
                log.info("admitted", reason="etcd has the group again")
                self._office.admit()

    async def _note(self, note: Note) -> None:
        try:
            await self._office.note(note.epochs)
        except OSError as fault:
            log.error("epoch_not_noted", fault=str(fault), consequence="this broker does not lead before")
            asyncio.get_running_loop().call_later(self._pace.doubt, self._put, _Redo(note))
            return
        if self.member.state is State.PROMOTING:
            self.post(Noted())

    async def _cut(self, end: int) -> None:
        try:
            await self._office.cut(end)
        except (CutRefused, OSError) as fault:
            await self._bar(f"its log could not be cut off at {end}: {fault}")

    async def _bar(self, reason: str) -> None:
        self.member = replace(self.member, state=State.BARRED)
        self._links.leave()
        self._links.dismiss()
        await self._office.follow()
        self._office.bar(reason)

    def _comes_from_the_master(self, frame: Frame | TableFrame) -> bool:
        """Whether a frame comes from the master that is followed, in its epoch."""
        member = self.member
        known = member.known
        return member.state is FOLLOWING and known is not None and known.group.master_epoch == frame.master_epoch

    def _appended(self, frame: Frame) -> bool:
        """Take in a part of the master's log, if that needs no waiting; whether it was taken in, or passed by."""
        if not self._comes_from_the_master(frame):
            return True
        part = frame.part
        if part is not None and part not in self.member.epochs:
            return False
        try:
            copied = self._copy(frame)
        except (CopyRefused, OSError) as fault:
            self._put(_NotCopied(fault))
            return True
        except Exception as error:  # as in _did: not whoever has brought the frame ends with it
            self._put(_Failed(error))
            return True
        if not self._did(copied):
            self._put(copied)
        return True

    def _copy(self, frame: Frame) -> Copied:
        """Append a part of the log; a heartbeat has none. Raises CopyRefused, OSError."""
        if frame.part is None:
            return Copied(frame.master_epoch, None, self.member.end, frame.confirmed)
        reached = self._office.append(frame)
        return Copied(frame.master_epoch, frame.part, reached, frame.confirmed)

    async def _append(self, frame: Frame) -> None:
        """Take in a part of the master's log, which belongs to its epoch on the disk before its first byte is here."""
        if not self._comes_from_the_master(frame):
            return
        member = self.member
        try:
            if frame.part is not None and frame.part not in member.epochs:
                epochs = lists.begin(member.epochs, frame.part.epoch, frame.part.start)
                await self._office.note(epochs)
                self.member = replace(member, epochs=epochs)
            copied = self._copy(frame)
        except (CopyRefused, OSError) as fault:
            await self._copy_failed(fault)
        else:
            await self._step(copied)

    async def _take_tables(self, frame: TableFrame) -> None:
        if not self._comes_from_the_master(frame):
            return
        try:
            await self._office.take_tables(frame)
        except (ProtocolError, OSError) as fault:
            await self._copy_failed(fault)
        else:
            await self._step(TablesCopied(frame.master_epoch, frame.number))

    async def _copy_failed(self, fault: Exception) -> None:
        """Leave the master, and follow it again after a while; what this broker has then begins a new handshake."""
        self._tries.failed(fault)
        self._links.leave()
        self.member = replace(self.member, state=State.JOINING)
        with suppress(OSError):  # the disk that failed may fail again: then nothing more is taken in either
            await self._find_end()

    def _connect(self) -> None:
        """Look for the master where etcd says that it is.

        A former master whose disk has failed may have more in its log than it knows: no epoch of others begins there.
        """
        view, known = self.view, self.member.known
        if view is None or known is None or self._tries.waiting or self._unsettled or self._office.disk_failed:
            return
        there = view.master_of(known.group)
        if there is not None:
            self.followed = there.address
            self._office.follows(there.address)
            self._links.join(there.ha_address, known.group.master_epoch)

    async def _leave(self) -> None:
        """Take no more of the former master's log, and know where this one ends."""
        self._links.leave()
        await self._settle()

    async def _settle(self) -> None:
        """Know where the log ends. With a disk that has failed, or hangs, nobody stands, and nobody follows."""
        try:
            await self._find_end()
        except OSError:
            self._unsettled = True
            if not self._office.disk_failed:
                raise
        else:
            self._unsettled = False

    async def _find_end(self) -> None:
        """A part of a record was confirmed in vain: it showed nothing, and that record may be no other one's. Raises
        OSError."""
        end = await self._office.settle()
        self.member = replace(self.member, end=end, confirmed=min(self.member.confirmed, end, self._office.shown_end))

    # ------------------------------------------------------------------ standing for election

    async def _name_another(self) -> None:
        """Have etcd name another member of the set the master; whoever that is has all that was acknowledged."""
        member = self.member
        if member.state is not MASTER or member.known is None or member.proposed is not None:
            return
        heir = in_sync.heir(member.known.group, member.replicas)
        if heir is not None:
            log.warning("hand_over", to=heir, epoch=member.epoch, reason="its log cannot be brought to the disk")
            await self._step(HandOver(heir))

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._pace.look)
            if not self._looking and (self._waiting or not self._is_settled()):
                self._looking = True
                self._put(_Look())

    def _is_settled(self) -> bool:
        """Whether a look would find nothing to do: the disk goes on, and this broker leads, or follows another one
        whose key is there."""
        if self._office.disk_failed:
            return False
        state, view = self.member.state, self.view
        if state is not FOLLOWING:
            return state is MASTER
        others = view is not None and view.master is not None and not self._etcd.is_mine(view.master)
        return others and self._etcd.stands is None

    async def _consider(self) -> None:
        """Stand if the master is gone, and it is this broker's turn. One whose disk has failed names another one."""
        view, member = self.view, self.member
        if self._office.disk_failed:
            await self._name_another()
            return
        if view is None or view.known is None or view.known != member.known or self._etcd.presence.hold is None:
            return
        if view.master is not None and not self._etcd.is_mine(view.master):
            self._etcd.stands = None
            return
        if member.state not in (State.SEEKING, State.JOINING, State.FOLLOWING):
            return
        if view.master is not None and not member.has_tables and rivals(view, member):
            self._etcd.give_up(view.master_revision)
            return
        now = self._monotonic()
        heard, named = self._links.master_heard(), is_named(view, member)
        if heard is not None and now - heard < self._pace.silence * 1000 and not named:
            return
        if not self._rules.may_stand(member, view.known):
            self.kept.look_at_epochs(member, view.known.group)
            return
        said = Verdict.STAND if named else verdict(view, member, self._etcd.stands, now - self._stood_at, mine=self._me)
        match said:
            case Verdict.STAND:
                self._etcd.stands = None
                await self._leave()
                self._unsettled = self._unsettled or not await self.kept.is_written_again()
                if not self._unsettled:
                    await self._step(MasterSilent())
                elif member.state is FOLLOWING:
                    self.member = replace(self.member, state=State.JOINING)
            case Verdict.SAY:
                mine = member.candidate(self._me.priority)
                self._etcd.stands = Standing(view.known.revision, mine.epoch, mine.end, mine.priority, mine.has_tables)
                self._stood_at = now
                self._etcd.want()
