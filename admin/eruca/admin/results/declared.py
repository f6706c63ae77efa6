"""What a cluster is declared to have: topics, groups, order configurations, settings; and what differs from it.

``Declared`` is the content of a file of ``export`` as well as the state of a cluster. An entry holds for all
masters, or for those that it names; where masters differ, a name has several entries. Topics and groups of the system,
of retries and of dead letters belong to the servers and are left out, and so does the flag ``order`` of topics: brokers
set it by the order configurations. Settings of brokers are those of ``broker_settings``; one that is not named has its
default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from eruca.admin.client import Admin
from eruca.admin.errors import UNREADABLE, AdminError, BadValue, PeerRefused
from eruca.admin.lookups import ask_each
from eruca.admin.results.answer import NONE, Answer, Result, Table
from eruca.admin.results.broker_settings import Value, defaults_of, fits, text_of, value_of
from eruca.admin.results.metrics import user_groups, user_topics
from eruca.protocol import api, properties
from eruca.protocol.bodies import KVTable, SubscriptionGroupConfig, TopicConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers import routes
from eruca.protocol.names import group_fault, topic_fault
from eruca.protocol.queues import Int32, Int64

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The nameserver's namespace for the queues of ordered topics."""
Kind = Literal["topic", "group", "order", "setting"]


