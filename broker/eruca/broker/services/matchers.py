"""Which messages of a queue a consumer gets: its subscription as a matcher of the store.

Owns the meaning of tags, SQL92 expressions and filtered retry topics (ExpressionMessageFilter and
ExpressionForRetryMessageFilter in 4.9.7). Must not know requests. Invariant: a matcher never raises; a message whose
properties cannot be evaluated does not match. The more parts an expression has, the fewer messages one read examines,
so no read blocks the broker for long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from eruca.broker.state.filters import Filter
from eruca.broker.store.results import FILTER_REACH, Matcher
from eruca.protocol import names
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.message import decode_properties
from eruca.protocol.record import properties_of
from eruca.protocol.sql92 import Expression
from eruca.protocol.subscription import ALL

EVERYTHING = Matcher()
_MOST_WORK = 32_000
_LEAST_REACH = 32
FilterOf = Callable[[str, str], Filter | None]
"""Returns the filter of a group in a topic."""


def by_tags(subscription: SubscriptionData) -> Matcher:
    """The matcher of a subscription by tags: it compares hashes; the client compares the tags themselves."""
    if not subscription.sub_string or subscription.sub_string == ALL:
        return EVERYTHING
    return Matcher(frozenset(subscription.code_set))


@lru_cache(maxsize=1024)
def by_expression(expression: Expression) -> Matcher:
    """The matcher of the messages for whose properties an expression is true."""
    matches = expression.matches

    def wanted(record: memoryview | bytes) -> bool:
        return matches(decode_properties(properties_of(record)))

    return Matcher(record=wanted, reach=max(_LEAST_REACH, min(FILTER_REACH, _MOST_WORK // expression.parts)))


def of_retry_topic(topic: str, plain: Matcher, filter_of: FilterOf) -> Matcher:
    """``plain`` for a retry topic, where each message is also filtered as in its original topic."""
    group = topic.removeprefix(names.RETRY_PREFIX)

    def wanted(record: memoryview | bytes) -> bool:
        properties = decode_properties(properties_of(record))
        known = filter_of(properties.get(names.RETRY_TOPIC, ""), group)
        return known is None or known.expression.matches(properties)

    return Matcher(plain.codes, wanted)
