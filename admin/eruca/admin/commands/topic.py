"""Commands about topics: create, change, delete, list, route and offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from eruca.admin.client import Admin
from eruca.admin.command import (
    BROKER,
    CHANGE,
    DELETION,
    MASTERS,
    TOPIC,
    Job,
    Shown,
    agree_to_changes,
    agree_to_deletion,
    command,
    either,
    first_of,
)
from eruca.admin.errors import BadValue, NotFound, Partial, PeerRefused, Status, UsageError
from eruca.admin.lookups import ask_each, create_topic, has_value, online, readable_queues, running_infos
from eruca.admin.posix import Option
from eruca.admin.results import topics as found
from eruca.admin.results.acts import Act, settings_of
from eruca.admin.results.declared import ORDER_TOPIC_CONFIG, checked_order
from eruca.admin.results.users import users_of_topic
from eruca.admin.text import millis_text, nearest
from eruca.protocol import api, fastjson
from eruca.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from eruca.protocol.codes import ResponseCode
from eruca.protocol.fastjson import Style
from eruca.protocol.headers import routes, topics
from eruca.protocol.queues import share_averagely

_UNIT, _UNIT_SUB = 1, 2
_DEFAULT_QUEUES = 8
_PERMISSIONS = ("2", "4", "6")
_ALL_BITS = 7
"""The permission with the bit of template topics, too."""


@command(
    "updateTopic",
    *either(BROKER, MASTERS),
    TOPIC,
    Option("r", "readQueueNums", "number of queues to read; default 8", kind="number"),
    Option("w", "writeQueueNums", "number of queues to write; default 8", kind="number"),
    Option(
        "p",
        "perm",
        "permission: 2 write, 4 read, 6 both (default)",
        kind="number",
        most=_ALL_BITS,
        choices=_PERMISSIONS,
    ),
    Option("o", "order", "true: keep an order configuration for it; default false", kind="boolean"),
    Option("u", "unit", "true: a topic of a unit; default false", kind="boolean"),
    Option("s", "hasUnitSub", "true: units subscribe to it; default false", kind="boolean"),
    *CHANGE,
    results=(Act,),
)
async def update_topic(job: Job) -> AsyncIterator[Shown]:
    """17 at one broker or at all masters of a cluster; with -o true the order configuration too."""
    config = _topic_config(job, TopicConfig(topic_name=job.text("t"), perm=6))
    address = job.maybe("b")
    masters = [address] if address is not None else await job.admin.masters(job.text("c"))
    olds = (await ask_each({master: topic_at(job.admin, master, config.topic_name) for master in masters})).strict()
    configs = {
        master: _topic_config(job, old, keep=True) if old is not None and job.has("keep") else config
        for master, old in olds.items()
    }
    order = await _order(job, configs) if job.truth("o", False) else None
    changes = {master: (old, configs[master]) for master, old in olds.items() if old is not None}
    news = [order.change] if order is not None and order.change else []
    said = agree_to_changes(job, changes, *news)
    if order is not None and address is not None:
        config = configs[address]
        await create_topic(job.admin, address, config)
        await put_order(job.admin, config.topic_name, order.value)
        yield _ordered(job, config.topic_name, order.own, "broker")
        yield _put(job, config, address, said)
    else:
        for master in masters:
            config = configs[master]
            await create_topic(job.admin, master, config)
            yield _put(job, config, master, said)
        if order is not None:
            await put_order(job.admin, config.topic_name, order.value)
            yield _ordered(job, config.topic_name, order.own, "cluster")
    if not job.asks_a_person:
        for line in news:
            job.say(line)
    yield Shown(None, partial(job.write, str(config)))


@dataclass(frozen=True, slots=True)
class _Order:
    """An order configuration that is to be stored."""

    own: str
    """What the brokers of this command get."""
    value: str
    """The whole of it."""
    change: str
    """What it changes, in words; "" where there was none, or the same."""


async def _order(job: Job, configs: Mapping[str, TopicConfig]) -> _Order:
    """The order configuration by the queues of brokers: of one, beside those that are there, or of a whole cluster."""
    topic, address = job.text("t"), job.maybe("b")
    old = await order_of(job.admin, topic)
    if address is not None:
        own = f"{await job.admin.broker_name_at(address)}:{configs[address].write_queue_nums}"
        parts = {part.partition(":")[0]: part for part in [*old.split(";"), own] if part}
        value = ";".join(parts.values())
    else:
        usual = job.number("w", _DEFAULT_QUEUES)
        numbers = {master: config.write_queue_nums for master, config in configs.items()}
        own = value = ";".join(
            f"{broker.broker_name}:{numbers.get(broker.master() or '', usual)}"
            for broker in await job.admin.brokers_in(job.text("c"))
        )
    change = f"nameservers: order configuration {old} -> {value}" if old not in ("", value) else ""
    return _Order(own, value, change)


def _put(job: Job, config: TopicConfig, address: str, said: Mapping[str, str]) -> Shown:
    if address in said:
        job.say(said[address])
    act = Act(action="put", kind="topic", name=config.topic_name, place=address, settings=settings_of(config))
    return Shown(act, partial(job.line, f"create topic to {address} success."))


def _ordered(job: Job, topic: str, order: str, whose: str) -> Shown:
    act = Act(action="put", kind="order", name=topic, place="nameservers", settings={"orderConf": order})
    return Shown(act, partial(job.write, f"set {whose} orderConf. isOrder=true, orderConf=[{order}]"))


def _topic_config(job: Job, start: TopicConfig, keep: bool = False) -> TopicConfig:
    """The settings that the options ask for; with ``keep``, those of ``start`` where an option is not given."""
    unit, subscribed = bool(start.topic_sys_flag & _UNIT), bool(start.topic_sys_flag & _UNIT_SUB)
    return msgspec.structs.replace(
        start,
        read_queue_nums=job.number("r", start.read_queue_nums if keep else _DEFAULT_QUEUES),
        write_queue_nums=job.number("w", start.write_queue_nums if keep else _DEFAULT_QUEUES),
        perm=job.number("p", start.perm if keep else 6),
        topic_sys_flag=_UNIT * job.truth("u", keep and unit) + _UNIT_SUB * job.truth("s", keep and subscribed),
        order=job.truth("o", keep and start.order),
    )


async def topic_at(admin: Admin, address: str, topic: str) -> TopicConfig | None:
    """The settings of a topic at one broker (21); None if it is not there."""
    answer = await admin.call(address, api.GET_ALL_TOPIC_CONFIG)
    return TopicConfigSerializeWrapper.decode(answer.body).topic_config_table.get(topic)


async def put_order(admin: Admin, topic: str, order: str) -> None:
    """Store an order configuration at every nameserver."""
    request = routes.PutKVConfig(namespace=ORDER_TOPIC_CONFIG, key=topic, value=order)
    await admin.call_nameservers(api.PUT_KV_CONFIG, request)


async def order_of(admin: Admin, topic: str) -> str:
    """The order configuration of a topic; "" without one."""
    try:
        request = routes.KVConfigKey(namespace=ORDER_TOPIC_CONFIG, key=topic)
        return (await admin.call_nameserver(api.GET_KV_CONFIG, request)).header.value or ""
    except PeerRefused as refused:
        if refused.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return ""


async def _is_at(admin: Admin, masters: Sequence[str], topic: str) -> bool:
    """Whether any of these masters has a topic; true where it is not known."""
    there = await ask_each({master: topic_at(admin, master, topic) for master in masters})
    return bool(there.errors) or any(there.answers.values())


async def drop_topic(job: Job, cluster: str, topic: str, *, was_there: bool | None = None) -> AsyncIterator[Shown]:
    """Delete a topic at all masters of a cluster and at every nameserver. Whether it ``was_there`` is looked up."""
    masters = await job.admin.masters(cluster)
    if was_there is None:
        was_there = await _is_at(job.admin, masters, topic)
    ask = topics.OfTopic(topic=topic)
    asked = await ask_each({each: job.admin.call(each, api.DELETE_TOPIC_IN_BROKER, ask) for each in masters})
    if asked.errors and asked.answers:
        reasons = "; ".join(str(error) for _, error in sorted(asked.errors.items()))
        raise Partial(f"topic {topic} was deleted at {', '.join(sorted(asked.answers))} only: {reasons}")
    asked.strict()
    act = Act(action="delete", kind="topic", name=topic, place=cluster, done=was_there)
    yield Shown(act, partial(job.line, f"delete topic [{topic}] from cluster [{cluster}] success."))
    request = topics.DeleteTopicInNamesrv(topic=topic, cluster_name=cluster)
    await job.admin.call_nameservers(api.DELETE_TOPIC_IN_NAMESRV, request)
    act = Act(action="delete", kind="topic", name=topic, place="nameservers", done=was_there)
    yield Shown(act, partial(job.line, f"delete topic [{topic}] from NameServer success."))


@command(
    "deleteTopic",
    TOPIC,
    Option("c", "clusterName", "the cluster from which to delete it", required=True, kind="cluster"),
    *DELETION,
    results=(Act,),
)
async def delete_topic(job: Job) -> AsyncIterator[Shown]:
    """215 at the masters of a cluster, 216 at every nameserver. Before, it looks who consumes the topic."""
    topic, cluster = job.text("t"), job.text("c")
    was_there = await _is_at(job.admin, await job.admin.masters(cluster), topic)
    users = await users_of_topic(job.admin, topic)
    agree_to_deletion(
        job, [*users.items, *users.errors], f"topic {topic} is consumed. Delete it with all its messages?"
    )
    async for each in drop_topic(job, cluster, topic, was_there=was_there):
        yield each
    if not was_there:
        known = sorted(each for each in await job.admin.all_topics() if not each.startswith("%"))
        job.report(f"no master of cluster {cluster} had a topic {topic}{nearest(topic, known)}", Status.NOT_FOUND)


@command(
    "updateTopicPerm",
    *first_of(BROKER, MASTERS),
    TOPIC,
    Option(
        "p",
        "perm",
        "permission: 2 write, 4 read, 6 both",
        required=True,
        kind="number",
        most=_ALL_BITS,
        choices=_PERMISSIONS,
    ),
    results=(Act,),
)
async def update_topic_perm(job: Job) -> AsyncIterator[Shown]:
    """17 with each broker's own settings of the topic (21), but another permission."""
    topic, perm = job.text("t"), job.number("p")
    route = await job.admin.route(topic)
    olds = {queue.broker_name: queue.perm for queue in route.queue_datas}
    names = {address: broker.broker_name for broker in route.broker_datas if (address := broker.master())}
    address = job.maybe("b")
    if address is None:
        for master in await job.admin.masters(job.text("c")):
            if master in names:
                config = await _permit(job.admin, master, topic, perm)
                yield _permitted(job, config, olds.get(names[master], 0), master)
        return
    if address not in names:
        raise NotFound("updateTopicPerm error broker not exit or broker is not master!.")
    old = olds.get(names[address], 0)
    if old == perm:
        yield Shown(None, partial(job.line, "new perm equals to the old one!"))
        return
    config = await _permit(job.admin, address, topic, perm)
    yield _permitted(job, config, old, address)
    yield Shown(None, partial(job.line, f"{config}."))


