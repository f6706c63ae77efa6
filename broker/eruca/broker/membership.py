"""This broker's part in a group that elects its master: the driver of failover with a real store, role and ports.

Owns the office (what the driver does to this broker), the HA port, and what the driver hears of the store. Decides
nothing. Invariants: a broker of a group begins as a slave, and leads only when it was elected; nothing is stored by
itself from the moment on in which it resigns. To cut its log off, a broker starts again: the store is closed, cut, and
opened as at any start. A store whose tables were lost is none of the group's, until it has got another one's.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import ETIMEDOUT
from functools import partial
from pathlib import Path
from typing import ParamSpec

import structlog

from eruca.broker.broker import Broker
from eruca.broker.coordination.port import Coordinator
from eruca.broker.failover.election import lacks_epochs
from eruca.broker.failover.epochs import Epochs
from eruca.broker.failover.events import Copied, TablesChanged
from eruca.broker.failover.group import Group
from eruca.broker.failover.member import FOLLOWING, MASTER, Promise, Rules, State
from eruca.broker.services.failover.confirmation import Confirmation
from eruca.broker.services.failover.driver import Driver
from eruca.broker.services.failover.group_part import Desk, GroupPart, HandOverRefused
from eruca.broker.services.failover.keys import Keys
from eruca.broker.services.failover.links import TcpLinks
from eruca.broker.services.failover.ports import Frame, Self, TableFrame
from eruca.broker.services.failover.replicas import Pace as Sending
from eruca.broker.services.failover.tables import Tables
from eruca.broker.services.replication.ha_client import NO_MASTER
from eruca.broker.store import FileSystem, flush
from eruca.broker.store.damage_mark import forget_damage, read_damage
from eruca.broker.store.epoch_file import read_epochs, write_epochs
from eruca.broker.store.group_file import read_group, write_group
from eruca.broker.store.store_id import forget_store_id, read_store_id
from eruca.protocol.codes import ResponseCode
from eruca.remoting.clock import boottime_ms
from eruca.remoting.files import backup_of
from eruca.remoting.listener import Listener
from eruca.remoting.tasks import end

HANDED_OVER_WITHIN = 6.0
"""Seconds for another broker to take the mastership over before this one stops without that."""
TOO_SMALL = "the syncStateSet has fewer brokers than minInSyncReplicas, and nothing is stored before it has: try again"

log = structlog.get_logger("eruca.broker.failover")
P = ParamSpec("P")


class Membership:
    """The part of one broker; ``restart`` is called with the offset at which its log is to be cut off, and ends it."""

    def __init__(self, broker: Broker, coordinator: Coordinator, restart: Callable[[int], None]) -> None:
        assert broker.confirmation is not None and broker.tables is not None
        self._broker = broker
        self._coordinator = coordinator
        config, settings = broker.config, broker.config.store
        keys = Keys(config.broker_cluster_name, config.broker_name)
        me = Self(
            broker.role.member_id,
            broker.store.store_id,
            broker.address,
            broker.ha_address,
            config.broker_election_priority,
            founds=broker.role.founds,
        )
        self._links = TcpLinks(
            me,
            keys.prefix,
            broker.store.replicator,
            broker.tasks,
            boottime_ms,
            Sending(settings.ha_transfer_batch_size, config.ha_max_time_slave_not_catchup / 1000),
            broker.tls.ha_client,
            tables=broker.tables,
        )
        acknowledging = None if config.all_ack_in_sync_state_set else config.in_sync_replicas
        rules = Rules(config.min_in_sync_replicas, acknowledging)
        self._office = office = _Office(broker, broker.confirmation, broker.tables, restart)
        broker.tables.on_number = self._tables_changed
        self.driver = Driver(me, keys, coordinator, office, self._links, broker.tasks, rules)
        self._links.attach(self.driver)
        self._listener: Listener | None = None
        self._replicator = broker.store.replicator
        self._sent = 0
        """Up to where the log of this master has gone to its replicas; the driver may know more by their reports."""

    @property
    def fault(self) -> str | None:
        """Why this broker does not copy the master's log; None while it does."""
        store = self._broker.store
        if store.flush_hangs or self._office.hangs:
            what = "a flush of the log" if store.flush_hangs else "a write of the group's files"
            return f"its disk hangs: {what} has not returned for {flush.HANGS:g} s"
        refusal = store.replicator.refusal if store.flush_fault is None else store.refusal
        return refusal if refusal is not None or self._links.master.connected else self._why_no_master()

    def _why_no_master(self) -> str:
        view, member = self.driver.view, self.driver.member
        if view is None or view.known is None or view.master is not None:
            return NO_MASTER
        group = view.known.group
        able, number = ", ".join(map(str, sorted(group.sync_state_set))), member.broker_id
        others = ", ".join(map(str, sorted(group.sync_state_set - {number})))
        why = f"nobody leads, and only these brokers may be elected: {able}; start them"
        if number in group.sync_state_set and not group.has(number, member.store):
            remedy = f"start broker {others} with its store, or " if others else ""
            why = (
                f"broker {number} has another store than etcd knows, has lost files, or its machine stopped with "
                "ASYNC_FLUSH (store_id_lost in its log says which), and only these brokers with their stores may be "
                f"elected: {able}; {remedy}bring its former disk back, or see no-master in the runbook"
            )
        elif lacks_epochs(group, member.epoch, member.sound_end):
            why = (
                f"broker {number} has lost the list of its epochs (epochFileCheckpoint), and is elected only after it "
                f"has followed another one: start broker {others}, or see no-master in the runbook if the others of "
                "the syncStateSet have lost theirs as well"
            )
        return f"{NO_MASTER}: {why}"

    async def start(self, ha: socket.socket) -> None:
        """Take part from now on; the broker runs as a slave. Raises StoreDamaged, OSError."""
        broker = self._broker
        broker.store.on_written = self._written
        broker.registration.is_sure = lambda: self.driver.sure
        broker.ha_access.start()
        self._listener = Listener(self._admit, broker.tls.ha_port)
        self._listener.listen_on(ha)
        self._links.start()
        await self.driver.start()
        broker.group_part = GroupPart(self.driver, Desk(self._end, self._hold, self._resume, self._disk_failed))
        if broker.relay is not None:
            broker.relay.part = broker.group_part
            last = self.driver.kept.group
            if last is not None and last.master_broker_id == broker.role.member_id:
                broker.relay.follow()  # it was killed, and clients may still take it for the master

    async def hand_over(self) -> None:
        """Before an orderly stop of the master: let another broker of the set take over, if there is one."""
        part = self._broker.group_part
        if part is None or part.member.state is not State.MASTER:
            return
        try:
            async with asyncio.timeout(HANDED_OVER_WITHIN):
                await part.hand_over()
        except HandOverRefused as fault:
            log.warning("stops_without_hand_over", reason=str(fault))
        except TimeoutError:
            log.warning("stops_without_hand_over", reason=f"nobody was elected within {HANDED_OVER_WITHIN:g} s")

    async def stop(self) -> None:
        """Take part no more: the group need not wait for this broker."""
        broker = self._broker
        broker.group_part = None
        if broker.relay is not None:
            broker.relay.part = None
        self._office.resign()
        if self._listener is not None:
            self._listener.close()
            await self._listener.settled()
        await self.driver.stop()
        await self._office.close()
        await self._links.stop()
        await broker.ha_access.stop()
        await self._coordinator.close()
        broker.store.on_written = None

    def _admit(self, address: str) -> asyncio.Protocol | None:
        return self._links.protocol(address) if self._broker.ha_access.admits(address) else None

    def _end(self) -> int:
        return self._broker.store.replicator.end_offset

    def _disk_failed(self) -> bool:
        return self._office.disk_failed

    def _hold(self) -> None:
        """Store nothing more, neither of clients nor by itself, until ``_resume``, or until this broker resigns."""
        broker = self._broker
        broker.accepting = False
        broker.admission.forget()
        broker.store.follow()
        if broker.relay is not None:
            broker.relay.begin()
        if broker.tables is not None:
            broker.tables.gather()

    def _resume(self) -> None:
        broker = self._broker
        broker.store.lead()
        broker.accepting = True
        broker.admission.forget()

    def _tables_changed(self, number: int) -> None:
        self.driver.post(TablesChanged(number))
        self._links.replicas.changed()

    def _written(self) -> None:
        """The log is longer, or more of it is on the disk."""
        member, reached = self.driver.member, self._replicator.safe_offset
        if member.state is MASTER:
            if reached != self._sent:
                self._sent = reached
                self.driver.stored(reached)
                self._links.replicas.written()
        elif reached > member.end and member.state is FOLLOWING and member.known is not None:
            self.driver.post(Copied(member.known.group.master_epoch, None, reached, member.confirmed))


