"""The requests of brokers, clients and admins to a nameserver (DefaultRequestProcessor in 4.9.7).

Owns the codes, remarks and body formats. Thin: the tables decide. An unknown code is answered with 3; Apache does not
answer it at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from eruca.nameserver.config import NamesrvConfig
from eruca.nameserver.epochs import OlderEpoch
from eruca.nameserver.kv import LONGEST_CONTENT, ORDER_TOPIC_CONFIG, KVStore, TooLarge
from eruca.nameserver.routes import UNIT, UNIT_SUB, LiveBroker, NameTaken, RouteTable, TableFull
from eruca.protocol import api, properties
from eruca.protocol.bodies import (
    DIALECT_AT_ONCE,
    MAX_DIALECT,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicList,
    body_crc32,
)
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import LongDialect, ProtocolError, Refused
from eruca.protocol.fastjson import Style
from eruca.protocol.header import Empty
from eruca.protocol.headers import routes as headers
from eruca.protocol.headers import topics as topic_headers
from eruca.protocol.headers.routes import NAME_TAKEN
from eruca.protocol.queues import faults_of_queues
from eruca.remoting import Call, Connection, Reply, Routes, audit
from eruca.remoting.addresses import split_address
from eruca.remoting.audit import NOTHING, note_settings
from eruca.remoting.descriptors import reason
from eruca.remoting.files import replace_file
from eruca.remoting.log_levels import LogLevels
from eruca.remoting.router import Result
from eruca.remoting.settings import BadSetting, change, settings_of, values, wanted
from eruca.remoting.slices import batches, encoded, in_thread, sliced

STANDARD_JSON_VERSION = 401
"""Clients from this version on (V4_9_4) get routes as standard JSON."""
_BODY_VERSION = 37
"""Brokers from this version on (V3_0_11) send a RegisterBrokerBody."""
LONGEST_NAME = 255
"""Characters of the name of a broker or cluster, and of a host."""
LONGEST_TOPIC = 512
"""Characters of the name of a topic; Apache's brokers make names of up to 127, retry topics of groups of up to 255."""
REPORT_RIVAL_EVERY = 60_000
"""A broker that asks again and again for a name that is taken leaves a line in the log every this many ms."""
_FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."

log = structlog.get_logger("eruca.nameserver")


class NameserverTables(Protocol):
    """What handlers use of a nameserver."""

    config: NamesrvConfig
    table: RouteTable
    kv: KVStore
    log_levels: LogLevels
    file: Path | None

    def monotonic(self) -> int:
        """The time in ms of the monotonic clock."""


routes: Routes[NameserverTables] = Routes()

# ------------------------------------------------------------------ brokers


@routes.on(api.REGISTER_BROKER)
def register(server: NameserverTables, call: Call[headers.RegisterBroker]) -> Result:
    """103: register a broker; the answer holds the order configuration and, for a slave, its master."""
    ask = call.header
    if ask.body_crc32 and body_crc32(call.body) != ask.body_crc32:
        server.table.refusals["crc32"] += 1
        log.warning("registration_refused", broker=ask.broker_addr, reason="crc32")
        raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    fault = _fault_of_place(ask)
    if fault is not None:
        server.table.refusals["bad_place"] += 1
        log.warning("registration_refused", broker=ask.broker_addr, reason=fault)
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the broker was not registered: {fault}")
    try:
        return _registered(server, call, _registered_topics(call, DIALECT_AT_ONCE))
    except LongDialect:
        return _register_long(server, call)


async def _register_long(server: NameserverTables, call: Call[headers.RegisterBroker]) -> Reply:
    try:
        topics = await in_thread(partial(_registered_topics, call, MAX_DIALECT))
    except LongDialect as fault:
        raise _unreadable(fault) from None
    return _registered(server, call, topics)


