"""Subscriptions: built from an expression, and matched against a message's tag.

Owns the meaning of tag expressions.  Must not know SQL92 expressions (``sql92`` compiles
them), queues or offsets.

A broker compares only the hashes of tags, so a few other messages pass; a client compares
the tags themselves.
"""

import re

from eruca.protocol.bodies.clients import SubscriptionData
from eruca.protocol.message import java_hash

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"

_SEPARATOR = "||"
_CONDITION = re.compile(r"[=<>]|\s(IS|IN|AND|OR|BETWEEN|CONTAINS|NOT)\s", re.IGNORECASE)
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


def build_subscription(
    topic: str, expression: str | None, *, version: int, expression_type: str | None = TAG
) -> SubscriptionData:
    """The subscription to ``topic`` by ``expression`` (``FilterAPI`` in 4.9.7).

    A tag expression is ``TagA || TagB``; None, empty and ``*`` match everything.
    ``version`` is the time of the subscription in ms.  Raises ValueError for a tag
    expression of separators alone and for an empty expression of another type.
    """
    if not is_tag_type(expression_type):
        if not expression:
            raise ValueError(f"A subscription of type {expression_type} needs an expression.")
        return SubscriptionData(
            topic=topic,
            sub_string=expression,
            expression_type=expression_type or TAG,
            sub_version=version,
        )
    if not expression or expression == ALL:
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version)
    parts = expression.split(_SEPARATOR)
    if not any(parts):
        raise ValueError(f"The tag expression '{expression}' names no tag; use '*' for all.")
    tags = {tag for part in parts if (tag := part.strip(_JAVA_BLANKS))}
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        sub_version=version,
        tags_set=tags,
        code_set={java_hash(tag) for tag in tags},
    )


def check_tags(expression: str | None) -> None:
    """Raise ValueError for a tag expression that means something else than it seems to.

    Brokers take a list with other separators, a pattern and a condition as one tag, which no
    message has: for whoever writes an expression, never for one that was received.
    """
    if not expression or expression == ALL:
        return
    for tag in expression.split(_SEPARATOR):
        if _CONDITION.search(tag):
            raise ValueError(f"'{expression}' is a condition, no tags: it needs the type SQL92.")
        if re.search("[|,]", tag):
            right = " || ".join(filter(None, re.split(r"[|,\s]+", expression)))
            raise ValueError(f"'{expression}' is one tag: tags are joined by two bars, '{right}'.")
        if ALL in tag:
            raise ValueError(f"'{expression}' is no pattern: name each tag, 'TagA || TagB', or use '*' alone for all.")


def is_tag_type(expression_type: str | None) -> bool:
    """Whether expressions of this type are tags; None and the empty text mean tags."""
    return not expression_type or expression_type == TAG


def passes_tag(subscription: SubscriptionData, tag: str | None) -> bool:
    """Whether a client accepts a message with this tag, None for a message without one."""
    if not subscription.tags_set or subscription.class_filter_mode:
        return True
    return tag in subscription.tags_set
