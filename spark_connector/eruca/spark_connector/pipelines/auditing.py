"""What producers have stored against what groups have consumed: who is behind, by how much, and what never came.

Owns the comparison by offsets, queue by queue; no message is read. A group's offset is what its members have committed:
some seconds old while they work. What is behind an offset counts as consumed, also a message that was sent back (it
waits among the retries) or given up (it is a dead letter).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eruca.client import MessageQueue
from eruca.protocol import names
from eruca.spark_connector.errors import BadOption
from eruca.spark_connector.pipelines.endpoint import Endpoint


@dataclass(frozen=True)
class QueueAudit:
    """A queue and a group: offsets, ``consumed`` None where the group has none."""

    queue: MessageQueue
    group: str
    oldest: int
    end: int
    consumed: int | None

    @property
    def behind(self) -> int:
        """Messages that are there and not consumed."""
        return max(0, self.end - max(self.oldest, self.consumed or 0))

    @property
    def lost(self) -> int:
        """Messages that the broker deleted before the group consumed them, as far as offsets tell."""
        return max(0, self.oldest - self.consumed) if self.consumed is not None else 0


@dataclass(kw_only=True)
class GroupAudit:
    """A group on a topic; ``retrying`` and ``dead`` are the group's messages that were sent back, and given up."""

    topic: str
    group: str
    queues: list[QueueAudit]
    retrying: int = 0
    dead: int = 0

    @property
    def stored(self) -> int:
        """Messages that producers have stored since the topic was made."""
        return sum(each.end for each in self.queues)

    @property
    def consumed(self) -> int:
        """How many of them the group is past."""
        return sum(min(each.end, each.consumed or 0) for each in self.queues)

    @property
    def behind(self) -> int:
        """Messages that wait."""
        return sum(each.behind for each in self.queues)

    @property
    def lost(self) -> int:
        """Messages that were deleted before they were consumed."""
        return sum(each.lost for each in self.queues)

    @property
    def never(self) -> bool:
        """Whether the group is past no message; brokers answer 0 where a group has no offset."""
        return not any(each.consumed for each in self.queues)


@dataclass(kw_only=True)
class AuditSummary:
    """All pairs of topic and group, in the order they were asked for."""

    groups: list[GroupAudit]

    def faults(self, *, behind: int = 0, dead: int | None = None) -> list[str]:
        """A sentence for each pair with more waiting than ``behind``, messages lost, or more than ``dead``."""
        found = []
        for each in self.groups:
            who = f"{each.group} on {each.topic}"
            if each.behind > behind:
                state = "has never consumed" if each.never else "has not consumed"
                found.append(f"{who} {state} {each.behind:,} messages.")
            if each.lost:
                found.append(f"{who} lost {each.lost:,} messages, which were deleted before it consumed them.")
            if dead is not None and each.dead > dead:
                found.append(f"{each.group} has {each.dead:,} dead letters.")
        return found


def audit(
    *,
    name_server: str,
    topics: Sequence[str],
    groups: Sequence[str],
    access: Mapping[str, str] | None = None,
) -> AuditSummary:
    """Compare what is stored in topics with what groups have consumed.

    Each group is held against each topic; ``access`` has accessKey, secretKey, tls, namespace, … as for the source.
    Raises BadOption, SourceError.
    """
    if not topics or not groups:
        raise BadOption("Say what is held against what: one topic and one group at least.")
    endpoint = Endpoint(name_server, access)
    found = []
    for topic in topics:
        queues = endpoint.existing_queues(topic)
        # Offsets of groups first: what arrives meanwhile is behind, and no group is ahead of an end.
        offsets = {group: endpoint.group_offsets(queues, group) for group in groups}
        oldest, ends = endpoint.beginnings(queues), endpoint.ends(queues)
        for group in groups:
            lines = [QueueAudit(each, group, oldest[each], ends[each], offsets[group][each]) for each in queues]
            pair = GroupAudit(topic=topic, group=group, queues=lines)
            pair.retrying, pair.dead = _retrying(endpoint, group), _dead(endpoint, group)
            found.append(pair)
    return AuditSummary(groups=found)


def _retrying(endpoint: Endpoint, group: str) -> int:
    queues = endpoint.queues(names.retry_topic(group))
    ends, oldest, at = endpoint.ends(queues), endpoint.beginnings(queues), endpoint.group_offsets(queues, group)
    return sum(max(0, ends[each] - max(oldest[each], at[each] or 0)) for each in queues)


def _dead(endpoint: Endpoint, group: str) -> int:
    queues = endpoint.queues(names.dead_letter_topic(group))
    ends, oldest = endpoint.ends(queues), endpoint.beginnings(queues)
    return sum(ends[each] - oldest[each] for each in queues)