def _registered(
    server: NameserverTables, call: Call[headers.RegisterBroker], topics: TopicConfigSerializeWrapper
) -> Reply:
    ask = call.header
    former = server.table.holder(ask)
    is_new = former is None or former.address != ask.broker_addr
    fault = _leave_out_of_bounds(ask, topics)
    takeover = server.config.allow_broker_takeover
    try:
        answer = server.table.register(ask, topics, call.connection, server.monotonic(), takeover=takeover)
    except NameTaken as taken:
        raise _name_taken(server, ask, taken.holder) from None
    except OlderEpoch as older:
        raise _older_epoch(ask, older) from None
    except TableFull as full:
        raise _full(ask, full) from None
    fault = fault or _without_room(server, ask)
    if is_new:
        log.info(
            "broker_registered",
            broker=ask.broker_name,
            broker_id=ask.broker_id,
            address=ask.broker_addr,
            cluster=ask.cluster_name,
        )
        call.note(target=_broker(ask), before=NOTHING if former is None else former.address, after=ask.broker_addr)
        audit.answered(call, None)
    return Reply(header=answer, body=_order(server), remark=fault)


def _broker(ask: headers.RegisterBroker | headers.UnregisterBroker) -> str:
    return f"broker {ask.broker_name} with id {ask.broker_id} at {ask.broker_addr}"


def _order(server: NameserverTables) -> bytes:
    """The order configuration, left out if it is longer than it may be: a broker needs the rest of the answer."""
    order = server.kv.list(ORDER_TOPIC_CONFIG)
    body = KVTable(table=order).encode() if order else b""
    if len(body) > LONGEST_CONTENT:
        log.warning("order_config_left_out", size=len(body), most=LONGEST_CONTENT, remedy="delete keys of it")
        return b""
    return body


def _fault_of_place(ask: headers.RegisterBroker) -> str | None:
    """What is wrong with the name, id or address of a broker, which others would be given; None if nothing is."""
    for key, name in (("brokerName", ask.broker_name), ("brokerClusterName", ask.cluster_name)):
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name.isspace():
            return f"{key} is to have 1 to {LONGEST_NAME} printable characters"
    if ask.broker_id < 0:
        return f"brokerId is {ask.broker_id}, which is to be 0 or more"
    for key, address in (("brokerIP1", ask.broker_addr), ("brokerIP2", ask.ha_server_addr or ask.broker_addr)):
        if not _is_address(address):
            return f"the address by {key} is {address[:LONGEST_NAME]!r}, where host:port is expected"
    return None


def _is_address(address: str) -> bool:
    try:
        host, port = split_address(address)
    except ValueError:
        return False
    return len(host) <= LONGEST_NAME and host.isprintable() and " " not in host and port < 1 << 16


def _leave_out_of_bounds(ask: headers.RegisterBroker, topics: TopicConfigSerializeWrapper) -> str | None:
    """Take topics with more queues or longer names than a topic may have out of a registration; a fault of one of them.

    Its other topics count: a broker whose registration were refused would lose its routes.
    """
    faults = faults_of_queues(topics.topic_config_table)
    faults |= {
        name: f"its name has more than {LONGEST_TOPIC} characters"
        for name, settings in topics.topic_config_table.items()
        if max(len(name), len(settings.topic_name)) > LONGEST_TOPIC
    }
    if not faults:
        return None
    for name in faults:
        del topics.topic_config_table[name]
    name, fault = next(iter(faults.items()))
    log.warning(
        "topics_not_registered", broker=ask.broker_name, count=len(faults), topic=name[:LONGEST_TOPIC], reason=fault
    )
    return f"the topic {name[:LONGEST_TOPIC]} is not registered: {fault}"


def _without_room(server: NameserverTables, ask: headers.RegisterBroker) -> str | None:
    """The remark for a broker whose topics have no room; None where they have."""
    live = server.table.known(ask)
    if live is None or not live.left_out:
        return None
    most = server.config.max_registered_topics
    fault = f"{server.table.taken_topics:,} topics of brokers have routes, and maxRegisteredTopics is {most:,}"
    log.warning("topics_not_registered", broker=ask.broker_name, count=live.left_out, reason=fault)
    return f"{live.left_out:,} topics are not registered: {fault}"


def _full(ask: headers.RegisterBroker, full: TableFull) -> Refused:
    remark = (
        f"the broker at {ask.broker_addr} was not registered: {full.args[0]:,} brokers are, "
        "and maxRegisteredBrokers of this nameserver allows no more"
    )
    log.warning("registration_refused", broker=ask.broker_addr, reason=remark)
    return Refused(ResponseCode.SYSTEM_ERROR, remark)