def forget_lost_tables(broker: Broker) -> None:
    """Before the store is opened, with the tables that were read: where they lack what the group may have acknowledged,
    take the store's id away. Then this broker leads only after it has got another one's. Raises OSError."""
    config = broker.store.config
    root = config.store_path_root_dir
    tables = (broker.topics, broker.groups, broker.offsets, broker.filters, broker.deletions)
    group = read_group(root)
    if group is None or len(group.sync_state_set) < 2 or read_store_id(root) is None:
        return
    faults = [
        f"{table.path.name} was read from its copy, which lacks the last change"
        for table in tables
        if table.lacks_change
    ]
    path = broker.topics.path
    if not path.exists() and not backup_of(path).exists() and any(config.commit_log_path.glob("*")):
        faults.append(f"{path.name} is gone, and the log is there")
    if faults:
        forget_store_id(root, FileSystem())
        log.warning("store_id_lost", reason="; ".join(faults))


class _Office:
    """The broker as its driver sees it."""

    def __init__(
        self, broker: Broker, confirmation: Confirmation, tables: Tables, restart: Callable[[int], None]
    ) -> None:
        self._broker = broker
        self._replicator = broker.store.replicator
        self._tables = tables
        self._confirmation = confirmation
        self._restart = restart
        self._files = ThreadPoolExecutor(1, thread_name_prefix="failover-files")
        self._unwritten = 0
        """How many writes of files have not returned."""
        self._since = 0.0
        """Since when there are such."""
        self._sends_away: asyncio.Task[None] | None = None
        self._takes: bool | None = None
        """Whether it was shown last that sends are taken, since this broker leads or does not."""
        self._number = 0
        """Up to which change of the tables was shown last, since then; 0 before."""

    @property
    def _root(self) -> Path:
        return self._broker.store.config.store_path_root_dir

    @property
    def disk_failed(self) -> bool:
        return self._broker.store.flush_fault is not None or self._broker.store.flush_hangs or self.hangs

    @property
    def hangs(self) -> bool:
        """Whether writes of files have not returned for as long as a flush that hangs."""
        return self._unwritten > 0 and time.monotonic() - self._since >= flush.HANGS

    def epochs(self) -> Epochs:
        return read_epochs(self._root)

    def damaged_at(self) -> int | None:
        return read_damage(self._root, self._broker.store.replicator.begin_offset)

    async def note(self, epochs: Epochs) -> None:
        await self._write(self._note, epochs)

    def _note(self, epochs: Epochs) -> None:
        write_epochs(self._root, epochs)
        forget_damage(self._root, epochs[-1].start, FileSystem())

    def kept(self) -> Group | None:
        return read_group(self._root)

    async def keep(self, group: Group) -> None:
        await self._write(write_group, self._root, group)

    async def _write(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Write a file, one after the other. While the disk hangs nobody waits for it, and it is written afterwards.

        Raises OSError.
        """
        at_once = self._broker.store.flush_hangs or self.hangs
        if not self._unwritten:
            self._since = time.monotonic()
        self._unwritten += 1
        written = asyncio.get_running_loop().run_in_executor(self._files, partial(work, *args, **kwargs))
        written.add_done_callback(self._returned)
        try:
            async with asyncio.timeout(0 if at_once else flush.HANGS):
                await asyncio.shield(written)
        except TimeoutError:
            written.add_done_callback(_written_late)
            raise OSError(ETIMEDOUT, "the disk hangs") from None

    def _returned(self, written: asyncio.Future[None]) -> None:
        self._unwritten -= 1
        self._since = time.monotonic()

    async def close(self) -> None:
        """Write nothing more."""
        await self._stop_sending_away()
        await asyncio.to_thread(self._files.shutdown)

    @property
    def shown_end(self) -> int:
        figures = self._broker.store.figures()
        return figures.max_offset - figures.dispatch_behind_bytes

    async def settle(self) -> int:
        store = self._broker.store
        if self._broker.role.is_slave:
            store.replicator.cut_part()
        delays = self._broker.delays
        delays.copied.leave()
        await store.flushed()
        if self._broker.role.is_slave and not delays.copied.begun and not self.disk_failed:
            delays.stand_by()
        return store.replicator.end_offset

    def append(self, frame: Frame) -> int:
        self._replicator.append(frame.offset, frame.data)
        return self._replicator.safe_offset

    async def take_tables(self, frame: TableFrame) -> None:
        await self._tables.take(frame)

    async def cut(self, end: int) -> None:
        log.warning("rejoining", cut=end, end=self._broker.store.replicator.end_offset)
        self._restart(end)
        await asyncio.get_running_loop().create_future()  # what follows is the next start's

    async def lead(self, epoch: int, *, takes_sends: bool) -> None:
        self._take_sends(takes_sends)
        self._takes, self._number = None, 0
        self._tables.lead(epoch)
        self._confirmation.lead()
        await self._broker.role.lead(epoch)

    async def follow(self) -> None:
        led = self._broker.accepting
        self.resign()
        if led and self.disk_failed:
            await self._stop_sending_away()
            self._sends_away = self._broker.tasks.start("pulls to the next master", self._send_away())
        if led and self._broker.relay is not None:
            self._broker.relay.follow()
        await self._broker.role.follow()

    async def _stop_sending_away(self) -> None:
        if self._sends_away is not None:
            await end([self._sends_away])
            self._sends_away = None

    async def _send_away(self) -> None:
        """End the pulls that wait here for messages which will not come, when there is another master."""
        part = self._broker.group_part
        if part is not None:
            await part.driver.until(lambda: part.leader() is not None)
            self._broker.holds.end_all()
        await asyncio.get_running_loop().create_future()  # a task of a broker ends when it is cancelled

    def resign(self) -> None:
        """Acknowledge nothing any more."""
        self._broker.accepting = False
        self._take_sends(True)  # from now on they are refused for another reason
        self._takes, self._number = None, 0
        self._confirmation.resign()
        self._tables.resign()

    def follows(self, address: str) -> None:
        self._broker.table_sync.follow(address)

    def _take_sends(self, takes: bool) -> None:
        admission = self._broker.admission
        if takes:
            admission.resume(ResponseCode.SYSTEM_ERROR)
        else:
            admission.suspend(TOO_SMALL, ResponseCode.SYSTEM_ERROR)

    def show(self, promise: Promise) -> None:
        if promise.takes_sends is not self._takes:
            self._takes = promise.takes_sends
            self._take_sends(promise.takes_sends)
        self._confirmation.show(promise.confirmed, promise.acknowledged)
        if promise.tables != self._number:
            self._number = promise.tables
            self._tables.show(promise.tables)

    def bar(self, reason: str) -> None:
        log.error("barred", reason=reason)
        if self._broker.relay is not None:
            self._broker.relay.end()
        self._broker.readiness.withdraw("group", reason)

    def admit(self) -> None:
        self._broker.readiness.restore("group")


def _written_late(written: asyncio.Future[None]) -> None:
    if not written.cancelled() and (fault := written.exception()) is not None:
        log.error(
            "group_file_not_written", fault=str(fault), consequence="it is written with the next change of the group"
        )
