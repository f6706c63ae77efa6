"""The name of one queue: topic, broker name, queue id; and how many queues a topic may have.

Owns the value that clients balance over, lock and commit offsets for, and that fastjson
writes as a bare object key of a map.  Knows nothing of addresses, routes or offsets.

Invariant: a queue name is immutable, so it may be a dictionary key, and it sorts as the
Java class compares (topic, then broker name, then id): so every member of a consumer
group computes the same assignment.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Protocol, TypeVar

import msgspec

from eruca.protocol.errors import ProtocolError

Q = TypeVar("Q")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A Java ``int``: readers refuse anything wider."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java ``long``: readers refuse anything wider."""

MOST_QUEUES: Final = 65_536
"""The most queues of a topic on one broker; Apache has no limit."""


def queue_count(what: str, count: int) -> int:
    """``count``, if a topic may have that many queues: 0 to MOST_QUEUES.

    Every number of queues from a request, a file or another server passes here before it is kept, since what loops over
    the queues trusts it. Raises ProtocolError with ``what`` it counts.
    """
    if not 0 <= count <= MOST_QUEUES:
        raise ProtocolError(f"{what} = [{count}] is not between 0 and {MOST_QUEUES}")
    return count


class Queued(Protocol):
    """Settings that say how many queues something has."""

    def check_queues(self) -> None:
        """Raise ProtocolError for a number of queues that no topic may have."""


def faults_of_queues(table: Mapping[str, Queued]) -> dict[str, str]:
    """The entries of a table with a number of queues that no topic may have, each with what is wrong with it."""
    faults = {}
    for name, settings in table.items():
        try:
            settings.check_queues()
        except ProtocolError as fault:
            faults[name] = str(fault)
    return faults


class MessageQueue(msgspec.Struct, frozen=True, order=True, cache_hash=True, rename="camel"):
    """One queue of one broker (``MessageQueue`` in 4.9.7).

    Ordered by topic, broker name and queue id; hashable; ``str()`` is the text of
    Java's ``toString``, which tools print.
    """

    topic: str = ""
    broker_name: str = ""
    queue_id: Int32 = 0

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


def share_averagely(queues: Sequence[Q], index: int, members: int) -> list[Q]:
    """The share of the member at ``index`` of a group: adjacent queues, and one more for each of the first members.

    All members, in any language, must compute the same shares (AllocateMessageQueueAveragely in 4.9.7).
    """
    share, rest = divmod(len(queues), members)
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])