def _permitted(job: Job, config: TopicConfig, old: int, address: str) -> Shown:
    act = Act(action="put", kind="topic", name=config.topic_name, place=address, settings=settings_of(config))
    return Shown(act, partial(job.line, f"update topic perm from {old} to {config.perm} in {address} success."))


async def _permit(admin: Admin, address: str, topic: str, perm: int) -> TopicConfig:
    """Change the permission of a topic at one broker and nothing else; its settings."""
    config = await topic_at(admin, address, topic)
    if config is None:
        raise NotFound(f"{address} has no topic {topic}")
    changed = msgspec.structs.replace(config, perm=perm)
    await create_topic(admin, address, changed)
    return changed


# ------------------------------------------------------------------ where topics are

_ROUTE = "%-45s %-32s %-50s %-10s %-11s %-5s"


@command(
    "topicRoute",
    TOPIC,
    Option("l", "list", "as a table, not as JSON", takes_value=False),
    results=(found.TopicRoute,),
)
async def topic_route(job: Job) -> Shown:
    """105."""
    route = await job.admin.route(job.text("t"))
    result = found.topic_route(job.text("t"), route)

    def apache() -> None:
        if job.has("l"):
            _print_route(job, result)
        else:
            job.line(route.encode(Style.PRETTY).decode())

    return Shown(result, apache)


