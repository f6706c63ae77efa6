"""Commands that export the settings of a cluster to files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from eruca.admin.client import Admin
from eruca.admin.command import BROKER, Job, command, either
from eruca.admin.errors import AdminError, UsageError
from eruca.admin.posix import Option
from eruca.protocol import api, fastjson, properties
from eruca.protocol.bodies import SubscriptionGroupWrapper, TopicConfigSerializeWrapper, TopicList
from eruca.protocol.fastjson import Style
from eruca.protocol.names import is_dead_letter_topic, is_retry_topic, is_system_group

FOLDER = Option("f", "filePath", "the folder to write to; default /tmp/rocketmq/export")
_DEFAULT_FOLDER = "/tmp/rocketmq/export"  # as in 4.9.7  # nosec B108


def _write(job: Job, name: str, content: Any) -> None:
    path = Path(job.text("f", _DEFAULT_FOLDER)) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fastjson.dumps(content, Style.PRETTY))
    except OSError as error:
        raise AdminError(f"{path} cannot be written: {error.strerror}") from None
    job.write(f"export {path} success")


async def _topics(admin: Admin, address: str, special: bool) -> TopicConfigSerializeWrapper:
    """The topics of a broker without system topics; retry and dead letter topics only when ``special``."""
    found = TopicConfigSerializeWrapper.decode((await admin.call(address, api.GET_ALL_TOPIC_CONFIG)).body)
    own = set(TopicList.decode((await admin.call(address, api.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body).topic_list)
    found.topic_config_table = {
        name: config
        for name, config in found.topic_config_table.items()
        if name not in own and (special or not (is_retry_topic(name) or is_dead_letter_topic(name)))
    }
    return found


async def _groups(admin: Admin, address: str) -> SubscriptionGroupWrapper:
    """The consumer groups of a broker without system groups."""
    found = SubscriptionGroupWrapper.decode((await admin.call(address, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
    found.subscription_group_table = {
        name: config for name, config in found.subscription_group_table.items() if not is_system_group(name)
    }
    return found


@command(
    "exportMetadata",
    "write topics and consumer groups to files",
    *either(BROKER, Option("c", "clusterName", "all masters of this cluster")),
    FOLDER,
    Option("t", "topic", "only topics", takes_value=False),
    Option("g", "subscriptionGroup", "only consumer groups", takes_value=False),
    Option("s", "specialTopic", "retry and dead letter topics too", takes_value=False),
)
async def export_metadata(job: Job) -> None:
    """21, 305 and 201 at one broker, as they are, or summed over the masters of a cluster."""
    address = job.maybe("b")
    if address is None:
        await _export_cluster(job)
    elif job.has("t"):
        _write(job, "topic.json", await _topics(job.admin, address, job.has("s")))
    elif job.has("g"):
        _write(job, "subscriptionGroup.json", await _groups(job.admin, address))
    else:
        raise UsageError("with -b one of -t and -g is required")


async def _export_cluster(job: Job) -> None:
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for master in await job.admin.masters(job.text("c")):
        for name, topic in (await _topics(job.admin, master, job.has("s"))).topic_config_table.items():
            if name in topics:
                topic.read_queue_nums += topics[name].read_queue_nums
                topic.write_queue_nums += topics[name].write_queue_nums
            topics[name] = topic
        for name, group in (await _groups(job.admin, master)).subscription_group_table.items():
            if name in groups:
                group.retry_queue_nums += groups[name].retry_queue_nums
            groups[name] = group
    content: dict[str, Any] = {"exportTime": time.time_ns() // 1_000_000}
    if not job.has("t"):
        content["subscriptionGroupTable"] = groups
    if job.has("t") or not job.has("g"):
        content["topicConfigTable"] = topics
    name = "topic.json" if job.has("t") else "subscriptionGroup.json" if job.has("g") else "metadata.json"
    _write(job, name, content)


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
    "write the main settings of a cluster's brokers to a file",
    Option("c", "clusterName", "the cluster", required=True),
    FOLDER,
)
async def export_configs(job: Job) -> None:
    """26 at each master of a cluster; a setting that a broker does not have is left out."""
    brokers = await job.admin.brokers_in(job.text("c"))
    masters = [(broker.broker_name, master) for broker in brokers if (master := broker.master())]
    configs = {}
    for name, address in masters:
        body = (await job.admin.call(address, api.GET_BROKER_CONFIG)).body
        settings = properties.parse(properties.decode(body))
        configs[name] = {key: settings[key] for key in _EXPORTED if key in settings}
    scale = {
        "masterBrokerSize": len(masters),
        "namesrvSize": len(job.admin.nameservers),
        "slaveBrokerSize": sum(len(broker.broker_addrs) for broker in brokers) - len(masters),
    }
    _write(job, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})
