"""Commands that export the settings of a cluster to files."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from eruca.admin.command import BROKER, Job, Shown, command, first_of
from eruca.admin.errors import AdminError, UsageError
from eruca.admin.lookups import ask_each
from eruca.admin.posix import Option
from eruca.admin.results.acts import Act
from eruca.admin.results.metrics import BrokerMetrics, ClusterMetrics, cluster_metrics, user_groups, user_topics
from eruca.admin.text import hash_order
from eruca.protocol import api, fastjson, properties
from eruca.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from eruca.protocol.codes import VERSION, version_name
from eruca.protocol.fastjson import Style

T = TypeVar("T")
FOLDER = Option("f", "filePath", "the folder to write to; default /tmp/rocketmq/export", kind="file")
_DEFAULT_FOLDER = "/tmp/rocketmq/export"  # noqa: S108 - as in 4.9.7


def _write(job: Job, name: str, content: Any) -> Shown:
    path = Path(job.text("f", _DEFAULT_FOLDER)) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fastjson.dumps(content, Style.PRETTY))
    except OSError as error:
        raise AdminError(f"{path} cannot be written: {error.strerror}") from None
    act = Act(action="write", kind="file", name=name, place=str(path))
    return Shown(act, partial(job.write, f"export {path} success"))


async def _masters(job: Job) -> dict[str, str]:
    """The masters of the cluster, by name."""
    brokers = await job.admin.brokers_in(job.text("c"))
    return {broker.broker_name: master for broker in brokers if (master := broker.master())}


async def _of_each(job: Job, asks: Mapping[str, Awaitable[T]], what: str) -> dict[str, T]:
    """The answers of brokers, in the order of the questions; who does not answer is named. Raises if nobody does."""
    asked = await ask_each(asks)
    if not asked.answers:
        asked.strict()
    job.missing(asked.errors, f"{what} are missing in the file")
    return {name: asked.answers[name] for name in asks if name in asked.answers}


async def _settings_at(job: Job, address: str) -> tuple[TopicConfigSerializeWrapper, SubscriptionGroupWrapper]:
    return await user_topics(job.admin, address, job.has("s")), await user_groups(job.admin, address)


@command(
    "exportMetadata",
    *first_of(BROKER, Option("c", "clusterName", "all masters of this cluster", kind="cluster")),
    FOLDER,
    Option("t", "topic", "only topics", takes_value=False),
    Option("g", "subscriptionGroup", "only consumer groups", takes_value=False),
    Option("s", "specialTopic", "retry and dead letter topics too", takes_value=False),
    results=(Act,),
    reads=False,
)
async def export_metadata(job: Job) -> Shown:
    """21, 305 and 201 at one broker, as they are, or summed over the masters of a cluster."""
    address = job.maybe("b")
    if address is None:
        return await _export_cluster(job)
    if job.has("t"):
        return _write(job, "topic.json", await user_topics(job.admin, address, job.has("s")))
    if job.has("g"):
        return _write(job, "subscriptionGroup.json", await user_groups(job.admin, address))
    raise UsageError("with -b one of -t and -g is required")


async def _export_cluster(job: Job) -> Shown:
    masters = await _masters(job)
    settings = await _of_each(
        job, {name: _settings_at(job, at) for name, at in masters.items()}, "its topics and groups"
    )
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for own_topics, own_groups in settings.values():
        for name, topic in own_topics.topic_config_table.items():
            if name in topics:
                topic.read_queue_nums += topics[name].read_queue_nums
                topic.write_queue_nums += topics[name].write_queue_nums
            topics[name] = topic
        for name, group in own_groups.subscription_group_table.items():
            if name in groups:
                group.retry_queue_nums += groups[name].retry_queue_nums
            groups[name] = group
    content: dict[str, Any] = {"exportTime": time.time_ns() // 1_000_000}
    if not job.has("t"):
        content["subscriptionGroupTable"] = groups
    if job.has("t") or not job.has("g"):
        content["topicConfigTable"] = topics
    name = "topic.json" if job.has("t") else "subscriptionGroup.json" if job.has("g") else "metadata.json"
    return _write(job, name, content)


_EXPORTED = (
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
)


@command(
    "exportConfigs",
    Option("c", "clusterName", "the cluster", required=True, kind="cluster"),
    FOLDER,
    results=(Act,),
    reads=False,
)
async def export_configs(job: Job) -> Shown:
    """26 at each master of a cluster; a setting that a broker does not have is left out."""
    brokers = await job.admin.brokers_in(job.text("c"))
    masters = await _masters(job)
    answers = await _of_each(
        job, {name: job.admin.call(at, api.GET_BROKER_CONFIG) for name, at in masters.items()}, "its settings"
    )
    configs = {}
    for name, answer in answers.items():
        settings = properties.parse(properties.decode(answer.body))
        configs[name] = {key: settings[key] for key in _EXPORTED if key in settings}
    scale = {
        "masterBrokerSize": len(masters),
        "namesrvSize": len(job.admin.nameservers),
        "slaveBrokerSize": sum(len(broker.broker_addrs) for broker in brokers) - len(masters),
    }
    return _write(job, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})


@command(
    "exportMetrics",
    Option("c", "clusterName", "the cluster", required=True, kind="cluster"),
    FOLDER,
    results=(ClusterMetrics,),
    reads=False,
)
async def export_metrics(job: Job) -> Shown:
    """28, 26, 21, 305, 201 and 315 at each master of a cluster, and 203 of each group."""
    result = await cluster_metrics(job.admin, job.text("c"))
    return Shown(result, lambda: _write(job, "metrics.json", _hashed(_metrics(result))).apache())


def _metrics(result: ClusterMetrics) -> dict[str, Any]:
    """The file as Apache's mqadmin writes it; it gives its own version as that of each broker."""
    brokers = {each.broker: _metrics_of(each) for each in result.items}
    tps = {f"total{name[0].upper()}{name[1:]}": 0.0 for name in _TPS}
    days = dict.fromkeys(_DAYS, 0)
    for each in brokers.values():
        quota = each["runtimeQuota"]
        tps = {total: tps[total] + quota["tps"][name] for total, name in zip(tps, _TPS, strict=True)}
        days = {name: days[name] + quota["oneDayNum"][name] for name in _DAYS}
    return {"evaluateReport": brokers, "totalData": {"totalTps": tps, "totalOneDayNum": days}}