def _print_route(job: Job, route: found.TopicRoute) -> None:
    job.row(_ROUTE, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    for each in route.items:
        addresses = "{" + ", ".join(f"{i}={address}" for i, address in each.addresses.items()) + "}"
        job.row(_ROUTE, each.cluster, each.broker, addresses, each.read_queues, each.write_queues, each.perm)
    job.line("-" * 158)
    read = sum(each.read_queues for each in route.items)
    write = sum(each.write_queues for each in route.items)
    job.row(_ROUTE, "Total:", route.brokers_with_queues, "", read, write, "")


@command("topicStatus", TOPIC, results=(found.TopicStatus,))
async def topic_status(job: Job) -> Shown:
    """202 at each broker of the topic."""
    result = await found.topic_status(job.admin, job.text("t"))

    def apache() -> None:
        job.row(
            "%-32s  %-4s  %-20s  %-20s    %s", "#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"
        )
        for each in result.items:
            row = (each.broker, each.queue_id, each.min_offset, each.max_offset)
            stored = millis_text(each.last_stored.ms) if each.last_stored else ""
            job.row("%-32.32s  %-4d  %-20d  %-20d    %s", *row, stored)

    return Shown(result, apache)


@command(
    "topicClusterList",
    TOPIC,
    results=(found.ClustersOfTopic,),
)
async def topic_cluster_list(job: Job) -> Shown:
    """106 and 105."""
    result = await found.clusters_of_topic(job.admin, job.text("t"))

    def apache() -> None:
        for each in result.items:
            job.line(each.cluster)

    return Shown(result, apache)


@command(
    "topicList",
    Option("c", "clusterModel", "with their clusters and consumer groups", takes_value=False),
    results=(found.Topics,),
)
async def topic_list(job: Job) -> Shown:
    """206; with -c also 106, and 105 and 300 for each topic."""
    if not job.has("c"):
        names = await found.topics_by_name(job.admin)
        return Shown(names, lambda: job.write("".join(f"{each.topic}\n" for each in names.items)))
    result = await found.topics_in_use(job.admin)

    def apache() -> None:
        job.row("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group")
        for each in result.items:
            cluster = "" if each.cluster is None and each.groups is None else each.cluster or "null"
            for group in ["?"] if each.groups is None else each.groups or [""]:
                job.row("%-20.20s  %-64.64s  %-64.64s", cluster, each.topic, group)

    return Shown(result, apache)


# ------------------------------------------------------------------ queues and their owners


@command(
    "allocateMQ",
    TOPIC,
    *either(
        Option("i", "ipList", "the consumers, separated by commas"),
        Option("g", "consumerGroup", "the members of this group and their queues", kind="group", added=True),
    ),
    results=(found.Allocation,),
)
async def allocate_queues(job: Job) -> Shown:
    """105; the queues are shared averagely, as consumers do: both sorted (AllocateMQSubCommand in 4.9.7)."""
    if job.has("g"):
        return await _allocated(job)
    topic, consumers = job.text("t"), sorted(each.strip() for each in job.text("i").split(","))
    if not all(consumers) or len(set(consumers)) < len(consumers):
        raise BadValue(f"option -i takes ids of consumers, separated by commas, each once, not '{job.text('i')}'")
    queues = sorted(readable_queues(topic, await job.admin.route(topic)))
    result = {consumer: share_averagely(queues, at, len(consumers)) for at, consumer in enumerate(consumers)}
    return Shown(found.allocation(topic, result), partial(job.line, fastjson.dumps({"result": result}).decode()))


async def _allocated(job: Job) -> Shown:
    """The queues that the members of a group have (203, 307): what their strategy gives, whatever it is."""
    topic, group = job.text("t"), job.text("g")
    members = await online(job.admin, group)
    asked = await running_infos(job.admin, group, members)
    job.missing(members.errors, "members that only it knows are missing")
    job.missing(asked.errors, "its queues are missing")
    result = {
        member: sorted(queue for queue, held in info.mq_table.items() if queue.topic == topic and not held.droped)
        for member, info in sorted(asked.answers.items())
    }
    return Shown(found.allocation(topic, result), partial(job.line, fastjson.dumps({"result": result}).decode()))


@command(
    "updateOrderConf",
    TOPIC,
    Option("v", "orderConf", "for put: broker1:queues;broker2:queues"),
    Option("m", "method", "put, get or delete", required=True, choices=("put", "get", "delete")),
    results=(Act, found.OrderOfTopic),
    reads=False,
)
async def update_order_conf(job: Job) -> Shown:
    """100, 101 or 102 in the namespace of ordered topics."""
    topic, method = job.text("t"), job.text("m")
    key = routes.KVConfigKey(namespace=ORDER_TOPIC_CONFIG, key=topic)
    if method == "get":
        value = (await job.admin.call_nameserver(api.GET_KV_CONFIG, key)).header.value
        text = f"get orderConf success. topic=[{topic}], orderConf=[{value}] "
        return Shown(found.OrderOfTopic(topic=topic, order_configuration=value), partial(job.write, text))
    if method == "put":
        order = job.text("v")
        if not order:
            raise UsageError("please set orderConf with option -v.")
        await _warn_of_order(job, topic, checked_order(order, "option -v (--orderConf)"))
        await put_order(job.admin, topic, order)
        act = Act(action="put", kind="order", name=topic, place="nameservers", settings={"orderConf": order})
        return Shown(act, partial(job.write, f"update orderConf success. topic=[{topic}], orderConf=[{order}]"))
    was_there = await has_value(job.admin, key)
    await job.admin.call_nameservers(api.DELETE_KV_CONFIG, key)
    if not was_there:
        job.report(f"no nameserver had an order configuration of topic {topic}", Status.NOT_FOUND)
    act = Act(action="delete", kind="order", name=topic, place="nameservers", done=was_there)
    return Shown(act, partial(job.write, f"delete orderConf success. topic=[{topic}]"))


async def _warn_of_order(job: Job, topic: str, queues: Mapping[str, int]) -> None:
    """Say which names of an order configuration nobody knows yet: it may be there before the topic and the brokers."""
    info = await job.admin.clusters()
    unknown = [name for name in queues if name not in info.broker_addr_table]
    if unknown:
        known = ", ".join(sorted(info.broker_addr_table)) or "none"
        job.say(f"the nameserver knows no broker {', '.join(unknown)}; it knows: {known}")
    if topic not in await job.admin.all_topics():
        job.say(f"there is no topic {topic} yet")