def _name_taken(server: NameserverTables, ask: headers.RegisterBroker, holder: LiveBroker) -> Refused:
    remark = (
        f"{NAME_TAKEN}the broker at {holder.address}, which is connected, holds brokerName {ask.broker_name} with "
        f"brokerId {ask.broker_id}, so the one at {ask.broker_addr} was not registered: stop one of the two, or give "
        "one another brokerName or brokerId"
    )
    now = server.monotonic()
    if holder.rival != ask.broker_addr or now - holder.rival_reported >= REPORT_RIVAL_EVERY:
        holder.rival, holder.rival_reported = ask.broker_addr, now
        log.warning("registration_refused", broker=ask.broker_addr, reason=remark)
        if isinstance(holder.connection, Connection):
            holder.connection.probe()  # its machine may be gone: then the name is free in seconds
    return Refused(ResponseCode.SYSTEM_ERROR, remark)


def _older_epoch(ask: headers.RegisterBroker, older: OlderEpoch) -> Refused:
    claim = older.claim
    remark = (
        f"a newer master is known: the broker at {claim.address} is the master of brokerName {ask.broker_name} since "
        f"epoch {claim.epoch}, so the one at {ask.broker_addr}, of epoch {older.epoch}, was not registered: it has to "
        "follow that one as a slave"
    )
    log.warning("registration_refused", broker=ask.broker_addr, reason=remark)
    return Refused(ResponseCode.SYSTEM_ERROR, remark)


def _registered_topics(call: Call[headers.RegisterBroker], dialect: int) -> TopicConfigSerializeWrapper:
    if not call.body:
        return TopicConfigSerializeWrapper()
    try:
        if call.version < _BODY_VERSION:
            return TopicConfigSerializeWrapper.decode_request(call.body, dialect)
        if call.header.compressed:
            return RegisterBrokerBody.decompress(call.body).topic_config_serialize_wrapper
        return RegisterBrokerBody.decode_request(call.body, dialect).topic_config_serialize_wrapper
    except LongDialect:
        raise
    except ProtocolError as fault:
        raise _unreadable(fault) from None


def _unreadable(fault: ProtocolError) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"the body of this registration cannot be read: {fault}")


@routes.on(api.UNREGISTER_BROKER, changes=lambda ask: _broker(ask))
def unregister(server: NameserverTables, call: Call[headers.UnregisterBroker]) -> Reply:
    """104: a broker leaves; one that is not registered under this name, id and address changes nothing."""
    ask = call.header
    was_there = server.table.unregister(ask)
    call.note(before="registered" if was_there else NOTHING, after=NOTHING)
    event = "broker_unregistered" if was_there else "broker_not_registered"
    log.info(event, broker=ask.broker_name, broker_id=ask.broker_id, address=ask.broker_addr)
    return Reply()


@routes.on(api.QUERY_DATA_VERSION)
def compare_version(server: NameserverTables, call: Call[headers.UnregisterBroker]) -> Reply:
    """322: whether the broker must register again. If not, the request counts as a sign of life."""
    table, ask = server.table, call.header
    try:
        version = DataVersion.decode_request(call.body, DIALECT_AT_ONCE)
    except ProtocolError as fault:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the data version cannot be read: {fault}") from None
    changed = table.is_changed(ask, version)
    if not changed:
        table.touch(ask, server.monotonic())
    known = table.known(ask)
    return Reply(header=headers.DataVersionReply(changed=changed), body=known.version.encode() if known else b"")


# ------------------------------------------------------------------ routes and overviews


@routes.on(api.GET_ROUTEINFO_BY_TOPIC, reads=True)
def route(server: NameserverTables, call: Call[headers.RouteOf]) -> Reply:
    """105: the route of a topic, as standard JSON or in fastjson's format by the client's version."""
    topic = call.header.topic
    found = server.table.route(topic)
    if found is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}{_FAQ}")
    if server.config.order_message_enable:
        found.order_topic_conf = server.kv.get(ORDER_TOPIC_CONFIG, topic)
    standard = call.version >= STANDARD_JSON_VERSION or call.header.accept_standard_json_only
    return Reply(body=found.encode(Style.STANDARD if standard else Style.COMPACT))


@routes.on(api.GET_BROKER_CLUSTER_INFO, reads=True, costly=True)
async def clusters(server: NameserverTables, call: Call[Empty]) -> Reply:
    """106: all brokers and clusters."""
    return Reply(body=await encoded(server.table.clusters()))


