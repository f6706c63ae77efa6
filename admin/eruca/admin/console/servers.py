"""Brokers and nameservers: what they say of themselves, their settings, who is connected.

A setting is marked where it differs from its default, and where the brokers of the cluster differ in it; one that may
change at run time can be changed here, and its broker refuses the others.
"""

from __future__ import annotations

import asyncio

from eruca.admin.client import Admin
from eruca.admin.console.forms import Field, form
from eruca.admin.console.overview import Freshness, SlaveDistance, distances, freshness
from eruca.admin.console.shapes import segment
from eruca.admin.console.visit import Visit, act, now, page, part
from eruca.admin.errors import AdminError, BadValue, NotFound, PeerRefused
from eruca.admin.lookups import ask_each
from eruca.admin.results.answer import Answer, Moment, PeerError, Result, errors_of
from eruca.admin.results.broker_settings import defaults_of
from eruca.admin.results.brokers import (
    BrokerLoad,
    LagOfBroker,
    Producers,
    Servers,
    broker_settings,
    consume_stats,
    nameserver_settings,
    producers,
)
from eruca.admin.results.groups import Member, members
from eruca.protocol import api, properties
from eruca.protocol.bodies import ClusterInfo
from eruca.protocol.codes import ResponseCode

MANY_GROUPS = 50
"""Groups whose members a page of a broker shows unasked."""
_CHANGE = form("updateBrokerConfig", "value")
_OWN = {"brokerName", "brokerId", "brokerRole", "brokerIP1", "brokerIP2"}
_OWN |= {"listenPort", "haListenPort", "haMasterAddress", "metricsPort"}
"""Settings in which brokers always differ, and paths."""
_PARTS = (
    ("Messages", ("msg", "put", "get", "Tps", "dispatchBehind", "remain")),
    ("Log and disks", ("commitLog", "consumeQueue", "Disk", "earliest", "PageCache", "pageCache")),
    ("Requests that wait", ("ThreadPool", "Queue")),
)
_REST = "The rest"


class ServersPage(Answer, frozen=True, kw_only=True, rename="camel"):
    """All brokers and nameservers."""

    brokers: list[BrokerLoad]
    slaves: list[SlaveDistance]
    nameservers: list[str]
    seen: Freshness


@page("/brokers", "servers.html")
async def servers(visit: Visit) -> ServersPage:
    """What the watch has seen."""
    watch = visit.console.watch
    await watch.seen()
    found = watch.brokers.answer
    return ServersPage(
        brokers=found.items if found else [],
        slaves=distances(found.items) if found else [],
        nameservers=visit.admin.nameservers,
        seen=freshness(watch.brokers.age, watch.brokers.trouble),
        errors=found.errors if found else [],
    )


class Setting(Result, frozen=True, kw_only=True, rename="camel"):
    """A setting of a broker."""

    name: str
    value: str
    default: str | None
    """What it is by default; None for a setting that only a start reads, or that makes a broker this one."""
    others: dict[str, str]
    """Other values, by the addresses of the masters that have them."""


class Figures(Result, frozen=True, kw_only=True, rename="camel"):
    """A group of figures, in the broker's words."""

    title: str
    entries: dict[str, str]


class ConsumerAt(Result, frozen=True, kw_only=True, rename="camel"):
    """A consumer that is connected to a broker."""

    group: str
    member: Member


class BrokerPage(Answer, frozen=True, kw_only=True, rename="camel"):
    """All of one broker; None for a part that could not be had."""

    address: str
    name: str
    runtime: list[Figures] | None
    settings: list[Setting] | None
    producers: Producers | None
    consumers: list[ConsumerAt] | None
    """Members of groups that are online at this broker; None where they were not asked for, too."""
    groups_online: int
    """Groups with members online, at whatever broker."""
    lags: LagOfBroker | None
    at: Moment
    seen: Freshness


@page("/brokers/{address}", "broker.html")
async def broker(visit: Visit) -> BrokerPage:
    """A broker; of many groups, their members only with ``?consumers=1``. Raises NotFound for an unknown address."""
    address, admin = visit.names["address"], visit.admin
    name = await _name(visit)
    errors: list[PeerError] = []
    seen = visit.console.watch.groups.answer
    online = [each.group for each in seen.items if each.members != 0] if seen else []
    asks = len(online) <= MANY_GROUPS or "consumers" in visit.given
    runtime, settings, clients, consumers, lags = await asyncio.gather(
        part(errors, "runtime info", admin.runtime(address)),
        part(errors, "settings", _settings(admin, address, errors)),
        part(errors, "producers", producers(admin, address)),
        part(errors, "consumers", _consumers(admin, address, online if asks else [], errors)),
        part(errors, "groups", consume_stats(admin, address, ordered=False, least=0, timeout=5)),
    )
    return BrokerPage(
        address=address,
        name=name,
        runtime=_grouped(runtime) if runtime is not None else None,
        settings=settings,
        producers=clients,
        consumers=consumers if asks and seen else None,
        groups_online=len(online),
        lags=lags,
        at=now(),
        seen=freshness(0.0, ""),
        errors=errors,
    )


