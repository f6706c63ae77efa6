"""How many topics and queues there may be whose names begin with a prefix, such as that of a team or an account.

Owns what the settings mean. Pure. Invariant: what is there stays, however much it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eruca.protocol.bodies import TopicConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused

Numbers = tuple[tuple[str, int], ...]


def numbers(text: str) -> Numbers:
    """Prefixes and their numbers, of ``orders-=100;pay-=5``. Raises ValueError."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        prefix, _, number = (piece.strip() for piece in part.rpartition("="))
        if not prefix or not number.isdecimal():
            raise ValueError(f"'{part}' is no prefix with a number")
        found.append((prefix, int(number)))
    return tuple(found)


def are_numbers(text: str) -> bool:
    """Whether a text has that form."""
    try:
        numbers(text)
    except ValueError:
        return False
    return True


class PrefixLimits(NamedTuple):
    """The most topics, and the most queues, by the beginning of the topic's name; all that fit a name hold."""

    topics: Numbers = ()
    queues: Numbers = ()

    def check(self, table: Mapping[str, TopicConfig], name: str, queues: int) -> None:
        """Raise Refused if ``table`` has no room for a topic with this name and number of queues."""
        for prefix, most in self.topics:
            if name.startswith(prefix) and name not in table:
                count = sum(each.startswith(prefix) for each in table)
                if count >= most:
                    raise _refused(name, f"{count} topics", prefix, f"maxTopicNumByPrefix allows {most}")
        known = _queues(table[name]) if name in table else 0
        for prefix, most in self.queues:
            if name.startswith(prefix) and queues > known:
                count = sum(_queues(config) for each, config in table.items() if each.startswith(prefix))
                if count - known + queues > most:
                    raise _refused(
                        name,
                        f"topics with {count} queues",
                        prefix,
                        f"it would have {queues}, and maxQueueNumByPrefix allows {most} in all",
                    )


def _queues(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)


def _refused(name: str, there: str, prefix: str, why: str) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_ERROR,
        f"the topic {name} is not made: this broker has {there} whose names begin with {prefix}; {why}; "
        "delete unused topics, or raise the limit",
    )
