"""Checks for monitoring: one state, one sentence, and the figures behind it (Nagios Plugin Development Guidelines).

``CHECKS`` are the coroutines by name. What cannot be known is UNKNOWN, and never OK.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from time import monotonic
from typing import Annotated, Literal

from eruca.admin.client import Admin
from eruca.admin.errors import AdminError, BadValue, NotFound, PeerRefused, Status
from eruca.admin.lookups import ask_each, members_of, progress_of_members
from eruca.admin.messages import writable_queues
from eruca.admin.results.answer import NONE, Result
from eruca.admin.results.brokers import STORE_REFUSAL, BrokerLoad, brokers
from eruca.admin.results.topics import topic_status
from eruca.admin.text import counted
from eruca.protocol import api
from eruca.remoting.clock import now_ms

MIB = 1 << 20


class State(IntEnum):
    """The states of a check, which are the exit statuses too."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Figure(Result, frozen=True, kw_only=True, rename="camel"):
    """A figure, and from where on it is bad."""

    name: str
    of: str
    """Whose it is; "" for the only one."""
    value: float | None
    """None where it is not known."""
    unit: Literal["", "s", "ms", "%", "B"]
    warning: Annotated[float | None, NONE]
    critical: Annotated[float | None, NONE]


class Check(Result, frozen=True, kw_only=True, rename="camel"):
    """What a check found."""

    check: str
    state: Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]
    text: str
    figures: list[Figure]
    subject: str
    """The group, the topic or the broker that was meant; "" for all."""

    def line(self) -> str:
        """The line of a Nagios plugin, with its performance data."""
        data = " ".join(map(_performance, self.figures))
        return f"{self.check.upper()} {self.state} - {_one_line(self.text)}" + (f" | {data}" if data else "")

    def prometheus(self) -> str:
        """The figures as metrics."""
        labels = f'check="{self.check}",subject="{_label(self.subject)}"'
        lines = [
            "# HELP mqadmin_check_state 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN",
            "# TYPE mqadmin_check_state gauge",
            f"mqadmin_check_state{{{labels}}} {State[self.state].value}",
        ]
        for name in dict.fromkeys(each.name for each in self.figures):
            own = [each for each in self.figures if each.name == name and each.value is not None]
            metric = f"mqadmin_check_{name}{_UNITS[own[0].unit]}" if own else ""
            lines += [f"# TYPE {metric} gauge"] if own else []
            lines += [f'{metric}{{{labels},of="{_label(each.of)}"}} {_base(each)}' for each in own]
        return "\n".join(lines) + "\n"


_UNITS = {"": "", "s": "_seconds", "ms": "_seconds", "%": "_ratio", "B": "_bytes"}


def _base(each: Figure) -> str:
    """In the unit that Prometheus has."""
    value = each.value or 0.0
    return f"{value * {'ms': 0.001, '%': 0.01}.get(each.unit, 1.0):.12g}"


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("|", "/")


def _performance(each: Figure) -> str:
    name = f"{each.name}_{each.of}" if each.of else each.name
    quoted = "'" + name.replace("'", "''").replace("=", "_") + "'"
    bounds = ";".join("" if bound is None else f"{bound:.12g}" for bound in (each.warning, each.critical))
    value = "U" if each.value is None else f"{each.value:.12g}{each.unit}"
    return f"{quoted}={value};{bounds};0"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is checked, and from where on it is bad; None takes the check's own bound."""

    group: str
    topic: str
    broker: str
    warning: float | None
    critical: float | None

    def bounds(
        self, warning: float | None, critical: float | None, *, below: bool = False
    ) -> tuple[float | None, float | None]:
        """The bounds that count, of a figure that is bad above them or ``below``.

        Raises BadValue where both were given, in the wrong order.
        """
        least, most = (self.critical, self.warning) if not below else (self.warning, self.critical)
        if least is not None and most is not None and least < most:
            way = "above" if below else "below"
            raise BadValue(
                f"the critical bound {self.critical:.12g} (-c) is {way} the warning bound {self.warning:.12g} (-w)"
            )
        return warning if self.warning is None else self.warning, critical if self.critical is None else self.critical


async def perform(admin: Admin, name: str, ask: Ask) -> Check:
    """One check. Raises BadValue for a question that lacks something; a peer that does not answer is UNKNOWN."""
    subject = ask.group or ask.topic or ask.broker
    try:
        return await CHECKS[name](admin, ask)
    except BadValue:
        raise
    except AdminError as error:
        return _check(name, State.UNKNOWN, str(error), [], subject)


def _check(name: str, state: State, text: str, figures: list[Figure], subject: str) -> Check:
    names: dict[State, Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]] = {
        State.OK: "OK",
        State.WARNING: "WARNING",
        State.CRITICAL: "CRITICAL",
        State.UNKNOWN: "UNKNOWN",
    }
    return Check(check=name, state=names[state], text=text, figures=figures, subject=subject)