@routes.on(api.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, reads=True, costly=True)
async def all_topics(server: NameserverTables, call: Call[Empty]) -> Reply:
    """206: the names of all topics."""
    return await _listed(server.table.topics())


@routes.on(api.GET_TOPICS_BY_CLUSTER, reads=True, costly=True)
async def topics_of_cluster(server: NameserverTables, call: Call[headers.OfCluster]) -> Reply:
    """224: the topics of a cluster; none for an unknown one."""
    return await _selected(server, partial(server.table.in_cluster, call.header.cluster))


@routes.on(api.GET_SYSTEM_TOPIC_LIST_FROM_NS, reads=True, costly=True)
async def system_topics(server: NameserverTables, call: Call[Empty]) -> Reply:
    """304: clusters and brokers, whose names are topics."""
    return await _listed(server.table.system_topics())


@routes.on(api.GET_UNIT_TOPIC_LIST, reads=True, costly=True)
async def unit_topics(server: NameserverTables, call: Call[Empty]) -> Reply:
    """311: the topics of units."""
    return await _selected(server, partial(server.table.with_flags, has=UNIT))


@routes.on(api.GET_HAS_UNIT_SUB_TOPIC_LIST, reads=True, costly=True)
async def unit_sub_topics(server: NameserverTables, call: Call[Empty]) -> Reply:
    """312: the topics that units subscribe to."""
    return await _selected(server, partial(server.table.with_flags, has=UNIT_SUB))


@routes.on(api.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, reads=True, costly=True)
async def unit_sub_of_no_unit(server: NameserverTables, call: Call[Empty]) -> Reply:
    """313: the topics that units subscribe to and that belong to no unit."""
    return await _selected(server, partial(server.table.with_flags, has=UNIT_SUB, has_not=UNIT))


async def _selected(server: NameserverTables, select: Callable[[Sequence[str]], list[str]]) -> Reply:
    """Those of all topics that ``select`` takes of the some that it is given."""
    found: list[str] = []
    async for some in sliced(batches(server.table.topics().topic_list)):
        found += select(some)
    return await _listed(TopicList(topic_list=found))


async def _listed(topics: TopicList) -> Reply:
    return Reply(body=await encoded(topics))


# ------------------------------------------------------------------ changes by admins


@routes.on(api.DELETE_TOPIC_IN_NAMESRV, changes=lambda ask: f"topic {ask.topic}")
def delete_topic(server: NameserverTables, call: Call[topic_headers.DeleteTopicInNamesrv]) -> Reply:
    """216: delete a topic until a broker registers it with a new data version."""
    topic = call.header.topic
    call.note(before="known" if server.table.route(topic) is not None else NOTHING)
    server.table.delete_topic(topic, call.header.cluster_name)
    call.note(after="known" if server.table.route(topic) is not None else NOTHING)
    return Reply()


def _permission(ask: headers.OfBroker) -> str:
    return f"write permission of broker {ask.broker_name}"


@routes.on(api.WIPE_WRITE_PERM_OF_BROKER, costly=True, changes=_permission)
async def wipe_write_permission(server: NameserverTables, call: Call[headers.OfBroker]) -> Reply:
    """205: remove the write permission of a broker's topics."""
    count = await _permit(server, call.header.broker_name, server.table.wipe_write_permission)
    call.note(after=f"withdrawn in {count} topics")
    return Reply(header=headers.WipeReply(wipe_topic_count=count))


@routes.on(api.ADD_WRITE_PERM_OF_BROKER, costly=True, changes=_permission)
async def add_write_permission(server: NameserverTables, call: Call[headers.OfBroker]) -> Reply:
    """327: restore the write permission of a broker's topics."""
    count = await _permit(server, call.header.broker_name, server.table.add_write_permission)
    call.note(after=f"given in {count} topics")
    return Reply(header=headers.AddReply(add_topic_count=count))


