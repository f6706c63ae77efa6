"""The rules about nameservers and brokers. Pure: findings from what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

from eruca.admin.diagnosis.findings import Finding
from eruca.admin.diagnosis.survey import BrokerSeen, Seen, View
from eruca.admin.results.brokers import STORE_REFUSAL
from eruca.admin.results.monitor import BEHIND
from eruca.protocol.bodies import TopicRouteData

SKEW_MS = 3000
"""By how much a clock may differ from this machine's."""


def findings(seen: Seen) -> Iterator[Finding]:
    """All that is wrong with nameservers and brokers."""
    yield from _disagreements(seen.views)
    yield from _addresses(seen)
    yield from _replicas(seen.brokers)
    yield from refusals(broker for broker in seen.brokers if not broker.silent)
    for broker in seen.brokers:
        if not broker.silent:
            yield from _clock(broker)
            yield from _doors(broker)


def _disagreements(views: Mapping[str, View]) -> Iterator[Finding]:
    """What a nameserver lacks or knows in another way than the first one that knows it."""
    topics = set[str]().union(*(view.topics for view in views.values()))
    brokers = {
        name: data.broker_addrs
        for view in reversed(list(views.values()))
        for name, data in view.clusters.broker_addr_table.items()
    }
    known = {name: route for view in reversed(list(views.values())) for name, route in view.routes.items()}
    for address, view in views.items():
        own = view.clusters.broker_addr_table
        parts = {
            "does not know broker": [name for name in brokers if name not in own],
            "has other addresses of broker": [
                name for name, addresses in brokers.items() if name in own and own[name].broker_addrs != addresses
            ],
            "does not know topic": list(topics - view.topics),
            "has another route of topic": [
                name for name, route in view.routes.items() if _queues(route) != _queues(known[name])
            ],
        }
        texts = [f"{words} {listed(sorted(names))}" for words, names in parts.items() if names]
        if texts:
            yield Finding(
                kind="nameserversDisagree",
                where=f"nameserver {address}",
                what=f"it {' and '.join(texts)}",
                mend="see whether every broker names all nameservers in namesrvAddr and reaches them",
            )


def _queues(route: TopicRouteData) -> set[tuple[str, int, int, int]]:
    return {(each.broker_name, each.read_queue_nums, each.write_queue_nums, each.perm) for each in route.queue_datas}


def _addresses(seen: Seen) -> Iterator[Finding]:
    hosts = [_host(each) for each in (*seen.views, *(broker.address for broker in seen.brokers))]
    one_machine = all(map(is_loopback, hosts))
    for broker in seen.brokers:
        where = f"broker {broker.name} {broker.address}"
        if is_loopback(_host(broker.address)) and not one_machine:
            yield Finding(
                kind="brokerAtLoopback",
                where=where,
                what="it registers a loopback address, which leads every other machine to itself",
                mend="set its brokerIP1 to an address that clients reach, and start it again",
                broker=broker.name,
            )
        elif broker.silent:
            yield Finding(
                kind="brokerUnreachable",
                where=where,
                what=f"it does not answer at the address that it registers ({broker.silent})",
                mend="see whether it runs; if it does, set its brokerIP1 to an address that clients reach",
                broker=broker.name,
            )


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine for everybody."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _replicas(brokers: list[BrokerSeen]) -> Iterator[Finding]:
    masters = {each.name: each for each in brokers if each.is_master}
    for broker in brokers:
        if broker.is_master:
            continue
        master, where = masters.get(broker.name), f"slave {broker.broker_id} of {broker.name} {broker.address}"
        if master is None:
            yield Finding(
                kind="noMaster",
                where=where,
                what="its master is not registered, so nobody can send there",
                mend="start the master, or see why it does not register",
                broker=broker.name,
            )
        elif master.log_end is not None and broker.log_end is not None and master.log_end - broker.log_end >= BEHIND:
            yield Finding(
                kind="slaveBehind",
                where=where,
                what=f"it is {master.log_end - broker.log_end} bytes behind its master",
                mend="see in its log whether it copies, and whether disk and network keep up",
                broker=broker.name,
            )


def refusals(brokers: Iterable[BrokerSeen]) -> Iterator[Finding]:
    """The brokers that refuse every send."""
    for broker in brokers:
        if refusal := broker.figures.get(STORE_REFUSAL):
            yield Finding(
                kind="brokerRefusesSends",
                where=f"broker {broker.name} {broker.address}",
                what=f"its store accepts nothing, so every send is refused: {refusal}",
                mend="make room on its disk, or see in its log what is wrong with it",
                broker=broker.name,
            )


def _clock(broker: BrokerSeen) -> Iterator[Finding]:
    if abs(broker.ahead_ms) > SKEW_MS:
        way = "ahead of" if broker.ahead_ms > 0 else "behind"
        yield Finding(
            kind="brokerClock",
            where=f"broker {broker.name} {broker.address}",
            what=f"its clock is {abs(broker.ahead_ms) / 1000:.1f} s {way} this machine's",
            mend="run a time service (chrony, ntpd) on both: delays, retention and resets to a time follow the clock",
            broker=broker.name,
        )


def _doors(broker: BrokerSeen) -> Iterator[Finding]:
    if not broker.is_master or not broker.settings:
        return
    where = f"broker {broker.name} {broker.address}"
    made = {"autoCreateTopicEnable": "topics", "autoCreateSubscriptionGroup": "consumer groups"}
    on = [key for key in made if broker.settings.get(key) == "true"]
    if on:
        yield Finding(
            kind="autoCreate",
            where=where,
            what=f"a mistyped name creates {' and '.join(made[key] for key in on)}",
            mend=f"set {' and '.join(f'{key}=false' for key in on)}, and create them with updateTopic, updateSubGroup",
            broker=broker.name,
        )
    secured = any(broker.settings.get(key) == "true" for key in ("aclEnable", "authenticationEnabled"))
    bound = broker.settings.get("bindAddress") or "0.0.0.0"
    if not secured and not is_loopback(bound):
        yield Finding(
            kind="openToAll",
            where=where,
            what=f"it listens on {bound} and takes requests of anybody",
            mend="set aclEnable=true and give accounts, or bindAddress to an address that only friends reach",
            broker=broker.name,
        )


def listed(names: list[str]) -> str:
    """``a, b, c and 4 more``."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
