"""A group that etcd has lost, written again: what its brokers know, who may write it, and what is lost by that.

Owns the decision, as a pure function of what the brokers say (28 at each), and the request (1002). The argument: each
change of a group is made by a member of its syncStateSet, and is on that one's disk before anything is acknowledged by
it. So if all of the set of the newest group that anybody knows answer, with the stores that they had, nothing was
acknowledged by a newer one, and each of them has all that was. Invariant: a broker that takes part is never chosen, and
what may be lost is said, and never taken without the broker's number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, NotFound
from eruca.admin.lookups import ask_each
from eruca.admin.results.failover import ELECTED_WITHIN, Elected, elected
from eruca.protocol import api
from eruca.protocol.bodies import BrokerData
from eruca.protocol.headers.failover import ElectMaster


class Knowledge(NamedTuple):
    """What a broker knows of itself and its group."""

    broker_id: int
    address: str
    leads: bool
    forgotten: bool
    """Whether it takes no part, as etcd has forgotten the group that it knows."""
    store: str
    log_epoch: int
    end: int
    """Up to where its log is sound: behind damage, as a power failure leaves it, some messages are missing."""
    age: tuple[int, int]
    """masterEpoch and syncStateSetEpoch of the newest group that it has known; zeros if it has known none."""
    members: Mapping[int, str]
    """The stores of that group's syncStateSet, by broker id."""
    reach: int = 0
    """Where its log ends, damage or not."""

    @classmethod
    def of(cls, address: str, table: Mapping[str, str]) -> Knowledge:
        """What a broker's runtime info says. Raises AdminError for a broker that is in no such group."""
        try:
            reach = int(table["commitLogMaxOffset"])
            members = (each.partition("=") for each in table.get("syncStateSetStores", "").split(",") if each)
            return cls(
                broker_id=int(table["groupBrokerId"]),
                address=address,
                leads=table["groupState"] == "master",
                forgotten=table["groupForgotten"] == "true",
                store=table["groupStore"],
                log_epoch=int(table["groupLogEpoch"]),
                end=min(reach, int(table.get("groupDamagedAt", sys.maxsize))),
                reach=reach,
                age=(int(table.get("masterEpoch", 0)), int(table.get("syncStateSetEpoch", 0))),
                members={int(number): store for number, _, store in members},
            )
        except (KeyError, ValueError):
            raise AdminError("it says nothing of a group that elects its master") from None


class Plan(NamedTuple):
    """Who is to write the group again."""

    chosen: Knowledge
    newest: Knowledge
    """Who knows the newest group."""
    losses: tuple[str, ...]
    """What may be lost by that; nothing that was acknowledged if there are none."""
    epoch: int
    set_epoch: int
    """The highest that anybody knows."""


def plan(said: Iterable[Knowledge], wanted: int | None = None) -> Plan:
    """Who is to write the group again: the broker ``wanted``, or the longest log of those that surely have all.

    Raises AdminError where nothing is to be written again, or that broker cannot do it.
    """
    brokers = {each.broker_id: each for each in said}
    able = {number: each for number, each in brokers.items() if each.forgotten}
    if not able:
        states = ", ".join(f"{number} {'leads' if each.leads else 'takes part'}" for number, each in brokers.items())
        led = any(each.leads for each in brokers.values())
        page = "" if led else "; why nobody leads, see no-master in the runbook"
        raise AdminError(f"etcd has the group of these brokers, there is nothing to recreate: {states}{page}")
    if wanted is not None and wanted not in able:
        there = "takes part in a group that etcd has" if wanted in brokers else "does not answer"
        raise AdminError(f"broker {wanted} {there}: choose one of {', '.join(map(str, sorted(able)))}")
    newest = max(brokers.values(), key=lambda each: (each.age, each.log_epoch))
    sure = [each for number, each in able.items() if newest.members.get(number) == each.store]
    chosen = able[wanted] if wanted is not None else max(sure or able.values(), key=_length)
    return Plan(
        chosen,
        newest,
        tuple(_losses(brokers, newest, chosen)),
        max(max(each.age[0], each.log_epoch) for each in brokers.values()),
        max(each.age[1] for each in brokers.values()),
    )


def _length(broker: Knowledge) -> tuple[int, int, int, int]:
    """Of logs that were torn at the same place, as where all had been flushed together, the longest has the most."""
    return broker.log_epoch, broker.end, broker.reach, -broker.broker_id


def _losses(brokers: Mapping[int, Knowledge], newest: Knowledge, chosen: Knowledge) -> Iterable[str]:
    members = ", ".join(map(str, sorted(newest.members))) or "unknown"
    for number, store in sorted(newest.members.items()):
        why = _why_unsure(brokers.get(number), store)
        if why is not None:
            yield (
                f"broker {number} of the last syncStateSet ({members}) {why}: if it was the master since, what it has "
                "acknowledged may be lost"
            )
    if newest.members.get(chosen.broker_id) != chosen.store:
        yield (
            f"broker {chosen.broker_id} was not in the last syncStateSet ({members}), or with another store: what was "
            "acknowledged without it is lost"
        )
    for number, each in sorted(brokers.items()):
        if each.leads and not each.forgotten:
            yield f"broker {number} leads by what etcd has now, epoch {each.age[0]}: what it has acknowledged is lost"


def _why_unsure(broker: Knowledge | None, store: str) -> str | None:
    """Why nobody knows what became of a member of the set; None for one that can be relied on."""
    if broker is None:
        return "does not answer"
    if broker.store != store:
        return "has another disk, or a log that may lack what it had"
    return None if broker.age[0] else "does not know of which group it was"


async def knowledge(admin: Admin, broker: BrokerData) -> tuple[Sequence[Knowledge], Mapping[str, AdminError]]:
    """What the brokers of a group know, and the errors of those that did not say it, by address."""
    addresses = sorted(set(broker.broker_addrs.values()))
    asked = await ask_each({address: _knowledge(admin, address) for address in addresses})
    if not asked.answers:
        raise NotFound(f"no broker of {broker.broker_name} answers: {'; '.join(map(str, asked.errors.values()))}")
    return list(asked.answers.values()), asked.errors


async def _knowledge(admin: Admin, address: str) -> Knowledge:
    return Knowledge.of(address, await admin.runtime(address))


async def recreate(admin: Admin, cluster: str, broker: str, what: Plan) -> Elected:
    """Have the chosen broker write the group again, and lead it (1002, with fields of Eruca's own)."""
    ask = ElectMaster(
        cluster_name=cluster,
        broker_name=broker,
        broker_id=what.chosen.broker_id,
        designate_elect=True,
        recreate=True,
        known_epoch=what.epoch,
        known_set_epoch=what.set_epoch,
    )
    answer = await admin.call(what.chosen.address, api.CONTROLLER_ELECT_MASTER, ask, timeout=ELECTED_WITHIN)
    return elected(cluster, broker, answer)
