"""Which messages of a queue a consumer gets: its subscription, brought into the form in which the store asks.

Owns the meaning of tags, SQL92 expressions and filtered retry topics (ExpressionMessageFilter and
ExpressionForRetryMessageFilter in 4.9.7). Must not know requests. Invariant: a matcher never raises: a message whose
properties cannot be tested is not wanted. A read looks at fewer messages the more an expression has to test, so that
none holds up the broker for long.
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
"""Gives the filter of a group in a topic."""


def by_tags(subscription: SubscriptionData) -> Matcher:
    """What a subscription of tags asks for: the hashes of the tags; the client looks at the tags themselves."""
    if not subscription.sub_string or subscription.sub_string == ALL:
        return EVERYTHING
    return Matcher(frozenset(subscription.code_set))


@lru_cache(maxsize=1024)
def by_expression(expression: Expression) -> Matcher:
    """The messages whose properties an expression is true of."""
    matches = expression.matches

    def wanted(record: memoryview | bytes) -> bool:
        return matches(decode_properties(properties_of(record)))

    return Matcher(record=wanted, reach=max(_LEAST_REACH, min(FILTER_REACH, _MOST_WORK // expression.parts)))


def of_retry_topic(topic: str, plain: Matcher, filter_of: FilterOf) -> Matcher:
    """``plain`` for a retry topic whose messages are filtered again, each as in the topic that it came from."""
    group = topic.removeprefix(names.RETRY_PREFIX)

    def wanted(record: memoryview | bytes) -> bool:
        properties = decode_properties(properties_of(record))
        known = filter_of(properties.get(names.RETRY_TOPIC, ""), group)
        return known is None or known.expression.matches(properties)

    return Matcher(plain.codes, wanted)