_TPS = ("normalInTps", "normalOutTps", "transInTps", "scheduleInTps")
_DAYS = ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")


def _metrics_of(broker: BrokerMetrics) -> dict[str, Any]:
    figures: dict[str, dict[str, Any]] = {
        "runtimeEnv": {"cpuNum": broker.processors, "totalMemKBytes": broker.memory_kilobytes},
        "runtimeQuota": {
            "diskRatio": {
                "commitLogDiskRatio": broker.commit_log_disk_used,
                "consumeQueueDiskRatio": broker.consume_queue_disk_used,
            },
            "messageAverageSize": broker.average_message_size,
        },
    }
    report: dict[str, Any] = {
        name: {key: _texts(value) for key, value in part.items() if value is not None} for name, part in figures.items()
    }
    report["runtimeQuota"] |= {
        "tps": dict(zip(_TPS, (broker.in_tps, broker.out_tps, broker.half_in_tps, broker.delayed_in_tps), strict=True)),
        "oneDayNum": dict(
            zip(
                _DAYS,
                (broker.in_yesterday, broker.out_yesterday, broker.half_in_day, broker.delayed_in_day),
                strict=True,
            )
        ),
        "topicSize": broker.topics,
        "groupSize": broker.groups,
    }
    clients = hash_order(dict.fromkeys(f"{each.language}%{each.version}" for each in broker.clients))
    report["runtimeVersion"] = {"rocketmqVersion": version_name(VERSION), "clientInfo": clients}
    return report


def _texts(value: Any) -> Any:
    """Figures as the broker sent them, which is as texts."""
    if isinstance(value, dict):
        return {key: _texts(each) for key, each in value.items() if each is not None}
    return str(value)


def _hashed(value: Any) -> Any:
    """Maps in the order of a Java HashMap."""
    return {key: _hashed(value[key]) for key in hash_order(value)} if isinstance(value, dict) else value
