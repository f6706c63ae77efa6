"""The part of this broker in its group, for operators: who leads, who may, handing the mastership over, and writing a
group again that etcd has lost.

Owns the order of a switch-over: store nothing more, wait until all of the set have all, have etcd name the next
master, and wait until that one is elected. Decides nothing: the rules elect. Invariant: a broker that could not hand
over serves again as before, unless another one was elected meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from eruca.broker.failover import group as groups
from eruca.broker.failover import in_sync
from eruca.broker.failover.events import HandOver
from eruca.broker.failover.group import Group
from eruca.broker.failover.member import Member, State
from eruca.broker.services.failover.driver import Driver
from eruca.broker.services.failover.keys import View
from eruca.protocol.bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from eruca.remoting.clock import boottime_ms

CONFIRMED_WITHIN = 3.0
"""Seconds for the others to get what they lack."""
NAMED_WITHIN = 3.0
"""Seconds for etcd to name the next master."""
ELECTED_WITHIN = 6.0
"""Seconds for that one to be elected: as long as the election of another one may take."""

HIGHEST = 1 << 30
"""The highest epoch that is taken from an operator: the next ones are numbers of 31 bits, too."""

log = structlog.get_logger("eruca.broker.failover")


class HandOverRefused(Exception):
    """The mastership was not handed over; the text says why, and what to do."""


class RecreationRefused(Exception):
    """The group was not written again; the text says why, and what to do."""


class Desk(NamedTuple):
    """What a switch-over does to the broker."""

    end: Callable[[], int]
    """Where its log ends."""
    hold: Callable[[], object]
    """Store nothing more, and refuse sends with a code that clients try again."""
    resume: Callable[[], object]
    """Store again. Raises OSError."""
    disk_failed: Callable[[], bool]
    """Whether its disk fails or hangs."""


class GroupPart:
    """The part of one broker in its group."""

    def __init__(self, driver: Driver, desk: Desk) -> None:
        self.driver = driver
        self._desk = desk
        self._one = asyncio.Lock()

    @property
    def member(self) -> Member:
        """What this broker knows."""
        return self.driver.member

    @property
    def group(self) -> Group | None:
        """The group as this broker knows it; None before it has heard of it."""
        known = self.driver.member.known
        return known.group if known is not None else None

    @property
    def last(self) -> Group | None:
        """The newest group that this broker has known, in former lives too."""
        return self.driver.kept.group

    @property
    def broker_id(self) -> int:
        """This broker's number in its group."""
        return self.driver.me.broker_id

    @property
    def disk_failed(self) -> bool:
        """Whether this broker's disk fails or hangs, be it for the log or for a small file: then it follows nobody."""
        return self._desk.disk_failed()

    def addresses(self) -> Mapping[int, str]:
        """The addresses of the brokers that are up, by their numbers; this one always."""
        view: View | None = self.driver.view
        there = {number: each.address for number, each in view.present.items()} if view is not None else {}
        return {**there, self.broker_id: self.driver.me.address}

    def master_address(self) -> str | None:
        """The address of the group's master, if it is up."""
        group = self.group
        return self.addresses().get(group.master_broker_id) if group is not None else None

    def leader(self) -> str | None:
        """The address of another broker that was elected, which is followed, or of which etcd said so last; None while
        there is none, and while it hangs."""
        if self.driver.master_hangs:
            return None
        if self.member.state is State.FOLLOWING:
            return self.driver.followed
        view = self.driver.view
        if view is None or view.master is None or view.known is None:
            return None
        elected = view.master.epoch == view.known.group.master_epoch and view.master.broker_id != self.broker_id
        return view.master.address if elected else None

    def status(self, now: int) -> HARuntimeInfo:
        """The state of replication at ``now``, in ms since 1970 (907); how fast a log is copied is not counted."""
        end, group, addresses = self._desk.end(), self.group, self.addresses()
        if self.member.state is State.MASTER and group is not None:
            replicas = [
                HAConnectionRuntimeInfo(
                    addr=addresses.get(each.broker_id, f"broker {each.broker_id}"),
                    slave_ack_offset=each.end,
                    diff=max(end - each.end, 0),
                    in_sync=each.follows and group.has(each.broker_id, each.store),
                    transfer_from_where=each.end,
                )
                for each in self.member.replicas
            ]
            return HARuntimeInfo(
                master=True,
                master_commit_log_max_offset=end,
                in_sync_slave_nums=sum(each.in_sync for each in replicas),
                ha_connection_info=replicas,
            )
        info = HAClientRuntimeInfo(
            master_addr=self.master_address() or "",
            max_offset=end,
            activated=self.member.state is State.FOLLOWING,
        )
        heard = self.driver.heard_at()
        if heard is not None:
            info.last_read_timestamp = info.last_write_timestamp = now - (boottime_ms() - heard)
        return HARuntimeInfo(ha_client_runtime_info=info)

    # ------------------------------------------------------------------ handing over

    async def hand_over(self, broker_id: int | None = None) -> Group:
        """Hand the mastership over to that member of the set, or to the one with the longest log; the group then.

        Raises HandOverRefused.
        """
        async with self._one:
            group, target = self._target(broker_id)
            if target == self.broker_id:
                return group
            log.info("hand_over", to=target, epoch=group.master_epoch)
            self._desk.hold()
            try:
                await self._name(target)
            finally:
                if self.member.state is State.MASTER:
                    self._resume()
                    self.driver.look()
            return await self._elected(group, target)

    def _resume(self) -> None:
        try:
            self._desk.resume()
        except OSError as fault:
            raise HandOverRefused(
                f"the mastership was not handed over, and this broker stores nothing more, as its log cannot be "
                f"brought to the disk ({fault}): restart it"
            ) from None

    async def recreate(self, epoch: int, set_epoch: int) -> Group:
        """Write the group again, which etcd has forgotten, with this broker as its master; the group then.

        ``epoch`` and ``set_epoch`` are the highest that is known anywhere. Whoever asks knows that this broker has all
        that was acknowledged, or takes the loss.

        Raises RecreationRefused.
        """
        async with self._one:
            driver, member = self.driver, self.member
            if max(epoch, set_epoch) > HIGHEST:
                raise RecreationRefused(f"no group has an epoch above {HIGHEST}: give the ones that brokers know")
            if not member.forgotten:
                raise RecreationRefused(
                    f"etcd has the group of broker {self.broker_id}, which is {member.state.value}: there is nothing "
                    "to recreate"
                )
            last = self.last or groups.found(self.broker_id, driver.me.store)
            there = driver.view.known if driver.view is not None else None
            ages = [(epoch, set_epoch), (member.epoch, 0), last.age, *([there.group.age] if there is not None else [])]
            newest = last._replace(
                master_epoch=max(each for each, _ in ages), sync_state_set_epoch=max(each for _, each in ages)
            )
            group = newest.recreate(self.broker_id, driver.me.store)
            log.warning("group_recreated", epoch=group.master_epoch, master=self.broker_id, former=last.master_epoch)
            driver.recreate(group)
            try:
                async with asyncio.timeout(ELECTED_WITHIN):
                    await driver.until(lambda: not self.member.forgotten)
                    await driver.until(lambda: self.member.state in (State.MASTER, State.BARRED))
            except TimeoutError:
                raise RecreationRefused(
                    f"etcd did not take the group within {ELECTED_WITHIN:g} s, and may still do so: see that it "
                    "answers, and look with getSyncStateSet"
                ) from None
            if self.member.state is not State.MASTER or self.group is None:
                raise RecreationRefused("the group in etcd has changed meanwhile: look with getSyncStateSet, try again")
            return self.group

    def _target(self, broker_id: int | None) -> tuple[Group, int]:
        """The group, and whom to hand over to; only the master can say it."""
        group, member = self.group, self.member
        if group is None or member.state is not State.MASTER:
            there = ""
            if group is not None and self.leader() is not None:
                there = f": ask broker {group.master_broker_id}, the master"
            elif group is not None:
                there = ", and nobody leads the group now, so nothing can be handed over: see no-master in the runbook"
            raise HandOverRefused(f"broker {self.broker_id} is not the master{there}")
        if broker_id is None:
            broker_id = in_sync.heir(group, member.replicas)
            if broker_id is None:
                raise HandOverRefused("no other broker is in the syncStateSet: nobody can take the mastership over")
        replica = in_sync.of(member.replicas, broker_id)
        follows = broker_id == self.broker_id or (replica is not None and replica.follows)
        if broker_id not in group.sync_state_set or not follows:
            members = ", ".join(map(str, sorted(group.sync_state_set)))
            raise HandOverRefused(
                f"broker {broker_id} is not in the syncStateSet ({members}), or does not follow, so it may lack what "
                "was acknowledged: wait until getSyncStateSet shows it there"
            )
        return group, broker_id

    async def _name(self, target: int) -> None:
        """Have etcd name it, when all of the set have all that is here."""
        try:
            async with asyncio.timeout(CONFIRMED_WITHIN):
                await self.driver.until(self._all_confirmed)
        except TimeoutError:
            raise HandOverRefused(
                f"the brokers of the syncStateSet did not get all within {CONFIRMED_WITHIN:g} s: try again when "
                "haStatus shows none of them behind"
            ) from None
        self.driver.post(HandOver(target))
        try:
            async with asyncio.timeout(NAMED_WITHIN):
                await self.driver.until(lambda: self.member.state is not State.MASTER)
        except TimeoutError:
            raise HandOverRefused(
                f"etcd did not name broker {target} the master within {NAMED_WITHIN:g} s, and may still do so: see "
                "that it answers, and look with getSyncStateSet"
            ) from None

    def _all_confirmed(self) -> bool:
        member = self.member
        confirmed = member.confirmed >= self._desk.end() and member.tables_confirmed >= member.tables
        return member.state is not State.MASTER or (confirmed and member.proposed is None)

    async def _elected(self, former: Group, target: int) -> Group:
        """Wait until a broker is elected."""

        def decided() -> bool:
            view, group = self.driver.view, self.group
            if view is None or view.master is None or group is None:
                return False
            return view.master.epoch == group.master_epoch > former.master_epoch

        try:
            async with asyncio.timeout(ELECTED_WITHIN):
                await self.driver.until(decided)
        except TimeoutError:
            raise HandOverRefused(
                f"broker {target} was named the next master, but is not elected after {ELECTED_WITHIN:g} s: see its log"
            ) from None
        group = self.group
        assert group is not None
        if group.master_broker_id != target:
            raise HandOverRefused(
                f"broker {group.master_broker_id} was elected, and not broker {target}: try again with that one"
            )
        return group
