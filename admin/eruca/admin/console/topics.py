"""Topics: the list, one topic, and what may be done to it: create, change, delete, send a message.

The list is made of the settings of all masters (21), asked for side by side: one request for each, not for each topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from eruca.admin.client import Admin
from eruca.admin.console.forms import Field, form
from eruca.admin.console.overview import Freshness, freshness
from eruca.admin.console.shapes import permission, place_of, segment
from eruca.admin.console.visit import Visit, act, now, page, part
from eruca.admin.console.watch import Watch
from eruca.admin.errors import AdminError, BadValue, NotFound
from eruca.admin.lookups import Asked, ask_each, create_topic
from eruca.admin.messages import choose_queue, message_properties, send
from eruca.admin.results.answer import Answer, Moment, PeerError, Result, Table, errors_of
from eruca.admin.results.progress import TrafficOfTopics, traffic
from eruca.admin.results.topics import TopicRoute, TopicStatus, topic_route, topic_status
from eruca.admin.results.users import Users, users_of_topic
from eruca.admin.text import counted, nearest
from eruca.protocol import api
from eruca.protocol.bodies import PERM_WRITE, TopicConfig, TopicConfigSerializeWrapper
from eruca.protocol.headers import topics as requests
from eruca.protocol.names import is_dead_letter_topic, is_retry_topic, is_system_topic, reply_topic

_CHANGE = form("updateTopic", "topic", "readQueueNums", "writeQueueNums", "perm")
_SEND = form("sendMessage", "body", "tags", "key", "broker", "qid")
_NEW = TopicConfig(read_queue_nums=8, write_queue_nums=8, perm=6)
"""What a topic has where the form says nothing; as for the command."""


class TopicRow(Result, frozen=True, kw_only=True, rename="camel"):
    """A topic in the list."""

    topic: str
    brokers: list[str]
    read_queues: int
    """At all its masters."""
    write_queues: int
    perm: list[int]
    """2 write, 4 read, 6 both; more than one where its brokers differ."""
    is_system: bool
    """Of the servers, of retries or of dead letters."""


class TopicsPage(Table[TopicRow], frozen=True, kw_only=True, rename="camel"):
    """All topics of all masters."""

    hidden: int
    """Topics of the system that are left out."""
    at: Moment


@page("/topics", "topics.html")
async def topics(visit: Visit) -> TopicsPage:
    """All topics, those of the system only with ``?system=1``."""
    asked = await settings_of_masters(visit.admin)
    rows: dict[str, list[tuple[str, TopicConfig]]] = {}
    for broker, table in sorted(asked.answers.items()):
        for name, config in table.items():
            rows.setdefault(name, []).append((broker, config))
    await visit.console.watch.seen()
    own = _of_servers(visit.console.watch)
    items = [_row(name, places, own) for name, places in sorted(rows.items())]
    shown = items if visit.given.get("system") else [each for each in items if not each.is_system]
    errors = errors_of(asked.errors, "topics that only it has are missing")
    return TopicsPage(items=shown, hidden=len(items) - len(shown), at=now(), errors=errors)


def _of_servers(watch: Watch) -> set[str]:
    """The topics that a broker creates for itself and its cluster."""
    brokers = watch.brokers.answer.items if watch.brokers.answer else []
    return {name for each in brokers for name in (each.broker, each.cluster, reply_topic(each.cluster))}


def _row(name: str, places: list[tuple[str, TopicConfig]], own: set[str]) -> TopicRow:
    return TopicRow(
        topic=name,
        brokers=[broker for broker, _ in places],
        read_queues=sum(config.read_queue_nums for _, config in places),
        write_queues=sum(config.write_queue_nums for _, config in places),
        perm=sorted({config.perm for _, config in places}),
        is_system=name in own or is_system_topic(name) or is_retry_topic(name) or is_dead_letter_topic(name),
    )


async def masters(admin: Admin) -> dict[str, str]:
    """The addresses of all masters, by the names of their brokers."""
    brokers = (await admin.clusters()).broker_addr_table
    return {name: address for name, broker in sorted(brokers.items()) if (address := broker.master())}


async def settings_of_masters(admin: Admin) -> Asked[dict[str, TopicConfig]]:
    """The topics of each master (21)."""
    return await ask_each({name: _settings_at(admin, address) for name, address in (await masters(admin)).items()})


async def _settings_at(admin: Admin, address: str) -> dict[str, TopicConfig]:
    answer = await admin.call(address, api.GET_ALL_TOPIC_CONFIG)
    return TopicConfigSerializeWrapper.decode(answer.body).topic_config_table


# ------------------------------------------------------------------ one topic


class TopicSettings(Result, frozen=True, kw_only=True, rename="camel"):
    """The settings of a topic at one broker."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool


class TopicPage(Answer, frozen=True, kw_only=True, rename="camel"):
    """All of one topic; None for a part that could not be had."""

    topic: str
    route: TopicRoute
    status: TopicStatus | None
    traffic: TrafficOfTopics | None
    settings: list[TopicSettings]
    at: Moment
    seen: Freshness


@page("/topics/{topic}", "topic.html")
async def topic(visit: Visit) -> TopicPage:
    """A topic. Raises NotFound with names that are like it."""
    name, admin = visit.names["topic"], visit.admin
    errors: list[PeerError] = []
    asked, found, status, figures = await asyncio.gather(
        settings_of_masters(admin),
        ask_each({name: admin.route(name)}),
        part(errors, "queues", topic_status(admin, name)),
        part(errors, "traffic", _traffic(admin, name)),
    )
    known = {each for table in asked.answers.values() for each in table}
    if name not in known and not asked.errors:
        raise NotFound(f"no broker has a topic {name}{nearest(name, sorted(known))}")
    route = topic_route(name, found.strict()[name])
    errors += errors_of(asked.errors, "its settings of the topic are missing")
    errors += visit.console.watch.gone()
    for table in (status, figures):
        errors += table.errors if table is not None else []
    settings = [_settings_of(broker, table[name]) for broker, table in sorted(asked.answers.items()) if name in table]
    return TopicPage(
        topic=name,
        route=route,
        status=status,
        traffic=_of_known(visit.console.watch, figures),
        settings=settings,
        at=now(),
        seen=freshness(0.0, ""),
        errors=errors,
    )


def _settings_of(broker: str, config: TopicConfig) -> TopicSettings:
    return TopicSettings(
        broker=broker,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=config.perm,
        order=config.order,
    )


async def _traffic(admin: Admin, name: str) -> TrafficOfTopics | None:
    """Nobody counts retries and dead letters."""
    return None if is_retry_topic(name) or is_dead_letter_topic(name) else await traffic(admin, name)


def _of_known(watch: Watch, figures: TrafficOfTopics | None) -> TrafficOfTopics | None:
    """The figures, which are only a part as long as a master is gone or silent."""
    if figures is None:
        return None
    items = [
        msgspec.structs.replace(
            each, lag=watch.of_known(each.lag), sent=watch.of_known(each.sent), consumed=watch.of_known(each.consumed)
        )
        for each in figures.items
    ]
    return msgspec.structs.replace(figures, items=items)


# ------------------------------------------------------------------ create and change


class Difference(Result, frozen=True, kw_only=True, rename="camel"):
    """What a change would do at one broker."""

    broker: str
    before: str
    """Empty for what is not there yet."""
    after: str


class TopicChange(Answer, frozen=True, kw_only=True, rename="camel"):
    """The form of a topic, and what it would change."""

    topic: str
    brokers: list[str]
    chosen: list[str]
    fields: list[Field]
    """A field that is empty leaves each broker what it has."""
    now: list[TopicSettings]
    """What is there."""
    differences: list[Difference]
    refusal: str
    """Why the change would not be made."""
    checked: bool
    """Whether the form was filled in: then the differences are true."""