async def _permit(server: NameserverTables, broker: str, change: Callable[[str, Iterable[str]], int]) -> int:
    """Change a permission of all topics of a broker, in slices; at once what is left if the connection ends meanwhile.

    Returns the number of the topics.
    """
    topics, count = server.table.topics_of(broker), 0
    some: Sequence[str]
    rest = iter(batches(topics))
    try:
        async for some in sliced(rest):
            count += change(broker, some)
    except asyncio.CancelledError:
        for some in rest:
            change(broker, some)
        raise
    return count


def _value(ask: headers.PutKVConfig | headers.KVConfigKey) -> str:
    return f"value {ask.key} of namespace {ask.namespace}"


@routes.on(api.PUT_KV_CONFIG, costly=True, changes=_value)
async def put_value(server: NameserverTables, call: Call[headers.PutKVConfig]) -> Reply:
    """100: store a value."""
    ask = call.header
    call.note(before=server.kv.get(ask.namespace, ask.key) or NOTHING, after=ask.value)
    with _persisting():
        await server.kv.put(ask.namespace, ask.key, ask.value)
    return Reply()


@routes.on(api.DELETE_KV_CONFIG, costly=True, changes=_value)
async def delete_value(server: NameserverTables, call: Call[headers.KVConfigKey]) -> Reply:
    """102: remove a value."""
    namespace, key = call.header.namespace, call.header.key
    call.note(before=server.kv.get(namespace, key) or NOTHING, after=NOTHING)
    with _persisting():
        await server.kv.delete(namespace, key)
    return Reply()


@contextmanager
def _persisting() -> Iterator[None]:
    """Context of a write: refuses the request if the file cannot be written."""
    try:
        yield
    except TooLarge as fault:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"nothing was changed: {fault}") from None
    except OSError as fault:
        log.error("file_not_written", file=fault.filename, error=reason(fault))
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"nothing was changed: {fault.filename} cannot be written ({reason(fault)})"
        ) from None


@routes.on(api.GET_KV_CONFIG, reads=True)
def get_value(server: NameserverTables, call: Call[headers.KVConfigKey]) -> Reply:
    """101: one value."""
    namespace, key = call.header.namespace, call.header.key
    value = server.kv.get(namespace, key)
    if value is None:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
    return Reply(header=headers.KVConfigReply(value=value))


@routes.on(api.GET_KVLIST_BY_NAMESPACE, reads=True, costly=True)
async def list_values(server: NameserverTables, call: Call[headers.OfNamespace]) -> Reply:
    """219: all values of a namespace."""
    table = server.kv.list(call.header.namespace)
    if table is None:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {call.header.namespace}")
    return Reply(body=await encoded(KVTable(table=table)))


@routes.on(api.GET_NAMESRV_CONFIG, reads=True)
def show_settings(server: NameserverTables, call: Call[Empty]) -> Reply:
    """319: all settings as properties."""
    return Reply(body="".join(f"{key}={text}\n" for key, text in values(server.config).items()).encode())


@routes.on(api.UPDATE_NAMESRV_CONFIG, changes="settings")
def change_settings(server: NameserverTables, call: Call[Empty]) -> Reply:
    """318: change settings that may change at run time, all or none, and save them."""
    before = values(server.config)
    try:
        asked = wanted(call.body)
        _refuse_fixed(asked)
        changed = change(server.config, asked)
    except BadSetting as fault:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(fault)) from None
    note_settings(call, before, changed)
    try:
        with _persisting():
            _amend_file(server.config, changed)
    except Refused:
        change(server.config, {key: before[key] for key in changed})
        raise
    if "logLevel" in changed:
        server.log_levels.set(changed["logLevel"])
    kept = server.config.settings_file()
    if server.file is not None and server.file.resolve() == kept.resolve():
        return Reply()
    return Reply(remark=f"the change is kept in {kept}, which a start reads only if -c names it")


def _refuse_fixed(asked: dict[str, str]) -> None:
    known = settings_of(NamesrvConfig)
    for key in asked:
        if key in ("kvConfigPath", "configStorePath"):
            raise Refused(ResponseCode.NO_PERMISSION, "Can not update config path")
        if key in known and not known[key].rules.live:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"{key} cannot be changed while the nameserver runs; set it in the configuration file and restart",
            )


def _amend_file(config: NamesrvConfig, changed: dict[str, str]) -> None:
    path = config.settings_file()
    text = properties.decode(path.read_bytes()) if path.exists() else ""
    replace_file(path, properties.amend(text, changed).encode())
