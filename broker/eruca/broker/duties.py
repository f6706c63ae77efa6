"""The duties of a broker's role: what runs on a master only, and on a slave only, and how one becomes the other.

Owns the order of both changes, and the tasks of a master (delays, checks of transactions). ``services.role`` says what
the role is; each service keeps its own state. BrokerController of RocketMQ 5 does this in changeToMaster and
changeToSlave. Must not know why a role changes. Invariants: a broker that gives its role up writes nothing of its own
any more from the first step on, and answers no send with 0 for which it did not hold what it promises; one that becomes
master serves when all of its log is in the queues, and what waits in it is known; after a change nothing of the former
role runs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import structlog

from eruca.broker.broker import Broker
from eruca.broker.services.periodic import repeated
from eruca.broker.services.ports import bound_again
from eruca.broker.services.role import Wanted
from eruca.broker.store.housekeeping import DROPPED_AT_ONCE
from eruca.protocol import api, names
from eruca.protocol.headers.clients import OfConsumerGroup
from eruca.remoting import Connection
from eruca.remoting.tasks import end

CHECK_EVERY = 1.0
"""Seconds between two checks of transactions, unless transactionCheckInterval is shorter."""

_NOTIFIED_TOGETHER = 100
"""Consumers that are notified in one turn of the loop."""

log = structlog.get_logger("eruca.broker")


class Duties:
    """What one broker does because of its role."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ha: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changes: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ start and stop

    def recover(self) -> None:
        """Find what is undecided and delayed, as the settings' role needs it; the store is open, nobody else uses it.

        Raises OSError.
        """
        broker = self._broker
        if broker.role.is_slave:
            broker.delays.stand_by()
        else:
            for _ in self._drop_deleted():
                pass
            try:
                broker.deletions.save()
            except OSError as error:
                _not_saved(error)
            broker.halves.rebuild()  # before a SYNC_MASTER limits what can be read
            self._begin_to_lead()
            if not broker.store.recovery.clean:
                self._fit_offsets("the log has lost its end, as when the power fails with ASYNC_FLUSH")

    def _fit_offsets(self, reason: str) -> None:
        """What comes where consumed messages were is to be consumed."""
        broker = self._broker
        lowered = broker.offsets.fit(broker.store.max_offset, without=names.TRANSACTION_GROUP)
        if lowered:
            log.warning("offsets_lowered", count=lowered, reason=reason)

    def _begin_to_lead(self) -> None:
        broker = self._broker
        broker.delays.start()
        broker.check_backs.begin()

    async def begin(self, ha: socket.socket) -> None:
        """Do what the role asks for; the store is started. ``ha`` is the bound socket of the HA port, which is not used
        where the group elects its master."""
        self._ha = None if self._elects else ha
        if self._broker.role.is_slave:
            self._follow()
        else:
            await self._lead()

    @property
    def _elects(self) -> bool:
        """Whether the group elects its master: then others keep the log equal to the master's."""
        return self._broker.confirmation is not None

    def keep(self) -> None:
        """From now on look for slaves' addresses, and change the role when another one is due."""
        if not self._broker.role.is_slave and not self._elects:
            self._broker.ha_access.start()
        self._changes = self._broker.tasks.start("changes of role", self._keep_changing())

    async def freeze(self) -> None:
        """Change the role no more."""
        if self._changes is not None:
            await end([self._changes])
            self._changes = None

    async def stop(self) -> None:
        """End everything that the role has begun."""
        broker = self._broker
        broker.accepting = False
        broker.admission.forget()
        await self._end_tasks()
        await broker.halves.close()
        if not self._elects:
            await broker.ha_access.stop()
            await broker.slaves.stop()
        if self._ha is not None:
            self._ha.close()
        await broker.ha_client.stop()
        await broker.table_sync.stop()

    async def sends_ended(self) -> None:
        """Wait until the sends that wait for the disk or a slave are answered."""
        await asyncio.sleep(0)  # lets the sends of this iteration ask the store
        if self._broker.waiting_sends:
            waiter = self._broker.durable(self._broker.store.figures().max_offset)
            if waiter is not None:
                await waiter

    # ------------------------------------------------------------------ what a role does

    async def _lead(self) -> None:
        broker = self._broker
        broker.registration.seek(None)
        broker.store.on_arrival = broker.holds.arrived
        if self._ha is not None:
            await broker.slaves.start(self._ha)
        save_every = broker.config.store.flush_delay_offset_interval / 1000
        start = broker.tasks.start
        self._tasks = [
            start("transactions", repeated(self._check_every, broker.check_backs.keep)),
            start("delays", broker.delays.run()),
            start("delay offsets", repeated(save_every, broker.delays.saved)),
        ]
        broker.accepting = True

    @property
    def _check_every(self) -> float:
        return max(0.01, min(CHECK_EVERY, self._broker.config.transaction_check_interval / 1000))

    def _follow(self) -> None:
        broker = self._broker
        broker.store.on_arrival = self._copied
        if not self._elects:
            broker.ha_client.on_following = broker.table_sync.follow
            broker.registration.seek(broker.ha_client.follow)
            broker.ha_client.start()
        broker.table_sync.start()

    def _copied(self, topic: str, queue_id: int, max_offset: int, codes: list[int]) -> None:
        self._broker.table_sync.met(topic)
        self._broker.holds.arrived(topic, queue_id, max_offset, codes)

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        await end(tasks)

    # ------------------------------------------------------------------ changes

    async def _keep_changing(self) -> None:
        role = self._broker.role
        while True:
            await role.due.wait()
            former, wanted = role.kind, role.wanted
            begun = asyncio.get_running_loop().time()
            log.info("role_changes", former=former.name, role=wanted.kind.name, broker_id=wanted.broker_id)
            if wanted.is_slave and not role.is_slave:
                await self._step_down(wanted)
            elif role.is_slave and not wanted.is_slave:
                await self._step_up(wanted)
            else:
                self._broker.take_role(wanted)
            self._broker.registration.role_changed()
            log.info(
                "role_changed",
                former=former.name,
                role=role.kind.name,
                broker_id=role.broker_id,
                end=self._broker.store.replicator.end_offset,
                seconds=round(asyncio.get_running_loop().time() - begun, 3),
            )

    async def _step_down(self, wanted: Wanted) -> None:
        """A master becomes a slave: what was sent to it is answered, and slaves in reach get what they lack."""
        broker = self._broker
        broker.accepting = False
        broker.admission.forget()
        broker.store.follow()
        await self.sends_ended()
        await self._end_tasks()
        if not self._elects:
            await broker.ha_access.stop()
            await self._leave_slaves()
        broker.store.drain()
        if not self._elects:  # else it may be elected again before it has followed another one
            broker.locks.clear()
            broker.deletions.forget()
            await self._deletions_saved()
        part = broker.group_part
        disk_failed = part is not None and part.disk_failed  # who waits for the disk answers no client
        if not disk_failed:
            try:
                await broker.delays.saved()
            except OSError as error:  # the next master finds in the log what was delivered
                _not_saved(error)
        broker.take_role(wanted)
        broker.halves.forget()  # not before: an end that comes meanwhile would find its transaction decided
        if disk_failed:
            broker.delays.rest()
        else:
            broker.delays.stand_by()
        self._follow()

    async def _leave_slaves(self) -> None:
        """Serve slaves no more; the HA port stays bound, so that nobody else gets it, and nobody can connect."""
        assert self._ha is not None
        name = self._ha.getsockname()
        await self._broker.slaves.stop()
        self._ha = bound_again(self._ha, name)

    async def _step_up(self, wanted: Wanted) -> None:
        """A slave becomes the master: it leaves its former master, and goes on behind the last whole record."""
        broker = self._broker
        broker.registration.seek(None)
        await broker.ha_client.stop()
        await broker.table_sync.stop()
        broker.store.lead()
        if self._elects:
            broker.locks.renew(broker.monotonic())
        else:
            broker.locks.clear()
        for _ in self._drop_deleted():
            await asyncio.sleep(0)  # the mastership is held meanwhile
        await self._deletions_saved()
        await broker.halves.rebuild_in_steps()
        self._begin_to_lead()
        self._fit_offsets("the former master had messages that are not here")
        broker.take_role(wanted)
        await self._lead()
        if not self._elects:
            broker.ha_access.start()
        await self._notify_consumers()

    def _drop_deleted(self) -> Iterator[None]:
        """Delete the queues of deleted topics, some after the other; what comes from here on is of no such topic."""
        broker = self._broker
        broker.deletions.settle(broker.store.commit_log.min_offset, broker.store.replicator.end_offset)
        broker.store.drain()
        older = broker.store.housekeeping.older_queues(broker.deletions.ends)
        fault = None
        for begin in range(0, len(older), DROPPED_AT_ONCE):
            try:
                broker.store.housekeeping.drop(older[begin : begin + DROPPED_AT_ONCE])
            except OSError as error:  # the queues are gone, and the mark counts them still
                fault = error
            yield
        if fault is not None:
            _not_saved(fault)
        if older:
            log.info("deleted_topics_dropped", topics=sorted({queue.topic for queue in older}))

    async def _deletions_saved(self) -> None:
        try:
            await self._broker.deletions.saved()
        except OSError as error:
            _not_saved(error)

    async def _notify_consumers(self) -> None:
        """Have consumers look at their group (40), each once: their pulls may wait at a former master that hangs."""
        broker = self._broker
        if not broker.config.notify_consumer_ids_changed_enable:
            return
        notified: set[Connection] = set()
        for name, group in list(broker.clients.consumers.items()):
            for connection in group.members.keys() - notified:
                notified.add(connection)
                connection.oneway(api.NOTIFY_CONSUMER_IDS_CHANGED, OfConsumerGroup(consumer_group=name))
                if not len(notified) % _NOTIFIED_TOGETHER:
                    await asyncio.sleep(0)


def _not_saved(error: OSError) -> None:
    log.error("state_not_saved", error=str(error))