@page("/topics-change", "topic_change.html")
async def topic_change(visit: Visit) -> TopicChange:
    """The form; filled in, the difference at each broker. Changes nothing."""
    name = visit.given.get("topic", "").strip()
    checked = len(visit.given) > 1  # a link to the form gives the topic alone
    asked = await settings_of_masters(visit.admin)
    there = {broker: table[name] for broker, table in sorted(asked.answers.items()) if name in table}
    brokers = sorted({*asked.answers, *asked.errors})
    chosen = visit.given.get("brokers", "").split() if checked else sorted(there) or brokers
    usual = {"topic": name, **_in_common(list(there.values()) or [_NEW])}
    changes, refusal = {}, ""
    try:
        changes = _changes(visit, asked, chosen) if checked else {}
    except BadValue as error:
        refusal = str(error)
    return TopicChange(
        topic=name,
        brokers=brokers,
        chosen=chosen,
        fields=visit.fields(_CHANGE, usual=usual),
        now=[_settings_of(broker, config) for broker, config in there.items()],
        differences=[
            Difference(broker=broker, before=_words(there.get(broker)), after=_words(config))
            for broker, config in changes.items()
        ],
        refusal=refusal,
        checked=checked,
        errors=errors_of(asked.errors, "what it has is not known"),
    )


def _in_common(configs: Sequence[TopicConfig]) -> dict[str, str]:
    """The settings that are the same at all brokers; empty where they are not."""

    def same(values: set[int]) -> str:
        return str(values.pop()) if len(values) == 1 else ""

    return {
        "readQueueNums": same({each.read_queue_nums for each in configs}),
        "writeQueueNums": same({each.write_queue_nums for each in configs}),
        "perm": same({each.perm for each in configs}),
    }


def _changes(visit: Visit, asked: Asked[dict[str, TopicConfig]], chosen: Sequence[str]) -> dict[str, TopicConfig]:
    """The settings of the topic at each chosen broker where they would become others. Raises BadValue."""
    filled = visit.filled(_CHANGE)
    name, brokers = filled.text("topic"), sorted({*asked.answers, *asked.errors})
    if not chosen:
        raise BadValue(f"mark the brokers that are to have the topic; there are: {', '.join(brokers)}")
    if unknown := [each for each in chosen if each not in brokers]:
        raise BadValue(f"there is no broker {unknown[0]}; there are: {', '.join(brokers)}")
    changes = {}
    for broker in chosen:
        if broker not in asked.answers:
            continue
        old = asked.answers[broker].get(name)
        base = old or msgspec.structs.replace(_NEW, topic_name=name)
        new = msgspec.structs.replace(
            base,
            read_queue_nums=filled.number("readQueueNums", base.read_queue_nums),
            write_queue_nums=filled.number("writeQueueNums", base.write_queue_nums),
            perm=filled.number("perm", base.perm),
        )
        if new != old:
            changes[broker] = new
    return changes


def _words(config: TopicConfig | None) -> str:
    if config is None:
        return ""
    queues = f"{counted(config.read_queue_nums, 'queue')} to read, {config.write_queue_nums} to write"
    return f"{queues}, {permission(config.perm)}"


@act("/topics-change")
async def change_topic(visit: Visit) -> str:
    """Create or change a topic at the brokers that were chosen (17)."""
    name, chosen = visit.filled(_CHANGE).text("topic"), visit.given.get("brokers", "").split()
    asked = await settings_of_masters(visit.admin)
    changes = _changes(visit, asked, chosen)
    if silent := [each for each in chosen if each in asked.errors]:
        raise AdminError(f"nothing was changed: {silent[0]} did not answer: {asked.errors[silent[0]]}")
    addresses = await masters(visit.admin)
    done: list[str] = []
    for broker, config in changes.items():
        try:
            await create_topic(visit.admin, addresses[broker], config)
        except AdminError as error:
            raise AdminError(f"{broker} was not changed: {error}; {_so_far(done)}") from None
        done.append(broker)
        old = _words(asked.answers[broker].get(name)) or "none"
        visit.changed(f"topic {name} at {broker}", old, _words(config))
    return f"/topics/{segment(name)}"


