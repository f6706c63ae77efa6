"""What a consumer asks of a topic, refused here when no broker could make sense of it.

Owns that a wrong expression is told to who wrote it: a broker that gets one inside a pull would hand out everything.
Pure.
"""

from __future__ import annotations

from eruca.client.checks import check_kind
from eruca.client.errors import UsageError
from eruca.protocol.bodies import SubscriptionData
from eruca.protocol.sql92 import compile_sql
from eruca.protocol.subscription import SQL92, build_subscription


def subscription_of(topic: str, expression: str, expression_type: str, version: int) -> SubscriptionData:
    """The subscription of a topic; ``version`` is its time in ms, 0 for one that only one pull has.

    Raises UsageError for an expression that is none of its type.
    """
    check_kind("expression", expression, str | None, 'a text such as "TagA || TagB"')
    check_kind("expression_type", expression_type, str | None, '"TAG" or "SQL92"')
    try:
        if expression_type == SQL92 and expression:
            compile_sql(expression)
        return build_subscription(topic, expression, version=version, expression_type=expression_type)
    except ValueError as error:
        raise UsageError(str(error)) from None