class Entry(Result, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of one name at some masters of the cluster."""

    name: str
    brokers: Annotated[list[str] | None, NONE] = None
    """Names of the brokers; None for all masters of the cluster."""


class DeclaredTopic(Entry, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A topic. What is not given is as ``updateTopic`` sets it."""

    read_queue_nums: Int32 = 8
    write_queue_nums: Int32 = 8
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0

    def config(self, *, order: bool = False) -> TopicConfig:
        """As a broker takes it. Raises ProtocolError for a number of queues that no topic may have."""
        config = TopicConfig(topic_name=self.name, order=order, **_settings(self))
        config.check_queues()
        return config


class DeclaredGroup(Entry, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A consumer group. What is not given is as ``updateSubGroup`` sets it."""

    consume_enable: bool = True
    consume_from_min_enable: bool = False
    consume_broadcast_enable: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True

    def config(self) -> SubscriptionGroupConfig:
        """As a broker takes it. Raises ProtocolError for a number of queues that no retry topic may have."""
        config = SubscriptionGroupConfig(group_name=self.name, **_settings(self))
        config.check_queues()
        return config


class DeclaredSetting(Entry, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A setting of brokers that changes at run time."""

    value: Value


class Declared(Answer, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The topics, consumer groups, order configurations and brokers' settings of a cluster."""

    topics: list[DeclaredTopic] = msgspec.field(default_factory=list)
    groups: list[DeclaredGroup] = msgspec.field(default_factory=list)
    order_conf: dict[str, str] = msgspec.field(default_factory=dict)
    """Brokers and their queues, ``broker-a:8;broker-b:8``, by ordered topic."""
    settings: list[DeclaredSetting] = msgspec.field(default_factory=list)
    """Those that are not the broker's default."""


class FieldChange(Result, frozen=True, kw_only=True, rename="camel"):
    """What a setting is and what it shall be."""

    field: str
    old: Annotated[Value | None, NONE]
    new: Annotated[Value | None, NONE]


class Change(Result, frozen=True, kw_only=True, rename="camel"):
    """What is to be done to one object at one place."""

    action: Literal["create", "change", "delete"]
    kind: Kind
    name: str
    broker: Annotated[str | None, NONE]
    """None for what the nameservers keep."""
    fields: list[FieldChange]
    """Empty where it is created or deleted."""

    def __str__(self) -> str:
        sign = {"create": "+", "change": "~", "delete": "-"}[self.action]
        where = f" at {self.broker}" if self.broker is not None else ""
        fields = ", ".join(f"{each.field} {_word(each.old)} -> {_word(each.new)}" for each in self.fields)
        return f"{sign} {self.kind} {self.name}{where}{f': {fields}' if fields else ''}"


class Applied(Result, frozen=True, kw_only=True, rename="camel"):
    """A change that was made, or was not."""

    action: Literal["create", "change", "delete"]
    kind: Kind
    name: str
    broker: Annotated[str | None, NONE]
    done: bool


def applied(change: Change, *, done: bool) -> Applied:
    """What became of a change."""
    return Applied(action=change.action, kind=change.kind, name=change.name, broker=change.broker, done=done)


class Difference(Table[Change], frozen=True, kw_only=True, rename="camel"):
    """All that is to be done, in this order."""


E = TypeVar("E", bound=Entry)
Place = tuple[Kind, str, str | None]
"""Kind, name, and the broker's name."""
Parts = dict[Place, Entry | str]


def _settings(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__ if name not in Entry.__struct_fields__}


_ORDER_PART = re.compile(r"([^:;\s]+):([0-9]{1,9})")


def checked_order(text: str, where: str) -> dict[str, int]:
    """The numbers of queues by broker of an order configuration. Raises BadValue, which names ``where`` it stands."""
    parts = {part: _ORDER_PART.fullmatch(part) for part in text.rstrip(";").split(";")}
    wrong = [part for part, match in parts.items() if match is None]
    if wrong:
        raise BadValue(f"{where} takes broker:queues;broker:queues, such as broker-a:8;broker-b:8, not '{wrong[0]}'")
    return {match[1]: int(match[2]) for match in parts.values() if match is not None}


def _word(value: object) -> str:
    return "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# ------------------------------------------------------------------ the state of a cluster


async def declared_state(admin: Admin, masters: Mapping[str, str], *, defaults: bool = False) -> Declared:
    """What these masters have, by their names and addresses (21, 305, 201, 26), and the nameserver (219).

    With ``defaults``, settings that are the broker's default are there, too. Raises AdminError if a master does not
    answer: a part of the state looks as if the rest were not there.
    """
    topics = (await ask_each({name: user_topics(admin, at, False) for name, at in masters.items()})).strict()
    groups = (await ask_each({name: user_groups(admin, at) for name, at in masters.items()})).strict()
    return Declared(
        topics=_entries(DeclaredTopic, {name: found.topic_config_table for name, found in topics.items()}),
        groups=_entries(DeclaredGroup, {name: found.subscription_group_table for name, found in groups.items()}),
        order_conf=dict(sorted((await _orders(admin)).items())),
        settings=_entries(
            DeclaredSetting,
            {
                name: {key: _Value(value_of(text)) for key, text in found.items()}
                for name, found in (await _settings_of(admin, masters, defaults=defaults)).items()
            },
        ),
    )


@dataclass(frozen=True, slots=True)
class _Value:
    """A setting as a broker has it."""

    value: Value


async def _settings_of(admin: Admin, masters: Mapping[str, str], *, defaults: bool) -> dict[str, dict[str, str]]:
    """The settings of each master that a file may have; those that are its default only if they are wanted."""
    asked = await ask_each({name: admin.call(at, api.GET_BROKER_CONFIG) for name, at in masters.items()})
    found = {}
    for name, answer in asked.strict().items():
        settings = properties.parse(properties.decode(answer.body))
        usual = defaults_of(settings)
        found[name] = {key: settings[key] for key in usual if defaults or settings[key] != usual[key]}
    return found


async def _orders(admin: Admin) -> dict[str, str]:
    request = routes.OfNamespace(namespace=ORDER_TOPIC_CONFIG)
    try:
        return KVTable.decode((await admin.call_nameserver(api.GET_KVLIST_BY_NAMESPACE, request)).body).table
    except PeerRefused as refused:
        if refused.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return {}


def _entries(kind: type[E], tables: Mapping[str, Mapping[str, Any]]) -> list[E]:
    """Entries by name; masters with the same settings share one, and all masters need not be named."""
    places: dict[str, dict[E, list[str]]] = {}
    for broker, table in sorted(tables.items()):
        for name, config in table.items():
            fields = (field for field in kind.__struct_fields__ if field not in Entry.__struct_fields__)
            entry = kind(name=name, **{field: getattr(config, field) for field in fields})
            places.setdefault(name, {}).setdefault(entry, []).append(broker)
    return [
        entry if len(brokers) == len(tables) else msgspec.structs.replace(entry, brokers=brokers)
        for _, alike in sorted(places.items())
        for entry, brokers in alike.items()
    ]


# ------------------------------------------------------------------ the difference


def parts_of(declared: Declared, masters: Iterable[str]) -> Parts:
    """What each place shall have. Raises BadValue for unknown brokers, and for a place with two entries."""
    parts: Parts = {}
    all_masters = sorted(masters)

    def put(kind: Kind, entry: Entry) -> Iterator[Place]:
        for broker in all_masters if entry.brokers is None else entry.brokers:
            if broker not in all_masters:
                raise BadValue(f"{kind} {entry.name} is for {broker}; the cluster's masters: {', '.join(all_masters)}")
            if (kind, entry.name, broker) in parts:
                raise BadValue(f"{kind} {entry.name} stands twice for {broker}")
            yield kind, entry.name, broker

    # Brokers look at the order configurations when they take topics.
    for name, order in declared.order_conf.items():
        parts["order", name, None] = order
    for topic in declared.topics:
        for place in put("topic", topic):
            parts[place] = msgspec.structs.replace(topic, brokers=None)
    for group in declared.groups:
        for place in put("group", group):
            parts[place] = msgspec.structs.replace(group, brokers=None)
    for setting in declared.settings:
        for place in put("setting", setting):
            value = value_of(text_of(setting.value))
            parts[place] = msgspec.structs.replace(setting, brokers=None, value=value)
    return parts


def difference(wanted: Parts, found: Parts, *, prune: bool) -> Difference:
    """What makes the second as the first; what is not in the first goes if ``prune``: settings to their defaults.

    The second has all settings, also those that are a default. Raises BadValue for a setting that a broker has not.
    """
    if prune:
        wanted = _usual_settings(found) | wanted
    items = []
    for (kind, name, broker), part in wanted.items():
        old = found.get((kind, name, broker))
        if old is None and kind == "setting":
            raise BadValue(f"{broker} has no setting {name}, or none that apply changes: those that change at run time")
        if old != part:
            fields = [] if old is None else _changed(old, part)
            action: Literal["create", "change"] = "create" if old is None else "change"
            items.append(Change(action=action, kind=kind, name=name, broker=broker, fields=fields))
    gone = [place for place in found if place not in wanted] if prune else []
    # Groups go before the topics that they consume.
    for kind, name, broker in sorted(gone, key=lambda place: (place[0] != "group", place[0], place[1], str(place[2]))):
        items.append(Change(action="delete", kind=kind, name=name, broker=broker, fields=[]))
    return Difference(items=items)


def _usual_settings(found: Parts) -> Parts:
    """The defaults of all settings that there are."""
    names: dict[str | None, list[str]] = {}
    for kind, name, broker in found:
        if kind == "setting":
            names.setdefault(broker, []).append(name)
    return {
        ("setting", name, broker): DeclaredSetting(name=name, value=value_of(text))
        for broker, those in names.items()
        for name, text in defaults_of(those).items()
    }


def _changed(old: Entry | str, new: Entry | str) -> list[FieldChange]:
    if isinstance(old, str) or isinstance(new, str):
        return [FieldChange(field="orderConf", old=str(old), new=str(new))]
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    return [FieldChange(field=each, old=before[each], new=after[each]) for each in after if before[each] != after[each]]


# ------------------------------------------------------------------ files


def read(data: bytes, name: str) -> Declared:
    """The content of a file, by the end of its name: .json, .toml, .yaml or .yml. Raises AdminError."""
    end = name.rpartition(".")[2].lower()
    try:
        if end == "json":
            declared = msgspec.json.decode(data, type=Declared)
        elif end == "toml":
            declared = msgspec.toml.decode(data, type=Declared)
        elif end in ("yaml", "yml"):
            declared = msgspec.yaml.decode(data, type=Declared)
        else:
            raise BadValue(f"{name} is no .yaml, .json or .toml file")
        for topic in declared.topics:
            topic.config()
        for group in declared.groups:
            group.config()
    except ImportError:
        raise AdminError(f"{name}: YAML needs PyYAML: install eruca[console], or write JSON or TOML") from None
    except (*UNREADABLE, ProtocolError) as error:
        raise BadValue(f"{name}: {error}") from None
    if not all(entry.name.strip() for entry in (*declared.topics, *declared.groups, *declared.settings)):
        raise BadValue(f"{name}: a name is empty")
    _judge(declared, name)
    if declared.errors:
        raise BadValue(f"{name} is a part of a cluster only: {declared.errors[0].text}")
    return declared


def _judge(declared: Declared, name: str) -> None:
    """Raise BadValue for what every broker or nameserver would refuse, or no client could read."""
    faults = [(each.name, topic_fault(each.name)) for each in declared.topics]
    faults += [(each.name, group_fault(each.name)) for each in declared.groups]
    for wrong, fault in faults:
        if fault is not None:
            raise BadValue(f"{name}: '{wrong}': {fault}")
    for setting in declared.settings:
        if not fits(setting.name, setting.value):
            raise BadValue(f"{name}: setting {setting.name} does not take {_word(setting.value)}")
    for topic_name, order in declared.order_conf.items():
        checked_order(order, f"{name}: orderConf of {topic_name}")