async def _name(visit: Visit) -> str:
    """The broker's name; an address that is none of a broker's is not asked."""
    address = visit.names["address"]
    seen = {at: name for (name, _), at in visit.console.watch.expected.items()}
    for found in (await visit.admin.clusters()).broker_addr_table.values():
        if address in found.broker_addrs.values():
            return found.broker_name
    if address in seen:
        return seen[address]
    raise NotFound(f"the nameserver knows no broker at {address}")


async def _consumers(admin: Admin, address: str, groups: list[str], errors: list[PeerError]) -> list[ConsumerAt]:
    """The members of these groups that this broker knows (203 for each group)."""
    asked = await ask_each({each: members(admin, each, address) for each in groups})
    silent = {
        group: error
        for group, error in asked.errors.items()
        if not (isinstance(error, PeerRefused) and error.code == ResponseCode.CONSUMER_NOT_ONLINE)
    }
    errors += errors_of(silent, "its members are missing")
    return [
        ConsumerAt(group=group, member=each)
        for group in groups
        if group in asked.answers
        for each in asked.answers[group].items
    ]


def _grouped(table: dict[str, str]) -> list[Figures]:
    left, found = dict(sorted(table.items())), []
    for title, words in _PARTS:
        own = {key: value for key, value in left.items() if any(word in key for word in words)}
        left = {key: value for key, value in left.items() if key not in own}
        found.append(Figures(title=title, entries=own))
    return [*found, Figures(title=_REST, entries=left)]


async def _settings(admin: Admin, address: str, errors: list[PeerError]) -> list[Setting]:
    """The settings of a broker, beside those of all masters."""
    brokers = (await admin.clusters()).broker_addr_table.values()
    others = [at for each in brokers if (at := each.master()) is not None and at != address]
    found = await broker_settings(admin, [address, *others])
    tables = {each.address: each.entries for each in found.items}
    if address not in tables:
        raise AdminError(next((each.text for each in found.errors), "it did not answer"))
    errors += [each for each in found.errors if each.peer != address]
    defaults = defaults_of(tables[address])
    return [
        Setting(
            name=name,
            value=value,
            default=defaults.get(name),
            others={}
            if name in _OWN or "Path" in name
            else {at: table[name] for at, table in tables.items() if name in table and table[name] != value},
        )
        for name, value in sorted(tables[address].items())
    ]


class SettingChange(Answer, frozen=True, kw_only=True, rename="camel"):
    """The form of one setting."""

    address: str
    name: str
    value: str
    fields: list[Field]


@page("/brokers/{address}/settings/{name}", "setting.html")
async def setting(visit: Visit) -> SettingChange:
    """A setting as it is. Raises NotFound for one that the broker does not have."""
    await _name(visit)
    address, name = visit.names["address"], visit.names["name"]
    value = await _value(visit.admin, address, name)
    return SettingChange(address=address, name=name, value=value, fields=visit.fields(_CHANGE, usual={"value": value}))


async def _value(admin: Admin, address: str, name: str) -> str:
    [found] = (await broker_settings(admin, [address])).items
    if name not in found.entries:
        raise NotFound(f"{address} has no setting {name}")
    return found.entries[name]


@act("/brokers/{address}/settings/{name}")
async def change_setting(visit: Visit) -> str:
    """Change a setting at run time (25)."""
    await _name(visit)
    address, name, value = visit.names["address"], visit.names["name"], visit.filled(_CHANGE).text("value")
    before = await _value(visit.admin, address, name)
    if value == before:
        raise BadValue(f"nothing was changed: {name} is {before} already")
    await visit.admin.call(address, api.UPDATE_BROKER_CONFIG, None, properties.write({name: value}).encode())
    visit.changed(f"setting {name} at {address}", before, value)
    return f"/brokers/{segment(address)}"


# ------------------------------------------------------------------ nameservers


class NameserversPage(Answer, frozen=True, kw_only=True, rename="camel"):
    """The nameservers, and what they know."""

    nameservers: list[str]
    settings: Servers | None
    known: dict[str, list[str]]
    """Names of the brokers that each knows; what they do not agree on is an error of the cluster."""


@page("/nameservers", "nameservers.html")
async def nameservers(visit: Visit) -> NameserversPage:
    """Each nameserver."""
    admin = visit.admin
    errors: list[PeerError] = []
    settings, known = await asyncio.gather(part(errors, "settings", nameserver_settings(admin)), _known(admin))
    errors += known[1]
    return NameserversPage(nameservers=admin.nameservers, settings=settings, known=known[0], errors=errors)


async def _known(admin: Admin) -> tuple[dict[str, list[str]], list[PeerError]]:
    asked = await ask_each(
        {each: admin.call(each, api.GET_BROKER_CLUSTER_INFO) for each in dict.fromkeys(admin.nameservers)}
    )
    tables = {each: ClusterInfo.decode(answer.body).broker_addr_table for each, answer in asked.answers.items()}
    return {each: sorted(table) for each, table in tables.items()}, errors_of(asked.errors, "what it knows is missing")