def _so_far(done: Sequence[str]) -> str:
    return f"changed before: {', '.join(done)}" if done else "nothing else was changed"


class TopicDeletion(Answer, frozen=True, kw_only=True, rename="camel"):
    """A topic that is to be deleted, and who uses it."""

    topic: str
    brokers: list[str]
    users: Users
    messages: int | None
    """That it holds; None where a broker does not say it."""


@page("/topics/{topic}/delete", "topic_delete.html")
async def topic_deletion(visit: Visit) -> TopicDeletion:
    """Who uses a topic. Changes nothing."""
    name = visit.names["topic"]
    route = topic_route(name, await visit.admin.whole_route(name))
    errors = errors_of({}, "")
    status = await part(errors, "queues", topic_status(visit.admin, name))
    users = await users_of_topic(visit.admin, name)
    errors += [*users.errors, *(status.errors if status else [])]
    known = status is not None and not status.errors
    return TopicDeletion(
        topic=name,
        brokers=[each.broker for each in route.items],
        users=users,
        messages=sum(each.max_offset - each.min_offset for each in status.items) if status and known else None,
        errors=errors,
    )


@act("/topics/{topic}/delete")
async def delete_topic(visit: Visit) -> str:
    """Delete a topic at its masters and at the nameservers (215, 216)."""
    name, admin = visit.names["topic"], visit.admin
    visit.confirmed(name)
    at = {each.broker_name: each.master() for each in (await admin.whole_route(name)).broker_datas}
    if None in at.values():
        away = ", ".join(broker for broker, address in at.items() if address is None)
        raise AdminError(f"nothing was changed: the master of {away} is away, and would bring the topic back")
    done: list[str] = []
    for broker, address in at.items():
        if address is not None:
            try:
                await admin.call(address, api.DELETE_TOPIC_IN_BROKER, requests.OfTopic(topic=name))
            except AdminError as error:
                raise AdminError(f"{broker} has not deleted it: {error}; {_so_far(done)}") from None
            done.append(broker)
            visit.changed(f"topic {name} at {broker}", "there", "deleted")
    await admin.call_nameservers(api.DELETE_TOPIC_IN_NAMESRV, requests.DeleteTopicInNamesrv(topic=name))
    return "/topics"


# ------------------------------------------------------------------ send a message


class Sending(Answer, frozen=True, kw_only=True, rename="camel"):
    """The form of a message for a topic."""

    topic: str
    fields: list[Field]


@page("/topics/{topic}/send", "topic_send.html")
async def sending(visit: Visit) -> Sending:
    """The form of a message."""
    name = visit.names["topic"]
    route = await visit.admin.route(name)
    brokers = [each.broker_name for each in route.queue_datas if each.perm & PERM_WRITE]
    return Sending(topic=name, fields=visit.fields(_SEND, known={"broker": brokers}))


@act("/topics/{topic}/send")
async def send_message(visit: Visit) -> str:
    """Send one message (310), and show it."""
    name, filled = visit.names["topic"], visit.filled(_SEND)
    if filled.has("qid") and not filled.has("broker"):
        raise BadValue("the number of a queue is one of a broker: give the broker, too")
    number = filled.number("qid", 0) if filled.has("qid") else None
    queue, address = await choose_queue(visit.admin, name, filled.text("broker") or None, number)
    properties = message_properties(filled.text("tags"), filled.text("key"))
    body = filled.given["body"].replace("\r\n", "\n").encode()
    sent = await send(visit.admin, queue, address, body, properties)
    visit.changed(f"message {sent.unique_key} to {name}", "none", f"{queue.broker_name}:{sent.queue.queue_id}")
    return place_of(sent.queue, sent.queue_offset)