def _judged(value: float, bounds: tuple[float | None, float | None], *, below: bool = False) -> State:
    """From the bounds on it is bad; with ``below``, under them."""

    def beyond(bound: float | None) -> bool:
        return bound is not None and (value < bound if below else value >= bound)

    return State.CRITICAL if beyond(bounds[1]) else State.WARNING if beyond(bounds[0]) else State.OK


def _figure(
    name: str, value: float | None, bounds: tuple[float | None, float | None], of: str = "", unit: str = ""
) -> Figure:
    units: Mapping[str, Literal["", "s", "ms", "%", "B"]] = {"": "", "s": "s", "ms": "ms", "%": "%", "B": "B"}
    return Figure(name=name, of=of, value=value, unit=units[unit], warning=bounds[0], critical=bounds[1])


# ------------------------------------------------------------------ groups and topics


async def _lag(admin: Admin, ask: Ask) -> Check:
    group, bounds = _group(ask), ask.bounds(1000, 10_000)
    try:
        found = await progress_of_members(admin, group)
    except NotFound:
        text = f"group {group} has no offset: it has consumed nothing yet"
        return _check("lag", State.UNKNOWN, text, [_figure("lag", None, bounds)], group)
    lag = max(0, found.stats.lag())
    state = _judged(lag, bounds)
    text = f"group {group}: {counted(found.lag_text(), 'message')} not consumed"
    if found.errors:
        text += f", {', '.join(sorted(found.errors))} did not answer"
        state = state if state is State.CRITICAL else State.UNKNOWN
    return _check("lag", state, text, [_figure("lag", lag, bounds)], group)


async def _members(admin: Admin, ask: Ask) -> Check:
    group, bounds = _group(ask), ask.bounds(1, 1, below=True)
    asked = await ask_each({name: _online(admin, group, at) for name, at in await admin.brokers_of_group(group)})
    online = len({member for members in asked.answers.values() for member in members})
    state, text = _judged(online, bounds, below=True), f"group {group}: {counted(online, 'member')} online"
    if asked.errors and state is not State.OK:
        state, text = State.UNKNOWN, f"{text}, {', '.join(sorted(asked.errors))} did not answer"
    return _check("members", state, text, [_figure("members", online, bounds)], group)


async def _online(admin: Admin, group: str, address: str) -> set[str]:
    try:
        return {each.client_id for each in (await members_of(admin, group, address)).connection_set}
    except PeerRefused as refused:
        if refused.status != Status.NOT_FOUND:
            raise
        return set()  # nobody is online there


def _group(ask: Ask) -> str:
    if not ask.group:
        raise BadValue("give the consumer group with -g")
    return ask.group


async def _topic(admin: Admin, ask: Ask) -> Check:
    """Whether it can be written, and how old its last message is."""
    if not ask.topic:
        raise BadValue("give the topic with -t")
    topic, bounds = ask.topic, ask.bounds(None, None)
    try:
        await admin.route(topic)
        queues = await writable_queues(admin, topic)
    except AdminError as error:
        return _check("topic", State.CRITICAL, str(error), [], topic)
    refusing = await _refusing(admin, set(queues.values()))
    found = await topic_status(admin, topic)
    last = max((each.last_stored.ms for each in found.items if each.last_stored), default=None)
    age = None if last is None else max(0.0, (now_ms() - last) / 1000)
    state = State.OK if age is None else _judged(age, bounds)
    text = f"topic {topic}: {counted(len(queues), 'queue')} to write, "
    text += "no message yet" if age is None else f"the last message {age:.0f} s ago"
    if found.errors:
        state, text = State.CRITICAL, f"{text}, {', '.join(each.peer for each in found.errors)} did not answer"
    if refusing:
        nobody = refusing.keys() == set(queues.values())
        state = State.CRITICAL if nobody else max(state, State.WARNING)
        text += "; " + "; ".join(f"{address} refuses sends: {why}" for address, why in sorted(refusing.items()))
    return _check("topic", state, text, [_figure("age", age, bounds, unit="s")], topic)


async def _refusing(admin: Admin, addresses: Iterable[str]) -> dict[str, str]:
    """The brokers that refuse every send, with the reason; of one that does not answer it is not known."""
    asked = await ask_each({address: admin.runtime(address) for address in addresses})
    return {address: why for address, table in asked.answers.items() if (why := table.get(STORE_REFUSAL))}


# ------------------------------------------------------------------ brokers


