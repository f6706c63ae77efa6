"""The rules about topics. Pure: findings from what was seen."""

from __future__ import annotations

from collections.abc import Iterator

from eruca.admin.diagnosis.brokers import listed
from eruca.admin.diagnosis.findings import Finding
from eruca.admin.diagnosis.survey import BrokerSeen, Seen
from eruca.admin.text import counted
from eruca.protocol.names import is_dead_letter_topic, is_retry_topic


def findings(seen: Seen, only: frozenset[str] | None) -> Iterator[Finding]:
    """All that is wrong with topics, or with ``only`` some of them."""
    for topic in sorted({name for each in seen.masters for name in each.topics}):
        if is_retry_topic(topic) or is_dead_letter_topic(topic) or (only is not None and topic not in only):
            continue
        yield from _queue_numbers(topic, seen)
        yield from _gaps(topic, seen)


def _queue_numbers(topic: str, seen: Seen) -> Iterator[Finding]:
    for broker in seen.masters:
        config = broker.topics.get(topic)
        if config is None or config.read_queue_nums == config.write_queue_nums:
            continue
        read, write = config.read_queue_nums, config.write_queue_nums
        if write > read:
            written = counted(write, "queue")
            what = f"producers write {written} and consumers read {read}: what is in the others reaches nobody"
        else:
            what = f"consumers read {counted(read, 'queue')} and producers write only {write}"
        yield Finding(
            kind="queueNumbersDiffer",
            where=f"topic {topic} at {broker.name}",
            what=what,
            mend=f"set both with updateTopic -b {broker.address} -t {topic} --keep -r N -w N"
            + ("" if write > read else ", when the last queues are consumed"),
            topic=topic,
            broker=broker.name,
        )


def _gaps(topic: str, seen: Seen) -> Iterator[Finding]:
    having = [each for each in seen.masters if topic in each.topics]
    for cluster in sorted({each.cluster for each in having}):
        lacking = [each for each in seen.masters if each.cluster == cluster and topic not in each.topics]
        if lacking:
            yield _gap(topic, cluster, [each for each in having if each.cluster == cluster], lacking)


def _gap(topic: str, cluster: str, having: list[BrokerSeen], lacking: list[BrokerSeen]) -> Finding:
    config = having[0].topics[topic]
    numbers = f"-r {config.read_queue_nums} -w {config.write_queue_nums} -p {config.perm}"
    return Finding(
        kind="topicNotEverywhere",
        where=f"topic {topic}",
        what=f"it is not on all masters of {cluster}, but missing on {listed([each.name for each in lacking])}",
        mend=f"create it there with updateTopic -b {lacking[0].address} -t {topic} {numbers}, unless that is meant",
        topic=topic,
        broker=lacking[0].name,
    )