async def _broker(admin: Admin, ask: Ask) -> Check:
    """Whether brokers answer, how fast, and whether they take messages."""
    bounds = ask.bounds(500, 2000)
    info = await admin.clusters()
    places = {
        f"{name}:{broker_id}": address
        for name, data in sorted(info.broker_addr_table.items())
        for broker_id, address in sorted(data.broker_addrs.items())
        if ask.broker in ("", name, address)
    }
    if not places:
        text = f"no broker {ask.broker} is registered" if ask.broker else "no broker is registered"
        return _check("broker", State.CRITICAL, text, [], ask.broker)
    asked = await ask_each({name: _answer(admin, address) for name, address in places.items()})
    states = [_judged(ms, bounds) for ms, _ in asked.answers.values()]
    text = f"{len(asked.answers)} of {len(places)} brokers answer"
    if asked.errors:
        text += "; " + "; ".join(f"{name}: {error}" for name, error in sorted(asked.errors.items()))
        states.append(State.CRITICAL)
    refusing = {name: why for name, (_, why) in asked.answers.items() if why}
    if refusing:
        text += "; " + "; ".join(f"{name} refuses sends: {why}" for name, why in refusing.items())
        states.append(State.CRITICAL)
    times = {name: ms for name, (ms, _) in asked.answers.items()}
    figures = [_figure("time", times.get(name), bounds, name, "ms") for name in places]
    return _check("broker", max(states), text, figures, ask.broker)


async def _answer(admin: Admin, address: str) -> tuple[float, str]:
    """The ms that a broker took, and why it refuses every send; "" if it does not."""
    began = monotonic()
    table = await admin.runtime(address)
    return round((monotonic() - began) * 1000, 1), table.get(STORE_REFUSAL, "")


async def _cluster(admin: Admin, ask: Ask) -> Check:
    """How many of nameservers and brokers do not answer or have no master."""
    bounds = ask.bounds(1, 1)
    names = await ask_each({each: admin.call(each, api.GET_BROKER_CLUSTER_INFO) for each in admin.nameservers})
    found = await brokers(admin)
    masters = {each.broker for each in found.items if each.broker_id == 0}
    bad = [*sorted(names.errors), *(each.peer for each in found.errors)]
    alone = sorted({each.broker for each in found.items} - masters)
    texts = [f"{counted(len(admin.nameservers), 'nameserver')} and {counted(len(found.items), 'broker')}"]
    texts += [f"no answer of {', '.join(bad)}"] if bad else []
    texts += [f"no master of {', '.join(alone)}"] if alone else []
    count = len(bad) + len(alone)
    return _check("cluster", _judged(count, bounds), ", ".join(texts), [_figure("missing", count, bounds)], "")


async def _disk(admin: Admin, ask: Ask) -> Check:
    bounds = ask.bounds(75, 85)
    return await _worst(admin, ask, "disk", bounds, "%", lambda each, _: _percent(each), "{:.0f} % of the disk used")


def _percent(each: BrokerLoad) -> float | None:
    return None if each.disk_used is None else round(each.disk_used * 100, 1)


async def _slave(admin: Admin, ask: Ask) -> Check:
    warning, critical = ask.bounds(64, 256)
    bounds = (None if warning is None else warning * MIB, None if critical is None else critical * MIB)
    return await _worst(admin, ask, "slave", bounds, "B", _behind, "{:.0f} bytes behind the master")


def _behind(each: BrokerLoad, ends: Mapping[str, int | None]) -> float | None:
    master = ends.get(each.broker)
    return None if master is None or each.log_end is None else float(max(0, master - each.log_end))


async def _worst(
    admin: Admin,
    ask: Ask,
    name: str,
    bounds: tuple[float | None, float | None],
    unit: str,
    value: Callable[[BrokerLoad, Mapping[str, int | None]], float | None],
    words: str,
) -> Check:
    """The largest value of all brokers, or of one; of slaves alone for their distance."""
    found = await brokers(admin)
    ends = {each.broker: each.log_end for each in found.items if each.broker_id == 0}
    wanted = [
        each
        for each in found.items
        if ask.broker in ("", each.broker, each.address) and (name != "slave" or each.broker_id)
    ]
    if not wanted:
        whose = f"broker {ask.broker}" if ask.broker else "broker"
        is_known = any(ask.broker in (each.broker, each.address) for each in found.items)
        text = f"no {whose} is registered"
        if name == "slave" and (is_known or not ask.broker):
            text = f"there is no slave of {whose}" if ask.broker else "there is no slave"
        return _check(name, State.OK if name == "slave" and not ask.broker else State.UNKNOWN, text, [], ask.broker)
    values = {f"{each.broker}:{each.broker_id}": value(each, ends) for each in wanted}
    known = {place: each for place, each in values.items() if each is not None}
    figures = [_figure(name, each, bounds, place, unit) for place, each in values.items()]
    silent = sorted(set(values) - set(known))
    if not known:
        return _check(name, State.UNKNOWN, f"not known of {', '.join(silent)}", figures, ask.broker)
    place, most = max(known.items(), key=lambda item: item[1])
    state, text = _judged(most, bounds), f"{place}: {words.format(most)}"
    if silent:
        text += f", not known of {', '.join(silent)}"
        state = state if state is State.CRITICAL else State.UNKNOWN
    return _check(name, state, text, figures, ask.broker)


CHECKS: Mapping[str, Callable[[Admin, Ask], Awaitable[Check]]] = {
    "lag": _lag,
    "broker": _broker,
    "cluster": _cluster,
    "disk": _disk,
    "slave": _slave,
    "members": _members,
    "topic": _topic,
}
